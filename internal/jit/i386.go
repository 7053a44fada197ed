package jit

import (
	"fmt"
	"math"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/isa/amd64"
)

// 32-bit code. Every instruction takes its operands from the thread's state, where eBPF's
// registers are (abi.go), works in eax, edx, ecx, ebx, esi and edi, and puts the result
// back: nothing is in a register between two instructions. A store there is forwarded to
// the load that follows, so this costs some cycles, not a walk through memory.
//
// A pointer's upper half is 0, and is not looked at.

const (
	adc aluOp = 2
	sbb aluOp = 3

	shiftRcl shiftOp = 2

	opShldImm   opcode = 0x0fa4 // with a byte
	opShld      opcode = 0x0fa5 // by cl
	opShrdCL    opcode = 0x0fad
	opCmpxchg8b opcode = 0x0fc7 // reg field: 1
)

// align386 is how far the return address is above R10.
const align386 = 12

// narrow compiles for i386.
type narrow struct {
	x86
	divides bool  // something calls divide
	divide  label // see division
}

func newNarrow(p *bpf.Proof, env *Env) *narrow {
	c := &narrow{}
	c.compilation = newCompilation(p, env, &c.asm)
	return c
}

func (c *narrow) compile() error {
	c.code.wraps = true
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
	c.code.Clobbers = c.writes & (1<<arch.R8 - 1) &^ (amd64.Reg(arch.SP) | amd64.Reg(arch.BP))
	return c.done()
}

// lo and hi are the halves of a register.
func lo(r uint8) operand { return at(rbp, StateRegs+8*int32(r)) }
func hi(r uint8) operand { return at(rbp, StateRegs+8*int32(r)+4) }

// spare is what the program has behind the registers: a word's place.
func spare(n int32) operand { return at(rbp, StateRegs+11*8+4*n) }

// get and put carry both halves to and from edx:eax.
func (c *narrow) get(r uint8) {
	c.load(4, rax, lo(r))
	c.load(4, rdx, hi(r))
}

func (c *narrow) put(r uint8) {
	c.store(4, lo(r), rax)
	c.store(4, hi(r), rdx)
}

// putLow is put of eax alone: the upper half becomes 0.
func (c *narrow) putLow(r uint8) {
	c.store(4, lo(r), rax)
	c.clearHigh(r)
}

func (c *narrow) clearHigh(r uint8) { c.storeImm(4, hi(r), 0) }

func (c *narrow) putConst(r uint8, v uint64) {
	c.storeImm(4, lo(r), int32(v))
	c.storeImm(4, hi(r), int32(v>>32))
}

// with is dst op= m.
func (c *narrow) with(op aluOp, dst reg, m operand) {
	c.emit(4, op.between()|2, dst, m)
	c.wrote(dst)
}

// onto is m op= src.
func (c *narrow) onto(op aluOp, m operand, src reg) { c.emit(4, op.between(), src, m) }

// memory is what an instruction's base and offset name; the base goes to r.
func (c *narrow) memory(r reg, base uint8, off int16) operand {
	c.load(4, r, lo(base))
	return at(r, int32(off))
}

// sign is the upper half of a constant that is sign-extended.
func sign(v int32) int32 { return v >> 31 }

func (c *narrow) prologue(f *function) {
	c.bind(f.entry)
	for _, r := range f.saved {
		c.emit(4, 0xff, 6, hi(r)) // push
		c.emit(4, 0xff, 6, lo(r))
	}
	if !f.outermost {
		return
	}
	c.movImm(rdx, 0)
	c.put(bpf.R1)
	if c.bounds() {
		c.store(4, at(rbp, StateContext), rax)
	}
	if c.rounds() {
		c.storeImm(4, at(rbp, StateRounds), bpf.MaxRounds)
	}
	if c.frame {
		c.lea(4, rax, at(rsp, -align386))
		c.put(bpf.R10)
		c.lea(4, rsp, at(rsp, -int32(c.proof.Stack)-align386))
	}
}

func (c *narrow) epilogue(f *function) {
	if f.outermost {
		c.get(bpf.R0)
		if c.frame {
			c.lea(4, rsp, at(rsp, int32(c.proof.Stack)+align386))
		}
	}
	for i := len(f.saved) - 1; i >= 0; i-- {
		c.emit(4, 0x8f, 0, lo(f.saved[i])) // pop
		c.emit(4, 0x8f, 0, hi(f.saved[i]))
	}
	c.ret()
}

// callLocal calls another function of the program.
func (c *narrow) callLocal(f *function, to int) {
	frame := c.frame && f.Stack > 0
	if frame {
		c.aluImm(4, aluSub, lo(bpf.R10), int32(f.Stack))
	}
	c.jump(calling, c.fns[to].entry)
	if frame {
		c.aluImm(4, aluAdd, lo(bpf.R10), int32(f.Stack))
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
		m := c.memory(rbx, in.Dst, in.Off)
		c.storeImm(min(in.Size(), 4), m, in.Imm)
		if in.Size() == 8 {
			m.disp += 4
			c.storeImm(4, m, sign(in.Imm))
		}
		return next, nil
	case bpf.ClassSTX:
		if in.Mode() == bpf.ModeAtomic {
			return next, c.atomic(i)
		}
		m := c.memory(rbx, in.Dst, in.Off)
		c.load(4, rax, lo(in.Src))
		c.store(min(in.Size(), 4), m, rax)
		if in.Size() == 8 {
			c.load(4, rax, hi(in.Src))
			m.disp += 4
			c.store(4, m, rax)
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
		c.mayGoto(rbp, to)
	default:
		return next, c.branch(i, to)
	}
	return next, nil
}

// loadTo is a load from memory.
func (c *narrow) loadTo(in bpf.Insn) {
	m, n := c.memory(rbx, in.Src, in.Off), in.Size()
	switch signed := in.Mode() == bpf.ModeMemSX; {
	case n == 8:
		c.load(4, rax, m)
		m.disp += 4
		c.load(4, rdx, m)
		c.put(in.Dst)
	case !signed:
		c.load(n, rax, m)
		c.putLow(in.Dst)
	default:
		c.extendTo(n, m)
		c.signExtendA(4)
		c.put(in.Dst)
	}
}

// extendTo is eax = m, of n bytes, sign-extended.
func (c *narrow) extendTo(n int, m operand) {
	if n == 4 {
		c.load(4, rax, m)
	} else {
		c.extend(4, n, rax, m)
	}
}

// branch compares and jumps.
func (c *narrow) branch(i, to int) error {
	in := c.insns[i]
	cc, ok := conds[in.Jump()]
	if !ok {
		return fmt.Errorf("unknown jump %#x", in.Op)
	}
	c.load(4, rax, lo(in.Dst))
	if size(in) == 4 {
		op := aluCmp
		if in.Jump() == bpf.Jset {
			op = aluAnd
		}
		c.source(op, rax, in, lo, in.Imm)
		c.jumpTo(i, cc, to)
		return nil
	}
	switch in.Jump() {
	case bpf.Jeq, bpf.Jne, bpf.Jset:
		op := aluXor
		if in.Jump() == bpf.Jset {
			op = aluAnd
		}
		c.source(op, rax, in, lo, in.Imm)
		c.load(4, rdx, hi(in.Dst))
		c.source(op, rdx, in, hi, sign(in.Imm))
		c.alu(4, aluOr, rax, rdx)
	case bpf.Jge, bpf.Jlt, bpf.Jsge, bpf.Jslt: // as they are after the subtraction
		c.load(4, rdx, hi(in.Dst))
		c.source(aluCmp, rax, in, lo, in.Imm)
		c.source(sbb, rdx, in, hi, sign(in.Imm))
	default: // as they are after the subtraction the other way round
		if in.X() {
			c.get(in.Src)
		} else {
			c.movImm(rdx, uint64(uint32(sign(in.Imm))))
			c.movImm(rax, uint64(uint32(in.Imm)))
		}
		c.with(aluCmp, rax, lo(in.Dst))
		c.with(sbb, rdx, hi(in.Dst))
		cc = map[cond]cond{condA: condB, condBE: condAE, condG: condL, condLE: condGE}[cc]
	}
	c.jumpTo(i, cc, to)
	return nil
}

// source is dst op= half of the instruction's second operand, whose immediate would be v.
func (c *narrow) source(op aluOp, dst reg, in bpf.Insn, half func(uint8) operand, v int32) {
	if in.X() {
		c.with(op, dst, half(in.Src))
		return
	}
	c.aluImm(4, op, inReg(dst), v)
}

// atomic is a read-modify-write of memory.
func (c *narrow) atomic(i int) error {
	in := c.insns[i]
	op, plain := aluOps[uint8(in.Imm)&^bpf.AtomicFetch]
	fetch := in.Imm&bpf.AtomicFetch != 0
	swap, compare := in.Imm == bpf.AtomicXchg, in.Imm == bpf.AtomicCmpxchg
	if !swap && !compare && (!plain || in.Imm&^0xff != 0 || op == aluSub) {
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	}
	m := c.memory(rsi, in.Dst, in.Off)
	lock := c.lock
	if !c.contended(i) {
		lock = func() {}
	}
	if in.Size() == 8 {
		c.atomic8(in, m, op, lock)
		return nil
	}
	c.load(4, rcx, lo(in.Src))
	switch {
	case swap:
		c.exchange(4, opXchg, m, rcx)
	case compare:
		c.load(4, rax, lo(bpf.R0))
		lock()
		c.exchange(4, opCmpxchg, m, rcx)
		c.putLow(bpf.R0)
		return nil
	case !fetch:
		lock()
		c.emit(4, op.between(), rcx, m)
		return nil
	case op == aluAdd:
		lock()
		c.exchange(4, opXadd, m, rcx)
	default:
		c.load(4, rax, m)
		again := c.newLabel()
		c.bind(again)
		c.mov(4, rdx, rax)
		c.alu(4, op, rdx, rcx)
		lock()
		c.exchange(4, opCmpxchg, m, rdx)
		c.jump(condNE, again)
		c.mov(4, rcx, rax)
	}
	c.store(4, lo(in.Src), rcx)
	c.clearHigh(in.Src)
	return nil
}

// atomic8 tries until nobody came between. m is based on rsi.
func (c *narrow) atomic8(in bpf.Insn, m operand, op aluOp, lock func()) {
	attempt := func() {
		lock()
		c.emit(4, opCmpxchg8b, 1, m)
		c.wrote(rax)
		c.wrote(rdx)
	}
	if in.Imm == bpf.AtomicCmpxchg {
		c.load(4, rbx, lo(in.Src))
		c.load(4, rcx, hi(in.Src))
		c.get(bpf.R0)
		attempt()
		c.put(bpf.R0)
		return
	}
	high := m
	high.disp += 4
	c.load(4, rax, m)
	c.load(4, rdx, high)
	again := c.newLabel()
	c.bind(again)
	if in.Imm == bpf.AtomicXchg {
		c.load(4, rbx, lo(in.Src))
		c.load(4, rcx, hi(in.Src))
	} else {
		c.mov(4, rbx, rax)
		c.mov(4, rcx, rdx)
		c.with(op, rbx, lo(in.Src))
		c.with(upper(op), rcx, hi(in.Src))
	}
	attempt()
	c.jump(condNE, again)
	if in.Imm&bpf.AtomicFetch != 0 {
		c.put(in.Src)
	}
}

// upper is the operation on the upper halves that follows one on the lower.
func upper(op aluOp) aluOp {
	switch op {
	case aluAdd:
		return adc
	case aluSub:
		return sbb
	}
	return op
}

// bound sees that what R3 points to, of R2 bytes, is in the context: if not, R3 becomes an
// address where nothing can be, in the last page.
func (c *narrow) bound() {
	const nowhere = 1<<32 - 64
	outside, inside := c.newLabel(), c.newLabel()
	c.load(4, rax, lo(bpf.R3))
	c.with(aluSub, rax, at(rbp, StateContext))
	c.aluImm(4, aluCmp, inReg(rax), 8*ContextWords)
	c.jump(condA, outside)
	c.with(aluAdd, rax, lo(bpf.R2))
	c.aluImm(4, aluCmp, inReg(rax), 8*ContextWords)
	c.jump(condBE, inside)
	c.bind(outside)
	c.putConst(bpf.R3, nowhere)
	c.bind(inside)
}

// inlined says whether a helper call is compiled in place, and what it reads.
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
		c.load(4, rax, at(rbp, off))
		c.load(4, rdx, at(rbp, off+4))
		c.put(bpf.R0)
		return
	}
	switch call.Helper.ID {
	case bpf.FnRingbufSubmit:
		c.aluImm(4, aluXor, c.memory(rbx, bpf.R1, -layout.RecordHeader), math.MinInt32) // RecordBusy
		c.putConst(bpf.R0, 0)
	case bpf.FnRingbufDiscard:
		c.aluImm(4, aluXor, c.memory(rbx, bpf.R1, -layout.RecordHeader), math.MinInt32|layout.RecordDiscard)
		c.putConst(bpf.R0, 0)
	default:
		for k := call.Set; k < len(call.Helper.Args); k++ {
			c.putConst(bpf.R1+uint8(k), 0)
		}
		if call.Bounded {
			c.bound()
		}
		c.callHelper(call.Helper.ID)
		c.wrote(rbx)
	}
}
