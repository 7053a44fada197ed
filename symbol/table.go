package symbol

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// table is every source's symbols merged. Both slices are sorted by address;
// among those of one address the best name comes first (compareAlias).
type table struct {
	funcs []Symbol
	data  []Symbol
	// reach[i] is the highest end of funcs[0..i]: how far back a function that
	// contains an address can start.
	reach []uint64
}

// symbolFile is the file that a .symtab is read from, and the file that its symbols are about: they
// differ for separate debug files.
type symbolFile struct {
	from, about *File
}

func (f *File) readTable() *table {
	all := mergeDuplicates(slices.Concat(f.staticSymbols(), f.dynsyms().defined, f.pltSymbols()))

	t := &table{funcs: make([]Symbol, 0, len(all))}
	for _, s := range all {
		if s.Kind == Data {
			t.data = append(t.data, s)
		} else {
			t.funcs = append(t.funcs, s)
		}
	}
	t.funcs = dropInnerLabels(t.funcs)
	f.fillSizes(t.funcs)
	t.funcs = f.addNameless(t.funcs)
	sortAliases(t.funcs)
	sortAliases(t.data)
	t.reach = reachOf(t.funcs)
	return t
}

// staticSymbols are the symbols that only a linker or debugger needs, from the first source that
// has any: the sources say the same, each stripped from the one before.
func (f *File) staticSymbols() []Symbol {
	if syms := f.symtab(symbolFile{f, f}, Symtab); syms != nil {
		return syms
	}
	// A Go linker's own table is complete, and no debug file adds to it.
	if syms := f.pclntab(); syms != nil {
		return syms
	}
	if from, source := f.debugELF(); from.from != nil {
		return f.symtab(from, source)
	}
	return nil
}

// symtab reads the section .symtab of one file.
func (f *File) symtab(sf symbolFile, source Source) []Symbol {
	table, err := sf.from.staticTable()
	if err != nil {
		return nil
	}
	raw := table.symbols
	versions := f.dynsyms().versions
	step := int(f.symSize())
	syms := make([]Symbol, 0, len(raw)/step) // their names are parts of table.names
	for ; len(raw) >= step; raw = raw[step:] {
		r := f.decodeSym(raw)
		sym, ok := sf.about.classify(r, cstring(table.names, r.name))
		if !ok {
			continue
		}
		sym.Source = source
		// The linker writes versions into the name: "memcpy@@GLIBC_2.14". Only
		// a version that the file knows counts: '@' is legal in a name.
		if base, version, def := splitVersion(sym.Name); versions[version] {
			sym.Name, sym.Version, sym.Default = base, version, def
		}
		syms = append(syms, sym)
	}
	return syms
}

// splitVersion takes "NAME@@VERSION" (def) and "NAME@VERSION" apart.
func splitVersion(name string) (base, version string, def bool) {
	i := strings.IndexByte(name, '@')
	if i <= 0 {
		return name, "", false
	}
	base, version = name[:i], name[i+1:]
	if v, ok := strings.CutPrefix(version, "@"); ok {
		return base, v, true
	}
	return base, version, false
}

// mergeDuplicates sorts by address and name, and makes one of what several
// sources say about the same name at the same address: .symtab has the local
// facts, .dynsym the version.
func mergeDuplicates(syms []Symbol) []Symbol {
	// Sorting places, not symbols, halves the time for a large program. The
	// place itself comes last: of equals, the first source stays first.
	order := make([]int32, len(syms))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &syms[i], &syms[j]
		if a.Addr != b.Addr {
			return cmp.Compare(a.Addr, b.Addr)
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(i, j))
	})
	out := make([]Symbol, 0, len(syms))
	var same []Symbol
	for n := 0; n < len(order); {
		first := &syms[order[n]]
		same = same[:0]
		for ; n < len(order); n++ {
			s := &syms[order[n]]
			if s.Addr != first.Addr || s.Name != first.Name || s.Kind != first.Kind {
				break
			}
			same = append(same, *s)
		}
		out = appendMerged(out, same)
	}
	return out
}

// appendMerged appends the symbols of one name and address to out: one for each
// version, or one where there is no version.
func appendMerged(out, same []Symbol) []Symbol {
	first := len(out)
	unversioned := slices.IndexFunc(same, func(s Symbol) bool { return s.Version == "" })
	source := same[0].Source
	var plain Symbol
	if unversioned >= 0 {
		plain = same[unversioned]
	}
	for _, s := range same {
		if s.Version == "" {
			continue
		}
		i := slices.IndexFunc(out[first:], func(o Symbol) bool { return o.Version == s.Version })
		if i >= 0 {
			out[first+i].copied = out[first+i].copied || s.copied
			continue
		}
		s.Source = source
		s.Size = max(s.Size, plain.Size)
		out = append(out, s)
	}
	if len(out) == first {
		for _, s := range same {
			plain.Size = max(plain.Size, s.Size)
			plain.Global = plain.Global || s.Global
		}
		out = append(out, plain)
	}
	return out
}

// dropInnerLabels removes labels that lie inside a function with bounds of its
// own: they would cut it in two for everything that asks what contains an
// address. funcs must be sorted by address.
func dropInnerLabels(funcs []Symbol) []Symbol {
	var inside Range // of the last typed function
	out := funcs[:0]
	for _, s := range funcs {
		if s.notype {
			if inside.Start < s.Addr && s.Addr < inside.End {
				continue
			}
		} else if s.end() > inside.End {
			inside = Range{s.Addr, s.end()}
		}
		out = append(out, s)
	}
	return out
}

// fillSizes gives functions without a size one: that of the unwind entry that
// starts there, else up to the next function or the end of the section or unwind
// entry. funcs must be sorted by address.
func (f *File) fillSizes(funcs []Symbol) {
	if !slices.ContainsFunc(funcs, func(s Symbol) bool { return s.Size == 0 }) {
		return
	}
	fdes := f.frames().fdes
	next := ^uint64(0) // start of the nearest function above
	for i := len(funcs) - 1; i >= 0; i-- {
		s := &funcs[i]
		above := next
		if i > 0 && funcs[i-1].Addr < s.Addr {
			next = s.Addr
		}
		if s.Size != 0 {
			continue
		}
		end := above
		if text, ok := f.textAt(s.Addr); ok {
			end = min(end, text.End)
		}
		// The first entry above s, and the one before it.
		j, starts := slices.BinarySearchFunc(fdes, s.Addr, func(e fde, a uint64) int { return cmp.Compare(e.start, a) })
		switch {
		case starts:
			end = min(end, max(fdes[j].end, s.Addr+1))
		case j > 0 && s.Addr < fdes[j-1].end:
			end = min(end, fdes[j-1].end)
		case j < len(fdes):
			end = min(end, fdes[j].start)
		}
		s.Size = end - s.Addr
	}
}

// addNameless adds the functions that only an unwind entry knows: the whole
// content of a stripped file. funcs must be sorted by address.
func (f *File) addNameless(funcs []Symbol) []Symbol {
	fdes := f.frames().fdes
	if len(fdes) == 0 {
		return funcs
	}
	var plt []Range // one entry covers all stubs: it bounds no function
	for _, s := range f.elf.Sections {
		if isPLT(s.Name) {
			plt = append(plt, Range{s.Addr, s.Addr + s.Size})
		}
	}
	named := funcs
	reach := uint64(0) // highest end of the functions that start at or below the entry
	i := 0
	for _, e := range fdes {
		for ; i < len(named) && named[i].Addr <= e.start; i++ {
			reach = max(reach, named[i].end())
		}
		text, ok := f.textAt(e.start)
		if reach > e.start || !ok || slices.ContainsFunc(plt, func(r Range) bool { return r.Contains(e.start) }) {
			continue
		}
		end := min(e.end, text.End)
		if i < len(named) {
			end = min(end, named[i].Addr)
		}
		funcs = append(funcs, Symbol{Addr: e.start, Size: end - e.start, Source: EhFrame})
		reach = end
	}
	return funcs
}

func sortAliases(syms []Symbol) {
	slices.SortFunc(syms, func(a, b Symbol) int {
		if a.Addr != b.Addr {
			return cmp.Compare(a.Addr, b.Addr)
		}
		return compareAlias(&a, &b)
	})
}

func reachOf(funcs []Symbol) []uint64 {
	reach := make([]uint64, len(funcs))
	var highest uint64
	for i := range funcs {
		highest = max(highest, funcs[i].end())
		reach[i] = highest
	}
	return reach
}

// Funcs are all functions of the file, sorted by address: those its symbol
// tables name, PLT stubs as "NAME@plt", and, with an empty Name and Source
// EhFrame, those that only their unwind entries bound. Aliases of one address
// stand together, the best name first. The slice is shared: do not modify it.
func (f *File) Funcs() []Symbol { return f.table().funcs }

// Data are the variables that symbols name, sorted by address. The slice is
// shared: do not modify it.
func (f *File) Data() []Symbol { return f.table().data }

// FuncAt finds the function that contains a virtual address, the innermost if
// they nest. It is false for padding between functions and for code that no
// symbol or unwind entry covers.
func (f *File) FuncAt(vaddr uint64) (Symbol, bool) {
	t := f.table()
	i := sort.Search(len(t.funcs), func(i int) bool { return t.funcs[i].Addr > vaddr }) - 1
	for ; i >= 0 && t.reach[i] > vaddr; i-- {
		if vaddr >= t.funcs[i].end() {
			continue
		}
		for i > 0 && t.funcs[i-1].Addr == t.funcs[i].Addr && vaddr < t.funcs[i-1].end() {
			i-- // to the best name of this address
		}
		return t.funcs[i], true
	}
	return Symbol{}, false
}

// DataAt finds the variable that contains a virtual address.
func (f *File) DataAt(vaddr uint64) (Symbol, bool) {
	data := f.table().data
	i := sort.Search(len(data), func(i int) bool { return data[i].Addr > vaddr }) - 1
	if i < 0 || vaddr >= data[i].end() {
		return Symbol{}, false
	}
	for i > 0 && data[i-1].Addr == data[i].Addr && vaddr < data[i-1].end() {
		i--
	}
	return data[i], true
}
