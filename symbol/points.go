package symbol

import (
	"cmp"
	"debug/elf"
	"slices"
)

// ReadAt reads the bytes that the loader maps at a virtual address, before relocation; whole or
// error.
func (f *File) ReadAt(vaddr uint64, p []byte) error {
	b, err := f.readVaddr(vaddr, uint64(len(p)))
	copy(p, b)
	return err
}

// Constants are the parts of the file that the loader maps and that are no code:
// sections where there are any, else segments. Sorted by address, and apart; .bss is
// not among them.
func (f *File) Constants() []Range {
	var rs []Range
	for _, s := range f.elf.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_EXECINSTR == 0 && s.Type != elf.SHT_NOBITS && s.Size > 0 && s.Addr+s.Size > s.Addr {
			rs = append(rs, Range{s.Addr, s.Addr + s.Size})
		}
	}
	if rs == nil {
		for _, s := range f.segments {
			if s.Flags&elf.PF_X == 0 && s.Filesz > 0 {
				rs = append(rs, Range{s.Vaddr, s.Vaddr + s.Filesz})
			}
		}
	}
	slices.SortFunc(rs, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	apart := rs[:0]
	for _, r := range rs {
		if n := len(apart); n > 0 {
			r.Start = max(r.Start, apart[n-1].End)
		}
		if r.Start < r.End {
			apart = append(apart, r)
		}
	}
	return apart
}

// CodePoints are the addresses in code that something else than code refers to, sorted: words of
// data (function pointers, jump tables of addresses, the labels of computed gotos) and the landing
// pads of exceptions. The addends of relocations are words of data too: their tables are loaded. A
// word that looks like an address by chance is among the points.
func (f *File) CodePoints() []uint64 {
	var points []uint64
	if len(f.text) == 0 {
		return nil
	}
	lo, hi := f.text[0].Start, f.text[len(f.text)-1].End
	add := func(a uint64) {
		if a < lo || a >= hi {
			return // as most words are
		}
		if _, ok := f.textAt(a); ok {
			points = append(points, a)
		}
	}
	ptr := uint64(f.ptr)
	data := f.Constants()
	bytes := make([][]byte, len(data))
	budget := uint64(0)
	for i, r := range data {
		b, err := f.readVaddr(r.Start, r.End-r.Start)
		if err != nil {
			continue
		}
		bytes[i] = b
		budget += uint64(len(b))
		for skip := -r.Start % ptr; skip+ptr <= uint64(len(b)); skip += ptr {
			add(f.word(b[skip:]))
		}
	}
	for _, e := range f.frames().fdes {
		i, found := slices.BinarySearchFunc(data, e.lsda, func(r Range, a uint64) int { return cmp.Compare(r.Start, a) })
		if !found {
			i--
		}
		if i < 0 || !data[i].Contains(e.lsda) || bytes[i] == nil {
			continue
		}
		read := f.landingPads(e, bytes[i][e.lsda-data[i].Start:], add)
		if read > budget {
			break // one table stands for many functions: that file is no compiler's
		}
		budget -= read
	}
	slices.Sort(points)
	return slices.Compact(points)
}

// landingPads gives the addresses at which code runs when an exception passes
// through a function: the call site table of its language-specific data (as GCC's
// unwinders read it; Itanium C++ ABI, exception handling tables), which b begins
// with. It answers how long that is.
func (f *File) landingPads(e fde, b []byte, add func(uint64)) uint64 {
	c := &cursor{f: f, b: b, addr: e.lsda}
	start := e.start
	if enc := c.u8(); enc != encOmit {
		start = c.pointer(enc)
	}
	if enc := c.u8(); enc != encOmit {
		c.leb(false) // where the table of types ends
	}
	enc := c.u8()
	size := c.leb(false)
	if c.bad || size > uint64(len(b))-c.pos {
		return c.pos
	}
	for end := c.pos + size; c.pos < end && !c.bad; {
		c.value(enc) // the call site's start and size
		c.value(enc)
		pad := c.value(enc)
		c.leb(false) // the action there
		if pad != 0 && !c.bad {
			add(start + pad)
		}
	}
	return c.pos
}
