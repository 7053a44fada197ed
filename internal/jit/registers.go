package jit

import (
	"errors"
	"fmt"

	"kprobe/arch"
	"kprobe/bpf"
)

// Machines that have registers enough: eBPF's lie in theirs one to one, and almost every
// instruction has one of its own. The part that all of them share is here and in registers_call.go.

// gpr is a general register, by its number in the machine's instructions.
type gpr uint32

// places assigns a machine's registers.
type places struct {
	regs       [11]gpr // R0 to R10
	s0, s1, s2 gpr     // scratch; one more is the encoder's own
	zero       gpr     // reads zero
	sp, link   gpr
	state      gpr
	helper     arch.RegSet // the registers that a helper's routine may change
	nowhere    uint64      // an address that is none
}

// encoder writes a machine's instructions. Sizes are in bytes, 4 or 8, and an operation of 4 clears
// the upper half of its result.
type encoder interface {
	assembler
	places() *places
	written() arch.RegSet // all registers that are

	constant(dst gpr, v uint64)
	addConst(n int, dst, x gpr, v int64) // the stack pointer may be both
	operate(n int, op uint8, dst, x, y gpr)
	addProduct(sum, x, y gpr) // sum += x*y, of 8 bytes; x is spoilt

	load(n int, signed bool, dst, base gpr, off int32)
	store(n int, r, base gpr, off int32)
	storeRelease(r, base gpr) // 4 bytes, behind all that was stored before

	// Jumps on bpf's conditions. false: there is no such.
	jump(op uint8, n int, x, y gpr, to label) bool
	jumpConst(op uint8, n int, x gpr, v int64, to label) bool
	goTo(to label)
	callLabel(to label)
	callHelper(helper int32)
	ret()

	arithmetic(in bpf.Insn) error
	atomic(in bpf.Insn) error
}

// errFar says that a jump does not reach.
var errFar = errors.New("a jump is out of reach")

// compiler64 compiles for an encoder.
type compiler64 struct {
	compilation
	*places
	a     encoder
	calls bool // something is called
}

// compile64 compiles, once more with longer jumps where those of before do not reach: reach counts
// how often that was. A machine has at most three lengths of them.
func compile64(p *bpf.Proof, env *Env, to func(reach int) encoder, link linker) (code *Code, err error) {
	for reach := range 3 {
		c := newCompiler64(p, env, to(reach), link)
		if err = c.compile(); !errors.Is(err, errFar) {
			return c.code, err
		}
	}
	return nil, err
}

func newCompiler64(p *bpf.Proof, env *Env, a encoder, link linker) *compiler64 {
	return &compiler64{compilation: newCompilation(p, env, a, link), places: a.places(), a: a}
}

func (c *compiler64) compile() error {
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
	c.code.Clobbers = c.a.written()
	return c.done()
}

// align64 is the alignment of the stack pointer.
const align64 = 16

func aligned(n int) int { return (n + align64 - 1) &^ (align64 - 1) }

// pushed is the number of bytes of the stack that a function takes for the registers that it keeps,
// and for its return address.
func (c *compiler64) pushed(f *function) int {
	if f.outermost && !c.calls {
		return 0
	}
	return aligned(8 * (1 + len(f.saved)))
}

// depth64 is the number of bytes that a function and those it calls take.
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

func (c *compiler64) moveStack(n int) {
	if n != 0 {
		c.a.addConst(8, c.sp, c.sp, int64(n))
	}
}

// prologue: the stack of all functions lies in one piece below the outermost's R10, as the
// interpreter has it, and the registers that are kept below that. Nothing lies below the stack
// pointer, where a signal's frame may come.
func (c *compiler64) prologue(f *function) {
	c.a.bind(f.entry)
	if f.outermost && c.frame {
		c.a.addConst(8, c.regs[bpf.R10], c.sp, 0)
		c.moveStack(-aligned(c.proof.Stack))
	}
	if n := c.pushed(f); n > 0 {
		c.moveStack(-n)
		c.a.store(8, c.link, c.sp, 0)
		for i, r := range f.saved {
			c.a.store(8, c.regs[r], c.sp, int32(8+8*i))
		}
	}
	if f.outermost && c.bounds() {
		c.a.store(8, c.regs[bpf.R1], c.state, StateContext)
	}
	if f.outermost && c.rounds() {
		c.a.constant(c.s0, bpf.MaxRounds)
		c.a.store(4, c.s0, c.state, StateRounds)
	}
}

func (c *compiler64) epilogue(f *function) {
	n := c.pushed(f)
	if n > 0 {
		c.a.load(8, false, c.link, c.sp, 0)
		for i, r := range f.saved {
			c.a.load(8, false, c.regs[r], c.sp, int32(8+8*i))
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
	frame, fp := c.frame && f.Stack > 0, c.regs[bpf.R10]
	if frame {
		c.a.addConst(8, fp, fp, -int64(f.Stack))
	}
	c.a.callLabel(c.fns[to].entry)
	if frame {
		c.a.addConst(8, fp, fp, int64(f.Stack))
	}
}

func (c *compiler64) insn(f *function, i int) (next int, err error) {
	in := c.insns[i]
	dst, src := c.regs[in.Dst], c.regs[in.Src]
	next = i + 1
	switch in.Class() {
	case bpf.ClassLD:
		v, err := c.constant(i)
		c.a.constant(dst, v)
		return i + 2, err

	case bpf.ClassALU, bpf.ClassALU64:
		return next, c.a.arithmetic(in)

	case bpf.ClassLDX:
		c.a.load(in.Size(), in.Mode() == bpf.ModeMemSX && in.Size() < 8, dst, src, int32(in.Off))
		return next, nil

	case bpf.ClassST:
		from := c.zero
		if in.Imm != 0 {
			from = c.s0
			c.a.constant(from, uint64(in.Imm))
		}
		c.a.store(in.Size(), from, dst, int32(in.Off))
		return next, nil

	case bpf.ClassSTX:
		if in.Mode() == bpf.ModeAtomic {
			return next, c.a.atomic(in)
		}
		c.a.store(in.Size(), src, dst, int32(in.Off))
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
	c.a.load(4, false, c.s0, c.state, StateRounds)
	c.a.jumpConst(bpf.Jeq, 4, c.s0, 0, label(to))
	c.a.addConst(4, c.s0, c.s0, -1)
	c.a.store(4, c.s0, c.state, StateRounds)
}

// branch compares and jumps.
func (c *compiler64) branch(in bpf.Insn, to int) error {
	ok := false
	if dst, n := c.regs[in.Dst], size(in); in.X() {
		ok = c.a.jump(in.Jump(), n, dst, c.regs[in.Src], label(to))
	} else {
		ok = c.a.jumpConst(in.Jump(), n, dst, int64(in.Imm), label(to))
	}
	if !ok {
		return fmt.Errorf("unknown jump %#x", in.Op)
	}
	return nil
}
