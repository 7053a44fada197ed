package jit

import (
	"fmt"

	"kprobe/bpf"
	"kprobe/internal/asm/a64"
)

// A64 code: see abi.go for the use of each register.

// regs64 are the places of R0 to R10.
var regs64 = [11]gpr{7, 0, 1, 2, 3, 4, 19, 20, 21, 22, 25}

// The registers that are for a program's own use, and those with a meaning.
const (
	s0, s1, s2, s3 gpr = 9, 10, 11, 12

	state64 gpr = 28
	link64  gpr = 30
)

// places64: helpers may change x0 to x17, and the link register. No address has bit 54 alone,
// whatever its tag.
var places64 = places{
	regs: regs64, s0: s0, s1: s1, s2: s2, zero: zr, sp: sp31, link: link64, state: state64,
	helper: 1<<18 - 1 | 1<<link64, nowhere: 1 << 54,
}

func compileARM64(p *bpf.Proof, env *Env) (*Code, error) {
	return compile64(p, env, func(reach int) encoder { return &asm64{far: reach > 0} }, linkARM64)
}

func (a *asm64) places() *places { return &places64 }

// conds64 are the conditions of jumps, behind a comparison or, Jset, a test.
var conds64 = map[uint8]uint32{
	bpf.Jeq: a64.EQ, bpf.Jne: a64.NE, bpf.Jset: a64.NE,
	bpf.Jgt: a64.HI, bpf.Jge: a64.HS, bpf.Jlt: a64.LO, bpf.Jle: a64.LS,
	bpf.Jsgt: a64.GT, bpf.Jsge: a64.GE, bpf.Jslt: a64.LT, bpf.Jsle: a64.LE,
}

// jump compares registers, and jumps on bpf's condition.
func (a *asm64) jump(op uint8, n int, x, y gpr, to label) bool {
	cond, ok := conds64[op]
	if !ok {
		return false
	}
	compare := uint32(a64.Subs)
	if op == bpf.Jset {
		compare = a64.Ands
	}
	a.rrr(n, compare, zr, x, y)
	a.when(cond, to)
	return true
}

// jumpConst is jump with a constant.
func (a *asm64) jumpConst(op uint8, n int, x gpr, v int64, to label) bool {
	cond, ok := conds64[op]
	switch {
	case !ok:
		return false
	case op == bpf.Jset && a.logical(n, a64.Ands, zr, x, uint64(v)):
	case op != bpf.Jset && v == 0 && cond <= a64.NE:
		a.whenZero(n, cond == a64.NE, x, to)
		return true
	case op != bpf.Jset && a.compareImm(n, x, v):
	default:
		a.constant(s3, uint64(v))
		return a.jump(op, n, x, s3, to)
	}
	a.when(cond, to)
	return true
}

// operations of ALU instructions that the machine has as they are.
var logical64 = map[uint8]uint32{bpf.Or: a64.Orr, bpf.And: a64.And, bpf.Xor: a64.Eor}
var plain64 = map[uint8]uint32{bpf.Add: a64.Add, bpf.Sub: a64.Sub, bpf.Or: a64.Orr, bpf.And: a64.And, bpf.Xor: a64.Eor}

// atomic is a read-modify-write of memory: it tries until no other access came between. Operations
// that give the old value order all accesses around them.
func (a *asm64) atomic(in bpf.Insn) error {
	n, src, base := in.Size(), regs64[in.Src], regs64[in.Dst]
	op, plain := plain64[uint8(in.Imm)&^bpf.AtomicFetch]
	swap, compare := in.Imm == bpf.AtomicXchg, in.Imm == bpf.AtomicCmpxchg
	if !swap && !compare && (!plain || in.Imm&^0xff != 0 || op == a64.Sub) {
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	}
	const status, old, changed = s0, s2, s3
	if in.Off != 0 {
		a.addConst(8, s1, base, int64(in.Off))
		base = s1
	}
	again, out := a.newLabel(), a.newLabel()
	a.bind(again)
	a.loadExclusive(n, old, base)
	store := changed
	switch {
	case compare:
		a.rrr(n, a64.Subs, zr, old, regs64[bpf.R0])
		a.when(a64.NE, out)
		store = src
	case swap:
		store = src
	default:
		a.rrr(n, op, changed, old, src)
	}
	a.storeExclusive(n, status, store, base)
	a.whenZero(4, true, status, again)
	a.bind(out)
	switch {
	case compare:
		a.barrier()
		a.move(n, regs64[bpf.R0], old)
	case in.Imm&bpf.AtomicFetch != 0:
		a.barrier()
		a.move(n, src, old)
	}
	return nil
}
