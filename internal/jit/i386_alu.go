package jit

import (
	"fmt"

	"kprobe/bpf"
)

// low is an ALU instruction of 32 bits.
func (c *narrow) low(in bpf.Insn) error {
	op, plain := aluOps[in.Alu()]
	shift, shifts := shiftOps[in.Alu()]
	switch {
	case plain && in.X():
		c.load(4, rax, lo(in.Src))
		c.onto(op, lo(in.Dst), rax)
	case plain:
		c.aluImm(4, op, lo(in.Dst), in.Imm)
	case shifts && in.X():
		c.load(4, rcx, lo(in.Src))
		c.emit(4, opShiftCL, reg(shift), lo(in.Dst))
	case shifts:
		if k := in.Imm & 31; k != 0 {
			c.emit(4, opShiftImm, reg(shift), lo(in.Dst))
			c.imm(1, k)
		}
	case in.Alu() == bpf.Mov && !in.X():
		c.storeImm(4, lo(in.Dst), in.Imm)
	case in.Alu() == bpf.Mov:
		switch in.Off {
		case 0, 32:
			c.load(4, rax, lo(in.Src))
		case 8, 16:
			c.extend(4, int(in.Off/8), rax, lo(in.Src))
		default:
			return fmt.Errorf("move that sign-extends from %d bits", in.Off)
		}
		c.store(4, lo(in.Dst), rax)
	case in.Alu() == bpf.Neg:
		c.emit(4, opUnary, reg(unaryNeg), lo(in.Dst))
	case in.Alu() == bpf.Mul:
		c.load(4, rax, lo(in.Dst))
		if in.X() {
			c.emit(4, opImul, rax, lo(in.Src))
		} else {
			c.imulImm(4, rax, rax, in.Imm)
		}
		c.store(4, lo(in.Dst), rax)
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
			c.movImm(rax, uint64(uint32(in.Imm)))
			c.movImm(rdx, uint64(uint32(sign(in.Imm))))
		}
		c.onto(op, lo(in.Dst), rax)
		c.onto(upper(op), hi(in.Dst), rdx)
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
	c.unary(4, unaryNeg, rax)
	c.aluImm(4, adc, inReg(rdx), 0)
	c.unary(4, unaryNeg, rdx)
}

// shift leaves the shifted destination in edx:eax.
func (c *narrow) shift(in bpf.Insn, op shiftOp) {
	c.get(in.Dst)
	// to is the half that takes in bits of the other.
	to, from, double, doubleCL := rax, rdx, opShrd, opShrdCL
	if op == shiftShl {
		to, from, double, doubleCL = rdx, rax, opShldImm, opShld
	}
	// far is the rest of a shift by 32 and more: all bits have changed halves.
	far := func() {
		c.mov(4, to, from)
		if op == shiftSar {
			c.shiftImm(4, shiftSar, rdx, 31)
		} else {
			c.movImm(from, 0)
		}
	}
	if in.X() {
		c.load(4, rcx, lo(in.Src))
		c.emit(4, doubleCL, from, inReg(to))
		c.shiftCL(4, op, from)
		near := c.newLabel()
		c.emit(4, opUnary, reg(unaryTest), inReg(rcx))
		c.imm(4, 32)
		c.jump(condE, near)
		far()
		c.bind(near)
		return
	}
	switch k := uint8(in.Imm) & 63; {
	case k == 0:
	case k < 32:
		c.emit(4, double, from, inReg(to))
		c.imm(1, int32(k))
		c.shiftImm(4, op, from, k)
	default:
		if k > 32 {
			c.shiftImm(4, op, from, k-32)
		}
		far()
	}
}

// multiply leaves the product in edx:eax: what the upper halves add is 32 bits of it.
func (c *narrow) multiply(in bpf.Insn) {
	c.factor(in, rbx, rsi)
	c.load(4, rcx, hi(in.Dst))
	c.imul(4, rcx, rbx)
	c.load(4, rax, lo(in.Dst))
	c.imul(4, rsi, rax)
	c.alu(4, aluAdd, rcx, rsi)
	c.unary(4, unaryMul, rbx)
	c.alu(4, aluAdd, rdx, rcx)
}

// factor loads the second operand.
func (c *narrow) factor(in bpf.Insn, low, high reg) {
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
		c.load(2, rax, lo(in.Dst))
		if swap {
			c.shiftImm(2, shiftRor, rax, 8)
		}
		c.putLow(in.Dst)
	case 32:
		c.load(4, rax, lo(in.Dst))
		if swap {
			c.bswap(4, rax)
		}
		c.putLow(in.Dst)
	case 64:
		if swap {
			c.load(4, rdx, lo(in.Dst))
			c.load(4, rax, hi(in.Dst))
			c.bswap(4, rax)
			c.bswap(4, rdx)
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
	c.factor(in, rcx, rbx)
	c.load(4, rax, lo(in.Dst))
	c.emit(4, opTest, rcx, inReg(rcx))
	c.jump(condE, zero)
	if signed {
		c.aluImm(4, aluCmp, inReg(rcx), -1)
		c.jump(condE, minus)
		c.signExtendA(4)
		c.unary(4, unaryIDiv, rcx)
	} else {
		c.movImm(rdx, 0)
		c.unary(4, unaryDiv, rcx)
	}
	if mod {
		c.mov(4, rax, rdx)
	}
	c.jump(always, done)
	if signed {
		c.bind(minus)
		if mod {
			c.movImm(rax, 0)
		} else {
			c.unary(4, unaryNeg, rax)
		}
		c.jump(always, done)
	}
	c.bind(zero)
	if !mod {
		c.movImm(rax, 0)
	}
	c.bind(done)
	c.store(4, lo(in.Dst), rax)
}

// divideWide is that of 64 bits. A signed one is done with what the numbers are without
// their signs, and the result gets its own.
func (c *narrow) divideWide(in bpf.Insn) {
	c.divides = true
	mod, signed := in.Alu() == bpf.Mod, in.Off == 1
	zero, done := c.newLabel(), c.newLabel()
	c.factor(in, rcx, rbx)
	c.get(in.Dst)
	c.mov(4, rsi, rcx)
	c.alu(4, aluOr, rsi, rbx)
	c.jump(condE, zero)
	if signed {
		c.store(4, spare(0), rdx) // the remainder's sign
		c.mov(4, rsi, rdx)
		c.alu(4, aluXor, rsi, rbx)
		c.store(4, spare(1), rsi) // the quotient's
		c.positive(rax, rdx)
		c.positive(rcx, rbx)
	}
	c.jump(calling, c.divide)
	sign := spare(1)
	if mod {
		c.mov(4, rax, rdi)
		c.mov(4, rdx, rsi)
		sign = spare(0)
	}
	if signed {
		keep := c.newLabel()
		c.aluImm(4, aluCmp, sign, 0)
		c.jump(condGE, keep)
		c.negate()
		c.bind(keep)
	}
	c.jump(always, done)
	c.bind(zero)
	if !mod {
		c.movImm(rax, 0)
		c.movImm(rdx, 0)
	}
	c.bind(done)
	c.put(in.Dst)
}

// positive takes a number's sign away.
func (c *narrow) positive(low, high reg) {
	is := c.newLabel()
	c.emit(4, opTest, high, inReg(high))
	c.jump(condNS, is)
	c.unary(4, unaryNeg, low)
	c.aluImm(4, adc, inReg(high), 0)
	c.unary(4, unaryNeg, high)
	c.bind(is)
}

// division is a routine: edx:eax divided by ebx:ecx, which is not 0, gives the quotient
// edx:eax and the remainder esi:edi.
func (c *narrow) division() {
	long, bit, subtract, next := c.newLabel(), c.newLabel(), c.newLabel(), c.newLabel()
	c.bind(c.divide)
	c.emit(4, opTest, rbx, inReg(rbx))
	c.jump(condNE, long)
	c.mov(4, rdi, rax) // as on paper, with digits of 32 bits
	c.mov(4, rax, rdx)
	c.movImm(rdx, 0)
	c.unary(4, unaryDiv, rcx)
	c.mov(4, rsi, rax)
	c.mov(4, rax, rdi)
	c.unary(4, unaryDiv, rcx)
	c.mov(4, rdi, rdx)
	c.mov(4, rdx, rsi)
	c.movImm(rsi, 0)
	c.ret()

	c.bind(long) // the quotient has one digit: bit by bit
	c.mov(4, rdi, rdx)
	c.movImm(rsi, 0)
	c.movImm(rdx, 32)
	c.bind(bit)
	c.shiftImm(4, shiftShl, rax, 1)
	c.emit(4, opShift1, reg(shiftRcl), inReg(rdi))
	c.emit(4, opShift1, reg(shiftRcl), inReg(rsi))
	c.jump(condB, subtract)
	c.alu(4, aluCmp, rsi, rbx)
	c.jump(condB, next)
	c.jump(condA, subtract)
	c.alu(4, aluCmp, rdi, rcx)
	c.jump(condB, next)
	c.bind(subtract)
	c.alu(4, aluSub, rdi, rcx)
	c.alu(4, sbb, rsi, rbx)
	c.aluImm(4, aluOr, inReg(rax), 1)
	c.bind(next)
	c.aluImm(4, aluSub, inReg(rdx), 1)
	c.jump(condNE, bit)
	c.ret()
}
