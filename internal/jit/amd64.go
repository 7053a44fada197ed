package jit

import (
	"fmt"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/isa/amd64"
)

// eBPF's registers lie in the machine's one to one, so that almost every
// instruction has an instruction of its own. What is left to gain is small: pairs
// that are one instruction here, comparisons whose flags are there already, and
// helpers that are shorter than the call of them (amd64_call.go).

// regs are the places of R0 to R10; see abi.go.
var regs = [11]reg{rax, rdi, rsi, rdx, rcx, r8, rbx, r13, r14, r15, rbp}

// gprs names the machine's registers as the rest of the project does.
var gprs = [16]arch.Reg{
	arch.AX, arch.CX, arch.DX, arch.BX, arch.SP, arch.BP, arch.SI, arch.DI,
	arch.R8, arch.R9, arch.R10, arch.R11, arch.R12, arch.R13, arch.R14, arch.R15,
}

// redZone is what a function may use below rsp without moving it: a signal's
// frame lies below it.
const redZone = 128

// x86 is what compiling for both widths of the machine is.
type x86 struct {
	compilation
	asm
}

// mayGoto counts a round off, in the state.
func (c *x86) mayGoto(state reg, to int) {
	c.aluImm(4, aluCmp, at(state, StateRounds), 1)
	c.jump(condB, label(to))
	c.aluImm(4, aluSub, at(state, StateRounds), 1)
}

// jumpTo jumps, unless there is nothing to jump over.
func (c *x86) jumpTo(i int, cc cond, to int) {
	if !c.follows(i, to) {
		c.jump(cc, label(to))
	}
}

type compiler struct {
	x86
	keys map[int]key // of lookups that need not read it from memory, by slot
	rare []func()    // code that goes behind the function

	moved bool // rsp is below the stack: something is called, or the red zone is too small
}

func newCompiler(p *bpf.Proof, env *Env) *compiler {
	c := &compiler{}
	c.compilation = newCompilation(p, env, &c.asm)
	return c
}

func (c *compiler) compile() error {
	c.analysis = analyse(c.proof, c.inlined, c.findKeys())
	calls := c.plan(c.inlined)
	c.moved = c.frame && (calls || c.proof.Stack > redZone)
	for i := range c.proof.Funcs {
		if err := c.function(c.fns[c.proof.Funcs[i].Start]); err != nil {
			return err
		}
	}
	c.code.Stack = c.depth(c.fns[0], 8)
	if c.frame {
		c.code.Stack += c.proof.Stack
	}
	c.code.Clobbers = c.writes &^ amd64.Reg(arch.SP)
	return c.done()
}

// later puts code that seldom runs behind the function.
func (c *compiler) later(f func()) { c.rare = append(c.rare, f) }

// function compiles one function. The stack of all lies in one piece below the
// outermost's R10, as the interpreter has it, and what is pushed below that; so R10
// is set up once, and moved around a call by what the caller uses of the stack.
func (c *compiler) function(f *function) error {
	c.bind(f.entry)
	for _, r := range f.saved {
		c.push(regs[r])
	}
	if f.outermost && c.frame {
		c.mov(8, rbp, rsp)
	}
	if f.outermost && c.moved {
		c.aluImm(8, aluSub, inReg(rsp), int32(c.proof.Stack))
	}
	if f.outermost && c.bounds() {
		c.store(8, at(r12, StateContext), regs[bpf.R1])
	}
	if f.outermost && c.rounds() {
		c.storeImm(4, at(r12, StateRounds), bpf.MaxRounds)
	}
	if err := c.body(f, c.insn); err != nil {
		return err
	}
	for _, f := range c.rare {
		f()
	}
	c.rare = nil
	return nil
}

// epilogue returns from the function.
func (c *compiler) epilogue(f *function) {
	if f.outermost && c.moved {
		c.aluImm(8, aluAdd, inReg(rsp), int32(c.proof.Stack))
	}
	for i := len(f.saved) - 1; i >= 0; i-- {
		c.pop(regs[f.saved[i]])
	}
	c.ret()
}

// callLocal calls another function of the program.
func (c *compiler) callLocal(f *function, to int) {
	frame := c.frame && f.Stack > 0
	if frame {
		c.aluImm(8, aluSub, inReg(rbp), int32(f.Stack))
	}
	c.jump(calling, c.fns[to].entry)
	if frame {
		c.aluImm(8, aluAdd, inReg(rbp), int32(f.Stack))
	}
}

// insn compiles the instruction at a slot, and perhaps some that follow, and
// answers the next slot.
func (c *compiler) insn(f *function, i int) (next int, err error) {
	in := c.insns[i]
	dst, src := regs[in.Dst], regs[in.Src]
	next = i + 1
	switch in.Class() {
	case bpf.ClassLD:
		return c.loadImm(i)

	case bpf.ClassALU, bpf.ClassALU64:
		return c.arithmetic(i)

	case bpf.ClassLDX:
		if n, ok := c.inMemory(i); ok {
			return n, nil
		}
		if in.Mode() == bpf.ModeMemSX {
			c.extend(8, in.Size(), dst, at(src, int32(in.Off)))
		} else {
			c.load(in.Size(), dst, at(src, int32(in.Off)))
		}
		return next, nil

	case bpf.ClassST:
		c.storeImm(in.Size(), at(dst, int32(in.Off)), in.Imm)
		return next, nil

	case bpf.ClassSTX:
		if in.Mode() == bpf.ModeAtomic {
			return next, c.atomic(i)
		}
		c.store(in.Size(), at(dst, int32(in.Off)), src)
		return next, nil
	}

	to, _ := in.Target(i)
	switch {
	case in.IsExit():
		c.epilogue(f)
	case in.IsCall(bpf.CallLocal):
		c.callLocal(f, to)
	case c.proof.Calls[i] != nil:
		return c.call(i), nil
	case in.IsCall(in.Src):
		return 0, fmt.Errorf("call of kind %d", in.Src)
	case in.Jump() == bpf.Ja && c.insns[to].IsExit():
		c.epilogue(f)
	case in.Jump() == bpf.Ja:
		c.jumpTo(i, always, to)
	case in.Jump() == bpf.MayGoto:
		c.mayGoto(r12, to)
	default:
		return next, c.branch(i, to)
	}
	return next, nil
}

// size is that of an ALU instruction's or a jump's operands.
func size(in bpf.Insn) int {
	if c := in.Class(); c == bpf.ClassALU || c == bpf.ClassJMP32 {
		return 4
	}
	return 8
}

// conds are the conditions of jumps, behind a comparison or, Jset, a test.
var conds = map[uint8]cond{
	bpf.Jeq: condE, bpf.Jne: condNE, bpf.Jset: condNE,
	bpf.Jgt: condA, bpf.Jge: condAE, bpf.Jlt: condB, bpf.Jle: condBE,
	bpf.Jsgt: condG, bpf.Jsge: condGE, bpf.Jslt: condL, bpf.Jsle: condLE,
}

// branch compares and jumps.
func (c *compiler) branch(i, to int) error {
	in := c.insns[i]
	cc, ok := conds[in.Jump()]
	if !ok {
		return fmt.Errorf("unknown jump %#x", in.Op)
	}
	dst, n := regs[in.Dst], size(in)
	switch {
	case in.Jump() == bpf.Jset && in.X():
		c.emit(n, opTest, regs[in.Src], inReg(dst))
	case in.Jump() == bpf.Jset:
		c.testImm(n, dst, in.Imm)
	case in.X():
		c.alu(n, aluCmp, dst, regs[in.Src])
	case in.Imm == 0 && (cc == condE || cc == condNE):
		c.test(n, dst)
	case in.Imm == 0 && cc == condL:
		c.test(n, dst)
		cc = condS
	case in.Imm == 0 && cc == condGE:
		c.test(n, dst)
		cc = condNS
	case in.Imm == 0:
		c.emit(n, opTest, dst, inReg(dst)) // carry and overflow count too
	default:
		c.aluImm(n, aluCmp, inReg(dst), in.Imm)
	}
	c.jumpTo(i, cc, to)
	return nil
}

// loadImm is ld_imm64.
func (c *compiler) loadImm(i int) (next int, err error) {
	v, err := c.constant(i)
	if err == nil {
		c.movImm(regs[c.insns[i].Dst], v)
	}
	return i + 2, err
}

// aluOps are the operations that the machine has as they are.
var aluOps = map[uint8]aluOp{bpf.Add: aluAdd, bpf.Sub: aluSub, bpf.Or: aluOr, bpf.And: aluAnd, bpf.Xor: aluXor}

// shiftOps likewise; both count modulo the width.
var shiftOps = map[uint8]shiftOp{bpf.Lsh: shiftShl, bpf.Rsh: shiftShr, bpf.Arsh: shiftSar}

// inMemory makes one instruction of a load, an operation and a store back to the
// same place, as it is compiled from x += 1.
func (c *compiler) inMemory(i int) (next int, ok bool) {
	j := c.follow(i)
	if j < 0 {
		return 0, false
	}
	k := c.follow(j)
	if k < 0 {
		return 0, false
	}
	load, op, store := c.insns[i], c.insns[j], c.insns[k]
	alu, ok := aluOps[op.Alu()]
	if !ok || load.Mode() != bpf.ModeMem || load.Dst == load.Src || c.live[k].has(load.Dst) ||
		(op.Class() != bpf.ClassALU && op.Class() != bpf.ClassALU64) || op.Dst != load.Dst || op.X() && op.Src == load.Dst ||
		op.Class() == bpf.ClassALU && load.Size() == 8 ||
		store.Op != bpf.ClassSTX|bpf.ModeMem|load.Op&bpf.SizeDW || store.Dst != load.Src || store.Src != load.Dst || store.Off != load.Off {
		return 0, false
	}
	m := at(regs[load.Src], int32(load.Off))
	switch n := load.Size(); {
	case op.X():
		c.emit(n, alu.between(), regs[op.Src], m)
	case n == 2: // the immediate would be of 2 bytes, which decoders are slow at
		return 0, false
	default:
		c.aluImm(n, alu, m, op.Imm)
	}
	return k + 1, true
}

// atomic is a read-modify-write of memory. Where no other thread does the same, one
// instruction is enough for signals: the lock, which costs more than the rest of most
// programs, is left out.
//
// 32-bit ones clear the upper half of the register that gets the old value, as all
// 32-bit instructions do; cmpxchg does so only when it fails.
func (c *compiler) atomic(i int) error {
	in := c.insns[i]
	n, src, m := in.Size(), regs[in.Src], at(regs[in.Dst], int32(in.Off))
	op, plain := aluOps[uint8(in.Imm)&^bpf.AtomicFetch]
	lock := c.lock
	if !c.contended(i) {
		lock = func() {}
	}
	switch {
	case in.Imm == bpf.AtomicXchg:
		c.exchange(n, opXchg, m, src) // locks by itself
	case in.Imm == bpf.AtomicCmpxchg:
		lock()
		c.exchange(n, opCmpxchg, m, src)
		c.wrote(rax)
		if n == 4 {
			c.mov(4, rax, rax)
		}
	case in.Imm == bpf.AtomicAdd|bpf.AtomicFetch:
		lock()
		c.exchange(n, opXadd, m, src)
	case !plain || in.Imm&^0xff != 0 || op == aluSub:
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	case in.Imm&bpf.AtomicFetch == 0:
		lock()
		c.emit(n, op.between(), src, m)
	default:
		c.fetch(n, op, m, src, c.live[i].has(bpf.R0))
	}
	return nil
}

// fetch is an atomic and, or, xor that gives the old value: try until nobody
// came between.
func (c *compiler) fetch(n int, op aluOp, m operand, src reg, keepA bool) {
	with := src
	if src == rax || m.base == rax {
		c.mov(8, r10, rax)
		if src == rax {
			with = r10
		}
		if m.base == rax {
			m.base = r10
		}
	}
	keepA = keepA && src != rax
	if keepA {
		c.mov(8, r11, rax)
	}
	c.load(n, rax, m)
	again := c.newLabel()
	c.bind(again)
	c.mov(n, r9, rax)
	c.alu(n, op, r9, with)
	c.lock()
	c.exchange(n, opCmpxchg, m, r9)
	c.jump(condNE, again)
	if src != rax {
		c.mov(n, src, rax)
	}
	if keepA {
		c.mov(8, rax, r11)
	}
}
