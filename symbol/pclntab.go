package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"debug/gosym"
	"slices"
)

// The Go runtime needs its function table to grow stacks and print panics, so
// "go build -ldflags=-s -w" keeps it: names and bounds of all Go functions.

// pclntabMagics begin the table: Go 1.20, 1.18, 1.16, 1.2; see debug/gosym.
var pclntabMagics = []uint32{0xfffffff1, 0xfffffff0, 0xfffffffa, 0xfffffffb}

// readPclntab is nil for files that are not Go's.
func (f *File) readPclntab() []Symbol {
	if !f.IsGo() {
		return nil
	}
	data, addr := f.pclntabBytes()
	// gosym allocates as many functions as the header claims; each takes at
	// least eight bytes of the table.
	if len(data) < 16 || f.word(data[8:]) > uint64(len(data)/8) {
		return nil
	}
	tab, err := gosym.NewTable(nil, gosym.NewLineTable(data, f.goTextStart(addr)))
	if err != nil {
		return nil
	}
	var syms []Symbol
	for i := range tab.Funcs {
		fn := &tab.Funcs[i]
		text, ok := f.textAt(fn.Entry)
		if !ok || fn.Sym == nil || fn.Sym.Name == "" || fn.End <= fn.Entry {
			continue
		}
		syms = append(syms, Symbol{
			Name: fn.Sym.Name, Addr: fn.Entry, Size: min(fn.End, text.End) - fn.Entry,
			Global: true, Source: Pclntab,
		})
	}
	return syms
}

// pclntabBytes finds the table by its section or, without sections, by how it
// begins.
func (f *File) pclntabBytes() (data []byte, addr uint64) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.section(name); s != nil {
			if b, err := f.sectionData(s); err == nil {
				return b, s.Addr
			}
		}
	}
	for _, seg := range f.segments {
		if seg.Flags&elf.PF_X != 0 {
			continue
		}
		b, err := f.read(seg.Off, seg.Filesz)
		if err != nil {
			continue
		}
		for _, magic := range pclntabMagics {
			begin := make([]byte, 4)
			f.elf.ByteOrder.PutUint32(begin, magic)
			for at := 0; ; {
				i := bytes.Index(b[at:], begin)
				if i < 0 {
					break
				}
				at += i
				// Then two zeros, the instruction quantum and the address size.
				if h := b[at:]; len(h) >= 8 && h[4] == 0 && h[5] == 0 && h[7] == byte(f.ptr) &&
					(h[6] == 1 || h[6] == 2 || h[6] == 4) {
					return h, seg.Vaddr + uint64(at)
				}
				at++
			}
		}
	}
	return nil, 0
}

// moduledataText is the index of the field text in runtime.moduledata, in
// words: pcHeader, six slices, findfunctab, minpc, maxpc come before it. It has
// stood there since Go 1.18, the first release whose table needs it.
const moduledataText = 1 + 6*3 + 1 + 2

// goTextStart finds the address that function offsets in the table count from.
// The table itself does not say it any more (Go 1.26); runtime.moduledata does,
// which is the structure that begins with the address of the table. In programs
// linked with C code it is not the start of .text.
func (f *File) goTextStart(pclntab uint64) uint64 {
	ptr := uint64(f.ptr)
	relative := f.relocs().relative
	for slot, target := range relative {
		if target == pclntab {
			if text, ok := relative[slot+moduledataText*ptr]; ok {
				if _, ok := f.textAt(text); ok {
					return text
				}
			}
		}
	}
	for _, seg := range f.segments {
		if seg.Flags&elf.PF_X != 0 {
			continue
		}
		b, err := f.read(seg.Off, seg.Filesz)
		if err != nil {
			continue
		}
		skip := (ptr - seg.Vaddr%ptr) % ptr // words are aligned in memory
		for at := skip; at+(moduledataText+1)*ptr <= uint64(len(b)); at += ptr {
			if f.word(b[at:]) != pclntab {
				continue
			}
			text := f.word(b[at+moduledataText*ptr:])
			if _, ok := f.textAt(text); ok {
				return text
			}
		}
	}
	if s := f.section(".text"); s != nil {
		return s.Addr
	}
	if len(f.text) > 0 {
		return slices.MinFunc(f.text, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) }).Start
	}
	return 0
}
