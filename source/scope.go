package source

import (
	"cmp"
	"debug/dwarf"
	"slices"
)

// funcRange is a part of a function's code.
type funcRange struct {
	lo, hi uint64
	off    dwarf.Offset
}

// functionsOf are the functions of a unit that have code, by address.
func (f *File) functionsOf(u *unit) []funcRange {
	f.mu.Lock()
	known, ok := f.bounds[u]
	f.mu.Unlock()
	if ok {
		return known
	}
	x := f.scan()
	var out []funcRange
	for _, n := range x.of(dwarf.Offset(u.off), dwarf.Offset(u.end)) {
		if n.fn && n.code {
			for _, r := range f.rangesOf(f.entry(n.off)) {
				out = append(out, funcRange{r[0], r[1], n.off})
			}
		}
	}
	slices.SortFunc(out, func(a, b funcRange) int { return cmp.Compare(a.lo, b.lo) })
	f.mu.Lock()
	f.bounds[u] = out
	f.mu.Unlock()
	return out
}

// entry reads one entry; nil where that is not possible.
func (f *File) entry(off dwarf.Offset) *dwarf.Entry {
	if f.unitAt(uint64(off)) == nil {
		return nil
	}
	r := f.data.Reader()
	r.Seek(off)
	e, err := r.Next()
	if err != nil {
		return nil
	}
	return e
}

// rangesOf are the addresses of an entry, without those of code that was dropped.
func (f *File) rangesOf(e *dwarf.Entry) [][2]uint64 {
	if e == nil {
		return nil
	}
	rs, ok := [][2]uint64(nil), false
	if u := f.unitAt(uint64(e.Offset)); u != nil {
		rs, ok = f.splitRanges(u, e)
	}
	if !ok {
		var err error
		if rs, err = f.data.Ranges(e); err != nil {
			return nil
		}
	}
	return slices.DeleteFunc(rs, func(r [2]uint64) bool { return r[0] <= dropped || r[0] >= r[1] })
}

// scope is a function, an inlined copy, or a block of one.
type scope struct {
	entry    *dwarf.Entry
	ranges   [][2]uint64
	parent   *scope
	children []*scope
	vars     []*dwarf.Entry // parameters first, as they stand there
	sites    []callSite     // where a function that has code of its own calls others, in copies and blocks, too
}

func (s *scope) contains(pc uint64) bool {
	for _, r := range s.ranges {
		if r[0] <= pc && pc < r[1] {
			return true
		}
	}
	return false
}

// function tells a function or a copy from a block.
func (s *scope) function() bool {
	return s.entry.Tag == dwarf.TagSubprogram || s.entry.Tag == dwarf.TagInlinedSubroutine
}

// begins tells whether the function that has code of its own, around a scope, begins at an address.
func (s *scope) begins(pc uint64) bool {
	s = s.top()
	return len(s.ranges) > 0 && entryOf(s.entry, s.ranges) == pc
}

// top is the function that has code of its own, around a scope.
func (s *scope) top() *scope {
	for s.parent != nil {
		s = s.parent
	}
	return s
}

// own is the function or copy that a scope is of.
func (s *scope) own() *scope {
	for s != nil && !s.function() {
		s = s.parent
	}
	return s
}

// tree reads a function with all that is in it.
func (f *File) tree(off dwarf.Offset) *scope {
	f.mu.Lock()
	known := f.trees[off]
	f.mu.Unlock()
	if known != nil {
		return known
	}
	if f.unitAt(uint64(off)) == nil {
		return nil
	}
	r := f.data.Reader()
	r.Seek(off)
	e, err := r.Next()
	if err != nil || e == nil {
		return nil
	}
	top := &scope{entry: e, ranges: f.rangesOf(e)}
	here := []*scope{top} // nil: what is below is of no interest
	for e.Children && len(here) > 0 && len(here) < maxLevels {
		c, err := r.Next()
		if err != nil || c == nil {
			break
		}
		in := here[len(here)-1]
		if c.Tag == 0 {
			here = here[:len(here)-1]
			continue
		}
		var next *scope
		switch c.Tag {
		case dwarf.TagFormalParameter, dwarf.TagVariable:
			if in != nil {
				in.vars = append(in.vars, c)
			}
		case dwarf.TagCallSite, tagCallSite:
			if in != nil {
				top.sites = append(top.sites, siteOf(c))
			}
		case dwarf.TagInlinedSubroutine, dwarf.TagLexDwarfBlock:
			if in != nil {
				next = &scope{entry: c, ranges: f.rangesOf(c), parent: in}
				if len(next.ranges) == 0 && c.Tag == dwarf.TagLexDwarfBlock {
					next = in // of no address of its own: its variables are in scope all over
				} else {
					in.children = append(in.children, next)
				}
			}
		}
		if c.Children {
			here = append(here, next)
		}
	}
	f.mu.Lock()
	f.trees[off] = top
	f.mu.Unlock()
	return top
}

// innermost is the scope of an address: a block, a copy, or the function; nil where no
// function is known there.
func (f *File) innermost(pc uint64) *scope {
	u := f.unitOf(pc)
	if u == nil {
		return nil
	}
	var at *scope
	for _, r := range f.functionsOf(u) {
		if r.lo <= pc && pc < r.hi {
			at = f.tree(r.off)
			break
		}
	}
	for at != nil {
		i := slices.IndexFunc(at.children, func(s *scope) bool { return s.contains(pc) })
		if i < 0 {
			break
		}
		at = at.children[i]
	}
	return at
}

// scopeOf is the scope of a point: of its function or copy, as far in as the address is.
func (f *File) scopeOf(p Point) *scope {
	at := f.innermost(p.Addr)
	if p.off == 0 {
		return at
	}
	for s := at; s != nil; s = s.parent {
		if s.entry.Offset == p.off {
			if at.own() == s {
				return at
			}
			return s // and not in what is inlined in it
		}
	}
	// A compiler may tell of a copy's entry that lies outside of its code.
	return f.scopeAt(p.off)
}

// scopeAt is the scope of an entry; nil where that is in no function with code.
func (f *File) scopeAt(off dwarf.Offset) *scope {
	u := f.unitAt(uint64(off))
	if u == nil {
		return nil
	}
	top := dwarf.Offset(0)
	for _, r := range f.functionsOf(u) {
		if r.off <= off {
			top = max(top, r.off)
		}
	}
	return find(f.tree(top), off)
}

// find finds the scope of an entry.
func find(s *scope, off dwarf.Offset) *scope {
	if s == nil || s.entry.Offset == off {
		return s
	}
	for _, c := range s.children {
		if at := find(c, off); at != nil {
			return at
		}
	}
	return nil
}

// Frame is a function that an address is in: the copy of an inlined one, and what that was
// copied to.
type Frame struct {
	Func     string
	File     string // where the function calls the one before it; of the first, the address's own place
	Line     int
	Inlined  bool
	Declared string // the file and
	At       int    // the line that it begins on
}

// Frames are the functions around an address, the innermost first; none where none is known.
func (f *File) Frames(pc uint64) []Frame {
	var out []Frame
	file, line := f.LineOf(pc)
	for s := f.innermost(pc); s != nil; s = s.parent {
		if !s.function() {
			continue
		}
		declared, at := f.declared(s.entry)
		out = append(out, Frame{Func: f.funcName(s.entry), File: file, Line: line,
			Inlined: s.entry.Tag == dwarf.TagInlinedSubroutine, Declared: declared, At: at})
		if u := f.unitAt(uint64(s.entry.Offset)); u != nil {
			file = f.fileOf(u, s.entry.Val(dwarf.AttrCallFile))
		}
		n, _ := s.entry.Val(dwarf.AttrCallLine).(int64)
		line = int(n)
	}
	return out
}

// funcName is a function's name with its namespaces.
func (f *File) funcName(e *dwarf.Entry) string {
	x := f.scan()
	for range 4 {
		if e == nil {
			break
		}
		if n := x.at(e.Offset); n != nil && n.name != 0 {
			return f.qualified(n)
		}
		of, next := f.origin(e)
		if next == nil {
			break
		}
		if of != f {
			return of.funcName(next)
		}
		e = next
	}
	return ""
}

// origin is the entry that another completes, or is a copy of, and the file that it is in.
func (f *File) origin(e *dwarf.Entry) (*File, *dwarf.Entry) {
	for _, attr := range []dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
		fd := e.AttrField(attr)
		if fd == nil {
			continue
		}
		switch v := fd.Val.(type) {
		case dwarf.Offset:
			return f, f.entry(v)
		case int64:
			if fd.Class == dwarf.ClassReferenceAlt && f.alt != nil {
				return f.alt, f.alt.entry(dwarf.Offset(v))
			}
		}
	}
	return f, nil
}

// attr is an attribute of an entry, or of what it completes, and the file and entry that have it.
func (f *File) attr(e *dwarf.Entry, attr dwarf.Attr) (*dwarf.Field, *File, *dwarf.Entry) {
	for range 4 {
		if e == nil {
			break
		}
		if fd := e.AttrField(attr); fd != nil {
			return fd, f, e
		}
		f, e = f.origin(e)
	}
	return nil, nil, nil
}

// nameOf is an entry's name, or that of what it completes.
func (f *File) nameOf(e *dwarf.Entry) string {
	fd, in, _ := f.attr(e, dwarf.AttrName)
	if fd == nil {
		return ""
	}
	if s, ok := fd.Val.(string); ok {
		return s
	}
	if n, ok := fd.Val.(int64); ok && fd.Class == dwarf.ClassStringAlt {
		return in.name(inAlt | uint64(n))
	}
	return ""
}

// declared is where an entry is declared in the source.
func (f *File) declared(e *dwarf.Entry) (file string, line int) {
	fd, _, _ := f.attr(e, dwarf.AttrDeclLine)
	if fd == nil {
		return "", 0
	}
	n, _ := fd.Val.(int64)
	if fd, in, at := f.attr(e, dwarf.AttrDeclFile); fd != nil {
		if u := in.unitAt(uint64(at.Offset)); u != nil {
			file = in.fileOf(u, fd.Val)
		}
	}
	return file, int(n)
}

// fileOf is a file's name by its number in a unit.
func (f *File) fileOf(u *unit, number any) string {
	n, ok := number.(int64)
	files := f.files(u)
	if !ok || n < 0 || int(n) >= len(files) || files[n] == nil {
		return ""
	}
	return files[n].Name
}

// column is where in its line an entry is declared; 0 where that is not known.
func (f *File) column(e *dwarf.Entry) int {
	fd, _, _ := f.attr(e, dwarf.AttrDeclColumn)
	if fd == nil {
		return 0
	}
	n, _ := fd.Val.(int64)
	return int(n)
}
