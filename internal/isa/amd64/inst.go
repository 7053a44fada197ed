// Package amd64 is the x86-64 instruction set (and, with Mode 32, i386):
// decoding in decode.go with the tables of tables.go, running an instruction
// somewhere else in relocate.go, doing its work on saved registers in
// emulate.go, making instructions in assemble.go.
//
// It knows bytes and addresses only: no operating system, no target.
package amd64

import "kprobe/internal/isa"

// Map is the opcode map an instruction is taken from.
type Map uint8

const (
	MapOneByte Map = iota // one opcode byte
	Map0F                 // 0F xx
	Map0F38               // 0F 38 xx
	Map0F3A               // 0F 3A xx
	Map3DNow              // 0F 0F modrm ... xx: the opcode is the last byte
	MapXOP8               // XOP maps 8, 9, 10
	MapXOP9
	MapXOPA
	MapEVEX5 // EVEX maps 5 and 6 (AVX512-FP16)
	MapEVEX6
	MapEVEX4 // EVEX map 4 and REX2 (APX)
	MapEVEX7
)

// Enc is the sort of prefix that an opcode has.
type Enc uint8

const (
	Legacy Enc = iota
	VEX
	EVEX
	XOP
	REX2
)

// Prefix bits of Inst.Prefix.
const (
	PrefixOpSize   = 1 << iota // 66
	PrefixAddrSize             // 67
	PrefixLock                 // F0
	PrefixRepne                // F2
	PrefixRep                  // F3
	PrefixCS
	PrefixSS
	PrefixDS
	PrefixES
	PrefixFS
	PrefixGS
)

// Inst is one decoded instruction: where its parts are, and what of it
// depends on its own address. No text; see Name.
type Inst struct {
	Len    uint8 // whole instruction, 1 to 15 bytes
	Enc    Enc
	Map    Map
	Opcode byte   // in Map
	Prefix uint16 // legacy prefixes seen (PrefixOpSize ...)
	Rex    byte   // REX byte (0x40-0x4f) or, for VEX, EVEX, XOP and REX2, its R X B W bits put in REX form; 0 if none
	VLen   uint8  // VEX/EVEX vector length field: 0 = 128, 1 = 256, 2 = 512
	PP     uint8  // implied (VEX/EVEX/XOP) or mandatory (legacy 0F maps) prefix: 0 none, 1 66, 2 F3, 3 F2
	Vvvv   uint8  // VEX/EVEX/XOP extra register operand, already inverted back
	EVEX   byte   // EVEX last prefix byte: z L'L b V' aaa (mask register); 0 for others

	OpOff    uint8 // offset of the opcode byte (after all prefixes and escapes)
	HasModRM bool
	ModRM    byte
	ModRMOff uint8
	HasSIB   bool
	SIB      byte
	DispOff  uint8 // offset and size of the displacement; size 0 if there is none
	DispSize uint8
	ImmOff   uint8 // offset and total size of the immediates (relative branch targets too)
	ImmSize  uint8

	// PCRel tells that something is relative to the end of the instruction:
	// the RIP-relative displacement or the branch's immediate. PCRelOff and
	// PCRelSize locate the field; Rel is its signed value.
	PCRel     bool
	PCRelOff  uint8
	PCRelSize uint8
	Rel       int64

	OpSize   uint8 // effective operand size of general instructions in bytes: 2, 4 or 8
	AddrSize uint8 // effective address size in bytes: 2, 4 or 8

	Flow isa.Flow
}
