package jit

import (
	"fmt"

	"kprobe/bpf"
	"kprobe/internal/asm/rv64"
)

// Code of riscv64: see abi.go for the use of each register.

const (
	rvZero  gpr = 0
	rvLink  gpr = 1  // ra
	rvStack gpr = 2  // sp
	rvState gpr = 27 // s11

	rvS0, rvS1, rvS2 gpr = 5, 6, 7 // t0 to t2

	// The encoder's own: t3 for addresses of memory or code that is far, and for the second operand
	// of a comparison; t4 for the first.
	rvOwn, rvFirst gpr = 28, 29
)

// placesRV: helpers may change ra, t0 to t6 and a0 to a7. An address with the bits 47, 56 and 62
// alone is none, whether it has 39, 48 or 57 bits, and whether its upper 7 or 16 are a pointer's
// mask.
var placesRV = places{
	regs: [11]gpr{15, 10, 11, 12, 13, 14, 9, 18, 19, 20, 21},
	s0:   rvS0, s1: rvS1, s2: rvS2, zero: rvZero, sp: rvStack, link: rvLink, state: rvState,
	helper: 1<<1 | 0b111<<5 | 0xff<<10 | 0xf<<28, nowhere: 1<<62 | 1<<56 | 1<<47,
}

func compileRISCV64(p *bpf.Proof, env *Env) (*Code, error) {
	return compile64(p, env, func(reach int) encoder { return &asmRV{reach: rvField(reach)} }, linkRISCV64)
}

func (a *asmRV) places() *places { return &placesRV }

// rvCond is a branch: on a condition, of the operands as they are or the other way round.
type rvCond struct {
	cond uint32
	swap bool
}

// condsRV are the branches of jumps; of Jset, behind an and.
var condsRV = map[uint8]rvCond{
	bpf.Jeq: {rvEQ, false}, bpf.Jne: {rvNE, false}, bpf.Jset: {rvNE, false},
	bpf.Jgt: {rvLTU, true}, bpf.Jge: {rvGEU, false}, bpf.Jlt: {rvLTU, false}, bpf.Jle: {rvGEU, true},
	bpf.Jsgt: {rvLT, true}, bpf.Jsge: {rvGE, false}, bpf.Jslt: {rvLT, false}, bpf.Jsle: {rvGE, true},
}

// jump compares registers, and jumps on bpf's condition. Operands of 4 bytes are compared
// sign-extended, which keeps the order of unsigned numbers, too.
func (a *asmRV) jump(op uint8, n int, x, y gpr, to label) bool {
	c, ok := condsRV[op]
	if !ok {
		return false
	}
	x, y = a.narrowed(n, rvFirst, x), a.narrowed(n, rvOwn, y)
	if op == bpf.Jset {
		a.rrr(rv64.And, rvFirst, x, y)
		x, y = rvFirst, rvZero
	}
	if c.swap {
		x, y = y, x
	}
	a.when(c.cond, x, y, to)
	return true
}

// narrowed is a register with what another has of n bytes: the other itself if that is all.
func (a *asmRV) narrowed(n int, into, x gpr) gpr {
	if n == 8 || x == rvZero {
		return x
	}
	a.extend(into, x)
	return into
}

// jumpConst is jump with a constant, which is sign-extended already.
func (a *asmRV) jumpConst(op uint8, n int, x gpr, v int64, to label) bool {
	y := rvZero
	if v != 0 {
		y = rvOwn
		a.constant(y, uint64(v))
	}
	return a.jump(op, 8, a.narrowed(n, rvFirst, x), y, to)
}

// Operations that memory does by itself.
var amoRV = map[uint8]uint32{bpf.Add: rv64.AmoAdd, bpf.Or: rv64.AmoOr, bpf.And: rv64.AmoAnd, bpf.Xor: rv64.AmoXor}

// atomic is a read-modify-write of memory. Operations that give the old value order all accesses
// around them.
func (a *asmRV) atomic(in bpf.Insn) error {
	n, src, base := in.Size(), a.places().regs[in.Src], a.places().regs[in.Dst]
	op, plain := amoRV[uint8(in.Imm)&^bpf.AtomicFetch]
	swap, compare := in.Imm == bpf.AtomicXchg, in.Imm == bpf.AtomicCmpxchg
	if !swap && !compare && (!plain || in.Imm&^0xff != 0) {
		return fmt.Errorf("unknown atomic operation %#x", in.Imm)
	}
	if in.Off != 0 {
		a.addConst(8, rvS1, base, int64(in.Off))
		base = rvS1
	}
	switch {
	case compare:
		a.exchange(n, src, base)
	case swap:
		a.amo(n, rv64.AmoSwap|rv64.Acquire|rv64.Releases, src, src, base)
		a.clear(n, src, src)
	case in.Imm&bpf.AtomicFetch != 0:
		a.amo(n, op|rv64.Acquire|rv64.Releases, src, src, base)
		a.clear(n, src, src)
	default:
		a.amo(n, op, rvZero, src, base)
	}
	return nil
}

// exchange is compare and exchange with R0: it tries until no other access came between.
func (a *asmRV) exchange(n int, src, base gpr) {
	const old, failed = rvS2, rvS0
	result := a.places().regs[bpf.R0]
	want := a.narrowed(n, rvFirst, result)
	again, out := a.newLabel(), a.newLabel()
	a.bind(again)
	a.amo(n, rv64.LR|rv64.Acquire, old, rvZero, base)
	a.beside(rvNE, old, want, out)
	a.amo(n, rv64.SC|rv64.Releases, failed, src, base)
	a.beside(rvNE, failed, rvZero, again)
	a.bind(out)
	a.put(rv64.Fence, rvZero)
	a.clear(n, result, old)
}
