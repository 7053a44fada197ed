package symbol

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// pltSuffix ends the name of a stub, as objdump and perf write it.
const pltSuffix = "@plt"

// pltSymbols names the stubs of the procedure linkage table. No symbol table
// has them. Each stub is one indirect jump through a GOT slot, and the slot's
// relocation names the function; so the stubs are found by their jumps, which
// holds for every layout that linkers have come up with (lazy, .plt.sec for
// IBT, .plt.got).
func (f *File) pltSymbols() []Symbol {
	var decode func(stub []byte, addr uint64) (slot uint64, ok bool)
	switch f.elf.Machine {
	case elf.EM_X86_64:
		decode = func(stub []byte, addr uint64) (uint64, bool) {
			i := slices.IndexFunc(stub[:len(stub)-5], func(b byte) bool { return b == 0xff })
			if i < 0 || stub[i+1] != 0x25 { // jmp *disp32(%rip)
				return 0, false
			}
			return addr + uint64(i) + 6 + uint64(int64(int32(binary.LittleEndian.Uint32(stub[i+2:])))), true
		}
	case elf.EM_386:
		got := f.dynamic().tags[elf.DT_PLTGOT]
		decode = func(stub []byte, _ uint64) (uint64, bool) {
			i := slices.IndexFunc(stub[:len(stub)-5], func(b byte) bool { return b == 0xff })
			if i < 0 {
				return 0, false
			}
			disp := binary.LittleEndian.Uint32(stub[i+2:])
			switch stub[i+1] {
			case 0x25: // jmp *addr32
				return uint64(disp), true
			case 0xa3: // jmp *disp32(%ebx), with the GOT's address in ebx
				return uint64(uint32(got) + disp), true
			}
			return 0, false
		}
	default:
		return nil
	}
	rs := f.relocs()
	var plt []Symbol
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
			addr := s.Addr + uint64(off)
			slot, ok := decode(b[off:off+step], addr)
			if !ok {
				continue
			}
			name, ok := rs.names[slot]
			if resolver, isIFunc := rs.iresolvers[slot]; isIFunc {
				name, ok = fmt.Sprintf("*ABS*+%#x", resolver), true // as objdump
			}
			if text, inText := f.textAt(addr); ok && inText {
				plt = append(plt, Symbol{Name: name + pltSuffix, Addr: addr, Size: min(uint64(step), text.End-addr), Source: Plt})
			}
		}
	}
	slices.SortFunc(plt, func(a, b Symbol) int { return cmp.Compare(a.Addr, b.Addr) })
	return plt
}

func isPLT(section string) bool {
	return section == ".plt" || strings.HasPrefix(section, ".plt.") || section == ".iplt"
}

// stubSize is how far apart the stubs of a section are. Linkers write 16 bytes
// everywhere but in .plt.got without IBT, which has no code to bind lazily.
func stubSize(s *elf.Section) int {
	if s.Entsize == 8 || (s.Entsize == 0 && s.Name == ".plt.got") {
		return 8
	}
	return 16
}
