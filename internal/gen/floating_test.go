package gen

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/spec"
)

var floatValues = []float64{0, math.Copysign(0, -1), 1, -1, 0.1, -0.1, 0.5, -2.5, 6, 6.5, 1e300, -1e300, 3e38, 3.5e38, 1e-40, -1e-40, 1e-46, 5e-324, -5e-324,
	math.MaxFloat64, math.MaxFloat32, float64(float32(0.1)), 16777217, math.Inf(1), math.Inf(-1), math.NaN()}

// Conditions on floating-point numbers hold in a program for what they do at a stop, which is as C has it.
func TestFloatingConditions(t *testing.T) {
	m := newTarget(rand.New(rand.NewPCG(1, 1)))
	h := &hit{memory: m}
	h.regs[arch.DX] = 0x10300
	set := func(x, y float64) {
		binary.LittleEndian.PutUint64(m[0x300:], math.Float64bits(x))
		binary.LittleEndian.PutUint64(m[0x308:], math.Float64bits(y))
		binary.LittleEndian.PutUint32(m[0x310:], math.Float32bits(float32(x)))
		binary.LittleEndian.PutUint32(m[0x314:], math.Float32bits(float32(y)))
	}
	args := []string{"d=+0(%dx):u64", "e=+8(%dx):u64", "f=+16(%dx):u32", "g=+20(%dx):u32", "i=%dx:s32", "bad=+0(%di):u64", "last=%ax"}
	compile := func(text string) (*event.Capture, *Tracer, error) {
		e, err := spec.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed := parse(t, "p", args...)
		cond := &event.Condition{Expr: e, Leaf: map[*spec.Expr]int{}}
		var walk func(e *spec.Expr)
		walk = func(e *spec.Expr) {
			if e == nil {
				return
			}
			for k := range parsed {
				if e.Op == spec.ExprName && parsed[k].Name == e.Name {
					cond.Leaf[e] = k
					if e.Name != "i" {
						parsed[k].Type.Base = spec.Float
					}
				}
			}
			walk(e.L)
			walk(e.R)
		}
		walk(e)
		c, err := event.CompileIf(parsed, len(parsed)-1, cond, arch.AMD64, m)
		if err != nil {
			return nil, nil, err
		}
		tr, err := Compile("e", bpf.Kprobe, arch.AMD64, c, Options{})
		return c, tr, err
	}
	all := floatValues
	if testing.Short() {
		all = []float64{math.Copysign(0, -1), -2.5, 0.1, 3.5e38, math.NaN()}
	}
	seconds := all
	check := func(text string, want func(x, y float64) bool, inside bool) {
		t.Helper()
		c, tr, err := compile(text)
		if c == nil || inside != (err == nil) {
			t.Fatalf("%s: inside: %v: %v", text, !inside, err)
		}
		for _, x := range floatValues {
			for _, y := range seconds {
				set(x, y)
				ctx := &event.Context{Regs: &h.regs, Mem: m}
				stop := c.Holds(c.Run(ctx), ctx)
				program := stop
				if inside {
					_, program = h.run(t, tr)
				}
				if stop != want(x, y) || program != stop {
					t.Errorf("%s of %v and %v: %v at a stop, %v in a program, want %v", text, x, y, stop, program, want(x, y))
				}
			}
		}
	}
	for _, op := range []string{"==", "!=", "<", "<=", ">", ">="} {
		c := func(a, b float64) bool {
			return map[string]bool{"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
		}
		check("d "+op+" e", func(x, y float64) bool { return c(x, y) }, true)
		check("f "+op+" g", func(x, y float64) bool { return c(float64(float32(x)), float64(float32(y))) }, true)
		check("d "+op+" f", func(x, y float64) bool { return c(x, float64(float32(x))) }, false)
		check("d * 2 "+op+" e + i", func(x, y float64) bool { return c(2*x, y+float64(0x10300)) }, false)
		for i, k := range floatValues {
			if math.IsInf(k, 0) || math.IsNaN(k) || testing.Short() && i%5 != 4 {
				continue
			}
			seconds = floatValues[:1] // it is not asked for
			text := strconv.FormatFloat(k, 'e', -1, 64)
			check("d "+op+" "+text, func(x, y float64) bool { return c(x, k) }, true)
			check(text+" "+op+" f", func(x, y float64) bool { return c(k, float64(float32(x))) }, true)
		}
		seconds = all
		check(fmt.Sprintf("d %s 6 && f %s -3", op, op), func(x, y float64) bool { return c(x, 6) && c(float64(float32(x)), -3) }, true)
		check(fmt.Sprintf("!(f %s 0.1f)", op), func(x, y float64) bool { return !c(float64(float32(x)), float64(float32(0.1))) }, true)
		check("bad "+op+" 1.5", func(x, y float64) bool { return false }, true)
	}
	check("d || !g", func(x, y float64) bool { return x != 0 || float32(y) == 0 }, true)
	check("d / e > 0.5 || d / 0 == d", func(x, y float64) bool { return y != 0 && x/y > 0.5 }, false)
	for _, text := range []string{"d & 1", "d % 2 == 1", "~d == 1", "d << 1", "1.5 ^ 2"} {
		if _, _, err := compile(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
