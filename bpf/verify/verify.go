// Package verify proves that a program of package bpf can do no harm, before it runs in another
// process. Read verify.go (the walk over a program's paths) first; then state.go and scalar.go
// (what is known on a path), mem.go (memory and helpers), flow.go (which parts of it matter) and
// check.go (instructions one by one).
package verify

import (
	"fmt"
	"math"

	"kprobe/bpf"
)

// MaxStates is the number of instructions that are walked, over all paths, before a program is
// given up.
const MaxStates = 1000000

// Program proves that a program ends, that it touches nothing but its context,
// stack, records and the values of its maps, and that every helper gets what it
// can take: or says which instruction cannot be shown to, and what to do about it.
// Errors are *bpf.VerifyError.
//
// It walks every path of the program with what can be known of each register
// (state.go, scalar.go), and ends a path where it comes to a state that was found
// safe before (flow.go). Loops are walked round by round, so they must end after few
// enough rounds. Stricter than the kernel: pointers cannot be stored outside of the
// stack nor returned, so that a program's results do not depend on addresses.
func Program(p *bpf.Program) (*bpf.Proof, error) {
	for _, m := range p.Maps {
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	funcs, err := check(p)
	if err != nil {
		return nil, err
	}
	n := len(p.Insns)
	v := &verifier{p: p, flow: flows(p, funcs), join: make([]bool, n), seen: make([][]*checkpoint, n), calls: map[[2]int]bool{}, rounds: map[int]int{}, inContext: map[int]bool{},
		proof: &bpf.Proof{Program: p, Access: make([]bpf.Mem, n), Value: make([]int, n), Reached: make([]bool, n), Calls: make([]*bpf.HelperCall, n), Funcs: funcs}}
	for pc := range p.Insns {
		if to, ok := p.Insns[pc].Target(pc); ok {
			v.join[to] = true
		}
		if p.Insns[pc].Op == bpf.ClassJMP|bpf.MayGoto {
			v.join[pc] = true
		}
	}
	first := &callFrame{ret: -1}
	first.regs[bpf.R1] = value{kind: isCtx, num: constant(0)}
	first.regs[bpf.R10] = value{kind: isStack, num: constant(0)}
	v.todo = []path{{&state{frames: []*callFrame{first}}, nil}}
	for len(v.todo) > 0 {
		next := v.todo[len(v.todo)-1]
		v.todo = v.todo[:len(v.todo)-1]
		if err := v.walk(next.state, next.from); err != nil {
			return nil, err
		}
	}
	for i := range funcs {
		f := &v.proof.Funcs[i]
		f.Stack = (f.Stack + bpf.StackAlign - 1) / bpf.StackAlign * bpf.StackAlign
	}
	if v.proof.Stack = v.stackFrom(0); v.proof.Stack > bpf.MaxStack {
		return nil, p.Refuse(-1, "its functions take %d bytes of stack together, more than %d: use smaller buffers, or a map", v.proof.Stack, bpf.MaxStack)
	}
	return v.proof, nil
}

type verifier struct {
	p     *bpf.Program
	proof *bpf.Proof
	flow  *flow
	todo  []path
	join  []bool          // several ways lead here: states are compared
	seen  [][]*checkpoint // by slot
	steps int
	pool
	ids   uint32
	calls map[[2]int]bool // of functions by functions

	rounds map[int]int // how often a MayGoto was met

	inContext map[int]bool // by slot: whether the address that a helper reads at is made of the context's
}

// exactRounds of a loop are walked one by one, with all that is known.
const exactRounds = 64

// path is one that is still to be walked.
type path struct {
	*state
	from *checkpoint
}

// checkpoint is a state that was met. It is known to be safe when the paths
// from it are all walked.
type checkpoint struct {
	*state
	from *checkpoint
	open int // paths from here that are not walked to their end
}

const (
	maxSeen  = 48   // states kept for an instruction
	maxTodo  = 8192 // paths open at a time
	maxReach = 1 << 29
)

// ended counts a path off.
func (c *checkpoint) ended() {
	for ; c != nil; c = c.from {
		if c.open--; c.open > 0 {
			return
		}
	}
}

// walk follows one path to its end, leaving the others that fork from it in todo.
func (v *verifier) walk(s *state, from *checkpoint) error {
	for {
		if v.join[s.pc] {
			if v.p.Insns[s.pc].Op == bpf.ClassJMP|bpf.MayGoto {
				v.widen(s)
			}
			for _, c := range v.seen[s.pc] {
				if !v.flow.covers(c.state, s) {
					continue
				}
				// A path that is still open leads here. A loop through MayGoto ends, and what may
				// happen from here on is being looked at. For a controller's program it cannot be
				// shown that it ends. That it does no harm follows from the state that was met, as
				// long as that does none.
				if c.open == 0 || s.rounds > c.rounds || v.p.Kind == bpf.Controller {
					v.free(s)
					from.ended()
					return nil
				}
				if v.flow.covers(s, c.state) {
					return v.p.Refuse(s.pc, "the program may loop here for ever: nothing that decides when it ends changes from round to round")
				}
			}
			from = &checkpoint{v.clone(s), from, 1}
			if list := v.seen[s.pc]; len(list) >= maxSeen {
				v.free(list[0].state)
				copy(list, list[1:])
				list[maxSeen-1] = from
			} else {
				v.seen[s.pc] = append(list, from)
			}
		}
		if v.steps++; v.steps > MaxStates {
			return v.p.Refuse(s.pc, "too complex: %d instructions were walked without an end; loops need a small constant bound", MaxStates)
		}
		v.proof.Reached[s.pc] = true
		fork, done, err := v.step(s)
		if err != nil {
			return err
		}
		if fork != nil {
			if from != nil {
				from.open++
			}
			if v.todo = append(v.todo, path{fork, from}); len(v.todo) > maxTodo {
				return v.p.Refuse(s.pc, "too complex: more than %d paths are open; loops need a small constant bound", maxTodo)
			}
		}
		if done {
			v.free(s)
			from.ended()
			return nil
		}
	}
}

// widen forgets, at a MayGoto that has been met often, the numbers that have changed since. Else
// each round of a loop would be a state of its own. A number that is compared with a bound gets its
// bound back there.
func (v *verifier) widen(s *state) {
	if v.rounds[s.pc]++; v.rounds[s.pc] <= exactRounds || len(v.seen[s.pc]) == 0 {
		return
	}
	old := v.seen[s.pc][len(v.seen[s.pc])-1]
	if len(old.frames) != len(s.frames) {
		return
	}
	for k, f := range s.frames {
		g := old.frames[k]
		if f.fn != g.fn || f.ret != g.ret {
			return
		}
		for r := range f.regs {
			f.regs[r].widen(&g.regs[r])
		}
		for w := range f.stack {
			if now, was := f.stack[w].spill, g.stack[w].spill; now != nil && was != nil && now.kind == isNumber {
				c := *now // states share it
				c.widen(was)
				f.stack[w].spill = &c
			}
		}
	}
}

// widen makes a number a set that covers its further values if it goes on as it has since was.
func (v *value) widen(was *value) {
	if v.kind != isNumber || was.kind != isNumber || was.num.holds(&v.num) {
		return
	}
	v.id = 0
	switch now, was := &v.num, &was.num; {
	case was.umin <= now.umin && now.umax < 1<<32:
		v.num = unsigned(was.umin, 1<<32-1)
	case was.smin >= 0 && was.smin <= now.smin:
		v.num = signed(was.smin, math.MaxInt64)
	default:
		v.num = anything
	}
}

// step follows one instruction. A conditional jump that can go both ways makes
// the fork.
func (v *verifier) step(s *state) (fork *state, done bool, err error) {
	pc := s.pc
	i := v.p.Insns[pc]
	f := s.top()
	s.pc++
	need := func(rs ...uint8) error {
		for _, r := range rs {
			if f.regs[r].kind == isNothing {
				return v.p.Refuse(pc, "r%d is read, but on this path nothing was put there (calls leave r1 to r5 without a value)", r)
			}
		}
		return nil
	}
	switch i.Class() {
	case bpf.ClassALU, bpf.ClassALU64:
		return nil, false, v.alu(pc, f, i, need)
	case bpf.ClassLD:
		f.regs[i.Dst] = number(constant(bpf.Imm64(i, v.p.Insns[s.pc])))
		switch i.Src {
		case bpf.LoadMap:
			f.regs[i.Dst] = value{kind: isMap, index: int(i.Imm), num: constant(0)}
		case bpf.LoadMapValue:
			f.regs[i.Dst] = value{kind: isValue, index: int(i.Imm), num: constant(uint64(uint32(v.p.Insns[s.pc].Imm)))}
		}
		s.pc++
	case bpf.ClassLDX:
		if err = need(i.Src); err != nil {
			return
		}
		var got value
		if got, err = v.load(s, pc, i); err == nil {
			f.regs[i.Dst] = got
		}
	case bpf.ClassST:
		if err = need(i.Dst); err == nil {
			err = v.store(s, pc, i, number(constant(uint64(int64(i.Imm)))))
		}
	case bpf.ClassSTX:
		if err = need(i.Dst, i.Src); err != nil {
			return
		}
		if i.Mode() == bpf.ModeAtomic {
			err = v.atomic(s, pc, i, need)
		} else {
			err = v.store(s, pc, i, f.regs[i.Src])
		}
	case bpf.ClassJMP, bpf.ClassJMP32:
		switch to, _ := i.Target(pc); {
		case i.IsExit():
			return nil, len(s.frames) == 1, v.exit(s, pc)
		case i.IsCall(bpf.CallHelper):
			err = v.helper(s, pc, i.Imm)
		case i.IsCall(bpf.CallLocal):
			err = v.enter(s, pc, to)
		case i.Jump() == bpf.Ja:
			s.pc = to
		case i.Jump() == bpf.MayGoto:
			s.rounds++
			fork = v.clone(s)
			fork.pc = to
		default:
			if err = need(i.Dst); err == nil && i.X() {
				err = need(i.Src)
			}
			if err == nil {
				fork, err = v.branch(s, pc, i, to)
			}
		}
	}
	return fork, false, err
}

func (v *verifier) newID() uint32 {
	v.ids++
	return v.ids
}

// alu follows arithmetic.
func (v *verifier) alu(pc int, f *callFrame, i bpf.Insn, need func(...uint8) error) error {
	dst, src := &f.regs[i.Dst], number(constant(uint64(int64(i.Imm))))
	if i.X() && i.Alu() != bpf.End {
		if err := need(i.Src); err != nil {
			return err
		}
		src = f.regs[i.Src]
	}
	if i.Alu() == bpf.Mov {
		whole := i.Class() == bpf.ClassALU64 && i.Off == 0
		switch {
		case src.pointer() && !whole:
			return v.p.Refuse(pc, "it takes a part of r%d, which is %s: only whole pointers are of use", i.Src, v.describe(&src))
		case whole || i.Off == 0 && src.num.umax <= 1<<32-1:
			if i.X() && src.kind == isNumber && !src.num.isConst() && src.id == 0 {
				src.id = v.newID()
				f.regs[i.Src].id = src.id
			}
			*dst = src
		default:
			*dst = number(aluScalar(i, constant(0), src.num))
		}
		return nil
	}
	if err := need(i.Dst); err != nil {
		return err
	}
	if !dst.pointer() && !src.pointer() {
		*dst = number(aluScalar(i, dst.num, src.num))
		return nil
	}
	ptr, num := *dst, src
	if !dst.pointer() {
		ptr, num = src, *dst
	}
	switch op := i.Alu(); {
	case i.Class() != bpf.ClassALU64 || op != bpf.Add && op != bpf.Sub || op == bpf.Sub && !dst.pointer():
		return v.p.Refuse(pc, "arithmetic on %s: only adding to a pointer and subtracting from it, in 64 bits, is possible", v.describe(&ptr))
	case op == bpf.Sub && src.pointer():
		if dst.kind != src.kind || dst.index != src.index || dst.ref != src.ref || dst.null || src.null {
			return v.p.Refuse(pc, "the difference of pointers to different things: %s and %s", v.describe(dst), v.describe(&src))
		}
		distance := aluScalar(i, dst.num, src.num)
		if dst.kind == isValue {
			distance = anything // perhaps of two elements
		}
		*dst = number(distance)
		return nil
	case num.pointer():
		return v.p.Refuse(pc, "the sum of two pointers")
	case ptr.null:
		return v.p.Refuse(pc, "arithmetic on %s: compare it with 0 before", v.describe(&ptr))
	case ptr.kind == isMap:
		return v.p.Refuse(pc, "arithmetic on %s: it can only be given to helpers", v.describe(&ptr))
	}
	op := bpf.Insn{Op: bpf.ClassALU64 | i.Alu()}
	sum := aluScalar(op, ptr.num, num.num)
	if i.Alu() == bpf.Add {
		sum = aluScalar(op, num.num, ptr.num)
	}
	if num.num.smin < -maxReach || num.num.smax > maxReach || sum.smin < -maxReach || sum.smax > maxReach {
		return v.p.Refuse(pc, "%s is moved by %s: bound the number first (if (i >= N) return 0;, or i &= N-1)", v.describe(&ptr), num.num.String())
	}
	ptr.num, ptr.id = sum, 0
	*dst = ptr
	return nil
}

// branch follows a conditional jump.
func (v *verifier) branch(s *state, pc int, i bpf.Insn, to int) (fork *state, err error) {
	f := s.top()
	a, b := f.regs[i.Dst], number(constant(uint64(int64(i.Imm))))
	if i.X() {
		b = f.regs[i.Src]
	}
	if (a.pointer() || b.pointer()) && i.Class() == bpf.ClassJMP32 {
		return nil, v.p.Refuse(pc, "it compares a part of a pointer")
	}
	zero := b.kind == isNumber && b.num.isConst() && b.num.t.Value == 0
	if a.pointer() && zero && (i.Jump() == bpf.Jeq || i.Jump() == bpf.Jne) {
		equal := i.Jump() == bpf.Jeq
		if !a.null {
			if !equal {
				s.pc = to
			}
			return nil, nil
		}
		other := v.clone(s)
		s.known(&a, !equal)
		other.known(&a, equal)
		other.pc = to
		return other, nil
	}
	if a.pointer() || b.pointer() {
		other := v.clone(s)
		other.pc = to
		return other, nil
	}
	if i.X() && i.Dst == i.Src {
		// One number, on both sides.
		if i.Jump() == bpf.Jset {
			b = number(a.num)
		} else {
			if i.Taken(0, 0) {
				s.pc = to
			}
			return nil, nil
		}
	}
	yesA, yesB, noA, noB := a.num, b.num, a.num, b.num
	yes, no := refine(i, true, &yesA, &yesB), refine(i, false, &noA, &noB)
	if no {
		if yes {
			fork = v.clone(s)
			fork.pc = to
			fork.learn(i, a, yesA, b, yesB)
		}
		s.learn(i, a, noA, b, noB)
	} else if yes {
		s.learn(i, a, yesA, b, yesB)
		s.pc = to
	}
	return fork, nil
}

// known settles a pointer that may be NULL: null or not, for all of its id.
func (s *state) known(p *value, null bool) {
	id := p.id
	if null && p.ref != 0 {
		s.drop(p.ref)
	}
	s.each(func(v *value) bool { return v.null && v.id == id }, func(v *value) {
		if null {
			*v = number(constant(0))
		} else {
			v.null, v.id = false, 0
		}
	})
}

// learn puts a comparison's result into the registers, and into all that hold the same number.
func (s *state) learn(i bpf.Insn, a value, na scalar, b value, nb scalar) {
	f := s.top()
	put := func(reg uint8, old value, now scalar) {
		f.regs[reg].num = now
		if old.id != 0 {
			s.each(func(v *value) bool { return v.kind == isNumber && v.id == old.id }, func(v *value) { v.num = now })
		}
	}
	put(i.Dst, a, na)
	if i.X() && i.Src != i.Dst {
		put(i.Src, b, nb)
	}
}

// enter follows a call of a function of the program.
func (v *verifier) enter(s *state, pc, to int) error {
	f := s.top()
	callee := -1
	for k := range v.proof.Funcs {
		if v.proof.Funcs[k].Start == to {
			callee = k
		}
	}
	for _, g := range s.frames {
		if g.fn == callee {
			return v.p.Refuse(pc, "a function calls itself, directly or by others: there is no recursion")
		}
	}
	if len(s.frames) >= bpf.MaxCalls {
		return v.p.Refuse(pc, "calls are nested deeper than %d", bpf.MaxCalls)
	}
	v.calls[[2]int{f.fn, callee}] = true
	g := &callFrame{fn: callee, ret: pc + 1}
	copy(g.regs[bpf.R1:bpf.R6], f.regs[bpf.R1:bpf.R6])
	g.regs[bpf.R10] = value{kind: isStack, index: len(s.frames), num: constant(0)}
	s.frames = append(s.frames, g)
	s.pc = to
	return nil
}

// exit follows a return.
func (v *verifier) exit(s *state, pc int) error {
	f := s.top()
	r0 := f.regs[bpf.R0]
	if len(s.frames) > 1 {
		if r0.kind == isStack && r0.index == len(s.frames)-1 {
			return v.p.Refuse(pc, "it returns the address of its own stack, which ends here")
		}
		s.frames = s.frames[:len(s.frames)-1]
		caller := s.top()
		clear(caller.regs[bpf.R1:bpf.R6])
		caller.regs[bpf.R0] = r0
		s.pc = f.ret
		return nil
	}
	switch {
	case r0.kind == isNothing:
		return v.p.Refuse(pc, "r0, the result, was never set on this path: return 0")
	case r0.pointer():
		return v.p.Refuse(pc, "it returns %s: return a number", v.describe(&r0))
	case len(s.records) > 0:
		return v.p.Refuse(pc, "the record reserved by instruction %d is neither submitted nor discarded on this path", s.records[0].slot)
	}
	return nil
}

// stackFrom is the stack of the deepest chain of calls from a function. There is
// no recursion: enter has seen to that.
func (v *verifier) stackFrom(fn int) int {
	memo := make([]int, len(v.proof.Funcs))
	var deep func(fn int) int
	deep = func(fn int) int {
		if memo[fn] > 0 {
			return memo[fn] - 1
		}
		below := 0
		for c := range v.calls {
			if c[0] == fn {
				below = max(below, deep(c[1]))
			}
		}
		memo[fn] = 1 + below + v.proof.Funcs[fn].Stack
		return memo[fn] - 1
	}
	return deep(fn)
}

// describe names a value's kind.
func (v *verifier) describe(x *value) string {
	s := ""
	switch x.kind {
	case isNothing:
		return "nothing"
	case isNumber:
		if s := x.num.String(); s != anyNumber {
			return "the number " + s
		}
		return "a number"
	case isCtx:
		s = "the context"
	case isStack:
		s = "a pointer to the stack"
	case isMap:
		s = fmt.Sprintf("map %q", v.p.Maps[x.index].Name)
	case isValue:
		s = fmt.Sprintf("a pointer to a value of map %q", v.p.Maps[x.index].Name)
	case isRecord:
		s = "a pointer to a ring record"
	case isData:
		s = "a pointer to the call's private data"
	}
	if x.null {
		s += " that may be NULL"
	}
	return s
}
