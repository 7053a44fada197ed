package arm64

import (
	"encoding/binary"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Instructions that are made, not moved.

// branchReach is how far b leads, either way.
const branchReach = 1 << 27

// Jump assembles b. Errors: isa.ErrRange beyond 128 MiB.
func (machine) Jump(from, to arch.Addr) ([]byte, error) {
	w, ok := b(from, to)
	if !ok {
		return nil, fmt.Errorf("jump from %v to %v: %w", from, to, isa.ErrRange)
	}
	return binary.LittleEndian.AppendUint32(nil, w), nil
}

// b is a branch; false where it does not lead there.
func b(from, to arch.Addr) (uint32, bool) {
	d := int64(to - from)
	return 0x14000000 | uint32(d/length)&(1<<26-1), d%length == 0 && d >= -branchReach && d < branchReach
}

// literal is a load's field of 19 bits; false where it does not lead there.
func literal(from, to arch.Addr) (uint32, bool) {
	d := int64(to - from)
	return uint32(d/length) & (1<<19 - 1) << 5, d%length == 0 && d >= -1<<20 && d < 1<<20
}

// adrp puts the page of an address into a register; false where that is out of reach.
func adrp(rd uint32, from, to arch.Addr) (uint32, bool) {
	pages := int64(to&^(pageSize-1)-from&^(pageSize-1)) / pageSize
	return 0x90000000 | uint32(pages)&3<<29 | uint32(pages>>2)&(1<<19-1)<<5 | rd, pages >= -1<<20 && pages < 1<<20
}

// addLow adds the place in its page to a page's address.
func addLow(rd uint32, to arch.Addr) uint32 {
	return 0x91000000 | uint32(to&(pageSize-1))<<10 | rd<<5 | rd
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
