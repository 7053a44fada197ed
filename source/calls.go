package source

import (
	"cmp"
	"debug/dwarf"
	"slices"
)

// Where a call was inlined, little or nothing need be left of the line that has the call: its instructions may lie
// in the copy, or be only the copy's own, which are of lines of another function. The copy's entry tells the line.

// begins are where a line's code begins, in each function and copy.
type begins struct {
	rows  map[*scope][]row
	order []*scope
}

func (b *begins) add(s *scope, r row) {
	if len(b.rows[s]) == 0 {
		b.order = append(b.order, s)
	}
	b.rows[s] = append(b.rows[s], r)
}

// branch is one place at which a line's code begins in a function or copy.
type branch struct {
	addr     uint64
	doubtful bool
}

// branches returns the places where a line begins, by its rows: the lowest address, and those where the statement there
// begins once more, which is known by its column. GCC has one row for each beginning of a statement. LLVM has another row
// wherever code of other lines was put in between, and Go's compiler has no columns, so there such a place is doubtful.
func (f *File) branches(rows []row) (out []branch) {
	first := slices.MinFunc(rows, func(a, b row) int { return cmp.Compare(a.addr, b.addr) })
	out = append(out, branch{addr: first.addr})
	for _, r := range rows {
		if r.column != first.column || slices.ContainsFunc(out, func(b branch) bool { return b.addr == r.addr }) {
			continue
		}
		u := f.unitOf(r.addr)
		out = append(out, branch{r.addr, r.column == 0 || u == nil || f.ofLLVM(u)})
	}
	return out
}

// owners finds whose line a row is, and keeps what it reads for that.
type owners struct {
	f        *File
	declared map[*scope]declaration
}

// declaration is where a function begins, and the line that calls a copy of it.
type declaration struct {
	file     string
	line     int
	callFile string
	callLine int64
}

func (f *File) owners() owners { return owners{f, map[*scope]declaration{}} }

func (o owners) read(s *scope) declaration {
	d, ok := o.declared[s]
	if !ok {
		d.file, d.line = o.f.declared(s.entry)
		if d.callLine, _ = s.entry.Val(dwarf.AttrCallLine).(int64); d.callLine != 0 {
			d.callFile = o.f.callFile(s.entry)
		}
		o.declared[s] = d
	}
	return d
}

// of is the function or copy whose line a row is: of those that have its address, the one that begins nearest above the
// line. Addresses alone do not tell, as several rows may be of one. What is of the line that calls a copy is of the caller.
// The last row of a copy may have the address at which the copy has ended: late tells that the row has no code.
func (o owners) of(r row) (s *scope, late bool) {
	innermost := o.f.innermost(r.addr).own()
	if innermost == nil {
		return nil, false
	}
	if s := o.within(innermost, r); s != nil {
		return s, false
	}
	if s := o.within(o.f.innermost(r.addr-1).own(), r); s != nil && s.top() == innermost.top() {
		return s, true
	}
	return innermost, false
}

// within returns the scope, of s and those around it, that a row's line belongs to; nil for none.
func (o owners) within(s *scope, r row) (best *scope) {
	nearest := -1
	for ; s != nil; s = s.parent.own() {
		d := o.read(s)
		if d.callLine == int64(r.line) && d.callFile == r.file.Name && s.parent != nil && (d.line != r.line || d.file != r.file.Name) {
			return s.parent.own()
		}
		if d.file == r.file.Name && nearest < d.line && d.line <= r.line {
			best, nearest = s, d.line
		}
	}
	return best
}

// beside tells whether the row of a copy is in the text of another one in the same function: where a copy ends or begins,
// rows of one may lie within another. What was inlined in the copy itself is left out: a closure stands in the text of
// what it is inlined in, which goes on behind it.
func (o owners) beside(of *scope, r row) bool {
	if of == nil || of.parent == nil {
		return false
	}
	begins := o.read(of).line
	var found func(s *scope) bool
	found = func(s *scope) bool {
		if s == of {
			return false
		}
		if s.parent != nil && s.function() {
			if d := o.read(s); d.file == r.file.Name && begins < d.line && d.line <= r.line {
				return true
			}
		}
		return slices.ContainsFunc(s.children, found)
	}
	return found(of.top())
}

// callFile is the source file that calls a copy; "" where that is not known.
func (f *File) callFile(e *dwarf.Entry) string {
	u := f.unitAt(uint64(e.Offset))
	if u == nil {
		return ""
	}
	return f.fileOf(u, e.Val(dwarf.AttrCallFile))
}

// callLines adds the copies that a line calls, for each function and copy that has no instructions of the line itself.
func (f *File) callLines(found *begins, file string, line int, in func(uint64) bool) {
	has := map[*scope]bool{}
	for _, s := range found.order {
		has[s] = true
	}
	f.called(file, in, func(at int) bool { return at == line }, func(e *dwarf.Entry, addr uint64, _ int) {
		if s := f.scopeAt(e.Offset); s != nil && s.parent != nil && !has[s.parent.own()] {
			found.add(s.parent.own(), row{addr: addr})
		}
	})
}

// nextCall is the nearest line behind one that calls a copy, or next where that is nearer; 0 for none.
func (f *File) nextCall(file string, line, next int, in func(uint64) bool) int {
	f.called(file, in, func(at int) bool { return at > line && (next == 0 || at < next) }, func(_ *dwarf.Entry, _ uint64, at int) { next = at })
	return next
}

// called gives the copies that lines of a file call, with the addresses of those that in has.
func (f *File) called(file string, in func(addr uint64) bool, is func(line int) bool, each func(e *dwarf.Entry, addr uint64, line int)) {
	read := 0
	for c := range f.scan().copies() {
		at := c.line.line()
		if !is(at) {
			continue
		}
		if read++; read%unitsAtOnce == 0 {
			f.forget()
		}
		e := f.entry(c.off)
		rs := f.rangesOf(e)
		if len(rs) == 0 || !fileIs(f.callFile(e), file) {
			continue
		}
		if addr := f.copyEntry(e, rs); in == nil || in(addr) {
			each(e, addr, at)
		}
	}
}

// calls are the lines of a file that call what is inlined in a function or copy, and in it alone.
func (f *File) calls(c Copy, file string) (lines []int) {
	s := f.scopeAt(c.off)
	if s == nil {
		return nil
	}
	for in := s.children; len(in) > 0; {
		at := in[0]
		in = in[1:]
		if !at.function() {
			in = append(in, at.children...)
			continue
		}
		if line, ok := at.entry.Val(dwarf.AttrCallLine).(int64); ok && len(at.ranges) > 0 && f.callFile(at.entry) == file {
			lines = append(lines, int(line))
		}
	}
	return lines
}

// is tells whether a scope is that of the copy.
func (c *Copy) is(s *scope) bool { return s == nil || s.entry.Offset == c.off }
