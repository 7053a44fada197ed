package source

import (
	"debug/dwarf"
	"errors"
	"slices"
)

// Where a function has given up a parameter, its caller may still have what it has passed: debug data tells of a call what is
// in the registers of its arguments, in terms of what the caller keeps over it.

// GNU's names of before DWARF 5.
const (
	tagCallParam  dwarf.Tag  = 0x410a
	attrCallValue dwarf.Attr = 0x2111
	attrTarget    dwarf.Attr = 0x2113
)

// ErrNotTold says that debug data does not tell what a call has passed.
var ErrNotTold = errors.New("the call does not tell what it has passed")

// Call is a call of a function: what is told of it.
type Call struct {
	To string // the linker's name of the function; "" where that is not told

	// Target is the function's address, of a call by a pointer, in terms of the caller's registers; nil where it is not told.
	Target *Expr

	// Loose tells that LLVM has compiled the caller. It may tell of a register what this had some instructions before the call,
	// and has not any more.
	Loose bool

	f     *File
	entry dwarf.Offset
	ret   uint64
	in    *scope
}

// Call is the call that returns to an address. Errors: ErrNotTold.
func (f *File) Call(ret uint64) (*Call, error) {
	in := f.functionAt(ret - 1)
	if in == nil {
		return nil, ErrNotTold
	}
	is := func(s callSite) bool { return s.ret == ret && !s.tail }
	i := slices.IndexFunc(in.sites, is)
	if i < 0 || slices.ContainsFunc(in.sites[i+1:], is) { // calls of several branches may have been made one
		return nil, ErrNotTold
	}
	site := in.sites[i]
	u := f.unitAt(uint64(site.off))
	if u == nil {
		return nil, ErrNotTold
	}
	c := &Call{f: f, entry: site.off, ret: ret, in: in, Loose: f.ofLLVM(u)}
	if e := f.entry(site.to); site.to != 0 && e != nil {
		c.To = f.linkName(e)
	}
	e := f.entry(site.off)
	if e == nil {
		return nil, ErrNotTold
	}
	for _, attr := range []dwarf.Attr{dwarf.AttrCallTarget, attrTarget} {
		if b, ok := e.Val(attr).([]byte); ok {
			c.Target, _ = c.work(b)
		}
	}
	return c, nil
}

// Passed is the value that a register had when the function was entered, in terms of the caller's registers. Errors:
// ErrNotTold; else why it is not known.
func (c *Call) Passed(reg uint64) (*Expr, error) {
	r := c.f.data.Reader()
	r.Seek(c.entry)
	if e, err := r.Next(); err != nil || e == nil || !e.Children {
		return nil, ErrNotTold
	}
	for {
		e, err := r.Next()
		if err != nil || e == nil || e.Tag == 0 {
			return nil, ErrNotTold
		}
		if e.Tag != dwarf.TagCallSiteParameter && e.Tag != tagCallParam || !c.isOf(e, reg) {
			r.SkipChildren()
			continue
		}
		for _, attr := range []dwarf.Attr{dwarf.AttrCallValue, attrCallValue} {
			if b, ok := e.Val(attr).([]byte); ok {
				return c.work(b)
			}
		}
		return nil, ErrNotTold
	}
}

// isOf tells whether an entry is of an argument in a register.
func (c *Call) isOf(e *dwarf.Entry, reg uint64) bool {
	b, _ := e.Val(dwarf.AttrLocation).([]byte)
	m := machine{f: c.f, u: c.f.unitAt(uint64(c.entry))}
	l, err := m.locate(b)
	return err == nil && l.Value != nil && l.Value.Op == OpReg && l.Value.N == reg
}

// work works out an expression of the caller.
func (c *Call) work(b []byte) (*Expr, error) {
	u := c.f.unitAt(uint64(c.entry))
	pc := c.ret - 1 // in the call's instruction
	m := machine{f: c.f, u: u, pc: pc, base: func() (*Expr, error) { return c.f.frameBase(c.in, u, pc) }}
	l, err := m.locate(b)
	switch {
	case err != nil:
		return nil, err
	case l.Memory != nil: // the operations leave a value, which in a location would be an address
		return l.Memory, nil
	case l.Value != nil:
		return l.Value, nil
	}
	return nil, ErrNotTold
}

// Entered finds the entry of the function around an address. known tells that no jump leads there again while the function is under
// way: it was entered with what its call has passed.
func (f *File) Entered(pc uint64) (entry uint64, known bool) {
	s := f.functionAt(pc)
	if s == nil || len(s.ranges) == 0 {
		return 0, false
	}
	w := ways{f: f, to: s.entry.Offset, jumps: map[dwarf.Offset][]jump{}, bodies: map[dwarf.Offset]dwarf.Offset{}}
	return entryOf(s.entry, s.ranges), w.follow(w.to) && len(w.toward(w.to)) == 0
}
