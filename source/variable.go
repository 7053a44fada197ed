package source

import (
	"cmp"
	"debug/dwarf"
	"fmt"
	"regexp"
	"slices"
)

// Variable is one that the source has at an address.
type Variable struct {
	Name  string
	Type  dwarf.Type // nil where that is not known
	Param bool       // of the innermost function
	Out   bool       // a result of a function of Go, which counts as a parameter
	File  string     // where it is declared
	Line  int

	f     *File
	entry *dwarf.Entry
	in    *scope // nil: a global one
	pc    uint64
}

// AbsentError says that a variable has no value at an address.
type AbsentError struct {
	Name    string
	Nearest uint64 // the nearest address, of the file, where it has one; 0 for none
	File    string // of Nearest
	Line    int
}

func (e *AbsentError) Error() string {
	if e.Nearest == 0 {
		return fmt.Sprintf("%s is optimized out, here and everywhere in its function", e.Name)
	}
	at := ""
	if e.Line > 0 {
		at = fmt.Sprintf(", line %d", e.Line)
	}
	return fmt.Sprintf("%s is optimized out here: the nearest place where it is not is %#x%s", e.Name, e.Nearest, at)
}

// Unwrap makes it an ErrOptimized.
func (e *AbsentError) Unwrap() error { return ErrOptimized }

// Variables are the parameters and local variables in scope at a point, as the source has
// them there: the innermost first, of those of one name only that. In an inlined copy, those of
// the inlined function. Parameters come first.
func (f *File) Variables(p Point) []*Variable {
	var out []*Variable
	seen := map[string]bool{}
	for s := f.scopeOf(p); s != nil; s = s.parent {
		entries := s.vars
		if s.function() {
			entries = f.declaredOrder(s, slices.Concat(entries, f.missing(s)))
		}
		for _, e := range entries {
			name := f.nameOf(e)
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			v := &Variable{Name: name, Type: f.typeOf(e), Param: e.Tag == dwarf.TagFormalParameter, f: f, entry: e, in: s, pc: p.Addr}
			v.Out, _ = e.Val(dwarf.AttrVarParam).(bool)
			v.File, v.Line = f.declared(e)
			out = append(out, v)
		}
		if s.function() {
			break
		}
	}
	slices.SortStableFunc(out, func(a, b *Variable) int { return cmp.Compare(btoi(b.Param), btoi(a.Param)) })
	return out
}

// declaredOrder sorts the variables of a copy of a function as the function declares them: GCC has a copy's parameters in any order.
func (f *File) declaredOrder(s *scope, entries []*dwarf.Entry) []*dwarf.Entry {
	of, origin := f.origin(s.entry)
	if origin == nil || of != f {
		return entries
	}
	t := f.tree(origin.Offset)
	if t == nil {
		return entries
	}
	at := map[dwarf.Offset]int{}
	for i, e := range t.vars {
		at[e.Offset] = i
	}
	place := func(e *dwarf.Entry) int {
		if o, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset); ok {
			if i, ok := at[o]; ok {
				return i
			}
		}
		if i, ok := at[e.Offset]; ok {
			return i
		}
		return len(at)
	}
	slices.SortStableFunc(entries, func(a, b *dwarf.Entry) int { return cmp.Compare(place(a), place(b)) })
	return entries
}

// missing are variables of an inlined function that its copy does not even mention.
func (f *File) missing(s *scope) []*dwarf.Entry {
	of, origin := f.origin(s.entry)
	if origin == nil || of != f {
		return nil
	}
	t := f.tree(origin.Offset)
	if t == nil {
		return nil
	}
	has := map[dwarf.Offset]bool{}
	for at := []*scope{s}; len(at) > 0; {
		for _, e := range at[0].vars {
			if o, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset); ok {
				has[o] = true
			}
		}
		for _, c := range at[0].children {
			if !c.function() {
				at = append(at, c)
			}
		}
		at = at[1:]
	}
	return slices.DeleteFunc(slices.Clone(t.vars), func(e *dwarf.Entry) bool { return has[e.Offset] })
}

// Variable finds a variable by its name as the source at a point has it: local, or global.
// Errors: *NotFoundError.
func (f *File) Variable(p Point, name string) (*Variable, error) {
	pc, locals := p.Addr, f.Variables(p)
	for _, v := range locals {
		if v.Name == name {
			return v, nil
		}
	}
	if v := f.global(pc, name); v != nil {
		return v, nil
	}
	var names []string
	for _, v := range locals {
		names = append(names, v.Name)
	}
	switch {
	case len(f.Frames(pc)) == 0:
		return nil, notFound("no function of the source is there, so no variable %q%s", name, f.elsewhere())
	case len(names) == 0:
		return nil, notFound("there is no variable %q in scope, and none at all", name)
	}
	return nil, notFound("there is no variable %q in scope: there are %v", name, names)
}

// global finds a variable of the file, or of the program: that of the address's own unit first.
func (f *File) global(pc uint64, name string) *Variable {
	u := f.unitOf(pc)
	var best *Variable
	roots := f.find(name, false)
	for _, off := range sortedKeys(roots) {
		if n := f.scan().at(off); n == nil || !n.code {
			continue
		}
		e := f.entry(off)
		if e == nil {
			continue
		}
		v := &Variable{Name: name, Type: f.typeOf(e), f: f, entry: e, pc: pc}
		v.File, v.Line = f.declared(e)
		if u != nil && u.off <= uint64(off) && uint64(off) < u.end {
			return v
		}
		if best == nil {
			best = v
		}
	}
	return best
}

// typeOf is the type of an entry; nil where it has none.
func (f *File) typeOf(e *dwarf.Entry) dwarf.Type {
	fd, in, _ := f.attr(e, dwarf.AttrType)
	if fd == nil {
		return nil
	}
	off, ok := fd.Val.(dwarf.Offset)
	if n, is := fd.Val.(int64); is && fd.Class == dwarf.ClassReferenceAlt && in.alt != nil {
		in, off, ok = in.alt, dwarf.Offset(n), true
	}
	if !ok || in.unitAt(uint64(off)) == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.typeAt(off)
}

// ResultType is the type of what the function at a point returns, the one that has code of its own;
// nil for none.
func (f *File) ResultType(p Point) dwarf.Type {
	if e := f.subprogram(p); e != nil {
		return f.typeOf(e)
	}
	return nil
}

// Changed tells whether the compiler has changed the parameters or the result of the function at a
// point: it leaves out those that no caller uses. LLVM tells since version 16 (DW_CC_nocall).
func (f *File) Changed(p Point) bool {
	fd, _, _ := f.attr(f.subprogram(p), dwarf.AttrCalling)
	return fd != nil && fd.Val == int64(calledOtherwise)
}

// Silent tells whether the function at a point is of LLVM's, which would not say if it had left out what no caller uses: before
// version 16, and of functions that are declared within a class or type.
func (f *File) Silent(p Point) bool {
	e := f.subprogram(p)
	if e == nil {
		return false
	}
	u := f.unitAt(uint64(e.Offset))
	if u == nil || !f.ofLLVM(u) {
		return false
	}
	return e.Val(dwarf.AttrSpecification) != nil || !tellsChanges.MatchString(f.ofUnit(u, dwarf.AttrProducer))
}

// tellsChanges matches the compilers whose LLVM is of version 16 or later.
var tellsChanges = regexp.MustCompile(`clang version (1[6-9]|[2-9]\d)\.|rustc version (1\.([7-9]\d|\d{3})|[2-9])\.`)

// subprogram is the entry of the function with code of its own at a point; nil for none.
func (f *File) subprogram(p Point) *dwarf.Entry {
	for s := f.scopeOf(p); s != nil; s = s.parent {
		if s.parent == nil && s.entry.Tag == dwarf.TagSubprogram {
			return s.entry
		}
	}
	return nil
}

// Where is where the variable is at its address. Errors: *AbsentError where it has no value
// there; else why that is not known.
func (v *Variable) Where() (Location, error) {
	if fd, _, _ := v.f.attr(v.entry, dwarf.AttrConstValue); fd != nil && v.entry.AttrField(dwarf.AttrLocation) == nil {
		return v.constant(fd)
	}
	fd := v.entry.AttrField(dwarf.AttrLocation)
	if fd == nil {
		return Location{}, &AbsentError{Name: v.Name}
	}
	u := v.f.unitAt(uint64(v.entry.Offset))
	if u == nil {
		return Location{}, errStack
	}
	expr, ok := fd.Val.([]byte)
	if !ok {
		spans, err := v.f.spans(u, fd)
		if err != nil {
			return Location{}, fmt.Errorf("%s: %w", v.Name, err)
		}
		if v.in != nil && v.in.begins(v.pc) {
			expr, ok = atEntry(spans, v.pc)
		}
		if !ok {
			expr, ok = pick(spans, v.pc)
		}
		if !ok {
			return Location{}, v.absent(spans)
		}
	}
	m := machine{f: v.f, u: u, pc: v.pc, base: func() (*Expr, error) { return v.f.frameBase(v.in, u, v.pc) }}
	l, err := m.locate(expr)
	switch {
	case err != nil:
		return l, fmt.Errorf("%s: %w", v.Name, err)
	case !l.Known():
		return l, &AbsentError{Name: v.Name}
	}
	return l, nil
}

// Fixed tells that debug data has one place for the variable, wherever in its function.
func (v *Variable) Fixed() bool {
	_, ok := v.entry.Val(dwarf.AttrLocation).([]byte)
	return ok
}

// AwaitsPrologue tells whether the variable is a parameter that is brought to its place by its function's prologue: while
// the function is being entered, something else is there.
func (v *Variable) AwaitsPrologue() bool {
	u := v.f.unitAt(uint64(v.entry.Offset))
	return v.in != nil && u != nil && v.f.awaits(v.entry, v.in, u)
}

func (v *Variable) constant(fd *dwarf.Field) (Location, error) {
	switch x := fd.Val.(type) {
	case int64:
		return Location{Value: &Expr{Op: OpConst, N: uint64(x)}}, nil
	case uint64:
		return Location{Value: &Expr{Op: OpConst, N: x}}, nil
	case []byte:
		return Location{Bytes: x}, nil
	case string:
		return Location{Bytes: append([]byte(x), 0)}, nil
	}
	return Location{}, fmt.Errorf("%s: its constant makes no sense", v.Name)
}

// absent tells the nearest address, in the same function, where the variable is not optimized out.
func (v *Variable) absent(spans []span) error {
	e := &AbsentError{Name: v.Name}
	best := ^uint64(0)
	for _, s := range spans {
		if len(s.expr) == 0 || s.hi <= s.lo {
			continue
		}
		at, d := s.lo, s.lo-v.pc
		if s.hi <= v.pc {
			// Behind the last instruction that has it: the list tells no instruction's beginning but
			// the first one's.
			at, d = s.lo, v.pc-s.lo
		}
		if d < best {
			best, e.Nearest = d, at
		}
	}
	if e.Nearest != 0 {
		e.File, e.Line = v.f.LineOf(e.Nearest)
	}
	return e
}

// frameBase is what DW_OP_fbreg counts from, in the function that a scope is in.
func (f *File) frameBase(s *scope, u *unit, pc uint64) (*Expr, error) {
	for s != nil && s.entry.Tag != dwarf.TagSubprogram {
		s = s.parent
	}
	if s == nil {
		return nil, errNoCFA
	}
	fd := s.entry.AttrField(dwarf.AttrFrameBase)
	if fd == nil {
		return nil, errNoCFA
	}
	expr, ok := fd.Val.([]byte)
	if !ok {
		spans, err := f.spans(u, fd)
		if err != nil {
			return nil, err
		}
		if expr, ok = pick(spans, pc); !ok {
			return nil, errNoCFA
		}
	}
	m := machine{f: f, u: u, pc: pc}
	l, err := m.locate(expr)
	switch {
	case err != nil:
		return nil, err
	case l.Value != nil: // DW_OP_reg6: the register's value
		return l.Value, nil
	case l.Memory != nil:
		return l.Memory, nil
	}
	return nil, errNoCFA
}
