package jit

import (
	"fmt"

	"kprobe/bpf"
)

// addConst is dst = x + v; dst is not the stack pointer.
func (c *compiler64) addConst(n int, dst, x gpr, v int64) {
	if !c.a.addImm(n, dst, x, v) {
		c.a.constant(s0, uint64(v))
		c.a.rrr(n, a64Add, dst, x, s0)
	}
}

// arithmetic compiles an ALU instruction. The machine clears the upper half of what has 32 bits, shifts
// modulo the width, divides by zero to zero and the least number by -1 to itself, all as eBPF
// has it.
func (c *compiler64) arithmetic(in bpf.Insn) error {
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
		c.a.constant(s0, v)
		return s0
	}
	switch op := in.Alu(); op {
	case bpf.Mov:
		return c.copy(in, v)
	case bpf.Neg:
		c.a.rrr(n, a64Sub, dst, zr, dst)
	case bpf.End:
		return c.end(in, dst)
	case bpf.Add, bpf.Sub:
		switch by := int64(in.Imm); {
		case in.X():
			c.a.rrr(n, plain64[op], dst, dst, src)
		case op == bpf.Add:
			c.addConst(n, dst, dst, by)
		default:
			c.addConst(n, dst, dst, -by)
		}
	case bpf.Or, bpf.And, bpf.Xor:
		if in.X() || !c.a.logical(n, logical64[op], dst, dst, v) {
			c.a.rrr(n, logical64[op], dst, dst, second())
		}
	case bpf.Lsh, bpf.Rsh, bpf.Arsh:
		c.shift(in, n, dst, src)
	case bpf.Mul:
		if k, ok := powerOf2(v); ok && !in.X() {
			c.a.lsl(n, dst, dst, int(k))
			break
		}
		c.a.rrrr(n, a64Madd, dst, dst, second(), zr)
	case bpf.Div, bpf.Mod:
		divide := uint32(a64Udiv)
		if in.Off == 1 {
			divide = a64Sdiv
		}
		by := second()
		if op == bpf.Div {
			c.a.rrr(n, divide, dst, dst, by)
			break
		}
		c.a.rrr(n, divide, s1, dst, by)
		c.a.rrrr(n, a64Msub, dst, s1, by, dst)
	default:
		return fmt.Errorf("unknown operation %#x", in.Op)
	}
	return nil
}

func (c *compiler64) shift(in bpf.Insn, n int, dst, src gpr) {
	if in.X() {
		c.a.rrr(n, map[uint8]uint32{bpf.Lsh: a64Lslv, bpf.Rsh: a64Lsrv, bpf.Arsh: a64Asrv}[in.Alu()], dst, dst, src)
		return
	}
	k := int(in.Imm) & (8*n - 1)
	if k == 0 {
		if n == 4 {
			c.a.move(4, dst, dst)
		}
		return
	}
	map[uint8]func(int, gpr, gpr, int){bpf.Lsh: c.a.lsl, bpf.Rsh: c.a.lsr, bpf.Arsh: c.a.asr}[in.Alu()](n, dst, dst, k)
}

// copy is mov.
func (c *compiler64) copy(in bpf.Insn, v uint64) error {
	dst, src, n := regs64[in.Dst], regs64[in.Src], size(in)
	switch {
	case !in.X():
		c.a.constant(dst, v)
	case in.Off == 0:
		if n == 4 || dst != src {
			c.a.move(n, dst, src)
		}
	case in.Off == 8, in.Off == 16, in.Off == 32 && n == 8:
		c.a.bitfield(n, true, dst, src, 0, int(in.Off)-1)
	case in.Off == 32:
		c.a.move(4, dst, src)
	default:
		return fmt.Errorf("move that sign-extends from %d bits", in.Off)
	}
	return nil
}

// end is the change of byte order.
func (c *compiler64) end(in bpf.Insn, dst gpr) error {
	swap := in.Class() == bpf.ClassALU64 || in.X()
	ops := map[int32]uint32{16: a64Rev16, 32: a64Rev32, 64: a64Rev64}
	op, ok := ops[in.Imm]
	if !ok {
		return fmt.Errorf("byte order of %d bits", in.Imm)
	}
	if swap {
		c.a.put(op|uint32(dst)<<5|uint32(dst), dst)
	}
	switch {
	case in.Imm == 16:
		c.a.bitfield(4, false, dst, dst, 0, 15)
	case in.Imm == 32 && !swap:
		c.a.move(4, dst, dst)
	}
	return nil
}
