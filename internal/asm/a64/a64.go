// Package a64 encodes instructions of arm64: what slots, detours, compiled programs and the
// lifeline are made of. An instruction is a word; labels, and what is known about registers, are the
// callers'. A register is its number in the words; 31 is the stack pointer, or zero.
package a64

import "kprobe/arch"

// Words that are whole instructions, and those whose fields the callers fill in.
const (
	NOP    = 0xd503201f
	Ret    = 0xd65f03c0 // by the link register
	B      = 0x14000000 // to where 26 bits of words lead
	BL     = 0x94000000
	BR     = 0xd61f0000 // to the register at bit 5
	BCond  = 0x54000000 // on the condition in the low 4 bits, to where 19 bits of words at bit 5 lead
	CBZ    = 0x34000000 // of 32 bits; of 64 with Wide
	CBNZ   = 0x35000000
	ADR    = 0x10000000 // the address by 21 bits, two of them at bit 29
	ADRP   = 0x90000000 // the same in pages
	AddImm = 0x91000000 // rd = rn + 12 bits at bit 10; of sp, too
	SubImm = 0xd1000000
	LDR    = 0xf9400000 // 8 bytes, from 12 bits of their size at bit 10
	STR    = 0xf9000000
	Wide   = 1 << 31 // makes an operation on registers one of 64 bits
)

// Length is that of an instruction, in bytes.
const Length = 4

// BranchReach is how far B and BL lead, either way, in bytes.
const BranchReach = 1 << 27

const pageSize = 4096 // what adrp counts in, whatever the target's pages are

// Branch is op, B or BL, at from; ok is false where it does not lead to the address.
func Branch(op uint32, from, to arch.Addr) (w uint32, ok bool) {
	d := int64(to - from)
	return op | uint32(d/Length)&(1<<26-1), d%Length == 0 && d >= -BranchReach && d < BranchReach
}

// Literal is a load's field of 19 bits; ok is false where it does not lead there.
func Literal(from, to arch.Addr) (field uint32, ok bool) {
	d := int64(to - from)
	return uint32(d/Length) & (1<<19 - 1) << 5, d%Length == 0 && d >= -1<<20 && d < 1<<20
}

// Near is the field of adr, and of adrp: 21 bits in two places.
func Near(d int64) (field uint32) { return uint32(d)&3<<29 | uint32(d>>2)&(1<<19-1)<<5 }

// Page puts the page of an address into a register (adrp); ok is false where that is out of reach.
func Page(rd uint32, from, to arch.Addr) (w uint32, ok bool) {
	pages := int64(to&^(pageSize-1)-from&^(pageSize-1)) / pageSize
	return ADRP | Near(pages) | rd, pages >= -1<<20 && pages < 1<<20
}

// AddLow adds the place in its page to a page's address.
func AddLow(rd uint32, to arch.Addr) uint32 {
	return AddImm | uint32(to&(pageSize-1))<<10 | rd<<5 | rd
}

// Constant puts a value into a register: the halfwords that are not 0, or not all ones.
func Constant(rd uint32, v uint64) []uint32 {
	zeros, ones := 0, 0
	for i := range 4 {
		switch uint16(v >> (16 * i)) {
		case 0:
			zeros++
		case 0xffff:
			ones++
		}
	}
	first, fill := uint32(0xd2800000), uint16(0) // movz
	if ones > zeros {
		first, fill = 0x92800000, 0xffff // movn
	}
	var words []uint32
	for i := range uint32(4) {
		switch h := uint16(v >> (16 * i)); {
		case h == fill && (i < 3 || len(words) > 0):
		case len(words) == 0:
			words = append(words, first|i<<21|uint32(h^fill)<<5|rd)
		default:
			words = append(words, 0xf2800000|i<<21|uint32(h)<<5|rd) // movk
		}
	}
	return words
}
