package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/symbol"
)

// Leads are the places in the kernel's own text that something may lead to which is no relative branch
// there: what its tables say (exception fixups, jump labels), each word of data that is such an
// address, and each 4 bytes of text that are one when extended, as operands of x86 kernels
// are. A few of these are so by chance. data is where jump tables may be.
//
// What is in modules leads to functions, and so do those words that come later.
func (k *Kernel) Leads() (data []symbol.Range, points []arch.Addr, err error) {
	text, ok := k.table.between("_stext", "_etext")
	if !ok {
		return nil, nil, fmt.Errorf("where the kernel's text is: %w", ErrNoData)
	}
	p, err := k.readPatched()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range p.fixups {
		points = append(points, f.Fixup)
	}
	points = append(points, p.targets...)
	for _, names := range [][2]string{{"__start_rodata", "__end_rodata"}, {"_sdata", "_edata"}} {
		r, ok := k.table.between(names[0], names[1])
		if !ok {
			return nil, nil, fmt.Errorf("no %s: %w", names[0], ErrNoData)
		}
		data = append(data, r)
		b := make([]byte, r.End-r.Start)
		if err := k.mem.ReadAt(arch.Addr(r.Start), b); err != nil {
			return nil, nil, err
		}
		for ; len(b) >= 8; b = b[8:] {
			if a := k.arch.Order.Uint64(b); text.Contains(a) {
				points = append(points, arch.Addr(a))
			}
		}
	}
	b := make([]byte, text.End-text.Start)
	if err := k.mem.ReadAt(arch.Addr(text.Start), b); err != nil {
		return nil, nil, err
	}
	low, size := uint32(text.Start), uint32(text.End-text.Start)
	if int64(text.Start) == int64(int32(low)) {
		for i := 0; i+4 <= len(b); i++ {
			if off := binary.LittleEndian.Uint32(b[i:]) - low; off < size {
				points = append(points, arch.Addr(text.Start)+arch.Addr(off))
			}
		}
	}
	slices.Sort(points)
	return data, slices.Compact(points), nil
}
