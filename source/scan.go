package source

import (
	"cmp"
	"debug/dwarf"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// index is what the pass over all entries has found, in the order of the entries.
type index struct {
	names  []named // functions, variables at file level, constants
	copies []copied
	scopes []space
	types  []typed // that are whole
}

// typed is a type by name.
type typed struct {
	off, name uint64
	tag       dwarf.Tag
}

// named is a function's or a variable's entry: a declaration, the abstract form of an
// inlined function, or code.
type named struct {
	off    uint64
	ref    uint64 // the entry that has its name: what it specifies, or is a copy of
	name   uint64
	link   uint64 // its name for the linker
	in     int32  // of scopes; -1: at the level of the file
	fn     bool   // a function; else a variable
	code   bool   // it has addresses
	altRef bool   // ref is in the alternate file
}

// copied is an inlined function's copy.
type copied struct {
	off, origin uint64
	alt         bool
}

// space is a namespace or a class.
type space struct {
	name uint64
	in   int32
}

// readIndex passes over all units, as many at a time as there are CPUs.
func (f *File) readIndex() *index {
	type part struct {
		at int
		index
	}
	work := make(chan int)
	var mu sync.Mutex
	var parts []part
	var wg sync.WaitGroup
	const batch = 64
	for range runtime.NumCPU() {
		wg.Go(func() {
			for at := range work {
				p := part{at: at}
				for _, u := range f.units[at:min(at+batch, len(f.units))] {
					p.scan(f, u)
				}
				mu.Lock()
				parts = append(parts, p)
				mu.Unlock()
			}
		})
	}
	for at := 0; at < len(f.units); at += batch {
		work <- at
	}
	close(work)
	wg.Wait()
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.at, b.at) })
	x := &index{}
	for _, p := range parts {
		base := int32(len(x.scopes))
		for _, n := range p.names {
			if n.in >= 0 {
				n.in += base
			}
			x.names = append(x.names, n)
		}
		for _, s := range p.scopes {
			if s.in >= 0 {
				s.in += base
			}
			x.scopes = append(x.scopes, s)
		}
		x.copies = append(x.copies, p.copies...)
		x.types = append(x.types, p.types...)
	}
	return x
}

// level is where a pass is: in a function, whose variables are not the file's, and in
// which namespace.
type level struct {
	in       int32
	function bool
}

const maxLevels = 1000

// scan passes over a unit. Types are skipped as a whole, where they say how long they are,
// but for those that have functions.
func (x *index) scan(f *File, u *unit) {
	c := f.cursor(f.sec.info[:u.end], int(u.root))
	here := level{in: -1}
	stack := make([]level, 0, 32)
	for c.pos < len(c.b) && !c.bad {
		off := uint64(c.pos)
		code := c.uleb()
		if code == 0 {
			if len(stack) == 0 {
				return
			}
			here, stack = stack[len(stack)-1], stack[:len(stack)-1]
			continue
		}
		if code >= uint64(len(u.kinds)) || u.kinds[code].tag == 0 || len(stack) > maxLevels {
			return
		}
		a := &u.kinds[code]
		next := here
		switch a.tag {
		case dwarf.TagSubprogram, dwarf.TagInlinedSubroutine:
			x.entry(f, u, &c, a, off, here)
			next.function = true
		case dwarf.TagVariable, dwarf.TagMember:
			if here.function {
				c.pass(u, a)
			} else {
				x.entry(f, u, &c, a, off, here)
			}
		case dwarf.TagNamespace, dwarf.TagModule, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagInterfaceType, dwarf.TagEnumerationType:
			name := x.typed(f, u, &c, a, off)
			if a.children {
				x.scopes = append(x.scopes, space{name, here.in})
				next.in = int32(len(x.scopes) - 1)
			}
		case dwarf.TagTypedef, dwarf.TagBaseType:
			x.typed(f, u, &c, a, off)
		case dwarf.TagArrayType, dwarf.TagSubroutineType:
			if a.children && a.sibling {
				to := uint64(0)
				for _, s := range a.specs {
					if s.attr == dwarf.AttrSibling {
						to, _ = c.reference(u, s.form)
					} else {
						c.skip(u, s.form)
					}
				}
				if to > off && to <= u.end {
					c.pos = int(to)
					continue
				}
			} else {
				c.pass(u, a)
			}
		default:
			c.pass(u, a)
		}
		if a.children {
			stack = append(stack, here)
			here = next
		}
	}
}

// typed notes a type, unless it is only declared, and gives its name.
func (x *index) typed(f *File, u *unit, c *cursor, a *abbrev, off uint64) (name uint64) {
	declared := false
	for _, s := range a.specs {
		switch s.attr {
		case dwarf.AttrName:
			name = c.text(f, u, s.form)
		case dwarf.AttrDeclaration:
			declared = true
			c.skip(u, s.form)
		default:
			c.skip(u, s.form)
		}
	}
	if (name != 0 || a.tag == dwarf.TagEnumerationType) && !declared && a.tag != dwarf.TagNamespace && a.tag != dwarf.TagModule {
		x.types = append(x.types, typed{off, name, a.tag})
	}
	return name
}

// pass goes over the attributes.
func (c *cursor) pass(u *unit, a *abbrev) {
	if a.fixed >= 0 {
		c.take(a.fixed)
		return
	}
	for _, s := range a.specs {
		c.skip(u, s.form)
	}
}

func (x *index) entry(f *File, u *unit, c *cursor, a *abbrev, off uint64, here level) {
	n := named{off: off, in: here.in, fn: a.tag == dwarf.TagSubprogram}
	member := a.tag == dwarf.TagMember
	for _, s := range a.specs {
		switch s.attr {
		case dwarf.AttrName:
			n.name = c.text(f, u, s.form)
		case dwarf.AttrLinkageName, 0x2007: // MIPS's, of old compilers
			n.link = c.text(f, u, s.form)
		case dwarf.AttrAbstractOrigin, dwarf.AttrSpecification:
			n.ref, n.altRef = c.reference(u, s.form)
		case dwarf.AttrLowpc, dwarf.AttrRanges, dwarf.AttrEntrypc:
			n.code = true
			c.skip(u, s.form)
		case dwarf.AttrLocation, dwarf.AttrConstValue:
			n.code = true
			c.skip(u, s.form)
		case dwarf.AttrExternal:
			member = false // a static member: a variable
			c.skip(u, s.form)
		default:
			c.skip(u, s.form)
		}
	}
	switch {
	case member:
	case a.tag == dwarf.TagInlinedSubroutine:
		x.copies = append(x.copies, copied{off, n.ref, n.altRef})
	case n.name != 0 || n.ref != 0:
		x.names = append(x.names, n)
	}
}

// at is the entry at an offset.
func (x *index) at(off uint64) *named {
	i, ok := slices.BinarySearchFunc(x.names, off, func(n named, off uint64) int { return cmp.Compare(n.off, off) })
	if !ok {
		return nil
	}
	return &x.names[i]
}

// qualified is the full name of an entry, with its namespaces and classes.
func (f *File) qualified(n *named) string {
	x := f.scan()
	parts := []string{f.name(n.name)}
	for i, depth := n.in, 0; i >= 0 && depth < maxLevels; depth++ {
		if name := f.name(x.scopes[i].name); name != "" {
			parts = append(parts, name)
		}
		i = x.scopes[i].in
	}
	slices.Reverse(parts)
	return strings.Join(parts, "::")
}

// find finds the entries of a name, functions or variables: those that have the name
// themselves, and all that refer to one of these, of which the first is told.
func (f *File) find(name string, fn bool) map[uint64]*named {
	x := f.scan()
	last := name
	if i := strings.LastIndex(name, "::"); i >= 0 {
		last = name[i+2:]
	}
	roots := map[uint64]*named{}
	for i := range x.names {
		n := &x.names[i]
		if n.fn != fn || n.name == 0 && n.link == 0 {
			continue
		}
		if f.nameIs(n.link, name) || f.nameIs(n.name, name) {
			roots[n.off] = n
		} else if last != name && f.nameIs(n.name, last) {
			if full := f.qualified(n); full == name || strings.HasSuffix(full, "::"+name) {
				roots[n.off] = n
			}
		}
	}
	if len(roots) == 0 {
		return nil
	}
	// What a root refers to is the same thing: a declaration in a class has no link to its code.
	for range 4 {
		before := len(roots)
		for i := range x.names {
			n := &x.names[i]
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
