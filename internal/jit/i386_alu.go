package jit

import (
	"fmt"

	"kprobe/bpf"
	"kprobe/internal/asm/x86"
)

// low is an ALU instruction of 32 bits.
func (c *narrow) low(in bpf.Insn) error {
	op, plain := aluOps[in.Alu()]
	shift, shifts := shiftOps[in.Alu()]
	switch {
	case plain && in.X():
		c.load(4, x86.RAX, lo(in.Src))
		c.onto(op, lo(in.Dst), x86.RAX)
	case plain:
		c.aluImm(4, op, lo(in.Dst), in.Imm)
	case shifts && in.X():
		c.load(4, x86.RCX, lo(in.Src))
		c.emit(4, x86.OpShiftCL, x86.Reg(shift), lo(in.Dst))
	case shifts:
		if k := in.Imm & 31; k != 0 {
			c.emit(4, x86.OpShiftImm, x86.Reg(shift), lo(in.Dst))
			c.imm(1, k)
		}
	case in.Alu() == bpf.Mov && !in.X():
		c.storeImm(4, lo(in.Dst), in.Imm)
	case in.Alu() == bpf.Mov:
		switch in.Off {
		case 0, 32:
			c.load(4, x86.RAX, lo(in.Src))
		case 8, 16:
			c.extend(4, int(in.Off/8), x86.RAX, lo(in.Src))
		default:
			return fmt.Errorf("move that sign-extends from %d bits", in.Off)
		}
		c.store(4, lo(in.Dst), x86.RAX)
	case in.Alu() == bpf.Neg:
		c.emit(4, x86.OpUnary, x86.Reg(x86.Neg), lo(in.Dst))
	case in.Alu() == bpf.Mul:
		c.load(4, x86.RAX, lo(in.Dst))
		if in.X() {
			c.emit(4, x86.OpImul, x86.RAX, lo(in.Src))
		} else {
			c.imulImm(4, x86.RAX, x86.RAX, in.Imm)
		}
		c.store(4, lo(in.Dst), x86.RAX)
	case in.Alu() == bpf.Div || in.Alu() == bpf.Mod:
		c.divideLow(in)
	case in.Alu() == bpf.End:
		return c.end(in)
	default:
		return fmt.Errorf("unknown operation %#x", in.Op)
	}
	c.clearHigh(in.Dst)
	return nil
}

// wide is one of 64 bits.
func (c *narrow) wide(in bpf.Insn) error {
	op, plain := aluOps[in.Alu()]
	shift, shifts := shiftOps[in.Alu()]
	switch {
	case plain:
		if in.X() {
			c.get(in.Src)
		} else {
			c.movImm(x86.RAX, uint64(uint32(in.Imm)))
			c.movImm(x86.RDX, uint64(uint32(sign(in.Imm))))
		}
		c.onto(op, lo(in.Dst), x86.RAX)
		c.onto(upper(op), hi(in.Dst), x86.RDX)
		return nil
	case shifts:
		c.shift(in, shift)
	case in.Alu() == bpf.Mov && !in.X():
		c.putConst(in.Dst, uint64(in.Imm))
		return nil
	case in.Alu() == bpf.Mov && in.Off == 0:
		c.get(in.Src)
	case in.Alu() == bpf.Mov:
		if in.Off != 8 && in.Off != 16 && in.Off != 32 {
			return fmt.Errorf("move that sign-extends from %d bits", in.Off)
		}
		c.extendTo(int(in.Off/8), lo(in.Src))
		c.signExtendA(4)
	case in.Alu() == bpf.Neg:
		c.get(in.Dst)
		c.negate()
	case in.Alu() == bpf.Mul:
		c.multiply(in)
	case in.Alu() == bpf.Div || in.Alu() == bpf.Mod:
		c.divideWide(in)
		return nil
	case in.Alu() == bpf.End:
		return c.end(in)
	default:
		return fmt.Errorf("unknown operation %#x", in.Op)
	}
	c.put(in.Dst)
	return nil
}

// negate is edx:eax = -edx:eax.
func (c *narrow) negate() {
	c.unary(4, x86.Neg, x86.RAX)
	c.aluImm(4, x86.Adc, x86.In(x86.RDX), 0)
	c.unary(4, x86.Neg, x86.RDX)
}

// shift leaves the shifted destination in edx:eax.
func (c *narrow) shift(in bpf.Insn, op x86.Shift) {
	c.get(in.Dst)
	// to is the half that takes in bits of the other.
	to, from, double, doubleCL := x86.RAX, x86.RDX, x86.OpShrdImm, x86.OpShrdCL
	if op == x86.Shl {
		to, from, double, doubleCL = x86.RDX, x86.RAX, x86.OpShldImm, x86.OpShldCL
	}
	// far is the rest of a shift by 32 and more: all bits have changed halves.
	far := func() {
		c.mov(4, to, from)
		if op == x86.Sar {
			c.shiftImm(4, x86.Sar, x86.RDX, 31)
		} else {
			c.movImm(from, 0)
		}
	}
	if in.X() {
		c.load(4, x86.RCX, lo(in.Src))
		c.emit(4, doubleCL, from, x86.In(to))
		c.shiftCL(4, op, from)
		near := c.newLabel()
		c.emit(4, x86.OpUnary, x86.Reg(x86.TestImm), x86.In(x86.RCX))
		c.imm(4, 32)
		c.jump(x86.CondE, near)
		far()
		c.bind(near)
		return
	}
	switch k := uint8(in.Imm) & 63; {
	case k == 0:
	case k < 32:
		c.emit(4, double, from, x86.In(to))
		c.imm(1, int32(k))
		c.shiftImm(4, op, from, k)
	default:
		if k > 32 {
			c.shiftImm(4, op, from, k-32)
		}
		far()
	}
}

// multiply leaves the product in edx:eax. The upper halves add to its upper 32 bits alone.
func (c *narrow) multiply(in bpf.Insn) {
	c.factor(in, x86.RBX, x86.RSI)
	c.load(4, x86.RCX, hi(in.Dst))
	c.imul(4, x86.RCX, x86.RBX)
	c.load(4, x86.RAX, lo(in.Dst))
	c.imul(4, x86.RSI, x86.RAX)
	c.alu(4, x86.Add, x86.RCX, x86.RSI)
	c.unary(4, x86.Mul, x86.RBX)
	c.alu(4, x86.Add, x86.RDX, x86.RCX)
}

// factor loads the second operand.
func (c *narrow) factor(in bpf.Insn, low, high x86.Reg) {
	if in.X() {
		c.load(4, low, lo(in.Src))
		c.load(4, high, hi(in.Src))
		return
	}
	c.movImm(low, uint64(uint32(in.Imm)))
	c.movImm(high, uint64(uint32(sign(in.Imm))))
}

// end is the change of byte order.
func (c *narrow) end(in bpf.Insn) error {
	swap := in.Class() == bpf.ClassALU64 || in.X()
	switch in.Imm {
	case 16:
		c.load(2, x86.RAX, lo(in.Dst))
		if swap {
			c.shiftImm(2, x86.Ror, x86.RAX, 8)
		}
		c.putLow(in.Dst)
	case 32:
		c.load(4, x86.RAX, lo(in.Dst))
		if swap {
			c.bswap(4, x86.RAX)
		}
		c.putLow(in.Dst)
	case 64:
		if swap {
			c.load(4, x86.RDX, lo(in.Dst))
			c.load(4, x86.RAX, hi(in.Dst))
			c.bswap(4, x86.RAX)
			c.bswap(4, x86.RDX)
			c.put(in.Dst)
		}
	default:
		return fmt.Errorf("byte order of %d bits", in.Imm)
	}
	return nil
}

// divideLow is div and mod of 32 bits: by zero a quotient is 0 and a remainder the
// dividend, and the least number by -1 is itself.
func (c *narrow) divideLow(in bpf.Insn) {
	mod, signed := in.Alu() == bpf.Mod, in.Off == 1
	zero, minus, done := c.newLabel(), c.newLabel(), c.newLabel()
	c.factor(in, x86.RCX, x86.RBX)
	c.load(4, x86.RAX, lo(in.Dst))
	c.emit(4, x86.OpTest, x86.RCX, x86.In(x86.RCX))
	c.jump(x86.CondE, zero)
	if signed {
		c.aluImm(4, x86.Cmp, x86.In(x86.RCX), -1)
		c.jump(x86.CondE, minus)
		c.signExtendA(4)
		c.unary(4, x86.IDiv, x86.RCX)
	} else {
		c.movImm(x86.RDX, 0)
		c.unary(4, x86.Div, x86.RCX)
	}
	if mod {
		c.mov(4, x86.RAX, x86.RDX)
	}
	c.jump(always, done)
	if signed {
		c.bind(minus)
		if mod {
			c.movImm(x86.RAX, 0)
		} else {
			c.unary(4, x86.Neg, x86.RAX)
		}
		c.jump(always, done)
	}
	c.bind(zero)
	if !mod {
		c.movImm(x86.RAX, 0)
	}
	c.bind(done)
	c.store(4, lo(in.Dst), x86.RAX)
}

// divideWide is the division of 64 bits. A signed one is done with the numbers without their signs,
// and the result gets its own.
func (c *narrow) divideWide(in bpf.Insn) {
	c.divides = true
	mod, signed := in.Alu() == bpf.Mod, in.Off == 1
	zero, done := c.newLabel(), c.newLabel()
	c.factor(in, x86.RCX, x86.RBX)
	c.get(in.Dst)
	c.mov(4, x86.RSI, x86.RCX)
	c.alu(4, x86.Or, x86.RSI, x86.RBX)
	c.jump(x86.CondE, zero)
	if signed {
		c.store(4, spare(0), x86.RDX) // the remainder's sign
		c.mov(4, x86.RSI, x86.RDX)
		c.alu(4, x86.Xor, x86.RSI, x86.RBX)
		c.store(4, spare(1), x86.RSI) // the quotient's
		c.positive(x86.RAX, x86.RDX)
		c.positive(x86.RCX, x86.RBX)
	}
	c.jump(calling, c.divide)
	sign := spare(1)
	if mod {
		c.mov(4, x86.RAX, x86.RDI)
		c.mov(4, x86.RDX, x86.RSI)
		sign = spare(0)
	}
	if signed {
		keep := c.newLabel()
		c.aluImm(4, x86.Cmp, sign, 0)
		c.jump(x86.CondGE, keep)
		c.negate()
		c.bind(keep)
	}
	c.jump(always, done)
	c.bind(zero)
	if !mod {
		c.movImm(x86.RAX, 0)
		c.movImm(x86.RDX, 0)
	}
	c.bind(done)
	c.put(in.Dst)
}

// positive takes a number's sign away.
func (c *narrow) positive(low, high x86.Reg) {
	is := c.newLabel()
	c.emit(4, x86.OpTest, high, x86.In(high))
	c.jump(x86.CondNS, is)
	c.unary(4, x86.Neg, low)
	c.aluImm(4, x86.Adc, x86.In(high), 0)
	c.unary(4, x86.Neg, high)
	c.bind(is)
}

// division is a routine: edx:eax divided by ebx:ecx, which is not 0, gives the quotient
// edx:eax and the remainder esi:edi.
func (c *narrow) division() {
	long, bit, subtract, next := c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel()
	c.bind(c.divide)
	c.emit(4, x86.OpTest, x86.RBX, x86.In(x86.RBX))
	c.jump(x86.CondNE, long)
	c.mov(4, x86.RDI, x86.RAX) // as on paper, with digits of 32 bits
	c.mov(4, x86.RAX, x86.RDX)
	c.movImm(x86.RDX, 0)
	c.unary(4, x86.Div, x86.RCX)
	c.mov(4, x86.RSI, x86.RAX)
	c.mov(4, x86.RAX, x86.RDI)
	c.unary(4, x86.Div, x86.RCX)
	c.mov(4, x86.RDI, x86.RDX)
	c.mov(4, x86.RDX, x86.RSI)
	c.movImm(x86.RSI, 0)
	c.ret()

	c.bind(long) // the quotient has one digit: bit by bit
	c.mov(4, x86.RDI, x86.RDX)
	c.movImm(x86.RSI, 0)
	c.movImm(x86.RDX, 32)
	c.bind(bit)
	c.shiftImm(4, x86.Shl, x86.RAX, 1)
	c.emit(4, x86.OpShift1, x86.Reg(x86.Rcl), x86.In(x86.RDI))
	c.emit(4, x86.OpShift1, x86.Reg(x86.Rcl), x86.In(x86.RSI))
	c.jump(x86.CondB, subtract)
	c.alu(4, x86.Cmp, x86.RSI, x86.RBX)
	c.jump(x86.CondB, next)
	c.jump(x86.CondA, subtract)
	c.alu(4, x86.Cmp, x86.RDI, x86.RCX)
	c.jump(x86.CondB, next)
	c.bind(subtract)
	c.alu(4, x86.Sub, x86.RDI, x86.RCX)
	c.alu(4, x86.Sbb, x86.RSI, x86.RBX)
	c.aluImm(4, x86.Or, x86.In(x86.RAX), 1)
	c.bind(next)
	c.aluImm(4, x86.Sub, x86.In(x86.RDX), 1)
	c.jump(x86.CondNE, bit)
	c.ret()
}
