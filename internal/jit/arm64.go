package jit

import (
	"errors"
	"fmt"

	"kprobe/bpf"
	"kprobe/internal/isa/amd64"
)

// A64 code: eBPF's registers lie in the machine's one to one, and almost every instruction has
// one of its own. See abi.go for which.

// regs64 are the places of R0 to R10.
var regs64 = [11]gpr{7, 0, 1, 2, 3, 4, 19, 20, 21, 22, 25}

// The registers that are for a program's own use, and those with a meaning.
const (
	s0, s1, s2, s3 gpr = 9, 10, 11, 12

	state64 gpr = 28
	link64  gpr = 30
)

// helperClobbers64 is what a helper's routine may change: x0 to x17, and the link register.
const helperClobbers64 amd64.RegSet = 1<<18 - 1 | 1<<30

type compiler64 struct {
	compilation
	a     asm64
	calls bool // something is called
}

// compile64 compiles, a second time with longer jumps where that is needed.
func compile64(p *bpf.Proof, env *Env) (*Code, error) {
	code, err := compileFar(p, env, false)
	if errors.Is(err, errFar) {
		code, err = compileFar(p, env, true)
	}
	return code, err
}

func compileFar(p *bpf.Proof, env *Env, far bool) (*Code, error) {
	c := newCompiler64(p, env)
	c.a.far = far
	return c.code, c.compile()
}

func newCompiler64(p *bpf.Proof, env *Env) *compiler64 {
	c := &compiler64{}
	c.compilation = newCompilation(p, env, &c.a)
	return c
}

func (c *compiler64) compile() error {
	c.code.words = true
	c.analysis = analyse(c.proof, c.inlined, nil)
	c.calls = c.plan(c.inlined)
	for i := range c.proof.Funcs {
		f := c.fns[c.proof.Funcs[i].Start]
		c.prologue(f)
		if err := c.body(f, c.insn); err != nil {
			return err
		}
	}
	c.code.Stack = c.depth64(c.fns[0])
	c.code.Clobbers = c.a.writes
	return c.done()
}

// align64 is what the stack pointer is a multiple of.
const align64 = 16

func aligned(n int) int { return (n + align64 - 1) &^ (align64 - 1) }

// pushed is how much of the stack a function takes for what it keeps: the registers, and where
// it returns to.
func (c *compiler64) pushed(f *function) int {
	if f.outermost && !c.calls {
		return 0
	}
	return aligned(8 * (1 + len(f.saved)))
}

// depth64 is how many bytes a function and those it calls take.
func (c *compiler64) depth64(f *function) int {
	if f.depth < 0 {
		below := 0
		for i := f.Start; i < f.End; i++ {
			if to, ok := c.insns[i].Target(i); ok && c.insns[i].IsCall(bpf.CallLocal) && c.proof.Reached[i] {
				below = max(below, c.depth64(c.fns[to]))
			}
		}
		f.depth = c.pushed(f) + below
		if f.outermost && c.frame {
			f.depth += aligned(c.proof.Stack)
		}
	}
	return f.depth
}

// moveStack is sp += n.
func (c *compiler64) moveStack(n int) {
	if n != 0 && !c.a.addImm(8, sp31, sp31, int64(n)) {
		c.a.constant(s0, uint64(n))
		c.a.put(0x8b206000|uint32(s0)<<16|31<<5|31, zr) // add sp, sp, x9
	}
}

// prologue: the stack of all functions lies in one piece below the outermost's R10, as the
// interpreter has it, and what is kept below that. Nothing lies below the stack pointer, where a
// signal's frame may come.
func (c *compiler64) prologue(f *function) {
	c.a.bind(f.entry)
	if f.outermost && c.frame {
		c.a.addImm(8, regs64[bpf.R10], sp31, 0)
		c.moveStack(-aligned(c.proof.Stack))
	}
	if n := c.pushed(f); n > 0 {
		c.moveStack(-n)
		c.a.access(a64Store, 8, link64, sp31, 0, s0)
		for i, r := range f.saved {
			c.a.access(a64Store, 8, regs64[r], sp31, int32(8+8*i), s0)
		}
	}
	if f.outermost && c.bounds() {
		c.a.access(a64Store, 8, regs64[bpf.R1], state64, StateContext, s0)
	}
	if f.outermost && c.rounds() {
		c.a.constant(s0, bpf.MaxRounds)
		c.a.access(a64Store, 4, s0, state64, StateRounds, s1)
	}
}

func (c *compiler64) epilogue(f *function) {
	n := c.pushed(f)
	if n > 0 {
		c.a.access(a64Load, 8, link64, sp31, 0, s0)
		for i, r := range f.saved {
			c.a.access(a64Load, 8, regs64[r], sp31, int32(8+8*i), s0)
		}
	}
	if f.outermost && c.frame {
		n += aligned(c.proof.Stack)
	}
	c.moveStack(n)
	c.a.ret()
}

// callLocal calls another function of the program.
func (c *compiler64) callLocal(f *function, to int) {
	frame, fp := c.frame && f.Stack > 0, regs64[bpf.R10]
	if frame {
		c.addConst(8, fp, fp, -int64(f.Stack))
	}
	c.a.callLabel(c.fns[to].entry)
	if frame {
		c.addConst(8, fp, fp, int64(f.Stack))
	}
}

func (c *compiler64) insn(f *function, i int) (next int, err error) {
	in := c.insns[i]
	dst, src := regs64[in.Dst], regs64[in.Src]
	next = i + 1
	switch in.Class() {
	case bpf.ClassLD:
		v, err := c.constant(i)
		c.a.constant(dst, v)
		return i + 2, err

	case bpf.ClassALU, bpf.ClassALU64:
		return next, c.arithmetic(in)

	case bpf.ClassLDX:
		op := uint32(a64Load)
		if in.Mode() == bpf.ModeMemSX && in.Size() < 8 {
			op = a64Signed
		}
		c.a.access(op, in.Size(), dst, src, int32(in.Off), s1)
		return next, nil

	case bpf.ClassST:
		from := zr
		if in.Imm != 0 {
			from = s0
			c.a.constant(s0, uint64(in.Imm))
		}
		c.a.access(a64Store, in.Size(), from, dst, int32(in.Off), s1)
		return next, nil

	case bpf.ClassSTX:
		if in.Mode() == bpf.ModeAtomic {
			return next, c.atomic(in)
		}
		c.a.access(a64Store, in.Size(), src, dst, int32(in.Off), s1)
		return next, nil
	}

	to, _ := in.Target(i)
	switch {
	case in.IsExit():
		c.epilogue(f)
	case in.IsCall(bpf.CallLocal):
		c.callLocal(f, to)
	case c.proof.Calls[i] != nil:
		c.call(i)
	case in.IsCall(in.Src):
		return 0, fmt.Errorf("call of kind %d", in.Src)
	case c.follows(i, to):
	case in.Jump() == bpf.Ja:
		c.a.goTo(label(to))
	case in.Jump() == bpf.MayGoto:
		c.round(to)
	default:
		return next, c.branch(in, to)
	}
	return next, nil
}

// round counts a round off.
func (c *compiler64) round(to int) {
	c.a.access(a64Load, 4, s0, state64, StateRounds, s1)
	c.a.whenZero(4, false, s0, label(to))
	c.a.addImm(4, s0, s0, -1)
	c.a.access(a64Store, 4, s0, state64, StateRounds, s1)
}

// conds64 are the conditions of jumps, behind a comparison or, Jset, a test.
var conds64 = map[uint8]uint32{
	bpf.Jeq: a64EQ, bpf.Jne: a64NE, bpf.Jset: a64NE,
	bpf.Jgt: a64HI, bpf.Jge: a64HS, bpf.Jlt: a64LO, bpf.Jle: a64LS,
	bpf.Jsgt: a64GT, bpf.Jsge: a64GE, bpf.Jslt: a64LT, bpf.Jsle: a64LE,
}

// branch compares and jumps.
func (c *compiler64) branch(in bpf.Insn, to int) error {
	cond, ok := conds64[in.Jump()]
	if !ok {
		return fmt.Errorf("unknown jump %#x", in.Op)
	}
	dst, src, n := regs64[in.Dst], regs64[in.Src], size(in)
	switch {
	case in.Jump() == bpf.Jset && in.X():
		c.a.rrr(n, a64Ands, zr, dst, src)
	case in.Jump() == bpf.Jset:
		if !c.a.logical(n, a64Ands, zr, dst, uint64(in.Imm)) {
			c.a.constant(s0, uint64(in.Imm))
			c.a.rrr(n, a64Ands, zr, dst, s0)
		}
	case in.X():
		c.a.rrr(n, a64Subs, zr, dst, src)
	case in.Imm == 0 && cond <= a64NE:
		c.a.whenZero(n, cond == a64NE, dst, label(to))
		return nil
	case !c.a.compareImm(n, dst, int64(in.Imm)):
		c.a.constant(s0, uint64(in.Imm))
		c.a.rrr(n, a64Subs, zr, dst, s0)
	}
	c.a.when(cond, label(to))
	return nil
}

// operations of ALU instructions that the machine has as they are.
var logical64 = map[uint8]uint32{bpf.Or: a64Orr, bpf.And: a64And, bpf.Xor: a64Eor}
var plain64 = map[uint8]uint32{bpf.Add: a64Add, bpf.Sub: a64Sub, bpf.Or: a64Orr, bpf.And: a64And, bpf.Xor: a64Eor}

// atomic is a read-modify-write of memory: it tries until nobody came between. Those that give the
// old value order all accesses around them.
func (c *compiler64) atomic(in bpf.Insn) error {
	n, src, base := in.Size(), regs64[in.Src], regs64[in.Dst]
	op, plain := plain64[uint8(in.Imm)&^bpf.AtomicFetch]
	swap, compare := in.Imm == bpf.AtomicXchg, in.Imm == bpf.AtomicCmpxchg
	if !swap && !compare && (!plain || in.Imm&^0xff != 0 || op == a64Sub) {
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	}
	const status, old, changed = s0, s2, s3
	if in.Off != 0 {
		c.addConst(8, s1, base, int64(in.Off))
		base = s1
	}
	again, out := c.a.newLabel(), c.a.newLabel()
	c.a.bind(again)
	c.a.loadExclusive(n, old, base)
	store := changed
	switch {
	case compare:
		c.a.rrr(n, a64Subs, zr, old, regs64[bpf.R0])
		c.a.when(a64NE, out)
		store = src
	case swap:
		store = src
	default:
		c.a.rrr(n, op, changed, old, src)
	}
	c.a.storeExclusive(n, status, store, base)
	c.a.whenZero(4, true, status, again)
	c.a.bind(out)
	switch {
	case compare:
		c.a.barrier()
		c.a.move(n, regs64[bpf.R0], old)
	case in.Imm&bpf.AtomicFetch != 0:
		c.a.barrier()
		c.a.move(n, src, old)
	}
	return nil
}
