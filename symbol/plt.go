package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// pltSuffix ends the name of a stub, as objdump and perf write it.
const pltSuffix = "@plt"

// stub is one stub of the procedure linkage table.
type stub struct {
	addr uint64
	size int
	jump int    // where its jump ends, from its beginning
	slot uint64 // of the GOT: the jump goes where it leads
}

// stubs are the stubs of all tables. Each is one indirect jump through a GOT slot; so they are
// found by their jumps, which holds for every layout that linkers have come up with (lazy, .plt.sec
// for IBT, .plt.got).
func (f *File) stubs() []stub {
	slot := f.on().stub
	if slot == nil {
		return nil
	}
	const jumpSize = 6
	var all []stub
	for _, s := range f.elf.Sections {
		if s.Type != elf.SHT_PROGBITS || !isPLT(s.Name) {
			continue
		}
		b, err := f.sectionData(s)
		if err != nil {
			continue
		}
		step := stubSize(s)
		for off := 0; off+step <= len(b); off += step {
			code := b[off : off+step]
			i := bytes.IndexByte(code[:len(code)-jumpSize+1], 0xff)
			if i < 0 {
				continue
			}
			addr := s.Addr + uint64(off)
			if at, ok := slot(f, code[i:], addr+uint64(i)+jumpSize); ok {
				all = append(all, stub{addr, step, i + jumpSize, at})
			}
		}
	}
	return all
}

// pltSymbols names the stubs of the procedure linkage table. No symbol table has them; the
// relocation of a stub's slot names the function.
func (f *File) pltSymbols() []Symbol {
	rs := f.relocs()
	var plt []Symbol
	for _, s := range f.stubs() {
		name, ok := rs.names[s.slot]
		if resolver, isIFunc := rs.iresolvers[s.slot]; isIFunc {
			name, ok = fmt.Sprintf("*ABS*+%#x", resolver), true // as objdump
		}
		if text, inText := f.textAt(s.addr); ok && inText {
			plt = append(plt, Symbol{Name: name + pltSuffix, Addr: s.addr, Size: min(uint64(s.size), text.End-s.addr), Source: Plt})
		}
	}
	slices.SortFunc(plt, func(a, b Symbol) int { return cmp.Compare(a.Addr, b.Addr) })
	return plt
}

func isPLT(section string) bool {
	return section == ".plt" || strings.HasPrefix(section, ".plt.") || section == ".iplt"
}

// stubSize is the distance between the stubs of a section: 16 bytes, but 8 where there is no code
// to bind lazily (.plt.got without IBT, the IFUNCs of a static program). Where no entry size is
// told, the alignment tells it.
func stubSize(s *elf.Section) int {
	if s.Entsize == 8 || s.Entsize == 0 && s.Addralign == 8 {
		return 8
	}
	return 16
}
