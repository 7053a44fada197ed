package symbol

import (
	"slices"
	"strings"

	"kprobe/arch"
)

// Bound finds the implementation that an indirect function (IFUNC) stands for in a
// process, from the places where the dynamic linker has stored its choice; word
// reads one. It may be one of the kernel's, in a Special module, as gettimeofday is
// on most machines. False where nothing in the process has been bound to it yet.
func (s *Space) Bound(ifunc Loc, word func(addr arch.Addr) (uint64, error)) (impl Loc, ok bool) {
	name, _, _ := strings.Cut(ifunc.Func.Name, "@")
	for _, m := range s.Modules() {
		if m.File == nil {
			continue
		}
		slots := m.File.ImportSlots(name)
		if m == ifunc.Module {
			slots = slices.Clone(slots)
			for _, r := range m.File.IRelatives() {
				if r.Resolver == ifunc.Func.Addr {
					slots = append(slots, r.Slot)
				}
			}
		}
		for _, v := range slots {
			to, err := word(m.InProcess(v))
			if err != nil {
				continue
			}
			loc, known := s.At(arch.Addr(to))
			if known && loc.Module == ifunc.Module && loc.Func.Source != Plt && loc.Func.Addr != ifunc.Func.Addr {
				loc.Func.Name = ifunc.Func.Name
				return loc, true
			}
			if known && loc.Module != nil && loc.Module.Special {
				impl, ok = loc, true
			}
		}
	}
	return impl, ok
}
