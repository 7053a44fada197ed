package gen

import (
	"fmt"
	"math"

	"kprobe/bpf"
	"kprobe/event"
	"kprobe/spec"
)

// Programs have no floating-point numbers. Those that are compared, and not computed with, are compared by keys: integers
// that are in the same order. The key of a double is made of its bits: their amount, negative where the sign says so, for which both zeros are 0.
// A float's is made likewise, and doubled, so that a constant which no float equals has a key between two.

// floats turns a comparison of floating-point numbers into the program's.
func (c *condition) floats(e *spec.Expr) (*Filter, error) {
	size := 0
	for _, side := range []*spec.Expr{e.L, e.R} {
		if k, ok := c.capture.Condition().Leaf[side]; ok && c.capture.Floating(side) {
			if size != 0 && size != c.loads[k].Size {
				return nil, fmt.Errorf("%s compares a float with a double", e)
			}
			size = c.loads[k].Size
		}
	}
	a, err := c.key(e.L, size)
	if err != nil {
		return nil, err
	}
	b, err := c.key(e.R, size)
	return &Filter{Op: ops[e.Name], A: a, B: b, Signed: true}, err
}

// key is one side of such a comparison.
func (c *condition) key(e *spec.Expr, size int) (*Number, error) {
	if k, ok := c.capture.Condition().Leaf[e]; ok && c.capture.Floating(e) && c.at[k] >= 0 {
		return &Number{Op: NumberFloat, Arg: c.at[k], Bytes: size}, nil
	}
	x, ok := constant(e)
	if !ok {
		return nil, fmt.Errorf("%s: a program does not compute with floating-point numbers", e)
	}
	if size == 4 {
		return &Number{N: uint64(keyAmongFloats(x))}, nil
	}
	return &Number{N: uint64(keyOf(int64(math.Float64bits(x)), 1<<63-1))}, nil
}

// constant is the value of an expression that always has the same.
func constant(e *spec.Expr) (float64, bool) {
	switch {
	case e.Op == spec.ExprFloat:
		return math.Float64frombits(e.N), true
	case e.Op == spec.ExprNumber && int64(e.N) >= 0:
		return float64(e.N), true
	case e.Op == spec.ExprUnary && e.Name == "-":
		x, ok := constant(e.L)
		return -x, ok
	}
	return 0, false
}

// keyOf is the key of bits with a sign above those of amount.
func keyOf(bits, amount int64) int64 {
	if bits < 0 {
		return -(bits & amount)
	}
	return bits & amount
}

// keyAmongFloats is a double's among the doubled ones of floats.
func keyAmongFloats(x float64) int64 {
	f := float32(x)
	if float64(f) > x {
		f = math.Nextafter32(f, float32(math.Inf(-1)))
	}
	k := 2 * keyOf(int64(int32(math.Float32bits(f))), 1<<31-1)
	if float64(f) < x {
		k++
	}
	return k
}

// floatKey puts an argument's key in R1. Where it is no number, it takes the jump that nan writes.
func (g *writer) floatKey(n *Number, nan func(bpf.Insn)) {
	g.load(bpf.R1, bpf.R8, g.slot(g.elem(n.Arg)))
	shift, inf := int32(1), uint64(0x7ff)<<52
	if n.Bytes == 4 {
		shift, inf = 33, 0xff<<23
		g.alu(bpf.Lsh, bpf.R1, 32)
	}
	g.mov(bpf.R2, bpf.R1)
	g.alu(bpf.Arsh, bpf.R2, 63)
	g.alu(bpf.Lsh, bpf.R1, 1)
	g.alu(bpf.Rsh, bpf.R1, shift)
	g.set64(bpf.R3, inf)
	nan(bpf.Insn{Op: bpf.ClassJMP | bpf.Jgt | bpf.SrcX, Dst: bpf.R1, Src: bpf.R3})
	g.aluReg(bpf.Xor, bpf.R1, bpf.R2)
	g.aluReg(bpf.Sub, bpf.R1, bpf.R2)
	if n.Bytes == 4 {
		g.alu(bpf.Lsh, bpf.R1, 1)
	}
}

// isNumber tells the arguments that have a number of their own.
func isNumber(f *event.Load) bool { return array(f) == 0 && !isText(f) }
