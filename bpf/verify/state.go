package verify

import "kprobe/bpf"

// kind is the sort of thing that a register holds.
type kind uint8

const (
	isNothing kind = iota // never written, or unreadable since a call
	isNumber
	isCtx
	isStack  // of frame index
	isMap    // the map index itself
	isValue  // in a value of map index
	isRecord // in a reserved record of size bytes
	isData   // in size bytes of the call's private data
)

// value is the verifier's knowledge of a register.
type value struct {
	kind  kind
	null  bool   // a pointer that may also be 0
	num   scalar // the number; of a pointer, how far it is from where it first pointed
	index int    // of the map or frame
	size  int64  // of the record, or the private data

	// Values of one id are the same number, or the same pointer: what a comparison tells of one
	// holds for all. 0 stands for no id.
	id  uint32
	ref uint32 // which record
}

func (v *value) pointer() bool { return v.kind > isNumber }

func number(s scalar) value { return value{kind: isNumber, num: s} }

// The kinds of a byte of the stack.
const (
	byteNothing = iota
	byteData    // some number's
	byteSpill   // part of spill
	bytePointer // part of a pointer that cannot be read back
)

// stack8 is 8 bytes of stack. A register is remembered as spill only where it was
// stored by R10 and a constant, and is loaded so (flow.fills); elsewhere the bytes
// of a number are data, and those of a pointer can only be overwritten.
type stack8 struct {
	bytes [8]uint8
	spill *value // never changed: states share it
}

// soil forgets the spill: its bytes stay what they are made of.
func (w *stack8) soil() {
	if w.spill == nil {
		return
	}
	left := uint8(byteData)
	if w.spill.pointer() {
		left = bytePointer
	}
	for i, b := range w.bytes {
		if b == byteSpill {
			w.bytes[i] = left
		}
	}
	w.spill = nil
}

// callFrame is one function's part of a state.
type callFrame struct {
	fn    int // index in Proof.Funcs
	ret   int // where the caller goes on
	regs  [11]value
	stack [bpf.MaxStack / 8]stack8 // [0] is the word below R10
}

// record is a reserved ring record that has to be given back.
type record struct {
	ref  uint32
	slot int // of the call that reserved it
}

// state is the verifier's knowledge at one point of one path.
type state struct {
	pc      int
	frames  []*callFrame
	records []record
	rounds  int // of MayGoto on the path
}

func (s *state) top() *callFrame { return s.frames[len(s.frames)-1] }

// pool keeps frames that are not needed any more for the next states: they are most of what the
// verifier allocates.
type pool []*callFrame

// clone copies a state. Of its stacks it copies what programs were seen to use: the rest is empty.
func (v *verifier) clone(s *state) *state {
	c := &state{pc: s.pc, records: append([]record(nil), s.records...), rounds: s.rounds, frames: make([]*callFrame, 0, len(s.frames))}
	for _, f := range s.frames {
		g, used := v.frame(), v.used(f)
		g.fn, g.ret, g.regs = f.fn, f.ret, f.regs
		copy(g.stack[:used], f.stack[:used])
		c.frames = append(c.frames, g)
	}
	return c
}

// frame is one with nothing in its stack.
func (v *verifier) frame() *callFrame {
	n := len(v.pool)
	if n == 0 {
		return new(callFrame)
	}
	g := v.pool[n-1]
	v.pool = v.pool[:n-1]
	clear(g.stack[:v.used(g)])
	return g
}

// used is the number of words of a frame's stack that may have been written.
func (v *verifier) used(f *callFrame) int { return (v.proof.Funcs[f.fn].Stack + 7) / 8 }

func (p *pool) free(s *state) {
	*p = append(*p, s.frames...)
	s.frames = nil
}

// each visits every value of the state; change may alter it. Spills are copied
// first, so that other states keep theirs.
func (s *state) each(match func(*value) bool, change func(*value)) {
	for _, f := range s.frames {
		for r := range f.regs {
			if v := &f.regs[r]; match(v) {
				change(v)
			}
		}
		for w := range f.stack {
			if v := f.stack[w].spill; v != nil && match(v) {
				c := *v
				change(&c)
				f.stack[w].spill = &c
			}
		}
	}
}

// release ends a record: nothing may point into it any more.
func (s *state) release(ref uint32) {
	s.drop(ref)
	for _, f := range s.frames {
		for r := range f.regs {
			if f.regs[r].ref == ref {
				f.regs[r] = value{}
			}
		}
		for w := range f.stack {
			if v := f.stack[w].spill; v != nil && v.ref == ref {
				f.stack[w].soil()
			}
		}
	}
}

// drop takes a record off the list of open records.
func (s *state) drop(ref uint32) {
	for i, r := range s.records {
		if r.ref == ref {
			s.records = append(s.records[:i:i], s.records[i+1:]...)
			return
		}
	}
}

// ids pairs the names of one state with another's.
type ids []struct{ old, now uint32 }

func (m *ids) same(old, now uint32) bool {
	for _, p := range *m {
		if p.old == old {
			return p.now == now && now != 0
		}
	}
	*m = append(*m, struct{ old, now uint32 }{old, now})
	return true
}

// covers tells whether everything that may happen from now on was looked at when
// the old state, at the same instruction, was.
func (f *flow) covers(old, now *state) bool {
	if len(old.frames) != len(now.frames) || len(old.records) != len(now.records) {
		return false
	}
	var names ids
	for i, r := range old.records {
		if !names.same(r.ref, now.records[i].ref) {
			return false
		}
	}
	for k, of := range old.frames {
		nf := now.frames[k]
		if of.fn != nf.fn || of.ret != nf.ret {
			return false
		}
		live, exact := f.live[now.pc], f.exact[now.pc]
		if k+1 < len(old.frames) {
			at := old.frames[k+1].ret
			live, exact = f.live[at], f.exact[at]
			live.regs &= 1<<bpf.R6 | 1<<bpf.R7 | 1<<bpf.R8 | 1<<bpf.R9
		}
		for r := bpf.R0; r < bpf.R10; r++ {
			if live.reg(r) && !of.regs[r].covers(&nf.regs[r], exact.reg(r), &names) {
				return false
			}
		}
		for w := range of.stack {
			if !of.stack[w].covers(&nf.stack[w], live.words>>w&1 != 0, exact.words>>w&1 != 0, &names) {
				return false
			}
		}
	}
	return true
}

// covers tells whether a value may stand for another; exact: the number matters.
func (v *value) covers(o *value, exact bool, names *ids) bool {
	switch {
	case v.kind == isNothing:
		return true
	case v.kind != o.kind || v.null != o.null || v.index != o.index || v.size != o.size:
		return false
	case v.kind == isNumber && !exact:
		return true
	case !v.num.holds(&o.num):
		return false
	case v.id != 0 && !names.same(v.id, o.id):
		return false
	}
	return v.ref == 0 || names.same(v.ref, o.ref)
}

func (w *stack8) covers(o *stack8, live, exact bool, names *ids) bool {
	if w.spill == nil && w.bytes == o.bytes {
		return true
	}
	number := func(w *stack8, i int) bool {
		return w.bytes[i] == byteData || w.bytes[i] == byteSpill && !w.spill.pointer()
	}
	spill := w.spill != nil && w.bytes[0] == byteSpill && live
	if spill && (w.spill.pointer() || exact) {
		return o.spill != nil && w.spill.covers(o.spill, true, names)
	}
	for i := range w.bytes {
		if number(w, i) && !number(o, i) {
			return false
		}
	}
	return true
}
