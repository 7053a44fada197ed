package source

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
)

// GCC splits functions in two: a beginning, which it copies to the callers, and the rest, which the beginning calls.
// Debug data has the rest as one more copy of the function, though nobody calls it but the function itself: to count
// it, too, were to count the call twice.

// rest tells whether a copy is the rest of the function that it is in: what is called from the place where the
// function is declared. A function that is copied to itself for its recursion is called from elsewhere.
func (f *File) rest(c copied, e *dwarf.Entry) bool {
	in := f.enclosing(c)
	if in == nil {
		return false
	}
	if origin, alt := originOf(in.entry); origin != c.origin || alt != c.alt() {
		return false
	}
	file, line := f.declared(e)
	u := f.unitAt(uint64(c.off))
	callLine, ok := e.Val(dwarf.AttrCallLine).(int64)
	callColumn, _ := e.Val(dwarf.AttrCallColumn).(int64)
	return ok && u != nil && int(callLine) == line && int(callColumn) == f.column(e) && f.fileOf(u, e.Val(dwarf.AttrCallFile)) == file
}

// enclosing is the function, or the copy, that a copy is directly in; nil where that is not known.
func (f *File) enclosing(c copied) *scope {
	s := f.scopeAt(c.off)
	if s == nil {
		return nil
	}
	return s.parent.own()
}

// originOf is the entry that a function's or copy's entry has its name from, itself or another, in the alternate file
// or not.
func originOf(e *dwarf.Entry) (off dwarf.Offset, alt bool) {
	for _, attr := range []dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
		switch v := e.Val(attr).(type) {
		case dwarf.Offset:
			return v, false
		case int64:
			return dwarf.Offset(v), true
		}
	}
	return e.Offset, false
}

// merged are those of a function's copies that have instructions, but no beginning: where two branches end in the same
// code, GCC merges it, and tells the beginning of one of the two copies, which follows. That is where both calls go.
func (f *File) merged(copies []copied) map[dwarf.Offset]bool {
	type end struct {
		in dwarf.Offset
		at uint64
	}
	ends := map[end]dwarf.Offset{} // of those without a beginning
	var begun []end
	for _, c := range copies {
		e := f.entry(c.off)
		rs := f.rangesOf(e)
		if len(rs) == 0 {
			continue
		}
		in := dwarf.Offset(0)
		if s := f.enclosing(c); s != nil {
			in = s.entry.Offset
		}
		if e.Val(dwarf.AttrEntrypc) != nil {
			begun = append(begun, end{in, entryOf(e, rs)})
		} else {
			ends[end{in, rs[len(rs)-1][1]}] = c.off
		}
	}
	out := map[dwarf.Offset]bool{}
	for _, b := range begun {
		for n := range uint64(follows) {
			if off, ok := ends[end{b.in, b.at - n}]; ok {
				out[off] = true
			}
		}
	}
	return out
}

// follows is within how many bytes code follows other: a few instructions of the two branches may be between.
const follows = 16

// part tells whether code that debug data has as a function's own is its rest, which only the name of its symbol says
// (FUNC.part.0).
func (f *File) part(n *named, entry uint64) bool { return n.ref != 0 && f.parts()[entry] }

// readParts finds the symbols of such code.
func readParts(e *elf.File) map[uint64]bool {
	out := map[uint64]bool{}
	table := e.SectionByType(elf.SHT_SYMTAB)
	if table == nil || int(table.Link) >= len(e.Sections) {
		return out
	}
	c, names := cursor{b: content(table, nil), order: e.ByteOrder}, content(e.Sections[table.Link], nil)
	for c.pos < len(c.b) && !c.bad {
		name, value := c.number(4), uint64(0)
		if e.Class == elf.ELFCLASS32 {
			value = c.number(4)
			c.take(8)
		} else {
			c.take(4)
			value = c.number(8)
			c.take(8)
		}
		if name >= uint64(len(names)) {
			continue
		}
		if text, _, _ := bytes.Cut(names[name:], []byte{0}); bytes.Contains(text, []byte(".part.")) {
			out[value] = true
		}
	}
	return out
}
