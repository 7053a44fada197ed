package jit

import (
	"fmt"

	"kprobe/bpf"
	"kprobe/internal/asm/rv64"
)

// rvOp is an operation: on registers, with a constant where the machine has that, and whether there
// is one of 4 bytes. Where there is none that of 8 has the same lower half.
type rvOp struct {
	op, imm uint32
	narrow  bool
}

var opsRV = map[uint8]rvOp{
	bpf.Add: {rv64.Add, rv64.Addi, true}, bpf.Sub: {rv64.Sub, 0, true}, bpf.Mul: {rv64.Mul, 0, true},
	bpf.Or: {rv64.Or, rv64.Ori, false}, bpf.And: {rv64.And, rv64.Andi, false}, bpf.Xor: {rv64.Xor, rv64.Xori, false},
	bpf.Lsh: {rv64.Sll, rv64.Slli, true}, bpf.Rsh: {rv64.Srl, rv64.Srli, true}, bpf.Arsh: {rv64.Sra, rv64.Srai, true},
}

// of is the operation on n bytes.
func (o rvOp) of(n int, op uint32) uint32 {
	if o.narrow {
		op |= rvWord(n)
	}
	return op
}

// operate is dst = x op y.
func (a *asmRV) operate(n int, op uint8, dst, x, y gpr) {
	o := opsRV[op]
	a.rrr(o.of(n, o.op), dst, x, y)
	a.clear(n, dst, dst)
}

// operateConst is dst = x op v.
func (a *asmRV) operateConst(n int, op uint8, dst, x gpr, v int64) {
	if op == bpf.Sub {
		op, v = bpf.Add, -v
	}
	o := opsRV[op]
	if o.imm == 0 || !rv64.Short(v) {
		a.constant(rvS0, uint64(v))
		a.operate(n, op, dst, x, rvS0)
		return
	}
	a.imm(o.of(n, o.imm), dst, x, v)
	a.clear(n, dst, dst)
}

func (a *asmRV) addConst(n int, dst, x gpr, v int64) { a.operateConst(n, bpf.Add, dst, x, v) }

func (a *asmRV) addProduct(sum, x, y gpr) {
	a.rrr(rv64.Mul, x, x, y)
	a.rrr(rv64.Add, sum, sum, x)
}

// arithmetic compiles an ALU instruction. The machine shifts modulo the width, has the dividend for
// the rest by zero, and divides the least number by -1 to itself, all as eBPF has it.
func (a *asmRV) arithmetic(in bpf.Insn) error {
	regs := a.places().regs
	dst, src, n, v := regs[in.Dst], regs[in.Src], size(in), int64(in.Imm)
	switch op := in.Alu(); op {
	case bpf.Mov:
		return a.copy(in, dst, src)
	case bpf.Neg:
		a.operate(n, bpf.Sub, dst, rvZero, dst)
	case bpf.End:
		return a.end(in, dst)
	case bpf.Add, bpf.Sub, bpf.Or, bpf.And, bpf.Xor, bpf.Mul, bpf.Lsh, bpf.Rsh, bpf.Arsh:
		if op == bpf.Lsh || op == bpf.Rsh || op == bpf.Arsh {
			v &= int64(8*n - 1)
		}
		if k, ok := powerOf2(uint64(v)); ok && op == bpf.Mul {
			op, v = bpf.Lsh, int64(k)
		}
		if in.X() {
			a.operate(n, in.Alu(), dst, dst, src)
		} else {
			a.operateConst(n, op, dst, dst, v)
		}
	case bpf.Div, bpf.Mod:
		a.divide(in, dst, src)
	default:
		return fmt.Errorf("unknown operation %#x", in.Op)
	}
	return nil
}

// divide sees to division by zero, which gives all ones here, and 0 in eBPF.
func (a *asmRV) divide(in bpf.Insn, dst, by gpr) {
	n := size(in)
	if !in.X() {
		by = rvS0
		a.constant(by, uint64(in.Imm))
	}
	op := map[bool]uint32{false: rv64.Divu, true: rv64.Div}[in.Off == 1]
	masked := in.Alu() == bpf.Div && (in.X() || in.Imm == 0)
	if in.Alu() == bpf.Mod {
		op = map[bool]uint32{false: rv64.Remu, true: rv64.Rem}[in.Off == 1]
	}
	if masked { // all ones, or 0 for 0
		a.rrr(rv64.Sltu, rvS1, rvZero, a.narrowed(n, rvS1, by))
		a.rrr(rv64.Sub, rvS1, rvZero, rvS1)
	}
	a.rrr(op|rvWord(n), dst, dst, by)
	if masked {
		a.rrr(rv64.And, dst, dst, rvS1)
	}
	a.clear(n, dst, dst)
}

// copy is mov.
func (a *asmRV) copy(in bpf.Insn, dst, src gpr) error {
	n := size(in)
	switch {
	case !in.X() && n == 4:
		a.constant(dst, uint64(uint32(in.Imm)))
	case !in.X():
		a.constant(dst, uint64(in.Imm))
	case in.Off == 0, in.Off == 32 && n == 4:
		a.clear(n, dst, src)
	case in.Off == 32:
		a.extend(dst, src)
	case in.Off == 8, in.Off == 16:
		a.imm(rv64.Slli, dst, src, 64-int64(in.Off))
		a.imm(rv64.Srai, dst, dst, 64-int64(in.Off))
		a.clear(n, dst, dst)
	default:
		return fmt.Errorf("move that sign-extends from %d bits", in.Off)
	}
	return nil
}

// end is the change of byte order, byte by byte: no instruction of RV64G does it.
func (a *asmRV) end(in bpf.Insn, dst gpr) error {
	if in.Imm != 16 && in.Imm != 32 && in.Imm != 64 {
		return fmt.Errorf("byte order of %d bits", in.Imm)
	}
	if in.Class() == bpf.ClassALU && !in.X() { // to the order that it has
		if in.Imm < 64 {
			a.imm(rv64.Slli, dst, dst, 64-int64(in.Imm))
			a.imm(rv64.Srli, dst, dst, 64-int64(in.Imm))
		}
		return nil
	}
	const swapped, last = rvS0, rvS1
	a.imm(rv64.Andi, swapped, dst, 0xff)
	for range in.Imm/8 - 1 {
		a.imm(rv64.Srli, dst, dst, 8)
		a.imm(rv64.Andi, last, dst, 0xff)
		a.imm(rv64.Slli, swapped, swapped, 8)
		a.rrr(rv64.Or, swapped, swapped, last)
	}
	a.clear(8, dst, swapped)
	return nil
}
