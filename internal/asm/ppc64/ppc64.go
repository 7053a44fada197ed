// Package ppc64 encodes the instructions of 64-bit Power that slots and the lifeline are made of. A register is
// its number in the words.
package ppc64

import "kprobe/arch"

// Words that are whole instructions.
const (
	Trap = 0x7fe00008 // tw 31, r0, r0
	Nop  = 0x60000000 // ori r0, r0, 0
	BCTR = 0x4e800420
)

// branchReach is how far b leads, either way, in bytes.
const branchReach = 1 << 25

// Branch is b at from; ok is false where it does not lead to the address.
func Branch(from, to arch.Addr) (w uint32, ok bool) {
	const b = 18 << 26
	d := int64(to - from)
	return b | uint32(d)&(branchReach*2-4), d%4 == 0 && d >= -branchReach && d < branchReach
}

// Load has a register hold a number, by itself: it uses no other.
func Load(rd uint32, v uint64) []uint32 {
	const addis, ori, oris, rldicr32 = 15 << 26, 24 << 26, 25 << 26, 30<<26 | 31<<6 | 1<<2 | 1<<1
	same := rd<<21 | rd<<16
	half := func(at int) uint32 { return uint32(v >> at & 0xffff) }
	return []uint32{
		addis | rd<<21 | half(48), // lis
		ori | same | half(32),
		rldicr32 | same, // sldi rd, rd, 32: to the left, and zeros behind
		oris | same | half(16),
		ori | same | half(0),
	}
}

// MoveToCTR is mtctr.
func MoveToCTR(rs uint32) uint32 { return 0x7c0903a6 | rs<<21 }
