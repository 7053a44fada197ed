package source

import (
	"debug/dwarf"
	"slices"
)

// A function that ends with a jump to another one has made way for that: no frame is left of it, and the other one
// returns to its caller. Debug data tells where each function calls, and jumps to, which others. So it may tell which ones
// have made way between a call and the function that is under way in its place.

// GNU's names of before DWARF 5.
const (
	tagCallSite     dwarf.Tag  = 0x4109
	attrTailCall    dwarf.Attr = 0x2115
	attrAllTailCall dwarf.Attr = 0x2116
	attrAllCalls    dwarf.Attr = 0x2117
)

// callSite is a call, or a jump in place of a call and a return.
type callSite struct {
	ret  uint64 // the address behind it; 0 where at is
	at   uint64 // its own address
	tail bool
	to   dwarf.Offset // the function's entry; 0 where it is not known, or is in the alternate file
	off  dwarf.Offset // its own entry
}

// siteOf is the call site that an entry tells of.
func siteOf(e *dwarf.Entry) (s callSite) {
	ret, to := dwarf.AttrCallReturnPC, dwarf.AttrCallOrigin
	if e.Tag == tagCallSite {
		ret, to = dwarf.AttrLowpc, dwarf.AttrAbstractOrigin
	}
	s.off = e.Offset
	s.ret, _ = e.Val(ret).(uint64)
	s.at, _ = e.Val(dwarf.AttrCallPC).(uint64) // LLVM's, of jumps
	s.to, _ = e.Val(to).(dwarf.Offset)
	s.tail = flag(e, dwarf.AttrCallTailCall) || flag(e, attrTailCall)
	return s
}

func flag(e *dwarf.Entry, attr dwarf.Attr) bool {
	set, _ := e.Val(attr).(bool)
	return set
}

// tellsJumps tells whether a function's entry promises that all its jumps to other functions are told.
func tellsJumps(e *dwarf.Entry) bool {
	return slices.ContainsFunc([]dwarf.Attr{dwarf.AttrCallAllCalls, dwarf.AttrCallAllTailCalls, attrAllCalls, attrAllTailCall},
		func(attr dwarf.Attr) bool { return flag(e, attr) })
}

// MadeWay is a function that has made way for another one.
type MadeWay struct {
	Entry  uint64 // where the function begins
	Addr   uint64 // its jump; 0 where it has several to the other one
	Behind bool   // Addr is behind the jump
}

// maxMadeWay bounds the functions that are looked at for one answer.
const maxMadeWay = 50

// MadeWay are the functions that have made way, the last one first, between the call that returns to ret and the function that has
// an address, which stands in the place of the one that was called. There are none where that function was called itself, and
// where debug data leaves several answers, or none.
func (f *File) MadeWay(ret, addr uint64) []MadeWay {
	caller, callee := f.functionAt(ret-1), f.functionAt(addr)
	if caller == nil || callee == nil {
		return nil
	}
	i := slices.IndexFunc(caller.sites, func(s callSite) bool { return s.ret == ret && !s.tail })
	if i < 0 || f.isOf(callee.entry, caller.sites[i].to) {
		return nil
	}
	w := ways{f: f, to: callee.entry.Offset, jumps: map[dwarf.Offset][]jump{}, bodies: map[dwarf.Offset]dwarf.Offset{}}
	called := w.body(caller.sites[i].to)
	if !w.follow(called) || !w.follow(w.to) || len(w.toward(w.to)) > 0 { // it may have been on the way before
		return nil
	}
	var out []MadeWay
	for at := called; at != w.to; {
		next := w.toward(at)
		if len(next) == 0 || len(out) > len(w.jumps) {
			return nil
		}
		made := MadeWay{Entry: entryOf(f.tree(at).entry, f.tree(at).ranges)}
		if slices.ContainsFunc(next, func(j jump) bool { return j.to != next[0].to }) {
			return nil
		}
		if site := next[0].site; len(next) == 1 {
			if made.Addr, made.Behind = site.ret, true; site.ret == 0 {
				made.Addr, made.Behind = site.at, false
			}
		}
		out = append(out, made)
		at = next[0].to
	}
	slices.Reverse(out)
	return out
}

// functionAt is the function that has code of its own at an address; nil where none is known.
func (f *File) functionAt(addr uint64) *scope {
	s := f.innermost(addr)
	if s == nil {
		return nil
	}
	return s.top()
}

// ways are the jumps from function to function, which are told apart by their entries.
type ways struct {
	f      *File
	to     dwarf.Offset                  // the function that they lead to in the end
	jumps  map[dwarf.Offset][]jump       // of the functions that have been looked at
	bodies map[dwarf.Offset]dwarf.Offset // see body
}

// jump is one to another function.
type jump struct {
	to   dwarf.Offset
	site callSite
}

// follow looks at all functions that jumps lead to from one. It is false where one of them may jump anywhere.
func (w *ways) follow(from dwarf.Offset) bool {
	if _, ok := w.jumps[from]; ok {
		return true
	}
	if from == 0 || len(w.jumps) == maxMadeWay {
		return false
	}
	fn := w.f.tree(from)
	if fn == nil || !tellsJumps(fn.entry) {
		return false
	}
	w.jumps[from] = nil
	for _, s := range fn.sites {
		if !s.tail {
			continue
		}
		to := w.body(s.to)
		if w.jumps[from] = append(w.jumps[from], jump{to, s}); !w.follow(to) {
			return false
		}
	}
	return true
}

// toward are a function's jumps that are on a way.
func (w *ways) toward(from dwarf.Offset) (all []jump) {
	for _, j := range w.jumps[from] {
		if w.leads(j.to, map[dwarf.Offset]bool{}) {
			all = append(all, j)
		}
	}
	return all
}

func (w *ways) leads(from dwarf.Offset, seen map[dwarf.Offset]bool) bool {
	if from == w.to {
		return true
	}
	seen[from] = true
	return slices.ContainsFunc(w.jumps[from], func(j jump) bool { return !seen[j.to] && w.leads(j.to, seen) })
}

// body is the only code of the function that an entry has or declares; 0 where there is none, or several.
func (w *ways) body(off dwarf.Offset) dwarf.Offset {
	known, ok := w.bodies[off]
	if !ok {
		known = w.f.bodyOf(off)
		w.bodies[off] = known
	}
	return known
}

func (f *File) bodyOf(off dwarf.Offset) (body dwarf.Offset) {
	if off == 0 {
		return 0
	}
	e := f.entry(off)
	if len(f.rangesOf(e)) > 0 {
		return off
	}
	if e == nil {
		return 0
	}
	name, external := f.linkName(e), f.external(e)
	for at := range f.find(name, true) {
		if n := f.scan().at(at); n == nil || !n.code {
			continue
		}
		of := f.entry(at)
		if !f.completes(of, off) && (!external || !f.external(of) || f.linkName(of) != name) || len(f.rangesOf(of)) == 0 {
			continue
		}
		if body != 0 {
			return 0
		}
		body = at
	}
	return body
}

// isOf tells whether a function's code is of an entry: its own, or one that declares it or that it is a copy of. Copies
// of a function, and parts of it, have one name.
func (f *File) isOf(code *dwarf.Entry, off dwarf.Offset) bool {
	return off != 0 && (f.completes(code, off) || f.funcName(code) == f.funcName(f.entry(off)))
}

// completes tells whether an entry is another one, completes it, or is a copy of it.
func (f *File) completes(e *dwarf.Entry, off dwarf.Offset) bool {
	for e != nil && e.Offset != off {
		in, next := f.origin(e)
		if in != f {
			return false
		}
		e = next
	}
	return e != nil
}

func (f *File) external(e *dwarf.Entry) bool {
	fd, _, _ := f.attr(e, dwarf.AttrExternal)
	if fd == nil {
		return false
	}
	external, _ := fd.Val.(bool)
	return external
}

// linkName is a function's name for the linker.
func (f *File) linkName(e *dwarf.Entry) string {
	if fd, in, _ := f.attr(e, dwarf.AttrLinkageName); fd != nil && in == f {
		if s, ok := fd.Val.(string); ok {
			return s
		}
	}
	return f.nameOf(e)
}
