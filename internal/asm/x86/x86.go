// Package x86 encodes instructions of x86-64 and i386, one at a time: what slots, detours, compiled
// programs and the lifeline are made of. The choice of instructions, labels, and what is known
// about registers and flags are the callers'.
//
// Every function appends one instruction, and answers the longer slice. A size is in bytes: 1, 2, 4 or 8;
// 8 is for 64-bit code only. Without a word to the contrary the same bytes are right for both widths.
package x86

import (
	"encoding/binary"

	"kprobe/arch"
)

// Reg is a general register by the machine's number, as ModRM, SIB and the opcodes hold it.
type Reg uint8

// The registers by their names in 64-bit code. NoReg is none: an operand's that is memory, and the base and
// the index of one without.
const (
	RAX Reg = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	NoReg Reg = 0xff
)

// names are the registers' numbers in package arch, which are in GDB's order.
var names = [16]arch.Reg{
	arch.AX, arch.CX, arch.DX, arch.BX, arch.SP, arch.BP, arch.SI, arch.DI,
	arch.R8, arch.R9, arch.R10, arch.R11, arch.R12, arch.R13, arch.R14, arch.R15,
}

var numbers = func() (n [16]Reg) {
	for i, r := range names {
		n[r] = Reg(i)
	}
	return n
}()

// Of is a general register of package arch as instructions hold it.
func Of(r arch.Reg) Reg { return numbers[r] }

// Arch is the register as package arch has it.
func (r Reg) Arch() arch.Reg { return names[r] }

// Operand is what ModRM's rm field can name: a register, or the memory at
// Base + Index<<Shift + Disp.
type Operand struct {
	Reg         Reg // NoReg for memory
	Base, Index Reg // NoReg for none
	Shift       uint8
	Disp        int32
}

// In is a register as an operand.
func In(r Reg) Operand { return Operand{Reg: r} }

// At is the memory at base + disp.
func At(base Reg, disp int32) Operand {
	return Operand{Reg: NoReg, Base: base, Index: NoReg, Disp: disp}
}

// Indexed is the memory at base + index<<shift + disp. The index is not RSP.
func Indexed(base, index Reg, shift uint8, disp int32) Operand {
	return Operand{Reg: NoReg, Base: base, Index: index, Shift: shift, Disp: disp}
}

// Absolute is the memory at an address of 31 bits, or so far from a segment's base.
func Absolute(disp int32) Operand { return At(NoReg, disp) }

// Opcode is one byte, or two where the first is 0x0f. Those that are for several sizes are
// for bytes too, with the opcode less one.
type Opcode uint16

// Opcodes by what they do with a register and rm. What the reg field says instead is noted.
const (
	OpMovsxd    Opcode = 0x63
	OpImulImm   Opcode = 0x69
	OpImulImm8  Opcode = 0x6b
	OpALUImm    Opcode = 0x81 // reg field: an ALU
	OpALUImm8   Opcode = 0x83 // the same, with a byte that is sign-extended
	OpTest      Opcode = 0x85
	OpXchg      Opcode = 0x87
	OpStore     Opcode = 0x89
	OpLoad      Opcode = 0x8b
	OpLea       Opcode = 0x8d
	OpPop       Opcode = 0x8f   // reg field: 0
	OpShiftImm  Opcode = 0xc1   // reg field: a Shift
	OpStoreImm  Opcode = 0xc7   // reg field: 0
	OpShift1    Opcode = 0xd1   // reg field: a Shift
	OpShiftCL   Opcode = 0xd3   // reg field: a Shift
	OpUnary     Opcode = 0xf7   // reg field: a Unary
	OpInc       Opcode = 0xff   // reg field: 0
	OpPush      Opcode = 0xff   // reg field: 6
	OpMovhps    Opcode = 0x0f17 // the upper half of a vector register to memory
	OpMovqXMM   Opcode = 0x0f7e // behind 0x66, of 8 bytes: the lower half to rm
	OpShldImm   Opcode = 0x0fa4
	OpShldCL    Opcode = 0x0fa5
	OpShrdImm   Opcode = 0x0fac
	OpShrdCL    Opcode = 0x0fad
	OpImul      Opcode = 0x0faf
	OpCmpxchg   Opcode = 0x0fb1
	OpFSBase    Opcode = 0x0fae // behind 0xf3; reg field: 0 to read it
	OpMovzx8    Opcode = 0x0fb6
	OpMovzx16   Opcode = 0x0fb7
	OpMovsx8    Opcode = 0x0fbe
	OpMovsx16   Opcode = 0x0fbf
	OpBitImm    Opcode = 0x0fba // reg field: 5 to set the bit
	OpXadd      Opcode = 0x0fc1
	OpCmpxchg8b Opcode = 0x0fc7 // reg field: 1
)

// Bytes that are an instruction, or the beginning of one, by themselves.
const (
	PrefixCS   = 0x2e // means nothing in front of a jump
	PrefixFS   = 0x64
	PrefixGS   = 0x65
	Prefix16   = 0x66 // operands of 2 bytes
	PrefixLock = 0xf0

	ByteCall = 0xe8
	ByteJmp  = 0xe9
	ByteRet  = 0xc3
	ByteInt3 = 0xcc

	BytePushf = 0x9c
	BytePopf  = 0x9d
	ByteSahf  = 0x9e
	ByteLahf  = 0x9f
	ByteCli   = 0xfa
)

// ALU is the number of an arithmetic operation: the reg field beside an
// immediate, and bits 3 to 5 of the opcode between registers.
type ALU uint8

// The operations. Cmp is Sub that changes flags only.
const (
	Add ALU = 0
	Or  ALU = 1
	Adc ALU = 2
	Sbb ALU = 3
	And ALU = 4
	Sub ALU = 5
	Xor ALU = 6
	Cmp ALU = 7
)

// ToRM is the operation's opcode for rm op= reg.
func (o ALU) ToRM() Opcode { return Opcode(o)<<3 | 1 }

// ToReg is the operation's opcode for reg op= rm.
func (o ALU) ToReg() Opcode { return Opcode(o)<<3 | 3 }

// Shift is a shift or a rotation, as the reg field holds it.
type Shift uint8

// The shifts. Rcl rotates through the carry.
const (
	Ror Shift = 1
	Rcl Shift = 2
	Shl Shift = 4
	Shr Shift = 5
	Sar Shift = 7
)

// Unary is an operation of OpUnary, as the reg field holds it.
type Unary uint8

// The operations of OpUnary. Mul, Div and IDiv are of RAX, and RDX.
const (
	TestImm Unary = 0 // an immediate follows
	Not     Unary = 2
	Neg     Unary = 3
	Mul     Unary = 4
	Div     Unary = 6
	IDiv    Unary = 7
)

// Cond is a condition as the low four bits of every jcc hold it; its lowest
// bit negates it.
type Cond uint8

// The conditions by their names in the manuals.
const (
	CondB  Cond = 2
	CondAE Cond = 3
	CondE  Cond = 4
	CondNE Cond = 5
	CondBE Cond = 6
	CondA  Cond = 7
	CondS  Cond = 8
	CondNS Cond = 9
	CondL  Cond = 12
	CondGE Cond = 13
	CondLE Cond = 14
	CondG  Cond = 15
)

// Fits8 tells whether a byte, sign-extended, says v.
func Fits8(v int32) bool { return v == int32(int8(v)) }

// Append encodes an instruction with a ModRM byte. reg is a register or the
// opcode's extension. The immediate, if it has one, is the caller's to append.
func Append(dst []byte, size int, op Opcode, reg Reg, rm Operand) []byte {
	if size == 2 {
		dst = append(dst, Prefix16)
	}
	var rex byte
	if size == 8 {
		rex |= 8
	}
	rex |= byte(reg>>3)<<2 | rm.high()
	// Without any REX prefix, bytes 4 to 7 are ah, ch, dh and bh.
	narrow := size == 1 && reg >= RSP && op != OpALUImm || (size == 1 || op == OpMovzx8 || op == OpMovsx8) && rm.Reg != NoReg && rm.Reg >= RSP
	if rex != 0 || narrow {
		dst = append(dst, 0x40|rex)
	}
	if size == 1 {
		op--
	}
	if op > 0xff {
		dst = append(dst, 0x0f)
	}
	dst = append(dst, byte(op))
	return appendModRM(dst, byte(reg&7)<<3, rm)
}

// high is the operand's part of the REX prefix: the bits X and B.
func (o Operand) high() byte {
	if o.Reg != NoReg {
		return byte(o.Reg >> 3)
	}
	var high byte
	if o.Base != NoReg {
		high = byte(o.Base >> 3)
	}
	if o.Index != NoReg {
		high |= byte(o.Index>>3) << 1
	}
	return high
}

func appendModRM(dst []byte, reg byte, o Operand) []byte {
	switch {
	case o.Reg != NoReg:
		return append(dst, 0xc0|reg|byte(o.Reg&7))
	case o.Base == NoReg: // a SIB byte without base and index
		return AppendImm(append(dst, reg|4, 0x25), 4, o.Disp)
	}
	mod := byte(0x80)
	switch {
	case o.Disp == 0 && o.Base&7 != RBP: // mod 0 with rbp or r13 is something else
		mod = 0
	case Fits8(o.Disp):
		mod = 0x40
	}
	switch {
	case o.Index != NoReg:
		dst = append(dst, mod|reg|4, o.Shift<<6|byte(o.Index&7)<<3|byte(o.Base&7))
	case o.Base&7 == RSP: // rm 4 is a SIB byte's place; index 4 in it is none
		dst = append(dst, mod|reg|4, 0x24)
	default:
		dst = append(dst, mod|reg|byte(o.Base&7))
	}
	switch mod {
	case 0x40:
		dst = append(dst, byte(o.Disp))
	case 0x80:
		dst = AppendImm(dst, 4, o.Disp)
	}
	return dst
}

// AppendNear encodes op with a register and memory: in 64-bit code by disp from the instruction's end, an
// immediate included; in 32-bit code at the address disp.
func AppendNear(dst []byte, size int, op Opcode, reg Reg, disp int32) []byte {
	dst = Append(dst, size, op, reg, At(RAX, 0))
	dst[len(dst)-1] |= 5
	return AppendImm(dst, 4, disp)
}

// AppendImm appends an immediate for an operation of a size: at most 4 bytes.
func AppendImm(dst []byte, size int, v int32) []byte {
	switch size {
	case 1:
		return append(dst, byte(v))
	case 2:
		return append(dst, byte(v), byte(v>>8))
	}
	return binary.LittleEndian.AppendUint32(dst, uint32(v))
}

// AppendALUImm encodes rm op= v, v sign-extended, by the shortest instruction.
func AppendALUImm(dst []byte, size int, op ALU, rm Operand, v int32) []byte {
	switch {
	case size == 1:
		return AppendImm(Append(dst, size, OpALUImm, Reg(op), rm), size, v)
	case Fits8(v):
		return AppendImm(Append(dst, size, OpALUImm8, Reg(op), rm), 1, v)
	case rm.Reg == RAX: // shorter by a byte
		return AppendImm(appendOfAX(dst, size, byte(op)<<3|5), size, v)
	}
	return AppendImm(Append(dst, size, OpALUImm, Reg(op), rm), size, v)
}

// AppendTestImm encodes the flags of r & v, v sign-extended, by the shortest instruction of the size.
func AppendTestImm(dst []byte, size int, r Reg, v int32) []byte {
	if r != RAX {
		dst = Append(dst, size, OpUnary, Reg(TestImm), In(r))
	} else if size == 1 {
		dst = append(dst, 0xa8)
	} else {
		dst = appendOfAX(dst, size, 0xa9)
	}
	return AppendImm(dst, size, v)
}

// appendOfAX appends an opcode that is of rax, eax or ax without saying so.
func appendOfAX(dst []byte, size int, op byte) []byte {
	switch size {
	case 2:
		dst = append(dst, Prefix16)
	case 8:
		dst = append(dst, 0x48)
	}
	return append(dst, op)
}

// appendShort appends opcode bytes of which the last holds the register in its low bits.
func appendShort(dst []byte, size int, r Reg, op ...byte) []byte {
	if size == 2 {
		dst = append(dst, Prefix16)
	}
	rex := byte(r >> 3)
	if size == 8 {
		rex |= 8
	}
	if rex != 0 {
		dst = append(dst, 0x40|rex)
	}
	dst = append(dst, op...)
	dst[len(dst)-1] |= byte(r & 7)
	return dst
}

// AppendConst encodes r = v with an immediate of the size, of 2, 4 or 8 bytes. No flag changes.
func AppendConst(dst []byte, size int, r Reg, v uint64) []byte {
	dst = appendShort(dst, size, r, 0xb8)
	if size == 8 {
		return binary.LittleEndian.AppendUint64(dst, v)
	}
	return AppendImm(dst, size, int32(v))
}

// AppendBswap encodes the reversal of 4 or 8 bytes; 4 clear the upper half.
func AppendBswap(dst []byte, size int, r Reg) []byte { return appendShort(dst, size, r, 0x0f, 0xc8) }

// AppendPush encodes the push of a whole register.
func AppendPush(dst []byte, r Reg) []byte { return appendShort(dst, 4, r, 0x50) }

// AppendPop encodes the pop of a whole register.
func AppendPop(dst []byte, r Reg) []byte { return appendShort(dst, 4, r, 0x58) }

// AppendPushImm encodes the push of v, which 64-bit mode sign-extends.
func AppendPushImm(dst []byte, v uint32) []byte { return AppendImm(append(dst, 0x68), 4, int32(v)) }

// AppendSignExtendA encodes cdq or, of 8 bytes, cqo: rdx is all of rax's sign.
func AppendSignExtendA(dst []byte, size int) []byte { return appendOfAX(dst, size, 0x99) }

// Lengths in bytes of the jumps, for those who must know before they encode.
const (
	JmpLen    = 5
	Jmp8Len   = 2
	JccLen    = 6
	CallLen   = 5
	JmpFarLen = 14

	PushImmLen = 5
)

// Rel is the displacement that leads from end, where an instruction ends, to an address. ok tells
// whether it fits; in 32-bit code everything is within reach, because EIP wraps.
func Rel(end, to arch.Addr) (rel int32, ok bool) {
	d := int64(to - end)
	return int32(d), d == int64(int32(d))
}

// AppendJmp encodes the jump by rel from its end.
func AppendJmp(dst []byte, rel int32) []byte { return AppendImm(append(dst, ByteJmp), 4, rel) }

// AppendJmp8 encodes the short jump by rel from its end.
func AppendJmp8(dst []byte, rel int8) []byte { return append(dst, 0xeb, byte(rel)) }

// AppendCall encodes the call of what is by rel from its end.
func AppendCall(dst []byte, rel int32) []byte { return AppendImm(append(dst, ByteCall), 4, rel) }

// AppendJcc encodes the near jump on a condition.
func AppendJcc(dst []byte, cc Cond, rel int32) []byte {
	return AppendImm(append(dst, 0x0f, 0x80|byte(cc)), 4, rel)
}

// AppendJcc8 encodes the short jump on a condition.
func AppendJcc8(dst []byte, cc Cond, rel int8) []byte { return append(dst, 0x70|byte(cc), byte(rel)) }

// AppendJmpFar encodes jmp [rip+0] with its address behind it: it reaches
// everything, needs no register, and costs 8 bytes of data in the code. Under
// indirect branch tracking its target would have to be an endbr64, and with
// alignment checks on (FLAGS.AC) its address would have to be aligned. It is for 64-bit code.
func AppendJmpFar(dst []byte, to arch.Addr) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, 0xff, 0x25, 0, 0, 0, 0), uint64(to))
}
