package symbol

import (
	"cmp"
	"debug/elf"
	"slices"
	"strings"

	"kprobe/arch"
)

// groupModules finds the modules among mappings. A module has code mapped from a file; a file that
// is only read through memory is none. Mappings of one file belong together when the same bias
// explains them, wherever they lie: a program may put other memory over a part of a file that is
// loaded (its own text on huge pages), and may map a part of a file a second time.
func groupModules(maps []Mapping, open func(Mapping) opened) []*Module {
	maps = slices.Clone(maps)
	slices.SortFunc(maps, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	code := filesWithCode(maps)
	byFile := map[fileID][]*Module{}
	var modules []*Module
	var last *Module // of the mapping before, among files with code
	var others []Mapping
	for _, m := range maps {
		id := idOf(&m)
		if !code[id] {
			others = append(others, m)
			continue
		}
		o := open(m)
		bias, known := uint64(0), false
		// A mapping without access fills a gap between segments; its offset
		// means nothing.
		if o.file != nil && (m.Read || m.Write || m.Exec) {
			bias, known = o.file.biasOf(m)
		}
		if !known && last != nil && idOf(&last.Mappings[0]) == id {
			last.add(m)
			continue
		}
		if mod := fitting(byFile[id], o.file, m); known && mod != nil {
			mod.add(m)
			last = mod
			continue
		}
		if o.file != nil && !known {
			continue // mapped, but not as its headers say: data
		}
		last = &Module{
			Path: m.Path, Name: m.Path[strings.LastIndexByte(m.Path, '/')+1:], Bias: bias, Start: m.Start,
			File: o.file, Err: o.err, Special: m.special(),
		}
		last.add(m)
		modules = append(modules, last)
		byFile[id] = append(byFile[id], last)
	}
	for _, m := range modules {
		m.partial = m.isPart()
		m.cover(others)
	}
	// The same file may also be mapped for reading beside the loaded copy.
	modules = slices.DeleteFunc(modules, func(m *Module) bool {
		return !slices.ContainsFunc(m.Mappings, func(m Mapping) bool { return m.Exec || m.Data })
	})
	for i, m := range modules {
		m.reserveBSS()
		if i+1 < len(modules) {
			m.End = min(m.End, modules[i+1].Start)
		}
	}
	// Mappings do not overlap, but they are text that may come from anywhere.
	return slices.DeleteFunc(modules, func(m *Module) bool { return m.Start >= m.End })
}

// filesWithCode are the files that have executable mappings, or have executable memory
// of another kind between theirs: the program may have moved its text there.
func filesWithCode(maps []Mapping) map[fileID]bool {
	code := map[fileID]bool{}
	before, between := fileID{}, false
	for i := range maps {
		m := &maps[i]
		id := idOf(m)
		switch isFile := m.Inode != 0 || m.special(); {
		case isFile && !hugePages(m):
			if m.Exec || m.Data || between && id == before {
				code[id] = true
			}
			before, between = id, false
		case m.Exec:
			between = true
		}
	}
	return code
}

// hugePages tells memory that has an inode and is no file's: MAP_HUGETLB gives it one.
func hugePages(m *Mapping) bool { return strings.HasPrefix(m.Path, "/anon_hugepage") }

// fitting is the module of a file that a mapping is part of: of several the latest,
// which lies nearest.
func fitting(modules []*Module, f *File, m Mapping) *Module {
	for _, mod := range slices.Backward(modules) {
		if f.fits(m, mod.Bias) {
			return mod
		}
	}
	return nil
}

func (m *Module) add(mapping Mapping) {
	m.Mappings = append(m.Mappings, mapping)
	m.End = mapping.End
}

// isPart tells whether the mappings are a part of one segment, of a file that has several: no
// loader does that.
func (m *Module) isPart() bool {
	if m.File == nil || len(m.File.segments) == 1 {
		return false
	}
	backed := 0
	for _, s := range m.File.segments {
		if slices.ContainsFunc(m.Mappings, func(mapping Mapping) bool {
			return mapping.Start < m.InProcess(s.Vaddr+s.Memsz) && mapping.End > m.InProcess(s.Vaddr)
		}) {
			backed++
		}
	}
	return backed <= 1
}

// cover adds executable memory of other kinds that lies where the module's code belongs: the
// program has put it there in the place of the loader's mapping.
func (m *Module) cover(others []Mapping) {
	if m.File == nil || m.partial {
		return
	}
	i, _ := slices.BinarySearchFunc(others, m.Start, func(o Mapping, start arch.Addr) int { return cmp.Compare(o.Start, start) })
	added := false
	for ; i < len(others) && others[i].End <= m.End; i++ {
		o := others[i]
		if o.Exec && slices.ContainsFunc(m.File.segments, func(s Segment) bool {
			return s.Flags&elf.PF_X != 0 && o.Start < m.InProcess(s.Vaddr+s.Memsz) && o.End > m.InProcess(s.Vaddr)
		}) {
			m.Mappings, added = append(m.Mappings, o), true
		}
	}
	if added {
		slices.SortFunc(m.Mappings, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	}
}

// contains tells whether an address is the module's.
func (m *Module) contains(addr arch.Addr) bool {
	if m.partial {
		return MappingAt(m.Mappings, addr) != nil
	}
	return addr >= m.Start && addr < m.End
}

// Loaded tells whether a mapping shows the module's file, as the loader mapped it.
func (m *Module) Loaded(mapping *Mapping) bool { return idOf(mapping) == idOf(&m.Mappings[0]) }

// Replaced tells whether a mapping is of another file, or of another place of this one: the program has unmapped the module's memory
// and mapped that there. Memory of no file is not: a program moves its own text there.
func (m *Module) Replaced(mapping *Mapping) bool {
	switch {
	case mapping.Inode == 0 && !mapping.special() || hugePages(mapping):
		return false
	case !m.Loaded(mapping):
		return true
	}
	return m.File != nil && !m.File.fits(*mapping, m.Bias)
}

// reserveBSS extends the module over the memory that its file needs beyond its mappings.
func (m *Module) reserveBSS() {
	if m.File == nil || m.partial {
		return
	}
	for _, s := range m.File.segments {
		if end := m.InProcess(s.Vaddr + s.Memsz); end > m.End && uint64(end-m.End) <= s.Memsz {
			m.End = end
		}
	}
}

// maxPage is the largest page that maps a file, 64 KiB on some arm64 kernels. A
// segment may start that far into its first page.
const maxPage = 1 << 16

// biasOf computes where a file is loaded from one of its mappings: the segment
// that the mapping is of says which virtual address its start stands for.
func (f *File) biasOf(m Mapping) (bias uint64, ok bool) {
	for _, s := range f.segments {
		if !s.backs(m) {
			continue
		}
		b := uint64(m.Start) - (s.Vaddr - (s.Off - m.Off))
		// Two segments may share a page of the file: the one with the
		// mapping's own permissions is the one.
		if exec := s.Flags&elf.PF_X != 0; exec == m.Exec {
			return b, true
		}
		if !ok {
			bias, ok = b, true
		}
	}
	return bias, ok
}

// fits tells whether a mapping is part of the file loaded with a bias.
func (f *File) fits(m Mapping, bias uint64) bool {
	for _, s := range f.segments {
		if s.backs(m) && uint64(m.Start)-(s.Vaddr-(s.Off-m.Off)) == bias {
			return true
		}
	}
	return false
}

// backs tells whether a mapping starts inside a segment, or in the page that
// the segment starts in.
func (s *Segment) backs(m Mapping) bool {
	if m.Off >= s.Off {
		return m.Off-s.Off < max(s.Filesz, 1)
	}
	return s.Off-m.Off < maxPage && s.Off-m.Off < uint64(m.End-m.Start)
}
