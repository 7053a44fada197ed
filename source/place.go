package source

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// NotFoundError says that the source has no such function, file or line.
type NotFoundError struct {
	What  string
	Known bool // the name is there; what is missing is its code
}

func (e *NotFoundError) Error() string { return e.What }

func notFound(format string, args ...any) error {
	return &NotFoundError{What: fmt.Sprintf(format, args...)}
}

// known is notFound of what is there, but has no code.
func known(format string, args ...any) error {
	return &NotFoundError{fmt.Sprintf(format, args...), true}
}

// HasFile tells whether any code comes from a source file.
func (f *File) HasFile(file string) bool {
	var names []string
	for u := range f.each() {
		if f.hasFile(u, file, &names) {
			return true
		}
	}
	return false
}

// HasFunction tells whether the source has a function of a name.
func (f *File) HasFunction(name string) bool { return len(f.find(name, true)) > 0 || f.declares(name) }

// Function is a function of the source with all of its code.
type Function struct {
	Name   string // with namespaces
	File   string // that declares it, and
	Line   int    // on which line
	Copies []Copy // by address: out of line first

	// Doubtful has places where further calls of the copies may begin. Debug data does not tell whether they do.
	Doubtful []Copy

	rests []Copy // what the copies call of it, once it was split
}

// bodies are all that has code of the function: its copies, and what they call of it.
func (fn *Function) bodies() []Copy { return slices.Concat(fn.Copies, fn.rests) }

// Copy is one body of a function: its own, or one inlined elsewhere.
type Copy struct {
	Entry   uint64 // the first instruction
	Body    uint64 // where its parameters can be read: behind the prologue, in code that is not optimized
	Ranges  [][2]uint64
	Inlined bool
	In      string // what it was inlined into

	off    dwarf.Offset
	column int  // where the function's name stands in its line; 0 where that is not known
	rest   bool // it is no call
}

// Point is an address as a part of a function: inlined copies share addresses with what they
// were inlined into.
type Point struct {
	Addr uint64
	off  dwarf.Offset // of the function or copy; 0: the innermost that has the address
}

// At is the point of an address: in the innermost function that has it.
func At(pc uint64) Point { return Point{Addr: pc} }

// Point is where the copy's parameters can be read.
func (c *Copy) Point() Point { return Point{c.Body, c.off} }

// EntryPoint is where the copy is entered.
func (c *Copy) EntryPoint() Point { return Point{c.Entry, c.off} }

// Function finds the functions of a name: of C, as it stands; of C++ and Rust, with all,
// some or none of the namespaces, or the linker's name. file, where it is not "", is the
// file, or the end of its path, that declares it. Functions that have no code are left out.
//
// Errors: *NotFoundError.
func (f *File) Function(name, file string) ([]Function, error) {
	roots, as := map[dwarf.Offset]*named(nil), name
	for _, as = range spellings(name) {
		if roots = f.find(as, true); len(roots) > 0 {
			break
		}
	}
	type key struct {
		file string
		line int
		name string
	}
	found := map[key]*Function{}
	var order []key
	add := func(n *named, of *File, e *dwarf.Entry, c Copy) {
		declared, line := f.declared(e)
		k := key{declared, line, of.qualified(n)}
		if found[k] == nil {
			found[k] = &Function{Name: k.name, File: k.file, Line: k.line}
			order = append(order, k)
		}
		found[k].Copies = append(found[k].Copies, c)
	}
	for _, off := range sortedKeys(roots) {
		n := f.scan().at(off)
		if !n.code {
			continue
		}
		if e, c := f.ownCode(off); c != nil {
			c.rest = f.part(n, c.Entry)
			add(roots[off], f, e, *c)
		}
	}
	var altRoots map[dwarf.Offset]*named
	if f.alt != nil {
		altRoots = f.alt.find(as, true)
	}
	root := func(c copied) *named {
		if c.alt() {
			return altRoots[c.origin]
		}
		return roots[c.origin]
	}
	var copies []copied
	for c := range f.scan().copies() {
		if root(*c) != nil {
			copies = append(copies, *c)
		}
	}
	merged := f.merged(copies)
	for _, c := range copies {
		of, n := f, root(c)
		if c.alt() {
			of = f.alt
		}
		e := f.entry(c.off)
		rs := f.rangesOf(e)
		if len(rs) == 0 || merged[c.off] {
			continue
		}
		entry := f.copyEntry(e, rs)
		in := ""
		if frames := f.Frames(entry); len(frames) > 0 {
			in = frames[len(frames)-1].Func
		}
		add(n, of, e, Copy{Entry: entry, Body: entry, Ranges: rs, Inlined: true, In: in, off: e.Offset, column: f.column(e), rest: f.rest(c, e)})
	}
	var out []Function
	for _, k := range order {
		f.addEntries(found[k])
		if file != "" && !fileIs(k.file, file) {
			continue
		}
		fn := found[k]
		if len(fn.Copies) == 0 {
			continue
		}
		slices.SortFunc(fn.Copies, func(a, b Copy) int {
			if a.Inlined != b.Inlined {
				return cmp.Compare(btoi(a.Inlined), btoi(b.Inlined))
			}
			return cmp.Compare(a.Entry, b.Entry)
		})
		fn.Copies = slices.CompactFunc(fn.Copies, func(a, b Copy) bool { return a.Entry == b.Entry && a.Inlined == b.Inlined })
		out = append(out, *fn)
	}
	if len(out) > 0 {
		return out, nil
	}
	switch {
	case file != "" && len(order) > 0:
		return nil, known("no function %q is in %s: it is in %s", name, file, order[0].file)
	case len(roots) > 0 || f.declares(name):
		return nil, known("function %q has no code: it is only declared, or was optimized away%s", name, f.elsewhere())
	}
	return nil, notFound("the source has no function %q%s", name, f.elsewhere())
}

// ownCode is the code of a function that is its own; nil for none.
func (f *File) ownCode(off dwarf.Offset) (*dwarf.Entry, *Copy) {
	e := f.entry(off)
	rs := f.rangesOf(e)
	if len(rs) == 0 {
		return e, nil
	}
	c := Copy{Entry: entryOf(e, rs), Ranges: rs, off: e.Offset}
	c.Body = f.body(off, c)
	return e, &c
}

// Begins is the own code of the function that begins at an address; nil for none.
func (f *File) Begins(addr uint64) *Copy {
	u := f.unitOf(addr)
	if u == nil {
		return nil
	}
	for _, r := range f.functionsOf(u) {
		if r.lo <= addr && addr < r.hi {
			if _, c := f.ownCode(r.off); c != nil && c.Entry == addr {
				return c
			}
		}
	}
	return nil
}

// copyEntry is where a copy is entered.
func (f *File) copyEntry(e *dwarf.Entry, rs [][2]uint64) uint64 {
	entry := entryOf(e, rs)
	if e.Val(dwarf.AttrEntrypc) == nil {
		entry = f.firstRow(entry, rs)
	}
	return entry
}

// firstRow is where the code of a copy begins: clang has it begin at the padding before a loop, which nothing
// executes, and which is of no line.
func (f *File) firstRow(low uint64, rs [][2]uint64) uint64 {
	u := f.unitOf(low)
	if u == nil {
		return low
	}
	best := ^uint64(0)
	for _, x := range rs {
		if rows := f.rowsIn(u, max(low, x[0]), x[1]); len(rows) > 0 {
			best = min(best, rows[0].addr)
		}
	}
	if best == ^uint64(0) {
		return low
	}
	return best
}

func (c *Copy) contains(addr uint64) bool {
	return slices.ContainsFunc(c.Ranges, func(r [2]uint64) bool { return r[0] <= addr && addr < r[1] })
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sortedKeys(m map[dwarf.Offset]*named) []dwarf.Offset {
	var keys []dwarf.Offset
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// entryOf is where code is entered: what it says itself, or where its first part begins.
func entryOf(e *dwarf.Entry, rs [][2]uint64) uint64 {
	low, hasLow := e.Val(dwarf.AttrLowpc).(uint64)
	switch v := e.Val(dwarf.AttrEntrypc).(type) {
	case uint64:
		return v
	case int64: // from the lowest, as DWARF 5 has it
		if !hasLow {
			low = rs[0][0]
		}
		return low + uint64(v)
	}
	if hasLow {
		return low
	}
	return rs[0][0]
}

// body is where the parameters of a function can be read. Optimized code says for each
// instruction where they are. Other code has them at places in its frame, which are
// filled by the prologue: they hold nothing before its end.
func (f *File) body(off dwarf.Offset, c Copy) uint64 {
	t := f.tree(off)
	u := f.unitAt(uint64(off))
	if t == nil || u == nil || !f.needsPrologue(t, u) {
		return c.Entry
	}
	inside := func(a uint64) bool {
		return slices.ContainsFunc(c.Ranges, func(r [2]uint64) bool { return r[0] <= a && a < r[1] })
	}
	second := uint64(0)
	for _, r := range f.rows(u) {
		if r.end || !inside(r.addr) || r.addr < c.Entry {
			continue
		}
		if r.prologue {
			return r.addr
		}
		if second == 0 && r.addr > c.Entry && r.stmt {
			second = r.addr
		}
	}
	if second != 0 {
		return second
	}
	return c.Entry
}

// needsPrologue tells whether the prologue brings a parameter to its place.
func (f *File) needsPrologue(t *scope, u *unit) bool {
	return slices.ContainsFunc(t.vars, func(v *dwarf.Entry) bool { return f.awaits(v, t, u) })
}

// awaits tells whether a parameter of a function is at one place all over it, below what was there when it was called.
func (f *File) awaits(v *dwarf.Entry, t *scope, u *unit) bool {
	if v.Tag != dwarf.TagFormalParameter {
		return false
	}
	b, ok := v.Val(dwarf.AttrLocation).([]byte)
	if !ok || len(b) < 2 || b[0] != opFbreg {
		return false
	}
	c := f.cursor(b, 1)
	base, _ := t.entry.Val(dwarf.AttrFrameBase).([]byte)
	callerPut := len(base) == 1 && base[0] == opCallFrameCFA && c.sleb() >= 0 && u.size == 8 && !goUnit(f.root(u))
	return !callerPut
}

const langGo = 0x16

func goUnit(e *dwarf.Entry) bool {
	if e == nil {
		return false
	}
	lang, _ := e.Val(dwarf.AttrLanguage).(int64)
	return lang == langGo
}

// Site is an address of a line's code.
type Site struct {
	Addr    uint64
	Func    string // whose code it is, with namespaces; "" where no function is known
	Inlined bool
	In      string // what the function was inlined into, if so

	// Doubtful tells that the line's code begins here once more. Debug data does not tell whether the line is executed once
	// more then.
	Doubtful bool

	off dwarf.Offset
}

// Point is the site as a part of its function.
func (s *Site) Point() Point { return Point{s.Addr, s.off} }

// Line finds where a line's code begins in each function and each inlined copy that has
// code of it: at the lowest address, and in each branch that has the statement there once more; of the line that a function
// begins on, behind the prologue, as Copy.Body. file is a source file's path, or the end of it.
//
// Errors: *NotFoundError, which tells the next line that has code.
func (f *File) Line(file string, line int) ([]Site, error) {
	return f.sites(file, line, nil)
}

// FunctionLine is Line, line counting from where the function begins and within it: 0 is
// the line of its declaration.
func (f *File) FunctionLine(name, file string, line int) ([]Site, error) {
	fns, err := f.Function(name, file)
	if err != nil {
		return nil, err
	}
	var out []Site
	var failed error
	for _, fn := range fns {
		if line == 0 {
			for _, c := range fn.Copies {
				out = append(out, Site{Addr: c.Entry, Func: fn.Name, Inlined: c.Inlined, In: c.In, off: c.off})
			}
			continue
		}
		inside := func(a uint64) bool {
			return slices.ContainsFunc(fn.bodies(), func(c Copy) bool { return c.contains(a) })
		}
		sites, err := f.sites(fn.File, fn.Line+line, inside)
		if err != nil {
			failed = err
			continue
		}
		out = append(out, sites...)
	}
	if len(out) == 0 {
		return nil, failed
	}
	return out, nil
}

// sites are those of a line, among the addresses that in tells.
func (f *File) sites(file string, line int, in func(uint64) bool) ([]Site, error) {
	if line < 1 {
		return nil, notFound("lines count from 1")
	}
	found, ended, owners := begins{rows: map[*scope][]row{}}, begins{rows: map[*scope][]row{}}, f.owners()
	next := 0
	var names []string // of different files
	for u := range f.each() {
		if !f.hasFile(u, file, &names) {
			continue
		}
		before := row{end: true}
		for _, r := range f.rows(u) {
			follows := !before.end && before.line == line && before.file == r.file
			before = r
			if r.end || !r.stmt || r.line < line || r.file == nil || !fileIs(r.file.Name, file) || in != nil && !in(r.addr) {
				continue
			}
			if r.line > line {
				if next == 0 || r.line < next {
					next = r.line
				}
				continue
			}
			switch s, late := owners.of(r); {
			case late:
				ended.add(s, r)
			case !follows || len(found.rows[s]) == 0:
				found.add(s, r)
			}
		}
	}
	if len(found.order) == 0 {
		found = ended
	}
	if f.callLines(&found, file, line, in); len(found.order) == 0 && len(names) == 1 {
		next = f.nextCall(file, line, next, in)
	}
	order := found.order
	switch {
	case len(names) > 1:
		return nil, known("%q is the name of several files: %s", file, strings.Join(names, ", "))
	case len(names) == 0:
		return nil, notFound("the source has no file %q", file)
	case len(order) == 0 && next == 0:
		return nil, known("line %d of %s has no code, and no line after it has", line, file)
	case len(order) == 0:
		return nil, known("line %d of %s has no code: the next one that has is %d", line, file, next)
	}
	var out []Site
	for _, s := range order {
		for _, at := range f.branches(found.rows[s]) {
			site := Site{Addr: at.addr, Doubtful: at.doubtful}
			if s != nil {
				if s.parent == nil && site.Addr == entryOf(s.entry, s.ranges) {
					site.Addr = f.body(s.entry.Offset, Copy{Entry: site.Addr, Ranges: s.ranges})
				}
				site.Func, site.off = f.funcName(s.entry), s.entry.Offset
				if site.Inlined = s.entry.Tag == dwarf.TagInlinedSubroutine; site.Inlined {
					site.In = f.funcName(s.top().entry)
				}
			}
			out = append(out, site)
		}
	}
	slices.SortFunc(out, func(a, b Site) int {
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(btoi(a.Doubtful), btoi(b.Doubtful)))
	})
	return slices.CompactFunc(out, func(a, b Site) bool { return a.Addr == b.Addr }), nil
}

// hasFile tells whether a unit has code of a file, and notes the name that it is found by.
func (f *File) hasFile(u *unit, file string, names *[]string) bool {
	has := false
	for _, lf := range f.files(u) {
		if lf != nil && fileIs(lf.Name, file) {
			has = true
			if !slices.Contains(*names, lf.Name) {
				*names = append(*names, lf.Name)
			}
		}
	}
	return has
}

// Lines are the lines of a function that have code, in its file: that on which it begins is its entry, and those that
// call what is inlined there. What is before that is of an inlined function of which no instruction is left, so that its
// line's code begins in another's.
func (f *File) Lines(fn Function) []int {
	lines, owners := map[int]bool{}, f.owners()
	for _, c := range fn.bodies() {
		u := f.unitOf(c.Entry)
		if u == nil {
			continue
		}
		for _, r := range f.rows(u) {
			if r.end || !r.stmt || r.line <= fn.Line || r.file == nil || r.file.Name != fn.File {
				continue
			}
			if lines[r.line] || !c.contains(r.addr) {
				continue
			}
			if s, _ := owners.of(r); c.is(s) && !owners.beside(s, r) {
				lines[r.line] = true
			}
		}
		for _, n := range f.calls(c, fn.File) {
			if n > fn.Line {
				lines[n] = true
			}
		}
		lines[fn.Line] = true
	}
	var out []int
	for n := range lines {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Functions are the names of all functions that have code, sorted, each once.
func (f *File) Functions() []string {
	x := f.scan()
	seen := map[string]bool{}
	for n := range x.names() {
		if !n.fn || !n.code {
			continue
		}
		seen[f.rootName(n)] = true
	}
	for c := range x.copies() {
		of := f
		if c.alt() {
			of = f.alt
		}
		if of == nil {
			continue
		}
		if n := of.scan().at(c.origin); n != nil {
			seen[of.rootName(n)] = true
		}
	}
	delete(seen, "")
	var out []string
	for name := range seen {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// rootName is the name of an entry or of what it refers to.
func (f *File) rootName(n *named) string {
	for range 4 {
		if n == nil {
			return ""
		}
		if n.name != 0 {
			return f.qualified(n)
		}
		if n.altRef {
			if f.alt == nil {
				return ""
			}
			return f.alt.rootName(f.alt.scan().at(n.ref))
		}
		n = f.scan().at(n.ref)
	}
	return ""
}

// ErrOptimized says that a variable has no value at an address.
var ErrOptimized = errors.New("optimized out")

// C tells whether the function at a point is of C, which returns and passes what it has as the ABI of
// C says: classes of C++ may be passed in other ways, and Go and Rust have their own.
func (f *File) C(p Point) bool { return f.language(p, langsC) }

// OwnCode tells whether a point is in code of a function's own, and not in a copy that was inlined.
func (f *File) OwnCode(p Point) bool {
	for s := f.scopeOf(p); s != nil; s = s.parent {
		if s.function() {
			return s.entry.Tag == dwarf.TagSubprogram
		}
	}
	return false
}

// CPlus tells whether the function at a point is of C++.
func (f *File) CPlus(p Point) bool { return f.language(p, langsCPlus) }

// Rust tells whether the function at a point is of Rust.
func (f *File) Rust(p Point) bool { return f.language(p, []int64{langRust}) }

// language tells whether the function at a point is of one of some languages.
func (f *File) language(p Point, langs []int64) bool {
	u := f.unitOf(p.Addr)
	if u == nil {
		return false
	}
	e := f.root(u)
	if e == nil {
		return false
	}
	lang, _ := e.Val(dwarf.AttrLanguage).(int64)
	return slices.Contains(langs, lang)
}

const langRust = 0x1c

// langsCPlus are C++ 98, 03, 11, 14, 17, 20 and 23.
var langsCPlus = []int64{0x4, 0x19, 0x1a, 0x21, 0x2a, 0x2b, 0x3a}

// langsC are C89, C, C99, C11, C17 and C23.
var langsC = []int64{0x1, 0x2, 0xc, 0x1d, 0x2c, 0x3e}

// Go tells whether the function at a point is of Go.
func (f *File) Go(p Point) bool {
	u := f.unitOf(p.Addr)
	return u != nil && goUnit(f.root(u))
}
