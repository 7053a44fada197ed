package symbol

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"kprobe/arch"
)

// Loc is an address in the process and the symbol it belongs to.
type Loc struct {
	Addr   arch.Addr
	Module *Module // nil where no module is mapped
	Func   Symbol  // its addresses are the file's; a variable for Kind Data
	Off    uint64  // Addr minus the start of Func
	Size   uint64  // Func.Size
}

// Start is the address of Func in the process.
func (l Loc) Start() arch.Addr { return l.Addr - arch.Addr(l.Off) }

// End is the first address after Func in the process.
func (l Loc) End() arch.Addr { return l.Start() + arch.Addr(l.Size) }

// Go tells whether a Go function is there: see File.GoCode.
func (l Loc) Go() bool {
	return l.Module != nil && l.Module.File != nil && l.Module.File.GoCode(l.Module.InFile(l.Addr))
}

// Passing tells how the function is given its arguments: see File.Passing.
func (l Loc) Passing() Passing {
	if l.Module == nil || l.Module.File == nil {
		return ByC
	}
	return l.Module.File.Passing(l.Func)
}

// Plus is the location some bytes behind this one, as one of the same symbol.
func (l Loc) Plus(bytes uint64) Loc {
	l.Addr += arch.Addr(bytes)
	l.Off += bytes
	return l
}

// String is the location as the kernel prints one (%pS): "vfs_read+0x10/0x1d0".
// A function without a name is "sub_2a310", by its address in the file; where no
// symbol is known, it is the address.
func (l Loc) String() string {
	if !l.Known() {
		return l.Addr.String()
	}
	return fmt.Sprintf("%s+%#x/%#x", l.Func.Label(), l.Off, l.Size)
}

// Offset is SYMBOL+0xOFFSET, as the kernel's file kprobes/list has it; where no
// symbol is known, it is the address.
func (l Loc) Offset() string {
	if l.Func.Name == "" {
		return l.Addr.String()
	}
	return fmt.Sprintf("%s+0x%x", l.Func.Name, l.Off)
}

// Place is the location as a definition names it: "libc.so.6:malloc+0x10". It
// resolves to the same location while the symbol is the only one of its name.
func (l Loc) Place() string {
	if !l.Known() {
		return l.Addr.String()
	}
	place := l.Func.FullName()
	if l.Module != nil {
		place = l.Module.Name + ":" + place
	}
	if l.Off != 0 {
		place += fmt.Sprintf("+%#x", l.Off)
	}
	return place
}

// Known tells whether the address is in code or data that has a name, or at least bounds.
func (l Loc) Known() bool { return l.Func.Name != "" || l.Func.Source != "" }

// Query is a name to resolve.
type Query struct {
	Module string // "" for all; else as ModulesNamed takes it
	Symbol string // as File.Lookup takes it
	Offset uint64 // added to the symbol's address
	Kind   Kind   // Func finds functions and IFUNCs, IFunc only these, Data variables

	Was *Module // where it was before, if so: see Again
}

// suggestions is the number of names that an error proposes.
const suggestions = 5

// Resolve finds the place that a query names. It must be one address: aliases of the same address
// are one, the default version of a symbol hides older ones, and stubs of the PLT are not the
// functions they lead to. Else, as in the kernel, it is an error, because a probe on one of several
// functions is a guess. The result has one element; it is a slice because Match's has more.
//
// Where the function is an IFUNC, Loc.Func.Kind says so and the location is the resolver's: the GOT
// slots of its callers have the address that it resolved to, see File.ImportSlots and
// File.IRelatives.
//
// Errors: *NoModuleError, *NotFoundError, *AmbiguousError; or the module's Err.
func (s *Space) Resolve(q Query) ([]Loc, error) {
	modules := s.modulesAfter(q.Was)
	if q.Module != "" {
		modules = s.named(modules, q.Module)
		if len(modules) == 0 {
			return nil, s.noModule(q.Module)
		}
		if i := slices.IndexFunc(modules, func(m *Module) bool { return m.File != nil }); i < 0 {
			return nil, fmt.Errorf("%s: %w", q.Module, modules[0].Err)
		}
	}
	// A name spelled as in a file is not made ambiguous by an overloaded C++
	// function elsewhere: demangled names are the second round, for all modules.
	locs := find(modules, q, (*File).lookupExact)
	if len(locs) == 0 {
		locs = find(modules, q, (*File).lookupDemangled)
	}
	switch len(locs) {
	case 0:
		return nil, notFound(modules, q)
	case 1:
		return []Loc{s.beyond(locs[0], q.Offset)}, nil
	}
	return nil, &AmbiguousError{Name: q.Symbol, Candidates: locs}
}

// find looks a name up in modules; one Loc for each address.
func find(modules []*Module, q Query, lookup func(*File, string) []Symbol) []Loc {
	var locs []Loc
	for _, m := range modules {
		if m.File == nil {
			continue
		}
		syms := lookup(m.File, q.Symbol)
		syms = slices.DeleteFunc(syms, func(sym Symbol) bool { return !q.Kind.accepts(sym.Kind) })
		for _, sym := range hideOldVersions(syms) {
			locs = m.appendLoc(locs, sym)
		}
	}
	if slices.ContainsFunc(locs, func(l Loc) bool { return l.Func.copied }) {
		// stdin, environ: the library's own variable is dead.
		locs = slices.DeleteFunc(locs, func(l Loc) bool { return l.Func.Global && !l.Func.copied })
	}
	return oncePerAddress(locs)
}

// accepts tells whether a query of kind k finds symbols of kind have.
func (k Kind) accepts(have Kind) bool { return k == have || k == Func && have == IFunc }

// hideOldVersions keeps the symbol that a program linked today would get, if that is there.
func hideOldVersions(syms []Symbol) []Symbol {
	current := func(s Symbol) bool { return s.Version == "" || s.Default }
	if slices.ContainsFunc(syms, current) {
		syms = slices.DeleteFunc(syms, func(s Symbol) bool { return !current(s) })
	}
	return syms
}

// oncePerAddress sorts by address and keeps the best name of each.
func oncePerAddress(locs []Loc) []Loc {
	slices.SortStableFunc(locs, func(a, b Loc) int {
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), compareAlias(&a.Func, &b.Func))
	})
	return slices.CompactFunc(locs, func(a, b Loc) bool { return a.Addr == b.Addr })
}

// appendLoc adds the start of a symbol in the process, if it is there: of a file that is
// mapped in part it may not be.
func (m *Module) appendLoc(locs []Loc, sym Symbol) []Loc {
	l := Loc{Addr: m.InProcess(sym.Addr), Module: m, Func: sym, Size: sym.Size}
	if m.partial && !m.contains(l.Addr) {
		return locs
	}
	return append(locs, l)
}

// beyond is Plus, but behind the end of its symbol a location belongs to the symbol there.
func (s *Space) beyond(l Loc, off uint64) Loc {
	l = l.Plus(off)
	if l.Off >= l.Size && off > 0 {
		if other, ok := s.At(l.Addr); ok {
			return other
		}
	}
	return l
}

// At finds the function, or the variable, that contains an address. It is false
// where there is none: the Loc then has the address and its module, if any.
func (s *Space) At(addr arch.Addr) (Loc, bool) {
	l := Loc{Addr: addr, Module: s.ModuleAt(addr)}
	if l.Module == nil || l.Module.File == nil {
		return l, false
	}
	vaddr := l.Module.InFile(addr)
	sym, ok := l.Module.File.FuncAt(vaddr)
	if !ok {
		sym, ok = l.Module.File.DataAt(vaddr)
	}
	if !ok {
		return l, false
	}
	l.Func, l.Off, l.Size = sym, vaddr-sym.Addr, sym.Size
	return l, true
}

// Match finds the functions that a glob matches (see File.Match) in one module
// or, for "", in all: one Loc for each address, sorted.
func (s *Space) Match(module, pattern string) []Loc {
	return s.match(module, func(f *File) []Symbol { return f.Match(pattern) })
}

// MatchReadable is Match of names that sources have (see File.MatchReadable).
func (s *Space) MatchReadable(module, pattern string) []Loc {
	return s.match(module, func(f *File) []Symbol { return f.MatchReadable(pattern) })
}

func (s *Space) match(module string, find func(*File) []Symbol) []Loc {
	modules := s.Modules()
	if module != "" {
		modules = s.ModulesNamed(module)
	}
	var locs []Loc
	for _, m := range modules {
		if m.File == nil {
			continue
		}
		for _, sym := range find(m.File) {
			locs = m.appendLoc(locs, sym)
		}
	}
	return oncePerAddress(locs)
}

// NotFoundError is for a name that no module looked at has. It is ENOENT.
type NotFoundError struct {
	Name   string
	Module string // as asked for; "" for all
	IsData bool   // a function was looked for, and the name is a variable's
	NoData bool   // a variable was looked for, and the symbols there are of functions only

	files []*File // that have no such name
}

// Nearest gives names that may be meant, the likeliest first. They are looked for when they are asked for: that takes
// tens of milliseconds for a large program, and many a name is looked up only to see whether it is there.
func (e *NotFoundError) Nearest() []string {
	var near nearest
	for _, f := range e.files {
		near.addFrom(f, e.Name)
	}
	return near.best(suggestions)
}

func (e *NotFoundError) Error() string {
	if e.IsData {
		return fmt.Sprintf("%q is a variable, not a function", e.Name)
	}
	where := "any module that is loaded"
	if e.Module != "" {
		where = e.Module
	}
	if e.NoData {
		return fmt.Sprintf("no symbol %q in %s: the symbols there are of functions only, so where variables lie is not known", e.Name, where)
	}
	return fmt.Sprintf("no symbol %q in %s%s", e.Name, where, didYouMean(e.Nearest()))
}

// Unwrap gives the errno of register_kprobe.
func (e *NotFoundError) Unwrap() error { return syscall.ENOENT }

// NoModuleError is for a module that is not mapped (yet). It is ENOENT.
type NoModuleError struct {
	Module  string
	Nearest []string // modules that may have been meant, likeliest first
}

func (e *NoModuleError) Error() string {
	return fmt.Sprintf("no module %q is mapped%s", e.Module, didYouMean(e.Nearest))
}

// Unwrap gives the errno.
func (e *NoModuleError) Unwrap() error { return syscall.ENOENT }

// AmbiguousError is for a name of several functions. It is EADDRNOTAVAIL, as for
// kprobe events.
type AmbiguousError struct {
	Name       string
	Candidates []Loc // sorted by address
}

func (e *AmbiguousError) Error() string {
	const most = 8
	var places []string
	for _, l := range e.Candidates[:min(most, len(e.Candidates))] {
		place := l.Place()
		if l.Module != nil && slices.ContainsFunc(e.Candidates, func(o Loc) bool { return o.Addr != l.Addr && o.Place() == place }) {
			place = strings.Replace(place, l.Module.Name, l.Module.Path, 1)
		}
		places = append(places, fmt.Sprintf("%s (%v)", place, l.Addr))
	}
	if more := len(e.Candidates) - most; more > 0 {
		places = append(places, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("symbol %q is %d different ones: %s", e.Name, len(e.Candidates), strings.Join(places, ", "))
}

// Unwrap gives the errno.
func (e *AmbiguousError) Unwrap() error { return syscall.EADDRNOTAVAIL }

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, ", ") + "?"
}

func notFound(modules []*Module, q Query) error {
	if q.Kind == Func && len(find(modules, Query{Symbol: q.Symbol, Kind: Data}, (*File).lookupExact)) > 0 {
		return &NotFoundError{Name: q.Symbol, Module: q.Module, IsData: true}
	}
	e := &NotFoundError{Name: q.Symbol, Module: q.Module, NoData: q.Kind == Data}
	for _, m := range modules {
		if m.File == nil {
			continue
		}
		e.files = append(e.files, m.File)
		e.NoData = e.NoData && len(m.File.table().data) == 0
	}
	return e
}

// noModule says which modules have names like the one asked for; also which
// several a name without version could be.
func (s *Space) noModule(name string) error {
	var near nearest
	for _, m := range s.Modules() {
		near.add(name[strings.LastIndexByte(name, '/')+1:], m.Name)
	}
	return &NoModuleError{Module: name, Nearest: near.best(suggestions)}
}

// SplitName takes "MODULE:SYMBOL" apart. C++ and Rust names hold "::", Go
// names hold slashes and dots; neither holds a single colon.
func SplitName(s string) (module, name string) {
	for i := 0; i < len(s); i++ {
		if s[i] != ':' {
			continue
		}
		if i+1 < len(s) && s[i+1] == ':' {
			i++
			continue
		}
		return s[:i], s[i+1:]
	}
	return "", s
}

// Again finds a location that was found before, here or in another process: the same byte of the
// same file. One whose module is mapped still is answered as it is. Errors: *NoModuleError where
// the file is not mapped, or another has its name now.
func (s *Space) Again(l Loc) (Loc, error) {
	modules := s.modulesAfter(l.Module)
	if l.Module == nil || slices.Contains(modules, l.Module) {
		return l, nil
	}
	for _, m := range modules {
		if addr := m.InProcess(l.Module.InFile(l.Addr)); m.File.same(l.Module.File) && m.contains(addr) {
			l.Module, l.Addr = m, addr
			return l, nil
		}
	}
	return Loc{}, s.noModule(l.Module.Path)
}

// same tells whether two files are one, by the facts known of them. Either may be nil.
func (f *File) same(o *File) bool {
	if f == nil || o == nil || f == o {
		return f != nil && f == o
	}
	id := f.buildID()
	return len(id) > 0 && bytes.Equal(id, o.buildID()) && f.Path() == o.Path()
}

// AtFileOffset finds a byte of a file, by its offset there, in every module that
// the file's name fits.
func (s *Space) AtFileOffset(module string, off uint64) []Loc {
	var locs []Loc
	for _, m := range s.ModulesNamed(module) {
		if m.File == nil {
			continue
		}
		if v, ok := m.File.VaddrOf(off); ok && m.contains(m.InProcess(v)) {
			loc, _ := s.At(m.InProcess(v))
			locs = append(locs, loc)
		}
	}
	return locs
}

// SplitOffset takes "MODULE:SYMBOL+OFFSET" apart. A file's name may hold the sign.
func SplitOffset(place string) (name string, offset uint64, err error) {
	i := strings.LastIndexByte(place, '+')
	if i < 0 || i < strings.LastIndexByte(place, ':') {
		return place, 0, nil
	}
	if offset, err = strconv.ParseUint(place[i+1:], 0, 64); err != nil {
		return "", 0, fmt.Errorf("%q: %q is no offset", place, place[i+1:])
	}
	return place[:i], offset, nil
}
