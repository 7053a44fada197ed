package rv64

import (
	"math/bits"

	"kprobe/arch"
)

// What compiled programs are made of. An operation is an instruction whose registers and constant are 0.

// Operations on registers (R), with a constant of 12 bits (Imm), and of memory.
const (
	Add  = 0x33
	Sub  = 0x40000033
	Sll  = 0x1033
	Sltu = 0x3033
	Xor  = 0x4033
	Srl  = 0x5033
	Sra  = 0x40005033
	Or   = 0x6033
	And  = 0x7033
	Mul  = 0x02000033
	Div  = 0x02004033
	Divu = 0x02005033
	Rem  = 0x02006033
	Remu = 0x02007033

	Addi = 0x13
	Slli = 0x1013
	Xori = 0x4013
	Srli = 0x5013
	Srai = 0x40005013
	Ori  = 0x6013
	Andi = 0x7013

	Load  = 0x03 // at bit 12: the size's logarithm, and 4 for one that fills up with zeros
	Store = 0x23
	Amo   = 0x2f // at bit 12 the size's logarithm, at bit 27 what is done

	Lui    = 0x37
	Auipc  = 0x17
	Jal    = 0x6f
	Jalr   = 0x67
	Branch = 0x63 // at bit 12 its condition, whose lowest bit negates

	Fence   = 0x0330000f // all accesses before, all behind
	Release = 0x0310000f // all before, stores behind
	Ret     = Jalr | 1<<15

	Word = 1 << 3 // makes an operation one of 32 bits, whose result is sign-extended
)

// What an Amo does, and the order that it keeps.
const (
	AmoAdd  = 0 << 27
	AmoSwap = 1 << 27
	LR      = 2 << 27
	SC      = 3 << 27
	AmoXor  = 4 << 27
	AmoOr   = 8 << 27
	AmoAnd  = 12 << 27

	Acquire  = 1 << 26
	Releases = 1 << 25
)

// R is rd = rs1 op rs2.
func R(op, rd, rs1, rs2 uint32) uint32 { return op | rd<<7 | rs1<<15 | rs2<<20 }

// Imm is rd = rs1 op v, or a load from rs1+v.
func Imm(op, rd, rs1 uint32, v int32) uint32 { return op | rd<<7 | rs1<<15 | uint32(v)<<20 }

// Short tells whether a constant fits into Imm and Stores.
func Short(v int64) bool { return v == v<<52>>52 }

// Stores puts rs2 to rs1+v.
func Stores(op, rs2, rs1 uint32, v int32) uint32 {
	return op | rs1<<15 | rs2<<20 | field(uint32(v), 0, 5, 7) | field(uint32(v), 5, 7, 25)
}

// Condition is a branch's place for a distance in bytes; ok is false where that is out of its reach.
func Condition(d int64) (w uint32, ok bool) {
	const reach = 1 << 12
	v := uint32(d)
	w = field(v, 11, 1, 7) | field(v, 1, 4, 8) | field(v, 5, 6, 25) | field(v, 12, 1, 31)
	return w, d%2 == 0 && d >= -reach && d < reach
}

// Pair splits a distance for auipc and an instruction with 12 bits behind it; ok is false where it is out of their reach.
func Pair(d int64) (high uint32, low int32, ok bool) {
	low = int32(d<<52>>52) & 0xfff
	high = uint32(d+1<<11) &^ 0xfff
	return high, low, d >= -1<<31-1<<11 && d < 1<<31-1<<11
}

// Call links by ra, in two words.
func Call(from, to arch.Addr) (words [2]uint32, ok bool) {
	const ra = 1
	high, low, ok := Pair(int64(to - from))
	return [2]uint32{Auipc | ra<<7 | high, Imm(Jalr, ra, ra, low)}, ok
}

// Constant puts a value into a register.
func Constant(rd uint32, v uint64) []uint32 {
	low := int64(v) << 52 >> 52
	rest := v - uint64(low)
	switch {
	case rest == 0:
		return []uint32{Imm(Addi, rd, 0, int32(low))}
	case int64(v) == int64(int32(v)):
		words := []uint32{Lui | rd<<7 | uint32(rest)}
		if low != 0 {
			words = append(words, Imm(Addi|Word, rd, rd, int32(low)))
		}
		return words
	}
	shift := bits.TrailingZeros64(rest)
	words := append(Constant(rd, uint64(int64(rest)>>shift)), Imm(Slli, rd, rd, int32(shift)))
	if low != 0 {
		words = append(words, Imm(Addi, rd, rd, int32(low)))
	}
	return words
}
