package jit

import (
	"fmt"
	"math/bits"

	"kprobe/bpf"
	"kprobe/internal/asm/x86"
)

// arithmetic compiles an ALU instruction, with those that follow where they are
// one here.
func (c *compiler) arithmetic(i int) (next int, err error) {
	in := c.insns[i]
	dst, src, n := regs[in.Dst], regs[in.Src], size(in)
	next = i + 1
	if op, ok := aluOps[in.Alu()]; ok {
		switch {
		case in.X():
			c.alu(n, op, dst, src)
		case op == x86.And:
			c.andImm(n, dst, dst, in.Imm)
		case op == x86.Xor && in.Imm == -1:
			c.unary(n, x86.Not, dst)
		default:
			c.aluImm(n, op, x86.In(dst), in.Imm)
		}
		return next, nil
	}
	if op, ok := shiftOps[in.Alu()]; ok {
		if in.X() {
			c.shift(n, op, dst, src, c.live[i].has(bpf.R4))
			return next, nil
		}
		if j, ok := c.lowHalf(i, dst, dst); ok {
			return j, nil
		}
		switch k := uint8(in.Imm) & uint8(8*n-1); {
		case k != 0:
			c.shiftImm(n, op, dst, k)
		case n == 4:
			c.mov(4, dst, dst)
		}
		return next, nil
	}
	switch in.Alu() {
	case bpf.Mov:
		return c.move(i)
	case bpf.Neg:
		c.unary(n, x86.Neg, dst)
	case bpf.Mul:
		if in.X() {
			c.imul(n, dst, src)
		} else {
			c.mulImm(n, dst, dst, in.Imm)
		}
	case bpf.Div, bpf.Mod:
		c.divide(i)
	case bpf.End:
		return next, c.end(in, dst)
	default:
		return 0, fmt.Errorf("unknown operation %#x", in.Op)
	}
	return next, nil
}

// move is mov, and the next operation on the copy where one instruction can do both.
func (c *compiler) move(i int) (next int, err error) {
	in := c.insns[i]
	dst, src, n := regs[in.Dst], regs[in.Src], size(in)
	next = i + 1
	if !in.X() {
		v := uint64(in.Imm)
		if n == 4 {
			v = uint64(uint32(in.Imm))
		}
		c.movImm(dst, v)
		return next, nil
	}
	switch in.Off {
	case 0:
	case 8, 16, 32:
		c.extend(n, int(in.Off/8), dst, x86.In(src))
		return next, nil
	default:
		return 0, fmt.Errorf("move that sign-extends from %d bits", in.Off)
	}
	j := c.follow(i)
	if j >= 0 && c.insns[j].Class() == in.Class() && c.insns[j].Dst == in.Dst {
		if c.withCopy(j, n, dst, src) {
			return j + 1, nil
		}
		if k, ok := c.lowHalf(j, dst, src); ok {
			return k, nil
		}
	}
	if n == 4 || dst != src {
		c.mov(n, dst, src)
	}
	return next, nil
}

// withCopy does instruction j, whose destination would be a copy of src, with src
// itself and the result in dst.
func (c *compiler) withCopy(j, n int, dst, src x86.Reg) bool {
	op := c.insns[j]
	switch {
	case op.Alu() == bpf.Add && op.X():
		base, index := src, regs[op.Src]
		if index == dst {
			index = src
		}
		if base&7 == x86.RBP { // which would cost a displacement
			base, index = index, base
		}
		c.lea(n, dst, x86.Indexed(base, index, 0, 0))
	case op.X():
		return false
	case op.Alu() == bpf.Add:
		c.lea(n, dst, x86.At(src, op.Imm))
	case op.Alu() == bpf.Sub && op.Imm != -op.Imm:
		c.lea(n, dst, x86.At(src, -op.Imm))
	case op.Alu() == bpf.Mul:
		c.mulImm(n, dst, src, op.Imm)
	case op.Alu() == bpf.And && (op.Imm == 0xff || op.Imm == 0xffff):
		c.andImm(n, dst, src, op.Imm)
	default:
		return false
	}
	return true
}

// lowHalf makes one move of a shift of src to the left by 32 at slot i, and the shift back that
// follows.
func (c *compiler) lowHalf(i int, dst, src x86.Reg) (next int, ok bool) {
	left := c.insns[i]
	j := c.follow(i)
	if j < 0 || left.Op != bpf.ClassALU64|bpf.Lsh || left.Imm != 32 || c.insns[j].Imm != 32 || c.insns[j].Dst != left.Dst {
		return 0, false
	}
	switch c.insns[j].Op {
	case bpf.ClassALU64 | bpf.Rsh:
		c.mov(4, dst, src)
	case bpf.ClassALU64 | bpf.Arsh:
		c.extend(8, 4, dst, x86.In(src))
	default:
		return 0, false
	}
	return j + 1, true
}

// andImm is dst = src & v. Another src than dst is for bytes and words only.
func (c *compiler) andImm(n int, dst, src x86.Reg, v int32) {
	switch {
	case v == 0xff:
		c.load(1, dst, x86.In(src))
	case v == 0xffff:
		c.load(2, dst, x86.In(src))
	case v >= 0:
		c.aluImm(4, x86.And, x86.In(dst), v) // clears the upper half as v would
	default:
		c.aluImm(n, x86.And, x86.In(dst), v)
	}
}

// mulImm is dst = src * v.
func (c *compiler) mulImm(n int, dst, src x86.Reg, v int32) {
	k, ok := powerOf2(uint64(v))
	if !ok || v < 0 {
		c.imulImm(n, dst, src, v)
		return
	}
	if n == 4 && k == 0 || dst != src {
		c.mov(n, dst, src)
	}
	if k != 0 {
		c.shiftImm(n, x86.Shl, dst, k)
	}
}

// shift by a register: the machine takes the count from cl only.
func (c *compiler) shift(n int, op x86.Shift, dst, src x86.Reg, keepC bool) {
	to := dst
	if dst == x86.RCX {
		to = x86.R11
		c.mov(n, x86.R11, x86.RCX)
		keepC = false
	} else if keepC = keepC && src != x86.RCX; keepC {
		c.mov(8, x86.R11, x86.RCX)
	}
	if src != x86.RCX {
		c.mov(4, x86.RCX, src)
	}
	c.shiftCL(n, op, to)
	if dst == x86.RCX {
		c.mov(n, x86.RCX, x86.R11)
	} else if keepC {
		c.mov(8, x86.RCX, x86.R11)
	}
}

// end is the change of byte order.
func (c *compiler) end(in bpf.Insn, dst x86.Reg) error {
	swap := in.Class() == bpf.ClassALU64 || in.X()
	switch {
	case in.Imm == 16 && swap:
		c.shiftImm(2, x86.Ror, dst, 8)
		c.load(2, dst, x86.In(dst))
	case in.Imm == 16:
		c.load(2, dst, x86.In(dst))
	case in.Imm == 32 && swap:
		c.bswap(4, dst)
	case in.Imm == 32:
		c.mov(4, dst, dst)
	case in.Imm == 64 && swap:
		c.bswap(8, dst)
	case in.Imm == 64:
	default:
		return fmt.Errorf("byte order of %d bits", in.Imm)
	}
	return nil
}

// divide is div and mod. A program never faults: by zero a quotient is 0 and a
// remainder the dividend, and the most negative number by -1 is itself.
func (c *compiler) divide(i int) {
	in := c.insns[i]
	dst, n := regs[in.Dst], size(in)
	mod, signed := in.Alu() == bpf.Mod, in.Off == 1
	by := regs[in.Src]
	if !in.X() {
		if c.divideImm(i) {
			return
		}
		v := uint64(in.Imm)
		if n == 4 {
			v = uint64(uint32(in.Imm))
		}
		by = x86.R9
		c.movImm(by, v)
	} else if by == x86.RAX || by == x86.RDX {
		by = x86.R9
		c.mov(8, by, regs[in.Src])
	}
	zero, minus, done := c.newLabel(), c.newLabel(), c.newLabel()
	if in.X() {
		c.test(n, by)
		c.jump(x86.CondE, zero)
		if signed {
			c.aluImm(n, x86.Cmp, x86.In(by), -1)
			c.jump(x86.CondE, minus)
		}
	}

	// The dividend is in rdx:rax; the quotient will be in rax, the remainder in rdx.
	keepA := dst != x86.RAX && c.live[i].has(bpf.R0)
	keepD := dst != x86.RDX && c.live[i].has(bpf.R3)
	if keepA {
		c.mov(8, x86.R10, x86.RAX)
	}
	if keepD {
		c.mov(8, x86.R11, x86.RDX)
	}
	if dst != x86.RAX {
		c.mov(n, x86.RAX, dst)
	}
	if signed {
		c.signExtendA(n)
		c.unary(n, x86.IDiv, by)
	} else {
		c.movImm(x86.RDX, 0)
		c.unary(n, x86.Div, by)
	}
	result := x86.RAX
	if mod {
		result = x86.RDX
	}
	if dst != result {
		c.mov(n, dst, result)
	}
	if keepA {
		c.mov(8, x86.RAX, x86.R10)
	}
	if keepD {
		c.mov(8, x86.RDX, x86.R11)
	}

	if in.X() {
		c.jump(always, done)
		c.bind(zero)
		switch {
		case !mod:
			c.movImm(dst, 0)
		case n == 4:
			c.mov(4, dst, dst)
		}
		if signed {
			c.jump(always, done)
			c.bind(minus)
			if mod {
				c.movImm(dst, 0)
			} else {
				c.unary(n, x86.Neg, dst)
			}
		}
	}
	c.bind(done)
}

// divideImm does those divisions by a constant that need no division.
func (c *compiler) divideImm(i int) bool {
	in := c.insns[i]
	dst, n, v := regs[in.Dst], size(in), in.Imm
	mod, signed := in.Alu() == bpf.Mod, in.Off == 1
	u := uint64(v)
	if n == 4 {
		u = uint64(uint32(v))
	}
	k, pow := powerOf2(u)
	switch {
	case v == 0 && mod, v == 1 && !mod:
		if n == 4 {
			c.mov(4, dst, dst)
		}
	case v == 0, v == 1, v == -1 && signed && mod:
		c.movImm(dst, 0)
	case v == -1 && signed:
		c.unary(n, x86.Neg, dst)
	case signed:
		return false
	case !pow:
		c.multiply(i, n, dst, u, mod)
	case !mod:
		c.shiftImm(n, x86.Shr, dst, k)
	default: // k is less than 32: the constant is not negative, or of 32 bits
		c.aluImm(4, x86.And, x86.In(dst), int32(u-1))
	}
	return true
}

// multiply divides by d, no power of two, as a product with 2^64/d: several times
// faster than the machine's division.
func (c *compiler) multiply(i, n int, dst x86.Reg, d uint64, mod bool) {
	x := dst // the dividend, 64 bits wide
	if n == 4 || dst == x86.RAX || dst == x86.RDX {
		x = x86.R9
		c.mov(n, x, dst)
	}
	keepA := dst != x86.RAX && c.live[i].has(bpf.R0)
	keepD := dst != x86.RDX && c.live[i].has(bpf.R3)
	if keepA {
		c.mov(8, x86.R10, x86.RAX)
	}
	if keepD {
		c.mov(8, x86.R11, x86.RDX)
	}
	m, shift, add := reciprocal(n, d)
	c.movImm(x86.RAX, m)
	c.unary(8, x86.Mul, x) // rdx is the upper half of the product
	if add {
		c.mov(8, x86.RAX, x)
		c.alu(8, x86.Sub, x86.RAX, x86.RDX)
		c.shiftImm(8, x86.Shr, x86.RAX, 1)
		c.alu(8, x86.Add, x86.RDX, x86.RAX)
	}
	if shift > 0 {
		c.shiftImm(8, x86.Shr, x86.RDX, shift)
	}
	result := x86.RDX
	if mod {
		if d == uint64(int32(d)) {
			c.imulImm(8, x86.RDX, x86.RDX, int32(d))
		} else {
			c.movImm(x86.RAX, d)
			c.imul(8, x86.RDX, x86.RAX)
		}
		c.alu(8, x86.Sub, x, x86.RDX)
		result = x
	}
	if dst != result {
		c.mov(8, dst, result)
	}
	if keepA {
		c.mov(8, x86.RAX, x86.R10)
	}
	if keepD {
		c.mov(8, x86.RDX, x86.R11)
	}
}

// reciprocal gives the factor that x is multiplied by instead of being divided by d, no power of
// two: with hi the upper half of x*m, x/d = hi >> shift, or, with add, (hi + (x-hi)>>1) >> shift
// (Granlund and Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994). For x
// and d of 4 bytes hi is the quotient.
func reciprocal(n int, d uint64) (m uint64, shift uint8, add bool) {
	if n == 4 {
		return ^uint64(0)/d + 1, 0, false
	}
	l := uint8(bits.Len64(d) - 1)
	m, rest := bits.Div64(1<<l, 0, d)
	if d-rest < 1<<l { // 64 bits of the reciprocal are enough
		return m + 1, l, false
	}
	m *= 2
	if 2*rest >= d || 2*rest < rest {
		m++
	}
	return m + 1, l, true
}

// powerOf2 gives the exponent of a power of two.
func powerOf2(v uint64) (n uint8, ok bool) {
	return uint8(bits.TrailingZeros64(v)), v != 0 && v&(v-1) == 0
}
