package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/arch"
)

// Leads are the places in the kernel's own text, or a module's, whichever an address is in, that
// something may lead to other than a relative branch there. These are the addresses in its tables
// (exception fixups, jump labels), each word of data that is such an address, and each 4 bytes of
// text that are one when extended, as operands of x86 kernels are. A few of these are so by chance.
// data has the ranges where jump tables may be. Words elsewhere, in modules or in the kernel, lead
// to functions, and so do words that come later.
func (k *Kernel) Leads(into arch.Addr) (data []arch.Range, points []arch.Addr, err error) {
	text, data, places, err := k.pieces(into)
	if err != nil {
		return nil, nil, err
	}
	p, err := k.readPatched()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range p.fixups {
		points = append(points, f.Fixup)
	}
	points = append(points, p.targets...)
	for _, r := range data {
		b := make([]byte, r.Size())
		if err := k.mem.ReadAt(r.Start, b); err != nil {
			return nil, nil, err
		}
		for i := 0; i+8 <= len(b); i += 8 {
			if a := arch.Addr(k.arch.Order.Uint64(b[i:])); text.Contains(a) && !places.Contains(r.Start+arch.Addr(i)) {
				points = append(points, a)
			}
		}
	}
	b := make([]byte, text.Size())
	if err := k.mem.ReadAt(text.Start, b); err != nil {
		return nil, nil, err
	}
	low, size := uint32(text.Start), uint32(text.Size())
	if int64(text.Start) == int64(int32(low)) {
		for i := 0; i+4 <= len(b); i++ {
			if off := binary.LittleEndian.Uint32(b[i:]) - low; off < size {
				points = append(points, text.Start+arch.Addr(off))
			}
		}
	}
	slices.Sort(points)
	return data, slices.Compact(points), nil
}

// pieces are the text that an address is in, and the data that belongs to it. places is where in
// that a module has the addresses of its calls of ftrace: nothing goes there by them, and the
// kernel gives its own back after the boot.
func (k *Kernel) pieces(into arch.Addr) (text arch.Range, data []arch.Range, places arch.Range, err error) {
	for _, m := range k.Modules() {
		if !m.Text.Contains(into) {
			continue
		}
		for _, p := range m.parts {
			if p.Start == m.Text.Start { // up to 6.3 one part has both
				p.Start = m.Text.End
			}
			if p.Start < p.End {
				data = append(data, p)
			}
		}
		var at, n int
		if k.types != nil && k.types.offsets("module", map[string]*int{"ftrace_callsites": &at, "num_ftrace_callsites": &n}) == nil {
			v := k.view()
			places.Start = v.ptr(m.at + arch.Addr(at))
			places.End = places.Start + arch.Addr(v.u32(m.at+arch.Addr(n)))*arch.Addr(k.arch.PtrSize)
			err = v.err
		}
		return m.Text, data, places, err
	}
	text, ok := k.table.between("_stext", "_etext")
	if !ok {
		return text, nil, places, fmt.Errorf("where the kernel's text is: %w", ErrNoData)
	}
	for _, names := range [][2]string{{"__start_rodata", "__end_rodata"}, {"_sdata", "_edata"}} {
		r, ok := k.table.between(names[0], names[1])
		if !ok {
			return text, nil, places, fmt.Errorf("no %s: %w", names[0], ErrNoData)
		}
		data = append(data, r)
	}
	return text, data, places, nil
}
