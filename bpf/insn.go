// Package bpf is the language of handlers that run inside a target: eBPF. It
// reads programs (Load, FromAsm), says how their maps lie in shared memory (Arrange),
// and runs them (VM). Package verify proves that they can do no harm. The
// interpreter defines what is right; internal/jit and internal/inject must agree
// with it to the bit. Nothing here makes a system call or touches a target.
//
// Read insn.go (the instructions), program.go (what a program is and what is
// proved of it), layout.go (maps in memory, in detail package layout) and helper.go
// (what can be called); then map.go, map_hash.go and ring.go (the maps), exec.go and
// vm.go (running); load.go (objects), lower.go, stored.go and made.go (what becomes
// eBPF of other eBPF).
package bpf

import (
	"encoding/binary"
	"fmt"
)

// Insn is one 8-byte slot of eBPF as on the wire (RFC 9669, section 3). The load
// of a 64-bit immediate takes two: the second holds the upper half in Imm and is
// otherwise zero. Jumps and calls count slots.
type Insn struct {
	Op       uint8
	Dst, Src uint8 // R0 to R10
	Off      int16
	Imm      int32
}

// R10 is the frame pointer: the address just above the 512 bytes of stack that
// the function may use. It cannot be written.
const (
	R0 uint8 = iota
	R1
	R2
	R3
	R4
	R5
	R6
	R7
	R8
	R9
	R10
)

// The class: the low three bits of Op.
const (
	ClassLD    = 0x00 // ld_imm64 only
	ClassLDX   = 0x01
	ClassST    = 0x02
	ClassSTX   = 0x03
	ClassALU   = 0x04 // 32 bits; the result is zero-extended
	ClassJMP   = 0x05
	ClassJMP32 = 0x06
	ClassALU64 = 0x07
)

// SrcX in Op of an ALU or a jump: the second operand is the register Src, not Imm.
const SrcX = 0x08

// The operation of an ALU instruction: the high four bits of Op.
const (
	Add  = 0x00
	Sub  = 0x10
	Mul  = 0x20
	Div  = 0x30 // by zero: 0. Off 1: signed
	Or   = 0x40
	And  = 0x50
	Lsh  = 0x60 // shifts take the count modulo the width
	Rsh  = 0x70
	Neg  = 0x80
	Mod  = 0x90 // by zero: the dividend. Off 1: signed
	Xor  = 0xa0
	Mov  = 0xb0 // Off 8, 16, 32 with SrcX: sign-extending
	Arsh = 0xc0
	End  = 0xd0 // ClassALU: to little (0) or big (SrcX) endian, ClassALU64: swap; Imm is 16, 32 or 64
)

// The operation of a jump: the high four bits of Op.
const (
	Ja   = 0x00 // ClassJMP: by Off; ClassJMP32: by Imm
	Jeq  = 0x10
	Jgt  = 0x20
	Jge  = 0x30
	Jset = 0x40
	Jne  = 0x50
	Jsgt = 0x60
	Jsge = 0x70
	Call = 0x80 // see CallHelper
	Exit = 0x90
	Jlt  = 0xa0
	Jle  = 0xb0
	Jslt = 0xc0
	Jsle = 0xd0

	// MayGoto, of ClassJMP, jumps when the program has gone through such instructions MaxRounds
	// times: a loop with one of them ends, whatever else decides.
	MayGoto = 0xe0
)

// MaxRounds is the number of times that MayGoto does not jump in a run: the kernel's number for one
// loop.
const MaxRounds = 8 << 20

// The kinds of callee, in Src of a Call.
const (
	CallHelper = 0 // the helper of number Imm
	CallLocal  = 1 // the function that starts at the next slot plus Imm
	CallKernel = 2 // a function of the kernel: see lower.go
)

// The width of a memory access: bits 3 and 4 of Op.
const (
	SizeW  = 0x00 // 4 bytes
	SizeH  = 0x08 // 2
	SizeB  = 0x10 // 1
	SizeDW = 0x18 // 8
)

// The mode of a memory access: the high three bits of Op.
const (
	ModeImm    = 0x00 // with ClassLD, SizeDW: ld_imm64
	ModeMem    = 0x60
	ModeMemSX  = 0x80 // a load that sign-extends
	ModeAtomic = 0xc0 // ClassSTX, SizeW or SizeDW: the operation is in Imm
)

// OpLoadImm64 takes two slots.
const OpLoadImm64 = ClassLD | SizeDW | ModeImm

// The meaning of an OpLoadImm64's immediate, in Src.
const (
	LoadImm      = 0
	LoadMap      = 1 // the map of index Imm in Program.Maps: the address of its header
	LoadMapValue = 2 // in the first value of map Imm, at the byte offset in the second slot's Imm
	LoadFunc     = 4 // a function of the program: see lower.go
)

// Atomic operations, in Imm. The old value goes to Src with AtomicFetch; Cmpxchg
// compares with R0 and always leaves the old value there.
const (
	AtomicFetch   = 0x01
	AtomicAdd     = Add
	AtomicOr      = Or
	AtomicAnd     = And
	AtomicXor     = Xor
	AtomicXchg    = 0xe0 | AtomicFetch
	AtomicCmpxchg = 0xf0 | AtomicFetch
)

// Class is one of the Class constants.
func (i Insn) Class() uint8 { return i.Op & 0x07 }

// Alu is the operation of an ALU instruction, one of Add to End.
func (i Insn) Alu() uint8 { return i.Op & 0xf0 }

// Jump is the operation of a jump, one of Ja to Jsle.
func (i Insn) Jump() uint8 { return i.Op & 0xf0 }

// Mode is the mode of a memory access.
func (i Insn) Mode() uint8 { return i.Op & 0xe0 }

// X tells whether the second operand of an ALU or jump is the register Src.
func (i Insn) X() bool { return i.Op&SrcX != 0 }

// Size is the width of a memory access in bytes.
func (i Insn) Size() int {
	switch i.Op & 0x18 {
	case SizeB:
		return 1
	case SizeH:
		return 2
	case SizeW:
		return 4
	}
	return 8
}

// Wide tells whether the instruction takes two slots.
func (i Insn) Wide() bool { return i.Op == OpLoadImm64 }

// IsCall tells whether the instruction is a call of the kind, CallHelper or
// CallLocal.
func (i Insn) IsCall(kind uint8) bool { return i.Op == ClassJMP|Call && i.Src == kind }

// IsExit tells whether the instruction returns.
func (i Insn) IsExit() bool { return i.Op == ClassJMP|Exit }

// Conditional tells whether the instruction is a jump that compares.
func (i Insn) Conditional() bool {
	_, ok := jumpSign[i.Jump()]
	return ok && (i.Class() == ClassJMP || i.Class() == ClassJMP32)
}

// Atomic tells whether Imm is an atomic operation that there is.
func (i Insn) Atomic() bool {
	op := i.Imm &^ AtomicFetch
	return atomicName[op] != "" && (op < 0xe0 || i.Imm&AtomicFetch != 0)
}

// Target is the slot that a jump or a local call at slot pc may go to; ok is false
// for everything else.
func (i Insn) Target(pc int) (slot int, ok bool) {
	switch c := i.Class(); {
	case c != ClassJMP && c != ClassJMP32, i.IsExit():
		return 0, false
	case c == ClassJMP && i.Jump() == Call:
		return pc + 1 + int(i.Imm), i.Src == CallLocal
	case c == ClassJMP32 && i.Jump() == Ja:
		return pc + 1 + int(i.Imm), true
	}
	return pc + 1 + int(i.Off), true
}

// Imm64 is the immediate of an OpLoadImm64 whose second slot is hi.
func Imm64(lo, hi Insn) uint64 { return uint64(uint32(lo.Imm)) | uint64(uint32(hi.Imm))<<32 }

// Unmarshal reads a program in little-endian byte order, 8 bytes a slot. It says
// nothing of its sense: that is package verify's.
func Unmarshal(b []byte) ([]Insn, error) {
	if len(b)%8 != 0 {
		return nil, fmt.Errorf("bpf: program of %d bytes: not a multiple of 8", len(b))
	}
	insns := make([]Insn, len(b)/8)
	for i := range insns {
		w := b[8*i:]
		insns[i] = Insn{
			Op:  w[0],
			Dst: w[1] & 0x0f,
			Src: w[1] >> 4,
			Off: int16(binary.LittleEndian.Uint16(w[2:])),
			Imm: int32(binary.LittleEndian.Uint32(w[4:])),
		}
	}
	return insns, nil
}

// Marshal is the way back from Unmarshal.
func Marshal(insns []Insn) []byte {
	b := make([]byte, 0, 8*len(insns))
	for _, i := range insns {
		b = append(b, i.Op, i.Dst&0x0f|i.Src<<4)
		b = binary.LittleEndian.AppendUint16(b, uint16(i.Off))
		b = binary.LittleEndian.AppendUint32(b, uint32(i.Imm))
	}
	return b
}
