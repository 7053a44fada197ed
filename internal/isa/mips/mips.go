// Package mips knows the instructions of MIPS, of 32 and 64 bits, up to release 5, as far as a
// probe needs that is carried out where it stands: what they do to the program counter, which have
// a delay slot, and which must not be stopped at. Encodings are those of MIPS Architecture For
// Programmers, volume II-A, appendix A ("Instruction Bit Encodings"). Release 6 has others in their
// places, and is not served.
package mips

import (
	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/classes"
)

// MIPS64LE and MIPSLE are the two, little-endian.
var (
	MIPS64LE = classes.Of(arch.MIPS64LE, list, nil, compressed)
	MIPSLE   = classes.Of(arch.MIPSLE, list, nil, compressed)
)

const (
	compressed = "it is in MIPS16 or microMIPS code, which is not decoded here"
	noUser     = "it is none of a program's"
)

func near(w uint32, pc arch.Addr) arch.Addr { return pc + 4 + arch.Addr(classes.Signed(w, 0, 16)*4) }

// region is a jump in the 256 MiB that its delay slot is in.
func region(w uint32, pc arch.Addr) arch.Addr { return (pc+4)&^0xfffffff | arch.Addr(w&0x3ffffff)<<2 }

const (
	op      = 0xfc000000
	regimm  = 1 << 26
	cop0    = 0x10 << 26
	cop1    = 0x11 << 26
	second  = op | 31<<16 // op and rt
	special = op | 63     // op and function
)

var list = []classes.Class{
	{Mask: 0xffffffff, Value: 0, Nop: true},
	{Mask: 0xfffff83f, Value: 31<<21 | 8, Flow: isa.Return, Delayed: true}, // jr ra
	{Mask: special, Value: 8, Flow: isa.IndirectJump, Delayed: true},       // jr
	{Mask: special | 31<<11, Value: 9, Flow: isa.IndirectJump, Delayed: true},
	{Mask: special, Value: 9, Flow: isa.IndirectCall, Delayed: true}, // jalr
	{Mask: special, Value: 12, Flow: isa.Syscall},
	{Mask: 0xffffffff, Value: 13, Flow: isa.Break},
	{Mask: special, Value: 13, Flow: isa.Trap},                               // break, of others
	{Mask: op | 0x3c, Value: 0x30, Flow: isa.Trap},                           // tge, tgeu, tlt, tltu
	{Mask: op | 0x3d, Value: 0x34, Flow: isa.Trap},                           // teq, tne
	{Mask: op, Value: 2 << 26, Flow: isa.Jump, To: region, Delayed: true},    // j
	{Mask: op, Value: 3 << 26, Flow: isa.Call, To: region, Delayed: true},    // jal
	{Mask: op, Value: 0x1d << 26, Flow: isa.Call, To: region, Delayed: true}, // jalx

	{Mask: op | 0x1c<<16, Value: regimm, Flow: isa.CondJump, To: near, Delayed: true},         // bltz, bgez, and their likely
	{Mask: second, Value: regimm | 0x1c<<16, Flow: isa.CondJump, To: near, Delayed: true},     // bposge32
	{Mask: op | 0x1c<<16, Value: regimm | 0x10<<16, Flow: isa.Call, To: near, Delayed: true},  // bltzal, bgezal, likely
	{Mask: op | 0x18<<16, Value: regimm | 0x08<<16, Flow: isa.Trap},                           // tgei and on
	{Mask: op | 0x3ff<<16, Value: 4 << 26, Flow: isa.Jump, To: near, Delayed: true},           // b: beq zero, zero
	{Mask: 0xf0000000, Value: 0x10000000, Flow: isa.CondJump, To: near, Delayed: true},        // beq, bne, blez, bgtz
	{Mask: 0xf0000000, Value: 0x50000000, Flow: isa.CondJump, To: near, Delayed: true},        // their likely
	{Mask: op | 31<<21, Value: cop1 | 8<<21, Flow: isa.CondJump, To: near, Delayed: true},     // bc1f, bc1t
	{Mask: op | 31<<21, Value: 0x12<<26 | 8<<21, Flow: isa.CondJump, To: near, Delayed: true}, // bc2f, bc2t
	{Mask: op | 1<<25 | 63, Value: cop0 | 1<<25 | 0x18, Flow: isa.Privileged, Refuse: noUser}, // eret
	{Mask: op | 1<<25 | 63, Value: cop0 | 1<<25 | 0x1f, Flow: isa.Privileged, Refuse: noUser}, // deret
	{Mask: op | 1<<25 | 63, Value: cop0 | 1<<25 | 0x20, Flow: isa.Privileged, Refuse: noUser}, // wait
	{Mask: op, Value: 0x30 << 26, Monitor: isa.Opens},                                         // ll
	{Mask: op, Value: 0x34 << 26, Monitor: isa.Opens},                                         // lld
	{Mask: op, Value: 0x38 << 26, Monitor: isa.Closes},                                        // sc
	{Mask: op, Value: 0x3c << 26, Monitor: isa.Closes},                                        // scd
}
