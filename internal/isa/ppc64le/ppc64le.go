// Package ppc64le knows the instructions of little-endian 64-bit Power, and those of 32-bit
// PowerPC, as far as a probe needs: where they begin (one with a prefix has 8 bytes), what they do
// to the program counter, and which must not be stopped at. Those of 32 bits are carried out where
// they stand, the others elsewhere, too (displace.go). Encodings are those of the Power ISA 3.1,
// book I, and appendix D of book III ("Opcode Maps").
package ppc64le

import (
	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/classes"
)

// ISA is 64-bit Power, PPC the 32-bit PowerPC.
var (
	ISA isa.ISA = power{classes.Of(arch.PPC64LE, list, long, "")}
	PPC         = classes.Of(arch.PPC, list, nil, "")
)

const prefix = 1 // the primary opcode

// long: a prefix is the first word of two.
func long(w uint32) int {
	if w>>26 == prefix {
		return 8
	}
	return 4
}

const (
	noUser = "it is none of a program's"
	noTry  = "a stop in a transaction ends it, and it would be begun anew for ever"
	always = 0x14 << 21 // in BO: neither the condition nor the counter is asked

	extended = 0x3ff << 1 // the extended opcode, in primary opcodes 19 and 31
	link     = 1          // LK
	trap     = 0x7fe00008 // tw 31, r0, r0
)

// Registers, by their numbers in package arch.
const (
	regPC, regCR, regLR, regCTR = 32, 34, 35, 36
)

// An absolute branch (AA) leads to its field.
func near(w uint32, pc arch.Addr) arch.Addr {
	return from(w, pc) + arch.Addr(classes.Signed(w&^3, 0, 26))
}
func cond(w uint32, pc arch.Addr) arch.Addr {
	return from(w, pc) + arch.Addr(classes.Signed(w&^3, 0, 16))
}

func from(w uint32, pc arch.Addr) arch.Addr {
	if w>>1&1 == 1 {
		return 0
	}
	return pc
}

// addpcis counts from the next instruction, in 64 KiB; the number is in three pieces.
func addpcis(w uint32, pc arch.Addr) arch.Addr {
	d := w>>6&0x3ff<<6 | w>>16&0x1f<<1 | w&1
	return pc + 4 + arch.Addr(classes.Signed(d, 0, 16)<<16)
}

// branch does a branch of any kind on the registers: BO and BI say on which condition.
func branch(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	taken, to := true, near(w, pc)
	if op := w >> 26; op != 18 {
		bo, bi := w>>21&31, w>>16&31
		if bo&4 == 0 { // the counter is counted down, and asked
			r[regCTR]--
			taken = (r[regCTR] != 0) != (bo&2 != 0)
		}
		if bo&16 == 0 {
			taken = taken && uint32(r[regCR])>>(31-bi)&1 == bo>>3&1
		}
		switch xo := w >> 1 & 0x3ff; {
		case op == 16:
			to = cond(w, pc)
		case xo == 16:
			to = arch.Addr(r[regLR] &^ 3)
		case xo == 528:
			to = arch.Addr(r[regCTR] &^ 3)
		}
	}
	if w&link != 0 {
		r[regLR] = uint64(pc) + 4
	}
	r[regPC] = uint64(pc) + 4
	if taken {
		r[regPC] = uint64(to)
	}
	return nil
}

// A branch by LR or CTR that may not be taken counts as an indirect jump: as a return it would end
// calls that go on.
var list = []classes.Class{
	{Mask: 0xffffffff, Value: 0, Flow: isa.Undefined},
	{Mask: 0xfc000001, Value: 18 << 26, Flow: isa.Jump, To: near, Emulate: branch},                 // b, ba
	{Mask: 0xfc000001, Value: 18<<26 | link, Flow: isa.Call, To: near, Emulate: branch},            // bl, bla
	{Mask: 0xfc000001, Value: 16<<26 | link, Flow: isa.Call, To: cond, Emulate: branch},            // bcl
	{Mask: 0xfc000001 | always, Value: 16<<26 | always, Flow: isa.Jump, To: cond, Emulate: branch}, // bc, always
	{Mask: 0xfc000001, Value: 16 << 26, Flow: isa.CondJump, To: cond, Emulate: branch},             // bc

	{Mask: 0xfc000001 | extended | always, Value: 19<<26 | 16<<1 | always, Flow: isa.Return, Emulate: branch}, // blr
	{Mask: 0xfc000001 | extended, Value: 19<<26 | 16<<1, Flow: isa.IndirectJump, Emulate: branch},             // bclr
	{Mask: 0xfc000001 | extended, Value: 19<<26 | 16<<1 | link, Flow: isa.IndirectCall, Emulate: branch},
	{Mask: 0xfc000001 | extended, Value: 19<<26 | 528<<1, Flow: isa.IndirectJump, Emulate: branch}, // bcctr
	{Mask: 0xfc000001 | extended, Value: 19<<26 | 528<<1 | link, Flow: isa.IndirectCall, Emulate: branch},
	{Mask: 0xfc000001 | extended, Value: 19<<26 | 560<<1, Flow: isa.IndirectJump}, // bctar
	{Mask: 0xfc000001 | extended, Value: 19<<26 | 560<<1 | link, Flow: isa.IndirectCall},
	{Mask: 0xfc000000 | extended, Value: 19<<26 | 146<<1, Flow: isa.IndirectJump},               // rfebb
	{Mask: 0xfc000000 | extended, Value: 19<<26 | 18<<1, Flow: isa.Privileged, Refuse: noUser},  // rfid
	{Mask: 0xfc000000 | extended, Value: 19<<26 | 50<<1, Flow: isa.Privileged, Refuse: noUser},  // rfi
	{Mask: 0xfc000000 | extended, Value: 19<<26 | 82<<1, Flow: isa.Privileged, Refuse: noUser},  // rfscv
	{Mask: 0xfc000000 | extended, Value: 19<<26 | 274<<1, Flow: isa.Privileged, Refuse: noUser}, // hrfid
	{Mask: 0xfc000000 | 0x1f<<1, Value: 19<<26 | 2<<1, To: addpcis},                             // addpcis
	{Mask: 0xfc000002, Value: 17<<26 | 2, Flow: isa.Syscall},                                    // sc
	{Mask: 0xfc000003, Value: 17<<26 | 1, Flow: isa.Syscall},                                    // scv
	{Mask: 0xffffffff, Value: trap, Flow: isa.Break},                                            // trap
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 4<<1, Flow: isa.Trap},                         // tw
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 68<<1, Flow: isa.Trap},                        // td
	{Mask: 0xfc000000, Value: 3 << 26, Flow: isa.Trap},                                          // twi
	{Mask: 0xfc000000, Value: 2 << 26, Flow: isa.Trap},                                          // tdi
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 20<<1, Monitor: isa.Opens},                    // lwarx
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 52<<1, Monitor: isa.Opens},                    // lbarx
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 84<<1, Monitor: isa.Opens},                    // ldarx
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 116<<1, Monitor: isa.Opens},                   // lharx
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 276<<1, Monitor: isa.Opens},                   // lqarx
	{Mask: 0xfc000001 | extended, Value: 31<<26 | 150<<1 | 1, Monitor: isa.Closes},              // stwcx.
	{Mask: 0xfc000001 | extended, Value: 31<<26 | 182<<1 | 1, Monitor: isa.Closes},              // stqcx.
	{Mask: 0xfc000001 | extended, Value: 31<<26 | 214<<1 | 1, Monitor: isa.Closes},              // stdcx.
	{Mask: 0xfc000001 | extended, Value: 31<<26 | 694<<1 | 1, Monitor: isa.Closes},              // stbcx.
	{Mask: 0xfc000001 | extended, Value: 31<<26 | 726<<1 | 1, Monitor: isa.Closes},              // sthcx.
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 654<<1, Monitor: isa.Opens, Refuse: noTry},    // tbegin.
	{Mask: 0xfc000000 | extended, Value: 31<<26 | 686<<1, Monitor: isa.Closes, Refuse: noTry},   // tend.
	{Mask: 0xffffffff, Value: 0x60000000, Nop: true},                                            // nop
}
