package verify

import (
	"fmt"
	"math"
	"math/bits"

	"kprobe/bpf"
	"kprobe/bpf/tnum"
)

// The verifier's knowledge of a number: which of its bits are known, and between which bounds it
// lies, read as unsigned and as signed, as 64 bits and as the low 32. Each view catches a case that
// another cannot express; settle lets them sharpen each other. Every operation is sound: its result
// holds for all numbers that its operands may be. scalar_test.go holds that with random numbers.

// scalar is a set of numbers: all that satisfy every field.
type scalar struct {
	t            tnum.Tnum
	umin, umax   uint64
	smin, smax   int64
	umin4, umax4 uint32 // of the low 32 bits
	smin4, smax4 int32
}

var anything = scalar{
	t: tnum.Tnum{Value: 0, Mask: math.MaxUint64}, umax: math.MaxUint64, smin: math.MinInt64, smax: math.MaxInt64,
	umax4: math.MaxUint32, smin4: math.MinInt32, smax4: math.MaxInt32,
}

func constant(v uint64) scalar {
	return scalar{tnum.Tnum{Value: v, Mask: 0}, v, v, int64(v), int64(v), uint32(v), uint32(v), int32(v), int32(v)}
}

// unsigned is a number from lo to hi.
func unsigned(lo, hi uint64) scalar {
	s := anything
	s.umin, s.umax = lo, hi
	s.settle()
	return s
}

func signed(lo, hi int64) scalar {
	s := anything
	s.smin, s.smax = lo, hi
	s.settle()
	return s
}

func (s *scalar) isConst() bool { return s.t.Mask == 0 }

const anyNumber = "any number"

// String is the set as messages show it.
func (s *scalar) String() string {
	switch {
	case s.isConst():
		return fmt.Sprint(int64(s.t.Value))
	case s.umax == math.MaxUint64 && s.smin == math.MinInt64 || s.smin < 0 && s.smin == math.MinInt64:
		return anyNumber
	case s.smin < 0:
		return fmt.Sprintf("%d..%d", s.smin, s.smax)
	}
	return fmt.Sprintf("%d..%d", s.umin, s.umax)
}

// settle lets every view sharpen the others; false: no number fits all of them.
func (s *scalar) settle() bool {
	for range 3 {
		const sign, sign4 = 1 << 63, 1 << 31
		// Bounds from bits.
		s.umin, s.umax = max(s.umin, s.t.Value), min(s.umax, s.t.Value|s.t.Mask)
		s.smin = max(s.smin, int64(s.t.Value|s.t.Mask&sign))
		s.smax = min(s.smax, int64(s.t.Value|s.t.Mask&^sign))
		v4, m4 := uint32(s.t.Value), uint32(s.t.Mask)
		s.umin4, s.umax4 = max(s.umin4, v4), min(s.umax4, v4|m4)
		s.smin4 = max(s.smin4, int32(v4|m4&sign4))
		s.smax4 = min(s.smax4, int32(v4|m4&^sign4))

		// Signed and unsigned agree where the sign is the same throughout.
		if s.smin >= 0 || s.smax < 0 {
			s.umin, s.umax = max(s.umin, uint64(s.smin)), min(s.umax, uint64(s.smax))
		}
		if int64(s.umin) <= int64(s.umax) {
			s.smin, s.smax = max(s.smin, int64(s.umin)), min(s.smax, int64(s.umax))
		}
		if s.smin4 >= 0 || s.smax4 < 0 {
			s.umin4, s.umax4 = max(s.umin4, uint32(s.smin4)), min(s.umax4, uint32(s.smax4))
		}
		if int32(s.umin4) <= int32(s.umax4) {
			s.smin4, s.smax4 = max(s.smin4, int32(s.umin4)), min(s.smax4, int32(s.umax4))
		}

		// The halves: where the upper is known, the lower is a range.
		if hi := s.umin >> 32; hi == s.umax>>32 {
			s.umin4, s.umax4 = max(s.umin4, uint32(s.umin)), min(s.umax4, uint32(s.umax))
			s.umin, s.umax = max(s.umin, hi<<32|uint64(s.umin4)), min(s.umax, hi<<32|uint64(s.umax4))
		}
		if s.smin >= math.MinInt32 && s.smax <= math.MaxInt32 {
			s.smin4, s.smax4 = max(s.smin4, int32(s.smin)), min(s.smax4, int32(s.smax))
			s.smin, s.smax = max(s.smin, int64(s.smin4)), min(s.smax, int64(s.smax4))
		}
		if s.umin > s.umax || s.smin > s.smax || s.umin4 > s.umax4 || s.smin4 > s.smax4 {
			return false
		}

		// Bits from bounds.
		var ok, ok4 bool
		s.t, ok = s.t.Meet(tnum.Within(s.umin, s.umax))
		low := tnum.Within(uint64(s.umin4), uint64(s.umax4))
		low.Mask |= math.MaxUint32 << 32
		s.t, ok4 = s.t.Meet(low)
		if !ok || !ok4 {
			return false
		}
	}
	return true
}

// holds tells whether every number of o is one of s.
func (s *scalar) holds(o *scalar) bool {
	return o.t.Mask&^s.t.Mask == 0 && s.t.Value == o.t.Value&^s.t.Mask &&
		s.umin <= o.umin && o.umax <= s.umax && s.smin <= o.smin && o.smax <= s.smax &&
		s.umin4 <= o.umin4 && o.umax4 <= s.umax4 && s.smin4 <= o.smin4 && o.smax4 <= s.smax4
}

// zero32 is the low half, zero-extended.
func (s scalar) zero32() scalar {
	r := scalar{t: s.t.Low(32), umin: uint64(s.umin4), umax: uint64(s.umax4), smin: 0, smax: math.MaxUint32,
		umin4: s.umin4, umax4: s.umax4, smin4: s.smin4, smax4: s.smax4}
	r.settle()
	return r
}

// sign sign-extends the low n bits, 8, 16 or 32; 0 or 64 leaves all.
func (s scalar) sign(n int) scalar {
	if n == 0 || n == 64 {
		return s
	}
	r := anything
	r.t = s.t.Signed(n)
	r.smin, r.smax = -1<<(n-1), 1<<(n-1)-1
	if s.smin >= r.smin && s.smax <= r.smax {
		r.smin, r.smax = s.smin, s.smax
	}
	if n == 32 {
		r.smin, r.smax = max(r.smin, int64(s.smin4)), min(r.smax, int64(s.smax4))
	}
	r.settle()
	return r
}

// aluScalar computes an arithmetic instruction on sets of numbers; Neg and End have their operand
// in a.
func aluScalar(i bpf.Insn, a, b scalar) scalar {
	if a.isConst() && b.isConst() && i.Alu() != bpf.Neg && i.Alu() != bpf.End {
		return constant(i.Result(a.t.Value, b.t.Value))
	}
	signed := i.Alu() == bpf.Arsh || i.Off == 1 && (i.Alu() == bpf.Div || i.Alu() == bpf.Mod)
	switch {
	case i.Alu() == bpf.End:
		if a.isConst() {
			return constant(i.Result(a.t.Value, 0))
		}
		return unsigned(0, uint64(math.MaxUint64)>>(64-i.Imm))
	case i.Alu() == bpf.Mov && i.Class() == bpf.ClassALU64:
		return b.sign(int(i.Off))
	case i.Alu() == bpf.Mov:
		return b.sign(int(i.Off)).zero32()
	case i.Class() == bpf.ClassALU64:
		return alu64Scalar(i, a, b, 63)
	case signed:
		return alu64Scalar(i, a.sign(32), b.sign(32), 31).zero32()
	}
	// The low half of a result comes of the low halves, however they are extended: two
	// answers, both right.
	r := alu64Scalar(i, a.zero32(), b.zero32(), 31).zero32()
	if i.Alu() == bpf.Add || i.Alu() == bpf.Sub {
		o := alu64Scalar(i, a.sign(32), b.sign(32), 31).zero32()
		r.t, _ = r.t.Meet(o.t)
		r.umin, r.umax = max(r.umin, o.umin), min(r.umax, o.umax)
		r.smin4, r.smax4 = max(r.smin4, o.smin4), min(r.smax4, o.smax4)
		r.settle()
	}
	return r
}

// alu64Scalar is the 64-bit operation; width is the mask of a shift's count.
func alu64Scalar(i bpf.Insn, a, b scalar, width uint64) scalar {
	r := anything
	switch i.Alu() {
	case bpf.Neg:
		return alu64Scalar(bpf.Insn{Op: bpf.ClassALU64 | bpf.Sub}, constant(0), a, width)
	case bpf.Add:
		r.t = a.t.Add(b.t)
		if lo, c := bits.Add64(a.umin, b.umin, 0); c == 0 {
			if hi, c := bits.Add64(a.umax, b.umax, 0); c == 0 {
				r.umin, r.umax = lo, hi
			}
		}
		if lo, ok := addSigned(a.smin, b.smin); ok {
			if hi, ok := addSigned(a.smax, b.smax); ok {
				r.smin, r.smax = lo, hi
			}
		}
	case bpf.Sub:
		r.t = a.t.Sub(b.t)
		if a.umin >= b.umax {
			r.umin, r.umax = a.umin-b.umax, a.umax-b.umin
		}
		if lo, ok := subSigned(a.smin, b.smax); ok {
			if hi, ok := subSigned(a.smax, b.smin); ok {
				r.smin, r.smax = lo, hi
			}
		}
	case bpf.Mul:
		r.t = a.t.Mul(b.t)
		if hi, lo := bits.Mul64(a.umax, b.umax); hi == 0 {
			r.umin, r.umax = a.umin*b.umin, lo
		}
	case bpf.And:
		r.t = a.t.And(b.t)
		r.umax = min(a.umax, b.umax)
	case bpf.Or:
		r.t = a.t.Or(b.t)
		r.umin = max(a.umin, b.umin)
	case bpf.Xor:
		r.t = a.t.Xor(b.t)
	case bpf.Lsh:
		if b.isConst() {
			n := b.t.Value & width
			r.t = tnum.Tnum{Value: a.t.Value << n, Mask: a.t.Mask << n}
			if bits.Len64(a.umax)+int(n) <= 64 {
				r.umin, r.umax = a.umin<<n, a.umax<<n
			}
		}
	case bpf.Rsh:
		if b.isConst() {
			n := b.t.Value & width
			r.t = tnum.Tnum{Value: a.t.Value >> n, Mask: a.t.Mask >> n}
			r.umin, r.umax = a.umin>>n, a.umax>>n
		} else {
			r.umax = a.umax
		}
	case bpf.Arsh:
		if b.isConst() {
			n := b.t.Value & width
			r.t = tnum.Tnum{Value: uint64(int64(a.t.Value) >> n), Mask: uint64(int64(a.t.Mask) >> n)}
			r.smin, r.smax = a.smin>>n, a.smax>>n
		} else {
			r.smin, r.smax = min(a.smin, 0), max(a.smax, -1)
		}
	case bpf.Div:
		if i.Off == 0 {
			r.umax = a.umax // by 0 gives 0
			if b.umin > 0 {
				r.umin, r.umax = a.umin/b.umax, a.umax/b.umin
			}
		}
	case bpf.Mod:
		switch {
		case i.Off == 0 && b.umin > 0:
			r.umax = min(a.umax, b.umax-1)
		case i.Off == 0:
			r.umax = a.umax
		case b.smin > 0: // the result has the dividend's sign
			r.smin, r.smax = max(min(a.smin, 0), 1-b.smax), min(max(a.smax, 0), b.smax-1)
		}
	}
	r.settle()
	return r
}

func addSigned(a, b int64) (int64, bool) {
	s := a + b
	return s, (a^s)&(b^s) >= 0
}

func subSigned(a, b int64) (int64, bool) {
	d := a - b
	return d, (a^b)&(a^d) >= 0
}

// opposite is the jump that is taken where this is not; 0 for Jset, which has none.
var opposite = map[uint8]uint8{
	bpf.Jeq: bpf.Jne, bpf.Jne: bpf.Jeq, bpf.Jgt: bpf.Jle, bpf.Jle: bpf.Jgt, bpf.Jge: bpf.Jlt, bpf.Jlt: bpf.Jge,
	bpf.Jsgt: bpf.Jsle, bpf.Jsle: bpf.Jsgt, bpf.Jsge: bpf.Jslt, bpf.Jslt: bpf.Jsge, bpf.Jset: 0,
}

// refine narrows two numbers to where a jump is taken, or is not; false: never.
func refine(i bpf.Insn, taken bool, a, b *scalar) bool {
	op := i.Jump()
	if !taken {
		op = opposite[op]
	}
	half := i.Class() == bpf.ClassJMP32
	// One order of the operands is enough.
	switch op {
	case bpf.Jgt, bpf.Jge, bpf.Jsgt, bpf.Jsge:
		op = map[uint8]uint8{bpf.Jgt: bpf.Jlt, bpf.Jge: bpf.Jle, bpf.Jsgt: bpf.Jslt, bpf.Jsge: bpf.Jsle}[op]
		a, b = b, a
	}
	ok := true
	switch op {
	case bpf.Jeq:
		ok = meet(a, b, half)
	case bpf.Jne:
		ok = unequal(a, b, half) && unequal(b, a, half)
	case bpf.Jset, 0:
		// A mask that is known: its bits are 0, or one bit is 1.
		if m := b.t.Value; b.isConst() {
			if half {
				m = uint64(uint32(m))
			}
			known := tnum.Tnum{Value: 0, Mask: ^m}
			if op == bpf.Jset {
				if m&(a.t.Value|a.t.Mask) == 0 {
					return false
				}
				known.Mask = math.MaxUint64
				if bits.OnesCount64(m) == 1 {
					known = tnum.Tnum{Value: m, Mask: ^m}
				}
			}
			a.t, ok = a.t.Meet(known)
		}
	case bpf.Jlt, bpf.Jle:
		less := uint64(0)
		if op == bpf.Jlt {
			less = 1
		}
		if half {
			if uint64(b.umax4) < less || uint64(a.umin4)+less > math.MaxUint32 {
				return false
			}
			a.umax4, b.umin4 = min(a.umax4, b.umax4-uint32(less)), max(b.umin4, a.umin4+uint32(less))
		} else {
			if b.umax < less || a.umin > math.MaxUint64-less {
				return false
			}
			a.umax, b.umin = min(a.umax, b.umax-less), max(b.umin, a.umin+less)
		}
	case bpf.Jslt, bpf.Jsle:
		less := int64(0)
		if op == bpf.Jslt {
			less = 1
		}
		if half {
			if int64(b.smax4)-less < math.MinInt32 || int64(a.smin4)+less > math.MaxInt32 {
				return false
			}
			a.smax4, b.smin4 = min(a.smax4, b.smax4-int32(less)), max(b.smin4, a.smin4+int32(less))
		} else {
			if b.smax < math.MinInt64+less || a.smin > math.MaxInt64-less {
				return false
			}
			a.smax, b.smin = min(a.smax, b.smax-less), max(b.smin, a.smin+less)
		}
	}
	return ok && a.settle() && b.settle()
}

// meet narrows both to the numbers that they may have in common.
func meet(a, b *scalar, half bool) bool {
	umin4, umax4 := max(a.umin4, b.umin4), min(a.umax4, b.umax4)
	smin4, smax4 := max(a.smin4, b.smin4), min(a.smax4, b.smax4)
	if !half {
		t, ok := a.t.Meet(b.t)
		*a = scalar{t, max(a.umin, b.umin), min(a.umax, b.umax), max(a.smin, b.smin), min(a.smax, b.smax), umin4, umax4, smin4, smax4}
		*b = *a
		return ok
	}
	const high = math.MaxUint32 << 32
	ta, oka := a.t.Meet(tnum.Tnum{Value: b.t.Low(32).Value, Mask: b.t.Low(32).Mask | high})
	tb, okb := b.t.Meet(tnum.Tnum{Value: a.t.Low(32).Value, Mask: a.t.Low(32).Mask | high})
	a.t, b.t = ta, tb
	a.umin4, a.umax4, a.smin4, a.smax4 = umin4, umax4, smin4, smax4
	b.umin4, b.umax4, b.smin4, b.smax4 = umin4, umax4, smin4, smax4
	return oka && okb
}

// unequal takes a known number off the ends of a's bounds.
func unequal(a, b *scalar, half bool) bool {
	if half {
		v := b.umin4
		if b.umax4 != v {
			return true
		}
		if a.umin4 == v && a.umax4 == v {
			return false
		}
		if a.umin4 == v {
			a.umin4++
		}
		if a.umax4 == v {
			a.umax4--
		}
		if s := int32(v); a.smin4 == s && a.smin4 < a.smax4 {
			a.smin4++
		} else if a.smax4 == s && a.smin4 < a.smax4 {
			a.smax4--
		}
		return true
	}
	if !b.isConst() {
		return true
	}
	v := b.t.Value
	if a.isConst() {
		return a.t.Value != v
	}
	if a.umin == v {
		a.umin++
	}
	if a.umax == v {
		a.umax--
	}
	if a.smin == int64(v) && a.smin < a.smax {
		a.smin++
	}
	if a.smax == int64(v) && a.smin < a.smax {
		a.smax--
	}
	return true
}
