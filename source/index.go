package source

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"iter"
	"slices"
	"strings"
)

// index is what a pass over all entries has found, in their order. A large C++ program has some ten million
// declarations, nearly all of them of functions that nobody calls: of these nothing is kept (see pass.unit).
type index struct {
	chunks []chunk
	across bool // entries refer to those of other units
}

// chunk is the index of some units that follow each other.
type chunk struct {
	first  dwarf.Offset // the first unit's
	names  []named      // functions, variables at file level, constants
	copies []copied
	scopes []space
	types  []typed // that are whole
	across bool
}

// kept is what an index keeps.
type kept int

const (
	keepCode  kept = iota // names of what has code or a value, and that others have theirs from; copies
	keepNames             // all names; copies
	keepTypes             // types only
)

// typed is a type by name.
type typed struct {
	name uint64
	off  dwarf.Offset
	tag  dwarf.Tag
}

// named is a function's or a variable's entry: a declaration, the abstract form of an
// inlined function, or code.
type named struct {
	name   uint64
	link   uint64 // its name for the linker
	off    dwarf.Offset
	ref    dwarf.Offset // the entry that has its name: what it specifies, or is a copy of
	in     int32        // of its chunk's scopes; -1: at the level of the file
	fn     bool         // a function; else a variable
	code   bool         // it has addresses
	altRef bool         // ref is in the alternate file
}

// copied is an inlined function's copy. A large C++ program has millions.
type copied struct {
	off, origin dwarf.Offset
	line        callLine
}

// callLine is the line that calls a copy, and whether the copy's origin is in the alternate file.
type callLine uint32

const altOrigin callLine = 1 << 31

func (l callLine) line() int { return int(l &^ altOrigin) }

func (c copied) alt() bool { return c.line&altOrigin != 0 }

// space is a namespace or a class.
type space struct {
	name uint64
	in   int32
}

// names are those of all chunks, and so are copies and types.
func (x *index) names() iter.Seq[*named] {
	return every(x, func(c *chunk) []named { return c.names })
}

func (x *index) copies() iter.Seq[*copied] {
	return every(x, func(c *chunk) []copied { return c.copies })
}

func (x *index) types() iter.Seq[*typed] {
	return every(x, func(c *chunk) []typed { return c.types })
}

func every[T any](x *index, of func(*chunk) []T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range x.chunks {
			all := of(&x.chunks[i])
			for j := range all {
				if !yield(&all[j]) {
					return
				}
			}
		}
	}
}

// chunk is the one that has an offset; nil for none.
func (x *index) chunk(off dwarf.Offset) *chunk {
	i, ok := slices.BinarySearchFunc(x.chunks, off, func(c chunk, off dwarf.Offset) int { return cmp.Compare(c.first, off) })
	if !ok {
		i--
	}
	if i < 0 {
		return nil
	}
	return &x.chunks[i]
}

// of are the names in a range of offsets.
func (x *index) of(from, to dwarf.Offset) []named {
	c := x.chunk(from)
	if c == nil {
		return nil
	}
	by := func(n named, off dwarf.Offset) int { return cmp.Compare(n.off, off) }
	i, _ := slices.BinarySearchFunc(c.names, from, by)
	j, _ := slices.BinarySearchFunc(c.names, to, by)
	return c.names[i:j]
}

// at is the entry at an offset.
func (x *index) at(off dwarf.Offset) *named {
	if n := x.of(off, off+1); len(n) > 0 {
		return &n[0]
	}
	return nil
}

// qualified is the full name of an entry, with its namespaces and classes.
func (f *File) qualified(n *named) string { return f.path(f.scan().chunk(n.off), n) }

func (f *File) path(c *chunk, n *named) string {
	parts := []string{f.name(n.name)}
	for i, depth := n.in, 0; i >= 0 && depth < maxLevels; depth++ {
		if name := f.name(c.scopes[i].name); name != "" {
			parts = append(parts, name)
		}
		i = c.scopes[i].in
	}
	slices.Reverse(parts)
	return strings.Join(parts, "::")
}

// declares tells whether the source has a function of a name, which may be one that nobody calls and that has no code.
func (f *File) declares(name string) bool {
	p := &pass{f: f, keep: keepNames}
	for u := range f.each() {
		p.clear()
		p.unit(u)
		if slices.ContainsFunc(p.names, func(n named) bool {
			return n.fn && (f.nameIs(n.link, name) || f.nameIs(n.name, name) || last(name) != name && f.nameIs(n.name, last(name)) && ends(f.path(&p.chunk, &n), name))
		}) {
			return true
		}
	}
	return false
}

// last is the last part of a name with namespaces.
func last(name string) string {
	if i := strings.LastIndex(name, "::"); i >= 0 {
		return name[i+2:]
	}
	return name
}

// ends tells whether a full name is a name, with more namespaces or not.
func ends(full, name string) bool { return full == name || strings.HasSuffix(full, "::"+name) }

// find finds the entries of a name, functions or variables: those that have the name
// themselves, and all that refer to one of these, of which the first is told.
func (f *File) find(name string, fn bool) map[dwarf.Offset]*named {
	x := f.scan()
	whole := f.wanted(name)
	inner := whole
	if last(name) != name {
		inner = f.wanted(last(name))
	}
	roots := map[dwarf.Offset]*named{}
	for n := range x.names() {
		if n.fn != fn || n.name == 0 && n.link == 0 {
			continue
		}
		if whole.is(n.link) || whole.is(n.name) {
			roots[n.off] = n
		} else if last(name) != name && inner.is(n.name) && ends(f.qualified(n), name) {
			roots[n.off] = n
		}
	}
	if len(roots) == 0 {
		return nil
	}
	// What a root refers to is the same thing: a declaration in a class has no link to its code.
	for range 4 {
		before := len(roots)
		for n := range x.names() {
			if n.fn != fn || n.ref == 0 || n.altRef {
				continue
			}
			if r := roots[n.ref]; r != nil && roots[n.off] == nil {
				roots[n.off] = r
			}
		}
		if len(roots) == before {
			break
		}
	}
	return roots
}

// wanted is a text that names are compared with.
type wanted struct {
	f    *File
	text string
	at   map[uint64]bool // where .debug_str has it
	sum  uint64          // its digest
}

// wanted looks the text up in .debug_str once, from one end to the other: to look at each name there would read all of
// it, too, a page at a time.
func (f *File) wanted(text string) wanted {
	w := wanted{f, text, map[uint64]bool{}, digest(text)}
	if text == "" {
		return w
	}
	ended := append([]byte(text), 0)
	str := f.sec.str
	for from := 0; from < len(str); from += chunkSize {
		piece := str[from:min(from+chunkSize+len(text), len(str))]
		for at := 0; ; at++ {
			i := bytes.Index(piece[at:], ended)
			if i < 0 {
				break
			}
			at += i
			w.at[inStr|uint64(from+at)] = true
		}
		forget(piece)
	}
	return w
}

// is tells whether a name is the text.
func (w wanted) is(name uint64) bool {
	switch name & sectionMask {
	case inStr:
		return w.at[name]
	case inInfo:
		if name>>32&^(sectionMask>>32) != w.sum {
			return false
		}
	}
	return name != 0 && w.f.nameIs(name, w.text)
}
