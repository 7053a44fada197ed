package jit

import (
	"fmt"
	"math"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/asm/x86"
)

// 32-bit code. Every instruction takes its operands from the thread's state, where eBPF's
// registers are (abi.go), works in eax, edx, ecx, ebx, esi and edi, and puts the result
// back: nothing is in a register between two instructions. A store there is forwarded to
// the load that follows, so this costs some cycles, not a walk through memory.
//
// A pointer's upper half is 0, and is not looked at.

// align386 is the distance of the return address above R10.
const align386 = 12

// narrow compiles for i386.
type narrow struct {
	eitherWidth
	divides bool  // something calls divide
	divide  label // see division
}

func newNarrow(p *bpf.Proof, env *Env) *narrow {
	c := &narrow{}
	c.compilation = newCompilation(p, env, &c.asm, linkI386)
	return c
}

func (c *narrow) compile() error {
	c.analysis = analyse(c.proof, c.inlined, nil)
	c.plan(c.inlined)
	c.divide = c.newLabel()
	for i := range c.proof.Funcs {
		f := c.fns[c.proof.Funcs[i].Start]
		c.prologue(f)
		if err := c.body(f, c.insn); err != nil {
			return err
		}
	}
	if c.divides {
		c.division()
	}
	c.code.Stack = c.depth(c.fns[0], 4) + 4 // division's return address
	if c.frame {
		c.code.Stack += c.proof.Stack + align386
	}
	c.code.Clobbers = c.writes & (1<<arch.R8 - 1) &^ (arch.SetOf(arch.SP) | arch.SetOf(arch.BP))
	return c.done()
}

// lo and hi are the halves of a register.
func lo(r uint8) x86.Operand { return x86.At(x86.RBP, StateRegs+8*int32(r)) }
func hi(r uint8) x86.Operand { return x86.At(x86.RBP, StateRegs+8*int32(r)+4) }

// spare is a word of the program's own, behind the registers.
func spare(n int32) x86.Operand { return x86.At(x86.RBP, StateRegs+11*8+4*n) }

// get and put carry both halves to and from edx:eax.
func (c *narrow) get(r uint8) {
	c.load(4, x86.RAX, lo(r))
	c.load(4, x86.RDX, hi(r))
}

func (c *narrow) put(r uint8) {
	c.store(4, lo(r), x86.RAX)
	c.store(4, hi(r), x86.RDX)
}

// putLow is put of eax alone: the upper half becomes 0.
func (c *narrow) putLow(r uint8) {
	c.store(4, lo(r), x86.RAX)
	c.clearHigh(r)
}

func (c *narrow) clearHigh(r uint8) { c.storeImm(4, hi(r), 0) }

func (c *narrow) putConst(r uint8, v uint64) {
	c.storeImm(4, lo(r), int32(v))
	c.storeImm(4, hi(r), int32(v>>32))
}

// with is dst op= m.
func (c *narrow) with(op x86.ALU, dst x86.Reg, m x86.Operand) {
	c.emit(4, op.ToReg(), dst, m)
	c.wrote(dst)
}

// onto is m op= src.
func (c *narrow) onto(op x86.ALU, m x86.Operand, src x86.Reg) { c.emit(4, op.ToRM(), src, m) }

// memory is the operand that an instruction's base and offset name; the base goes to r.
func (c *narrow) memory(r x86.Reg, base uint8, off int16) x86.Operand {
	c.load(4, r, lo(base))
	return x86.At(r, int32(off))
}

// sign is the upper half of a constant that is sign-extended.
func sign(v int32) int32 { return v >> 31 }

func (c *narrow) prologue(f *function) {
	c.bind(f.entry)
	for _, r := range f.saved {
		c.emit(4, x86.OpPush, 6, hi(r)) // push
		c.emit(4, x86.OpPush, 6, lo(r))
	}
	if !f.outermost {
		return
	}
	c.movImm(x86.RDX, 0)
	c.put(bpf.R1)
	if c.bounds() {
		c.store(4, x86.At(x86.RBP, StateContext), x86.RAX)
	}
	if c.rounds() {
		c.storeImm(4, x86.At(x86.RBP, StateRounds), bpf.MaxRounds)
	}
	if c.frame {
		c.lea(4, x86.RAX, x86.At(x86.RSP, -align386))
		c.put(bpf.R10)
		c.lea(4, x86.RSP, x86.At(x86.RSP, -int32(c.proof.Stack)-align386))
	}
}

func (c *narrow) epilogue(f *function) {
	if f.outermost {
		c.get(bpf.R0)
		if c.frame {
			c.lea(4, x86.RSP, x86.At(x86.RSP, int32(c.proof.Stack)+align386))
		}
	}
	for i := len(f.saved) - 1; i >= 0; i-- {
		c.emit(4, x86.OpPop, 0, lo(f.saved[i])) // pop
		c.emit(4, x86.OpPop, 0, hi(f.saved[i]))
	}
	c.ret()
}

// callLocal calls another function of the program.
func (c *narrow) callLocal(f *function, to int) {
	frame := c.frame && f.Stack > 0
	if frame {
		c.aluImm(4, x86.Sub, lo(bpf.R10), int32(f.Stack))
	}
	c.jump(calling, c.fns[to].entry)
	if frame {
		c.aluImm(4, x86.Add, lo(bpf.R10), int32(f.Stack))
	}
}

func (c *narrow) insn(f *function, i int) (next int, err error) {
	in := c.insns[i]
	next = i + 1
	switch in.Class() {
	case bpf.ClassLD:
		v, err := c.constant(i)
		c.putConst(in.Dst, v)
		return i + 2, err
	case bpf.ClassALU:
		return next, c.low(in)
	case bpf.ClassALU64:
		return next, c.wide(in)
	case bpf.ClassLDX:
		c.loadTo(in)
		return next, nil
	case bpf.ClassST:
		m := c.memory(x86.RBX, in.Dst, in.Off)
		c.storeImm(min(in.Size(), 4), m, in.Imm)
		if in.Size() == 8 {
			m.Disp += 4
			c.storeImm(4, m, sign(in.Imm))
		}
		return next, nil
	case bpf.ClassSTX:
		if in.Mode() == bpf.ModeAtomic {
			return next, c.atomic(i)
		}
		m := c.memory(x86.RBX, in.Dst, in.Off)
		c.load(4, x86.RAX, lo(in.Src))
		c.store(min(in.Size(), 4), m, x86.RAX)
		if in.Size() == 8 {
			c.load(4, x86.RAX, hi(in.Src))
			m.Disp += 4
			c.store(4, m, x86.RAX)
		}
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
	case in.Jump() == bpf.Ja:
		c.jumpTo(i, always, to)
	case in.Jump() == bpf.MayGoto:
		c.mayGoto(x86.RBP, to)
	default:
		return next, c.branch(i, to)
	}
	return next, nil
}

// loadTo is a load from memory.
func (c *narrow) loadTo(in bpf.Insn) {
	m, n := c.memory(x86.RBX, in.Src, in.Off), in.Size()
	switch signed := in.Mode() == bpf.ModeMemSX; {
	case n == 8:
		c.load(4, x86.RAX, m)
		m.Disp += 4
		c.load(4, x86.RDX, m)
		c.put(in.Dst)
	case !signed:
		c.load(n, x86.RAX, m)
		c.putLow(in.Dst)
	default:
		c.extendTo(n, m)
		c.signExtendA(4)
		c.put(in.Dst)
	}
}

// extendTo is eax = m, of n bytes, sign-extended.
func (c *narrow) extendTo(n int, m x86.Operand) {
	if n == 4 {
		c.load(4, x86.RAX, m)
	} else {
		c.extend(4, n, x86.RAX, m)
	}
}

// branch compares and jumps.
func (c *narrow) branch(i, to int) error {
	in := c.insns[i]
	cc, ok := conds[in.Jump()]
	if !ok {
		return fmt.Errorf("unknown jump %#x", in.Op)
	}
	c.load(4, x86.RAX, lo(in.Dst))
	if size(in) == 4 {
		op := x86.Cmp
		if in.Jump() == bpf.Jset {
			op = x86.And
		}
		c.source(op, x86.RAX, in, lo, in.Imm)
		c.jumpTo(i, cc, to)
		return nil
	}
	switch in.Jump() {
	case bpf.Jeq, bpf.Jne, bpf.Jset:
		op := x86.Xor
		if in.Jump() == bpf.Jset {
			op = x86.And
		}
		c.source(op, x86.RAX, in, lo, in.Imm)
		c.load(4, x86.RDX, hi(in.Dst))
		c.source(op, x86.RDX, in, hi, sign(in.Imm))
		c.alu(4, x86.Or, x86.RAX, x86.RDX)
	case bpf.Jge, bpf.Jlt, bpf.Jsge, bpf.Jslt: // as they are after the subtraction
		c.load(4, x86.RDX, hi(in.Dst))
		c.source(x86.Cmp, x86.RAX, in, lo, in.Imm)
		c.source(x86.Sbb, x86.RDX, in, hi, sign(in.Imm))
	default: // as they are after the subtraction the other way round
		if in.X() {
			c.get(in.Src)
		} else {
			c.movImm(x86.RDX, uint64(uint32(sign(in.Imm))))
			c.movImm(x86.RAX, uint64(uint32(in.Imm)))
		}
		c.with(x86.Cmp, x86.RAX, lo(in.Dst))
		c.with(x86.Sbb, x86.RDX, hi(in.Dst))
		cc = map[x86.Cond]x86.Cond{x86.CondA: x86.CondB, x86.CondBE: x86.CondAE, x86.CondG: x86.CondL, x86.CondLE: x86.CondGE}[cc]
	}
	c.jumpTo(i, cc, to)
	return nil
}

// source is dst op= half of the instruction's second operand, whose immediate would be v.
func (c *narrow) source(op x86.ALU, dst x86.Reg, in bpf.Insn, half func(uint8) x86.Operand, v int32) {
	if in.X() {
		c.with(op, dst, half(in.Src))
		return
	}
	c.aluImm(4, op, x86.In(dst), v)
}

// atomic is a read-modify-write of memory.
func (c *narrow) atomic(i int) error {
	in := c.insns[i]
	op, plain := aluOps[uint8(in.Imm)&^bpf.AtomicFetch]
	fetch := in.Imm&bpf.AtomicFetch != 0
	swap, compare := in.Imm == bpf.AtomicXchg, in.Imm == bpf.AtomicCmpxchg
	if !swap && !compare && (!plain || in.Imm&^0xff != 0 || op == x86.Sub) {
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	}
	m := c.memory(x86.RSI, in.Dst, in.Off)
	lock := c.lock
	if !c.contended(i) {
		lock = func() {}
	}
	if in.Size() == 8 {
		c.atomic8(in, m, op, lock)
		return nil
	}
	c.load(4, x86.RCX, lo(in.Src))
	switch {
	case swap:
		c.exchange(4, x86.OpXchg, m, x86.RCX)
	case compare:
		c.load(4, x86.RAX, lo(bpf.R0))
		lock()
		c.exchange(4, x86.OpCmpxchg, m, x86.RCX)
		c.putLow(bpf.R0)
		return nil
	case !fetch:
		lock()
		c.emit(4, op.ToRM(), x86.RCX, m)
		return nil
	case op == x86.Add:
		lock()
		c.exchange(4, x86.OpXadd, m, x86.RCX)
	default:
		c.load(4, x86.RAX, m)
		again := c.newLabel()
		c.bind(again)
		c.mov(4, x86.RDX, x86.RAX)
		c.alu(4, op, x86.RDX, x86.RCX)
		lock()
		c.exchange(4, x86.OpCmpxchg, m, x86.RDX)
		c.jump(x86.CondNE, again)
		c.mov(4, x86.RCX, x86.RAX)
	}
	c.store(4, lo(in.Src), x86.RCX)
	c.clearHigh(in.Src)
	return nil
}

// atomic8 tries until no other access came between. m is based on rsi.
func (c *narrow) atomic8(in bpf.Insn, m x86.Operand, op x86.ALU, lock func()) {
	attempt := func() {
		lock()
		c.emit(4, x86.OpCmpxchg8b, 1, m)
		c.wrote(x86.RAX)
		c.wrote(x86.RDX)
	}
	if in.Imm == bpf.AtomicCmpxchg {
		c.load(4, x86.RBX, lo(in.Src))
		c.load(4, x86.RCX, hi(in.Src))
		c.get(bpf.R0)
		attempt()
		c.put(bpf.R0)
		return
	}
	high := m
	high.Disp += 4
	c.load(4, x86.RAX, m)
	c.load(4, x86.RDX, high)
	again := c.newLabel()
	c.bind(again)
	if in.Imm == bpf.AtomicXchg {
		c.load(4, x86.RBX, lo(in.Src))
		c.load(4, x86.RCX, hi(in.Src))
	} else {
		c.mov(4, x86.RBX, x86.RAX)
		c.mov(4, x86.RCX, x86.RDX)
		c.with(op, x86.RBX, lo(in.Src))
		c.with(upper(op), x86.RCX, hi(in.Src))
	}
	attempt()
	c.jump(x86.CondNE, again)
	if in.Imm&bpf.AtomicFetch != 0 {
		c.put(in.Src)
	}
}

// upper is the operation on the upper halves that follows one on the lower.
func upper(op x86.ALU) x86.ALU {
	switch op {
	case x86.Add:
		return x86.Adc
	case x86.Sub:
		return x86.Sbb
	}
	return op
}

// bound sees that what R3 points to, of R2 bytes, is in the context: if not, R3 becomes an
// address where nothing can be, in the last page.
func (c *narrow) bound() {
	const nowhere = 1<<32 - 64
	outside, inside := c.newLabel(), c.newLabel()
	c.load(4, x86.RAX, lo(bpf.R3))
	c.with(x86.Sub, x86.RAX, x86.At(x86.RBP, StateContext))
	c.aluImm(4, x86.Cmp, x86.In(x86.RAX), 8*ContextWords)
	c.jump(x86.CondA, outside)
	c.with(x86.Add, x86.RAX, lo(bpf.R2))
	c.aluImm(4, x86.Cmp, x86.In(x86.RAX), 8*ContextWords)
	c.jump(x86.CondBE, inside)
	c.bind(outside)
	c.putConst(bpf.R3, nowhere)
	c.bind(inside)
}

// inlined says whether a helper call is compiled in place, and which registers it reads.
func (c *narrow) inlined(i int) (args regSet, inline bool) {
	call := c.proof.Calls[i]
	if _, ok := answers[call.Helper.ID]; ok {
		return 0, true
	}
	switch call.Helper.ID {
	case bpf.FnRingbufSubmit, bpf.FnRingbufDiscard:
		return setOf(bpf.R1), true
	}
	return argumentRegs & (2<<call.Set - 1), false
}

// call compiles the call of a helper.
func (c *narrow) call(i int) {
	call := c.proof.Calls[i]
	if off, ok := c.answered(call.Helper.ID); ok {
		c.load(4, x86.RAX, x86.At(x86.RBP, off))
		c.load(4, x86.RDX, x86.At(x86.RBP, off+4))
		c.put(bpf.R0)
		return
	}
	switch call.Helper.ID {
	case bpf.FnRingbufSubmit:
		c.aluImm(4, x86.Xor, c.memory(x86.RBX, bpf.R1, -layout.RecordHeader), math.MinInt32) // RecordBusy
		c.putConst(bpf.R0, 0)
	case bpf.FnRingbufDiscard:
		c.aluImm(4, x86.Xor, c.memory(x86.RBX, bpf.R1, -layout.RecordHeader), math.MinInt32|layout.RecordDiscard)
		c.putConst(bpf.R0, 0)
	default:
		for k := call.Set; k < len(call.Helper.Args); k++ {
			c.putConst(bpf.R1+uint8(k), 0)
		}
		if call.Bounded {
			c.bound()
		}
		c.callHelper(call.Helper.ID)
		c.wrote(x86.RBX)
	}
}
