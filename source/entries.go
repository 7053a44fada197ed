package source

import (
	"cmp"
	"debug/dwarf"
	"slices"
	"strings"
)

// Compilers copy the code of an inlined copy once more: a loop's first round before the loop, say, or a switch in each of
// its branches. An entry of debug data tells one address at most. But each instruction keeps its line and column.

// addEntries finds where else the inlined copies of a function are entered.
func (f *File) addEntries(fn *Function) {
	looked := map[*unit]bool{}
	var all []Copy
	for _, c := range fn.Copies {
		u := f.unitOf(c.Entry)
		if !c.Inlined || u == nil {
			all = append(all, c)
			continue
		}
		if f.ofLLVM(u) {
			begun, doubtful := f.beginnings(u, c)
			all = append(all, begun...)
			fn.Doubtful = append(fn.Doubtful, doubtful...)
			continue
		}
		all = append(all, c)
		if c.column != 0 && !looked[u] {
			looked[u] = true
			all = append(all, f.named(fn, u, c.column)...)
		}
	}
	fn.Copies = slices.DeleteFunc(slices.Clone(all), func(c Copy) bool { return c.rest })
	fn.rests = slices.DeleteFunc(all, func(c Copy) bool { return !c.rest })
	fn.Doubtful = slices.DeleteFunc(fn.Doubtful, func(d Copy) bool {
		return slices.ContainsFunc(fn.Copies, func(c Copy) bool { return c.Entry == d.Entry })
	})
}

// named returns the entries for which GCC's line tables have rows at the place of the function's name. Instances of a
// template share that place.
func (f *File) named(fn *Function, u *unit, column int) (more []Copy) {
	for _, r := range f.rows(u) {
		if r.end || !r.stmt || r.line != fn.Line || r.column != column || r.file == nil || r.file.Name != fn.File ||
			slices.ContainsFunc(fn.Copies, func(o Copy) bool { return o.Entry == r.addr || !o.Inlined && o.contains(r.addr) }) {
			continue
		}
		if of := f.copyAt(fn, r.addr); of != nil && !of.rest && !f.ofAnother(fn, column, r.addr) {
			of.Entry, of.Body = r.addr, r.addr
			more = append(more, *of)
		}
	}
	return more
}

// ofAnother tells whether another instance, which stands at the same place of the source, is entered at an address: its
// entry says so, or the innermost copy there is its.
func (f *File) ofAnother(fn *Function, column int, addr uint64) bool {
	in := f.innermost(addr)
	if in == nil {
		return false
	}
	same := func(s *scope) bool {
		file, line := f.declared(s.entry)
		return s.parent != nil && s.function() && line == fn.Line && file == fn.File && f.column(s.entry) == column
	}
	for s := in; s != nil; s = s.parent {
		if same(s) {
			return f.funcName(s.entry) != fn.Name
		}
	}
	var enters func(s *scope) bool
	enters = func(s *scope) bool {
		return len(s.ranges) > 0 && same(s) && f.copyEntry(s.entry, s.ranges) == addr && f.funcName(s.entry) != fn.Name ||
			slices.ContainsFunc(s.children, enters)
	}
	return enters(in.top())
}

// copyAt returns the copy that an entry belongs to: the innermost with the address, else the nearest in the same function.
func (f *File) copyAt(fn *Function, addr uint64) *Copy {
	frames := f.Frames(addr)
	if len(frames) == 0 {
		return nil
	}
	var best *Copy
	far := ^uint64(0)
	for _, c := range fn.Copies {
		if !c.Inlined || c.In != frames[len(frames)-1].Func {
			continue
		}
		d := max(c.Entry, addr) - min(c.Entry, addr)
		if c.contains(addr) {
			d = 0
		}
		if best == nil || d < far || d == 0 { // what is within a copy comes behind it
			best, far = &c, d
		}
	}
	return best
}

// ofLLVM tells whether LLVM has compiled a unit. It says where a copy's code is, and not where the copy begins.
func (f *File) ofLLVM(u *unit) bool {
	e := f.root(u)
	if e == nil {
		return false
	}
	by, _ := e.Val(dwarf.AttrProducer).(string)
	return slices.ContainsFunc([]string{"clang", "LLVM", "rustc"}, func(s string) bool { return strings.Contains(by, s) })
}

// beginnings returns a copy once for each of its ranges that begins with the code of its first statement. again has the
// rows of that statement within a range. Where the function is copied several times in a row, each of them begins another
// copy; where the statement is a loop of the function's own, none does. Debug data does not tell which.
func (f *File) beginnings(u *unit, c Copy) (all, again []Copy) {
	s := f.scopeAt(c.off)
	if s == nil {
		return []Copy{c}, nil
	}
	var parts []stretch
	for _, r := range c.Ranges {
		parts = append(parts, stretch{f.rowsIn(u, r[0], r[1]), r[1]})
	}
	first, ok := f.firstStatement(s, parts)
	if !ok {
		return []Copy{c}, nil
	}
	for _, p := range parts {
		for i, r := range p.rows {
			if !r.like(first.rows[0]) || i > 0 && p.rows[i-1].like(r) {
				continue
			}
			is := c
			is.Entry, is.Body = r.addr, r.addr
			switch {
			case r.addr == first.rows[0].addr || i == 0 && p.repeats(first):
				all = append(all, is)
			default:
				again = append(again, is)
			}
		}
	}
	if len(all) == 0 {
		return []Copy{c}, again
	}
	return all, again
}

// stretch is a range of code, or the rest of one, by its rows.
type stretch struct {
	rows []row
	end  uint64
}

// repeats tells whether two stretches begin with copies of the same code: up to the next row both are as long, or their
// next rows are alike. A statement whose instructions were moved apart has other instructions in each stretch.
func (p stretch) repeats(o stretch) bool {
	if len(p.rows) > 1 && len(o.rows) > 1 && p.rows[1].like(o.rows[1]) {
		return true
	}
	return p.size() == o.size()
}

// size returns the bytes of code up to the next row.
func (p stretch) size() uint64 {
	if len(p.rows) > 1 {
		return p.rows[1].addr - p.rows[0].addr
	}
	return p.end - p.rows[0].addr
}

// like tells whether rows are of the same place in the source.
func (r row) like(o row) bool {
	return r.line == o.line && r.column == o.column && r.file.Name == o.file.Name
}

// firstStatement returns the code of the statement that comes first in a copy's text. A function that is inlined in the
// copy counts where it is called. Of several stretches it is the one at the lowest address.
func (f *File) firstStatement(s *scope, parts []stretch) (best stretch, ok bool) {
	file, line := f.declared(s.entry)
	at := func(r row) (int, int) { // the line and column of the copy's own text
		in, call := f.innermost(r.addr).own(), (*scope)(nil)
		for ; in != nil && in != s; in = in.parent.own() {
			call = in
		}
		switch {
		case in == nil:
			return 0, 0
		case call == nil && r.file.Name == file && r.line >= line:
			return r.line, r.column
		case call == nil:
			return 0, 0
		}
		l, _ := call.entry.Val(dwarf.AttrCallLine).(int64)
		c, _ := call.entry.Val(dwarf.AttrCallColumn).(int64)
		if f.callFile(call.entry) != file {
			return 0, 0
		}
		return int(l), int(c)
	}
	bestLine, bestColumn := 0, 0
	for _, p := range parts {
		for i, r := range p.rows {
			l, c := at(r)
			if l == 0 {
				continue
			}
			if !ok || cmp.Or(cmp.Compare(l, bestLine), cmp.Compare(c, bestColumn), cmp.Compare(r.addr, best.rows[0].addr)) < 0 {
				best, bestLine, bestColumn, ok = stretch{p.rows[i:], p.end}, l, c, true
			}
		}
	}
	return best, ok
}
