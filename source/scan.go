package source

import (
	"debug/dwarf"
	"runtime"
	"slices"
	"sync"
)

// readIndex passes over all units, as many at a time as there are CPUs. Where units refer to each other (link time
// optimization, dwz), all names are kept: which are referred to is known in the end.
func (f *File) readIndex() *index {
	if f.shared {
		return f.readChunks(keepNames)
	}
	x := f.readChunks(keepCode)
	if x.across {
		x = f.readChunks(keepNames)
	}
	return x
}

// chunkSize is how many bytes of entries a chunk is of, at least but for the last.
const chunkSize = 4 << 20

func (f *File) readChunks(keep kept) *index {
	var parts [][]*unit
	from, size := 0, uint64(0)
	for i, u := range f.units {
		if size += u.end - u.off; size >= chunkSize || i == len(f.units)-1 {
			parts = append(parts, f.units[from:i+1])
			from, size = i+1, 0
		}
	}
	x := &index{chunks: make([]chunk, len(parts))}
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.NumCPU(), len(parts)) {
		wg.Go(func() {
			p := &pass{f: f, keep: keep}
			for at := range work {
				us := parts[at]
				for _, u := range us {
					p.unit(u)
				}
				x.chunks[at] = p.chunk.clone()
				x.chunks[at].first = dwarf.Offset(us[0].off)
				p.chunk.clear()
				forget(f.sec.info[us[0].off:us[len(us)-1].end])
			}
		})
	}
	for at := range parts {
		work <- at
	}
	close(work)
	wg.Wait()
	x.across = slices.ContainsFunc(x.chunks, func(c chunk) bool { return c.across })
	return x
}

// clone has no room to spare; clear keeps it.
func (c *chunk) clone() chunk {
	return chunk{names: slices.Clone(c.names), copies: slices.Clone(c.copies), scopes: slices.Clone(c.scopes), types: slices.Clone(c.types), across: c.across}
}

func (c *chunk) clear() {
	*c = chunk{names: c.names[:0], copies: c.copies[:0], scopes: c.scopes[:0], types: c.types[:0]}
}

// pass reads the index of a chunk.
type pass struct {
	f    *File
	keep kept
	chunk
	referred []uint64 // a bit for each byte of a unit: an entry there is referred to
}

// unit passes over a unit, and keeps what can be asked for: what has code or a value, and what others have their names from.
func (p *pass) unit(u *unit) {
	from := len(p.names)
	p.scan(u)
	switch p.keep {
	case keepTypes:
		p.names, p.copies, p.scopes = p.names[:0], p.copies[:0], p.scopes[:0]
		return
	case keepNames:
		p.types = p.types[:0]
		return
	}
	p.types = p.types[:0]
	size := u.end - u.off
	p.referred = slices.Grow(p.referred[:0], int(size/64+1))[:size/64+1]
	clear(p.referred)
	refer := func(off dwarf.Offset, alt bool) {
		switch at := uint64(off) - u.off; {
		case off == 0 || alt:
		case at < size:
			p.referred[at/64] |= 1 << (at % 64)
		default:
			p.across = true
		}
	}
	for _, n := range p.names[from:] {
		refer(n.ref, n.altRef)
	}
	for i := len(p.copies) - 1; i >= 0 && uint64(p.copies[i].off) >= u.off; i-- {
		refer(p.copies[i].origin, p.copies[i].alt())
	}
	kept := from
	for _, n := range p.names[from:] {
		if at := uint64(n.off) - u.off; n.code || !n.fn || p.referred[at/64]>>(at%64)&1 != 0 {
			p.names[kept] = n
			kept++
		}
	}
	p.names = p.names[:kept]
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
func (p *pass) scan(u *unit) {
	f := p.f
	c := f.cursor(f.sec.info[:u.end], int(u.root))
	here := level{in: -1}
	stack := make([]level, 0, 32)
	for c.pos < len(c.b) && !c.bad {
		off := dwarf.Offset(c.pos)
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
			p.entry(u, &c, a, off, here)
			next.function = true
		case dwarf.TagVariable, dwarf.TagMember:
			if here.function {
				c.pass(u, a)
			} else {
				p.entry(u, &c, a, off, here)
			}
		case dwarf.TagNamespace, dwarf.TagModule, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagInterfaceType, dwarf.TagEnumerationType:
			name := p.typed(u, &c, a, off)
			if a.children {
				p.scopes = append(p.scopes, space{name, here.in})
				next.in = int32(len(p.scopes) - 1)
			}
		case dwarf.TagTypedef, dwarf.TagBaseType:
			p.typed(u, &c, a, off)
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
				if to > uint64(off) && to <= u.end {
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
func (p *pass) typed(u *unit, c *cursor, a *abbrev, off dwarf.Offset) (name uint64) {
	declared := false
	for _, s := range a.specs {
		switch s.attr {
		case dwarf.AttrName:
			name = c.text(p.f, u, s.form)
		case dwarf.AttrDeclaration:
			declared = true
			c.skip(u, s.form)
		default:
			c.skip(u, s.form)
		}
	}
	if (name != 0 || a.tag == dwarf.TagEnumerationType) && !declared && a.tag != dwarf.TagNamespace && a.tag != dwarf.TagModule {
		p.types = append(p.types, typed{name, off, a.tag})
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

func (p *pass) entry(u *unit, c *cursor, a *abbrev, off dwarf.Offset, here level) {
	n := named{off: off, in: here.in, fn: a.tag == dwarf.TagSubprogram}
	member, call := a.tag == dwarf.TagMember, uint64(0)
	for _, s := range a.specs {
		switch s.attr {
		case dwarf.AttrName:
			n.name = c.text(p.f, u, s.form)
		case dwarf.AttrLinkageName, 0x2007: // MIPS's, of old compilers
			n.link = c.text(p.f, u, s.form)
		case dwarf.AttrAbstractOrigin, dwarf.AttrSpecification:
			ref, alt := c.reference(u, s.form)
			n.ref, n.altRef = dwarf.Offset(ref), alt
		case dwarf.AttrLowpc, dwarf.AttrRanges, dwarf.AttrEntrypc:
			n.code = true
			c.skip(u, s.form)
		case dwarf.AttrLocation, dwarf.AttrConstValue:
			n.code = true
			c.skip(u, s.form)
		case dwarf.AttrExternal:
			member = false // a static member: a variable
			c.skip(u, s.form)
		case dwarf.AttrCallLine:
			call = c.constant(u, s)
		default:
			c.skip(u, s.form)
		}
	}
	switch {
	case member:
	case a.tag == dwarf.TagInlinedSubroutine:
		line := callLine(min(call, 1<<30))
		if n.altRef {
			line |= altOrigin
		}
		p.copies = append(p.copies, copied{off, n.ref, line})
	case n.name != 0 || n.ref != 0:
		p.names = append(p.names, n)
	}
}
