package jit

import (
	"fmt"

	"kprobe/bpf"
	"kprobe/internal/asm/a64"
)

// addConst is dst = x + v; 31 is the stack pointer.
func (a *asm64) addConst(n int, dst, x gpr, v int64) {
	if !a.addImm(n, dst, x, v) {
		a.constant(s0, uint64(v))
		op := uint32(a64.Add)
		if dst == sp31 || x == sp31 {
			op = a64.AddSP
		}
		a.rrr(n, op, dst, x, s0)
	}
}

// operate is dst = x op y.
func (a *asm64) operate(n int, op uint8, dst, x, y gpr) { a.rrr(n, plain64[op], dst, x, y) }

func (a *asm64) addProduct(sum, x, y gpr) { a.rrrr(8, a64.Madd, sum, x, y, sum) }

// arithmetic compiles an ALU instruction. The machine clears the upper half of a result of 32 bits,
// shifts modulo the width, divides by zero to zero and the least number by -1 to itself, all as
// eBPF has it.
func (a *asm64) arithmetic(in bpf.Insn) error {
	dst, src, n := regs64[in.Dst], regs64[in.Src], size(in)
	v := uint64(in.Imm)
	if n == 4 {
		v = uint64(uint32(in.Imm))
	}
	// second is the second operand in a register.
	second := func() gpr {
		if in.X() {
			return src
		}
		a.constant(s0, v)
		return s0
	}
	switch op := in.Alu(); op {
	case bpf.Mov:
		return a.copy(in, v)
	case bpf.Neg:
		a.rrr(n, a64.Sub, dst, zr, dst)
	case bpf.End:
		return a.end(in, dst)
	case bpf.Add, bpf.Sub:
		switch by := int64(in.Imm); {
		case in.X():
			a.rrr(n, plain64[op], dst, dst, src)
		case op == bpf.Add:
			a.addConst(n, dst, dst, by)
		default:
			a.addConst(n, dst, dst, -by)
		}
	case bpf.Or, bpf.And, bpf.Xor:
		if in.X() || !a.logical(n, logical64[op], dst, dst, v) {
			a.rrr(n, logical64[op], dst, dst, second())
		}
	case bpf.Lsh, bpf.Rsh, bpf.Arsh:
		a.shift(in, n, dst, src)
	case bpf.Mul:
		if k, ok := powerOf2(v); ok && !in.X() {
			a.lsl(n, dst, dst, int(k))
			break
		}
		a.rrrr(n, a64.Madd, dst, dst, second(), zr)
	case bpf.Div, bpf.Mod:
		divide := uint32(a64.Udiv)
		if in.Off == 1 {
			divide = a64.Sdiv
		}
		by := second()
		if op == bpf.Div {
			a.rrr(n, divide, dst, dst, by)
			break
		}
		a.rrr(n, divide, s1, dst, by)
		a.rrrr(n, a64.Msub, dst, s1, by, dst)
	default:
		return fmt.Errorf("unknown operation %#x", in.Op)
	}
	return nil
}

func (a *asm64) shift(in bpf.Insn, n int, dst, src gpr) {
	if in.X() {
		a.rrr(n, map[uint8]uint32{bpf.Lsh: a64.Lslv, bpf.Rsh: a64.Lsrv, bpf.Arsh: a64.Asrv}[in.Alu()], dst, dst, src)
		return
	}
	k := int(in.Imm) & (8*n - 1)
	if k == 0 {
		if n == 4 {
			a.move(4, dst, dst)
		}
		return
	}
	map[uint8]func(int, gpr, gpr, int){bpf.Lsh: a.lsl, bpf.Rsh: a.lsr, bpf.Arsh: a.asr}[in.Alu()](n, dst, dst, k)
}

// copy is mov.
func (a *asm64) copy(in bpf.Insn, v uint64) error {
	dst, src, n := regs64[in.Dst], regs64[in.Src], size(in)
	switch {
	case !in.X():
		a.constant(dst, v)
	case in.Off == 0:
		if n == 4 || dst != src {
			a.move(n, dst, src)
		}
	case in.Off == 8, in.Off == 16, in.Off == 32 && n == 8:
		a.bitfield(n, true, dst, src, 0, int(in.Off)-1)
	case in.Off == 32:
		a.move(4, dst, src)
	default:
		return fmt.Errorf("move that sign-extends from %d bits", in.Off)
	}
	return nil
}

// end is the change of byte order.
func (a *asm64) end(in bpf.Insn, dst gpr) error {
	swap := in.Class() == bpf.ClassALU64 || in.X()
	ops := map[int32]uint32{16: a64.Rev16, 32: a64.Rev32, 64: a64.Rev64}
	op, ok := ops[in.Imm]
	if !ok {
		return fmt.Errorf("byte order of %d bits", in.Imm)
	}
	if swap {
		a.put(op|uint32(dst)<<5|uint32(dst), dst)
	}
	switch {
	case in.Imm == 16:
		a.bitfield(4, false, dst, dst, 0, 15)
	case in.Imm == 32 && !swap:
		a.move(4, dst, dst)
	}
	return nil
}
