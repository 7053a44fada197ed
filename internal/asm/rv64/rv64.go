// Package rv64 encodes the instructions of riscv64 that slots, the lifeline and compiled programs
// (program.go) are made of. A register is its number in the words.
package rv64

import "kprobe/arch"

// Break are two bytes of a trap, c.ebreak.
const Break = 0x9002

// Jump is jal without a link, at from; ok is false where it does not lead to the address.
func Jump(from, to arch.Addr) (w uint32, ok bool) {
	w, ok = Distance(int64(to - from))
	return w | Jal, ok
}

// Distance is jal's place for a distance in bytes; ok is false where that is out of its reach.
func Distance(d int64) (w uint32, ok bool) {
	const reach = 1 << 20
	v := uint32(d)
	w = field(v, 1, 10, 21) | field(v, 11, 1, 20) | field(v, 12, 8, 12) | field(v, 20, 1, 31)
	return w, d%2 == 0 && d >= -reach && d < reach
}

// field are n bits of a word from at on, moved to another place.
func field(w uint32, at, n, to int) uint32 { return w >> at & (1<<n - 1) << to }
