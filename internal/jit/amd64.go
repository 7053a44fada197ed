package jit

import (
	"fmt"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/asm/x86"
)

// eBPF's registers lie in the machine's one to one, so that almost every instruction has an
// instruction of its own. Little is left to gain: pairs that are one instruction here, comparisons
// whose flags are there already, and helpers that are shorter than the call of them
// (amd64_call.go).

// regs are the places of R0 to R10; see abi.go.
var regs = [11]x86.Reg{x86.RAX, x86.RDI, x86.RSI, x86.RDX, x86.RCX, x86.R8, x86.RBX, x86.R13, x86.R14, x86.R15, x86.RBP}

// redZone is the number of bytes that a function may use below rsp without moving it: a signal's
// frame lies below it.
const redZone = 128

// eitherWidth is the part of compiling that both widths of the machine share.
type eitherWidth struct {
	compilation
	asm
}

// mayGoto counts a round off, in the state.
func (c *eitherWidth) mayGoto(state x86.Reg, to int) {
	c.aluImm(4, x86.Cmp, x86.At(state, StateRounds), 1)
	c.jump(x86.CondB, label(to))
	c.aluImm(4, x86.Sub, x86.At(state, StateRounds), 1)
}

// jumpTo jumps, unless there is nothing to jump over.
func (c *eitherWidth) jumpTo(i int, cc x86.Cond, to int) {
	if !c.follows(i, to) {
		c.jump(cc, label(to))
	}
}

type compiler struct {
	eitherWidth
	keys map[int]key // of lookups that need not read it from memory, by slot
	rare []func()    // code that goes behind the function

	moved bool // rsp is below the stack: something is called, or the red zone is too small
}

func newCompiler(p *bpf.Proof, env *Env) *compiler {
	c := &compiler{}
	c.compilation = newCompilation(p, env, &c.asm, linkAMD64)
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
	c.code.Clobbers = c.writes &^ arch.SetOf(arch.SP)
	return c.done()
}

// later puts code that seldom runs behind the function.
func (c *compiler) later(f func()) { c.rare = append(c.rare, f) }

// function compiles one function. The stack of all lies in one piece below the outermost's R10, as
// the interpreter has it, and pushed registers below that. So R10 is set up once, and moved around
// a call by the size of the stack that the caller uses.
func (c *compiler) function(f *function) error {
	c.bind(f.entry)
	for _, r := range f.saved {
		c.push(regs[r])
	}
	if f.outermost && c.frame {
		c.mov(8, x86.RBP, x86.RSP)
	}
	if f.outermost && c.moved {
		c.aluImm(8, x86.Sub, x86.In(x86.RSP), int32(c.proof.Stack))
	}
	if f.outermost && c.bounds() {
		c.store(8, x86.At(x86.R12, StateContext), regs[bpf.R1])
	}
	if f.outermost && c.rounds() {
		c.storeImm(4, x86.At(x86.R12, StateRounds), bpf.MaxRounds)
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
		c.aluImm(8, x86.Add, x86.In(x86.RSP), int32(c.proof.Stack))
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
		c.aluImm(8, x86.Sub, x86.In(x86.RBP), int32(f.Stack))
	}
	c.jump(calling, c.fns[to].entry)
	if frame {
		c.aluImm(8, x86.Add, x86.In(x86.RBP), int32(f.Stack))
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
			c.extend(8, in.Size(), dst, x86.At(src, int32(in.Off)))
		} else {
			c.load(in.Size(), dst, x86.At(src, int32(in.Off)))
		}
		return next, nil

	case bpf.ClassST:
		c.storeImm(in.Size(), x86.At(dst, int32(in.Off)), in.Imm)
		return next, nil

	case bpf.ClassSTX:
		if in.Mode() == bpf.ModeAtomic {
			return next, c.atomic(i)
		}
		c.store(in.Size(), x86.At(dst, int32(in.Off)), src)
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
		c.mayGoto(x86.R12, to)
	default:
		return next, c.branch(i, to)
	}
	return next, nil
}

// size is the size of an ALU instruction's or a jump's operands.
func size(in bpf.Insn) int {
	if c := in.Class(); c == bpf.ClassALU || c == bpf.ClassJMP32 {
		return 4
	}
	return 8
}

// conds are the conditions of jumps, behind a comparison or, Jset, a test.
var conds = map[uint8]x86.Cond{
	bpf.Jeq: x86.CondE, bpf.Jne: x86.CondNE, bpf.Jset: x86.CondNE,
	bpf.Jgt: x86.CondA, bpf.Jge: x86.CondAE, bpf.Jlt: x86.CondB, bpf.Jle: x86.CondBE,
	bpf.Jsgt: x86.CondG, bpf.Jsge: x86.CondGE, bpf.Jslt: x86.CondL, bpf.Jsle: x86.CondLE,
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
		c.emit(n, x86.OpTest, regs[in.Src], x86.In(dst))
	case in.Jump() == bpf.Jset:
		c.testImm(n, dst, in.Imm)
	case in.X():
		c.alu(n, x86.Cmp, dst, regs[in.Src])
	case in.Imm == 0 && (cc == x86.CondE || cc == x86.CondNE):
		c.test(n, dst)
	case in.Imm == 0 && cc == x86.CondL:
		c.test(n, dst)
		cc = x86.CondS
	case in.Imm == 0 && cc == x86.CondGE:
		c.test(n, dst)
		cc = x86.CondNS
	case in.Imm == 0:
		c.emit(n, x86.OpTest, dst, x86.In(dst)) // carry and overflow count too
	default:
		c.aluImm(n, x86.Cmp, x86.In(dst), in.Imm)
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
var aluOps = map[uint8]x86.ALU{bpf.Add: x86.Add, bpf.Sub: x86.Sub, bpf.Or: x86.Or, bpf.And: x86.And, bpf.Xor: x86.Xor}

// shiftOps likewise; both count modulo the width.
var shiftOps = map[uint8]x86.Shift{bpf.Lsh: x86.Shl, bpf.Rsh: x86.Shr, bpf.Arsh: x86.Sar}

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
	m := x86.At(regs[load.Src], int32(load.Off))
	switch n := load.Size(); {
	case op.X():
		c.emit(n, alu.ToRM(), regs[op.Src], m)
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
	n, src, m := in.Size(), regs[in.Src], x86.At(regs[in.Dst], int32(in.Off))
	op, plain := aluOps[uint8(in.Imm)&^bpf.AtomicFetch]
	lock := c.lock
	if !c.contended(i) {
		lock = func() {}
	}
	switch {
	case in.Imm == bpf.AtomicXchg:
		c.exchange(n, x86.OpXchg, m, src) // locks by itself
	case in.Imm == bpf.AtomicCmpxchg:
		lock()
		c.exchange(n, x86.OpCmpxchg, m, src)
		c.wrote(x86.RAX)
		if n == 4 {
			c.mov(4, x86.RAX, x86.RAX)
		}
	case in.Imm == bpf.AtomicAdd|bpf.AtomicFetch:
		lock()
		c.exchange(n, x86.OpXadd, m, src)
	case !plain || in.Imm&^0xff != 0 || op == x86.Sub:
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	case in.Imm&bpf.AtomicFetch == 0:
		lock()
		c.emit(n, op.ToRM(), src, m)
	default:
		c.fetch(n, op, m, src, c.live[i].has(bpf.R0))
	}
	return nil
}

// fetch is an atomic and, or, xor that gives the old value: it tries until no other access came
// between.
func (c *compiler) fetch(n int, op x86.ALU, m x86.Operand, src x86.Reg, keepA bool) {
	with := src
	if src == x86.RAX || m.Base == x86.RAX {
		c.mov(8, x86.R10, x86.RAX)
		if src == x86.RAX {
			with = x86.R10
		}
		if m.Base == x86.RAX {
			m.Base = x86.R10
		}
	}
	keepA = keepA && src != x86.RAX
	if keepA {
		c.mov(8, x86.R11, x86.RAX)
	}
	c.load(n, x86.RAX, m)
	again := c.newLabel()
	c.bind(again)
	c.mov(n, x86.R9, x86.RAX)
	c.alu(n, op, x86.R9, with)
	c.lock()
	c.exchange(n, x86.OpCmpxchg, m, x86.R9)
	c.jump(x86.CondNE, again)
	if src != x86.RAX {
		c.mov(n, src, x86.RAX)
	}
	if keepA {
		c.mov(8, x86.RAX, x86.R11)
	}
}
