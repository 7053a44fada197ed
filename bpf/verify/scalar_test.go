package verify

import (
	"math"
	"math/rand/v2"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/tnum"
)

// edgy is a number near where arithmetic changes its ways, or any.
func edgy(r *rand.Rand) uint64 {
	edges := []uint64{0, 1, 7, 63, 64, math.MaxInt32, math.MaxUint32, math.MaxInt64, math.MaxUint64, 1 << 31, 1 << 63, 1 << 32}
	switch r.IntN(4) {
	case 0:
		return edges[r.IntN(len(edges))] + uint64(r.IntN(5)) - 2
	case 1:
		return uint64(r.IntN(300))
	case 2:
		return uint64(-int64(r.IntN(300)))
	}
	return r.Uint64() >> r.IntN(64)
}

// around is a random set that has a number in it.
func around(r *rand.Rand, v uint64) scalar {
	s := anything
	for range r.IntN(4) {
		d := edgy(r) >> r.IntN(64)
		switch r.IntN(6) {
		case 0:
			m := edgy(r)
			s.t, _ = s.t.Meet(tnum.Tnum{Value: v &^ m, Mask: m})
		case 1:
			if v >= d {
				s.umin = max(s.umin, v-d)
			}
			if v+d >= v {
				s.umax = min(s.umax, v+d)
			}
		case 2:
			d >>= 1
			if lo, ok := subSigned(int64(v), int64(d)); ok {
				s.smin = max(s.smin, lo)
			}
			if hi, ok := addSigned(int64(v), int64(d)); ok {
				s.smax = min(s.smax, hi)
			}
		case 3:
			s.umin4 = max(s.umin4, uint32(v)>>r.IntN(3))
		case 4:
			s.smax4 = min(s.smax4, int32(v)|int32(d>>33))
			s.smax4 = max(s.smax4, int32(v))
		case 5:
			s = constant(v)
		}
	}
	if !s.settle() {
		panic("a set with a number in it is not empty")
	}
	return s
}

func has(s *scalar, v uint64) bool {
	c := constant(v)
	return s.holds(&c)
}

// The verifier's bounds of a result hold for every number that may come.
func TestScalarIsSound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ops := []uint8{bpf.Add, bpf.Sub, bpf.Mul, bpf.Div, bpf.Or, bpf.And, bpf.Lsh, bpf.Rsh, bpf.Neg, bpf.Mod, bpf.Xor, bpf.Mov, bpf.Arsh, bpf.End}
	n := 400000
	if testing.Short() {
		n = 50000
	}
	for range n {
		i := bpf.Insn{Op: ops[r.IntN(len(ops))] | bpf.SrcX | []uint8{bpf.ClassALU, bpf.ClassALU64}[r.IntN(2)]}
		switch i.Alu() {
		case bpf.Div, bpf.Mod:
			i.Off = int16(r.IntN(2))
		case bpf.Mov:
			i.Off = []int16{0, 8, 16, 32}[r.IntN(4)]
		case bpf.End:
			i.Imm = []int32{16, 32, 64}[r.IntN(3)]
		}
		x, y := edgy(r), edgy(r)
		a, b := around(r, x), around(r, y)
		if !has(&a, x) || !has(&b, y) {
			t.Fatalf("%+v lost %#x, or %+v lost %#x", a, x, b, y)
		}
		want := i.Result(x, y)
		if got := aluScalar(i, a, b); !has(&got, want) {
			t.Fatalf("%+v: %#x op %#x = %#x, not in %+v of %+v and %+v", i, x, y, want, got, a, b)
		}
	}
}

// A jump's conclusions about its operands hold for all numbers that take it.
func TestRefineIsSound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := 400000
	if testing.Short() {
		n = 50000
	}
	for range n {
		ops := []uint8{bpf.Jeq, bpf.Jgt, bpf.Jge, bpf.Jset, bpf.Jne, bpf.Jsgt, bpf.Jsge, bpf.Jlt, bpf.Jle, bpf.Jslt, bpf.Jsle}
		i := bpf.Insn{Op: ops[r.IntN(len(ops))] | bpf.SrcX | []uint8{bpf.ClassJMP, bpf.ClassJMP32}[r.IntN(2)]}
		x, y := edgy(r), edgy(r)
		if r.IntN(4) == 0 {
			y = x
		}
		a, b := around(r, x), around(r, y)
		a0, b0 := a, b
		if !refine(i, i.Taken(x, y), &a, &b) {
			t.Fatalf("%+v of %#x and %#x is said to be impossible: %+v and %+v", i, x, y, a0, b0)
		}
		if !has(&a, x) || !has(&b, y) {
			t.Fatalf("%+v (%v) of %#x and %#x: %+v and %+v became %+v and %+v", i, i.Taken(x, y), x, y, a0, b0, a, b)
		}
	}
}

// And it is precise enough for the ways in which programs bound an index.
func TestScalarIsPrecise(t *testing.T) {
	imm := func(op uint8, class uint8, v int32) bpf.Insn { return bpf.Insn{Op: op | class, Imm: v} }
	jump := func(s scalar, op, class uint8, v uint64, taken bool) scalar {
		b := constant(v)
		if !refine(bpf.Insn{Op: op | class}, taken, &s, &b) {
			t.Fatalf("impossible")
		}
		return s
	}
	do := func(s scalar, op, class uint8, v int64) scalar {
		return aluScalar(imm(op, class, int32(v)), s, constant(uint64(v)))
	}
	for _, tt := range []struct {
		name string
		got  scalar
		want string
	}{
		{"and", do(anything, bpf.And, bpf.ClassALU64, 63), "0..63"},
		{"shift down", do(anything, bpf.Rsh, bpf.ClassALU64, 60), "0..15"},
		{"mod", do(anything, bpf.Mod, bpf.ClassALU64, 10), "0..9"},
		{"if x > 63", jump(anything, bpf.Jgt, bpf.ClassJMP, 63, false), "0..63"},
		{"if w > 63; w = w", do(jump(anything, bpf.Jgt, bpf.ClassJMP32, 63, false), bpf.Or, bpf.ClassALU, 0), "0..63"},
		{"if w s> 63, if w s< 0; w = w", do(jump(jump(anything, bpf.Jsgt, bpf.ClassJMP32, 63, false), bpf.Jslt, bpf.ClassJMP32, 0, false), bpf.Or, bpf.ClassALU, 0), "0..63"},
		{"if x s< 0, s> 9", jump(jump(anything, bpf.Jslt, bpf.ClassJMP, 0, false), bpf.Jsgt, bpf.ClassJMP, 9, false), "0..9"},
		{"index to offset", do(do(anything, bpf.And, bpf.ClassALU, 15), bpf.Lsh, bpf.ClassALU, 3), "0..120"},
		{"w += -1 of 1..64", do(unsigned(1, 64), bpf.Add, bpf.ClassALU, -1), "0..63"},
		{"minus", do(do(anything, bpf.And, bpf.ClassALU64, 7), bpf.Sub, bpf.ClassALU64, 8), "-8..-1"},
		{"not equal at the end", jump(unsigned(0, 8), bpf.Jne, bpf.ClassJMP, 8, true), "0..7"},
		{"shl, arsh 32", do(do(jump(jump(anything, bpf.Jsgt, bpf.ClassJMP32, 63, false), bpf.Jslt, bpf.ClassJMP32, 0, false), bpf.Lsh, bpf.ClassALU64, 32), bpf.Rsh, bpf.ClassALU64, 32), "0..63"},
	} {
		if s := tt.got.String(); s != tt.want {
			t.Errorf("%s: %s, want %s (%+v)", tt.name, s, tt.want, tt.got)
		}
	}
}
