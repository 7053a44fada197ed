package gen

import (
	"errors"

	"kprobe/bpf"
)

// NumberOp is what a Number is.
type NumberOp uint8

const (
	NumberConst  NumberOp = iota // N
	NumberArg                    // of argument Arg, Bytes of it, shifted down by Shift and masked by Mask, extended
	NumberNeg                    // -L
	NumberInvert                 // ^L
	NumberAdd                    // L + R, and so on
	NumberSub
	NumberMul
	NumberDiv // where R is 0, nothing holds
	NumberMod
	NumberAnd
	NumberOr
	NumberXor
	NumberLsh // by the lower 6 bits of R
	NumberRsh
	NumberFloat // of argument Arg, a floating-point number of Bytes: its key, see floating.go
)

// Number is a number that a filter works out, of 64 bits.
type Number struct {
	Op   NumberOp
	L, R *Number
	N    uint64

	// Unsigned is how NumberDiv, NumberMod and NumberRsh take it; of an argument, that it has no sign.
	Unsigned bool

	Arg   int
	Bytes int    // 0: 8
	Shift uint   // of a bit field
	Mask  uint64 // 0: all
	Bits  uint   // of a bit field with sign: how many there are; else 0
}

// maxTemps is how many numbers wait on the stack for their other operand.
const maxTemps = 6

// computed writes a comparison of two numbers and gives the jumps where it fails.
func (g *writer) computed(f *Filter) (fails []int) {
	fail := func(i bpf.Insn) {
		fails = append(fails, len(g.out))
		g.emit(i)
	}
	for _, n := range []*Number{f.A, f.B} {
		g.readable(n, fail)
	}
	var holds []int // NaN differs from all
	without := func(n *Number) func(bpf.Insn) {
		if n == nil || n.Op != NumberFloat || f.Op != FilterNotEq {
			return fail
		}
		return func(i bpf.Insn) {
			holds = append(holds, len(g.out))
			g.emit(i)
		}
	}
	g.number(f.A, 0, without(f.A))
	g.temp(0, true)
	g.number(f.B, 1, without(f.B))
	g.mov(bpf.R2, bpf.R1)
	g.temp(0, false)
	op := f.otherwise()
	if op == 0 {
		g.err = errors.New("gen: filter: numbers are compared")
	}
	fail(bpf.Insn{Op: bpf.ClassJMP | op | bpf.SrcX, Dst: bpf.R1, Src: bpf.R2})
	g.here(holds)
	return fails
}

// otherwise is the jump that is taken where a comparison of R1 with R2 does not hold; 0 where there is none.
func (f *Filter) otherwise() uint8 {
	if f.Signed && f.Op >= FilterLess {
		return map[FilterOp]uint8{FilterLess: bpf.Jsge, FilterLessEq: bpf.Jsgt, FilterGreater: bpf.Jsle, FilterGreaterEq: bpf.Jslt}[f.Op]
	}
	return map[FilterOp]uint8{FilterEq: bpf.Jne, FilterNotEq: bpf.Jeq, FilterLess: bpf.Jge, FilterLessEq: bpf.Jgt,
		FilterGreater: bpf.Jle, FilterGreaterEq: bpf.Jlt}[f.Op]
}

// elem is the first element of an argument.
func (g *writer) elem(arg int) int {
	elem := 0
	for k := range arg {
		elem += elems(&g.t.Args[k])
	}
	return elem
}

// readable leaves where an argument of a number could not be read.
func (g *writer) readable(n *Number, fail func(bpf.Insn)) {
	switch {
	case n == nil:
		return
	case n.Op != NumberArg && n.Op != NumberFloat:
		g.readable(n.L, fail)
		g.readable(n.R, fail)
		return
	case n.Arg < 0 || n.Arg >= len(g.t.Args) || !isNumber(&g.t.Args[n.Arg]):
		g.err = errors.New("gen: filter: a number that is none of the arguments")
		return
	}
	g.fails(n.Arg, fail)
}

// fails leaves where an argument could not be read: it is equal to nothing.
func (g *writer) fails(arg int, fail func(bpf.Insn)) {
	f := &g.t.Args[arg]
	if !canFault(f) {
		return
	}
	for i, first := 0, g.elem(arg); i < elems(f); i++ {
		elem := first + i
		g.load(bpf.R1, bpf.R8, g.r.faults+elem/64*8)
		g.set64(bpf.R2, 1<<(elem%64))
		fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Jset | bpf.SrcX, Dst: bpf.R1, Src: bpf.R2})
	}
}

// temp stores R1 in a place on the stack, or loads it.
func (g *writer) temp(depth int, store bool) {
	if depth >= maxTemps {
		g.err = errors.New("gen: filter: a computation nested too deep")
		return
	}
	off := -16 - 8*depth
	if g.room == onStack {
		off = -g.r.whole - 8 - 8*depth
	}
	if store {
		g.store(bpf.R10, off, bpf.R1)
	} else {
		g.load(bpf.R1, bpf.R10, off)
	}
}

// number writes what puts a number in R1. Where there is none, as nothing is divided by 0, it takes the jump that fail writes.
func (g *writer) number(n *Number, depth int, fail func(bpf.Insn)) {
	if n == nil || g.err != nil {
		g.err = errors.Join(g.err, errors.New("gen: filter: an operand is missing"))
		return
	}
	switch n.Op {
	case NumberConst:
		g.set64(bpf.R1, n.N)
		return
	case NumberArg:
		g.argument(n)
		return
	case NumberFloat:
		g.floatKey(n, fail)
		return
	case NumberNeg:
		g.number(n.L, depth, fail)
		g.mov(bpf.R2, bpf.R1)
		g.set(bpf.R1, 0)
		g.aluReg(bpf.Sub, bpf.R1, bpf.R2)
		return
	case NumberInvert:
		g.number(n.L, depth, fail)
		g.alu(bpf.Xor, bpf.R1, -1)
		return
	}
	g.number(n.L, depth, fail)
	g.temp(depth, true)
	g.number(n.R, depth+1, fail)
	g.mov(bpf.R2, bpf.R1)
	g.temp(depth, false)
	switch n.Op {
	case NumberAdd:
		g.aluReg(bpf.Add, bpf.R1, bpf.R2)
	case NumberSub:
		g.aluReg(bpf.Sub, bpf.R1, bpf.R2)
	case NumberMul:
		g.aluReg(bpf.Mul, bpf.R1, bpf.R2)
	case NumberAnd:
		g.aluReg(bpf.And, bpf.R1, bpf.R2)
	case NumberOr:
		g.aluReg(bpf.Or, bpf.R1, bpf.R2)
	case NumberXor:
		g.aluReg(bpf.Xor, bpf.R1, bpf.R2)
	case NumberLsh, NumberRsh:
		op := uint8(bpf.Lsh)
		if n.Op == NumberRsh {
			if op = bpf.Rsh; !n.Unsigned {
				op = bpf.Arsh
			}
		}
		g.alu(bpf.And, bpf.R2, 63)
		g.aluReg(op, bpf.R1, bpf.R2)
	case NumberDiv, NumberMod:
		fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Jeq, Dst: bpf.R2})
		g.divide(n)
	default:
		g.err = errors.New("gen: filter: an unknown operation")
	}
}

// argument puts an argument in R1, extended to 64 bits.
func (g *writer) argument(n *Number) {
	g.load(bpf.R1, bpf.R8, g.slot(g.elem(n.Arg)))
	g.part(n.Bytes, !n.Unsigned && n.Mask == 0, n.Shift, n.Mask)
	if n.Bits > 0 && n.Bits < 64 {
		g.alu(bpf.Lsh, bpf.R1, int32(64-n.Bits))
		g.alu(bpf.Arsh, bpf.R1, int32(64-n.Bits))
	}
}

// part makes of the word in R1 the part that is meant: its lower bytes (0: all), extended by their
// sign or by zeros, shifted down and masked (0: not). It may change R2.
func (g *writer) part(bytes int, signed bool, shift uint, mask uint64) {
	if bytes > 0 && bytes < 8 {
		bits, back := int32(64-8*bytes), uint8(bpf.Rsh)
		if signed {
			back = bpf.Arsh
		}
		g.alu(bpf.Lsh, bpf.R1, bits)
		g.alu(back, bpf.R1, bits)
	}
	if shift != 0 {
		g.alu(bpf.Rsh, bpf.R1, int32(shift&63))
	}
	if mask != 0 {
		g.set64(bpf.R2, mask)
		g.aluReg(bpf.And, bpf.R1, bpf.R2)
	}
}

// divide divides R1 by R2, of numbers with sign their amounts: eBPF of old divides unsigned ones only.
func (g *writer) divide(n *Number) {
	op := uint8(bpf.Div)
	if n.Op == NumberMod {
		op = bpf.Mod
	}
	if n.Unsigned {
		g.aluReg(op, bpf.R1, bpf.R2)
		return
	}
	amount := func(reg, sign uint8) {
		g.mov(sign, reg)
		g.alu(bpf.Arsh, sign, 63)
		g.aluReg(bpf.Xor, reg, sign)
		g.aluReg(bpf.Sub, reg, sign)
	}
	amount(bpf.R1, bpf.R3)
	amount(bpf.R2, bpf.R4)
	g.aluReg(op, bpf.R1, bpf.R2)
	if n.Op == NumberDiv {
		g.aluReg(bpf.Xor, bpf.R3, bpf.R4)
	}
	g.aluReg(bpf.Xor, bpf.R1, bpf.R3)
	g.aluReg(bpf.Sub, bpf.R1, bpf.R3)
}
