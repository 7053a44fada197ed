package bpf

import (
	"fmt"
	"math"
	"math/bits"
)

// What the verifier knows of a number: which of its bits, and between which
// bounds it lies, read as unsigned and as signed, as 64 bits and as the low 32.
// Each view catches what another cannot say; settle lets them sharpen each other.
// Every operation is sound: what it says of the result holds for all numbers that its
// operands may be. scalar_test.go holds that with random numbers.

// tnum has known bits: where mask is 0, the bit is value's. value&mask is 0.
type tnum struct{ value, mask uint64 }

func (t tnum) add(o tnum) tnum {
	sv := t.value + o.value
	mu := (t.mask + o.mask + sv) ^ sv | t.mask | o.mask // bits that a carry may reach
	return tnum{sv &^ mu, mu}
}

func (t tnum) sub(o tnum) tnum {
	dv := t.value - o.value
	mu := (dv + t.mask) ^ (dv - o.mask) | t.mask | o.mask
	return tnum{dv &^ mu, mu}
}

func (t tnum) and(o tnum) tnum {
	v := t.value & o.value
	return tnum{v, (t.value | t.mask) & (o.value | o.mask) &^ v}
}

func (t tnum) or(o tnum) tnum {
	v := t.value | o.value
	return tnum{v, (t.mask | o.mask) &^ v}
}

func (t tnum) xor(o tnum) tnum {
	mu := t.mask | o.mask
	return tnum{(t.value ^ o.value) &^ mu, mu}
}

// mul adds up the partial products; what is unknown of each spreads by carries.
func (t tnum) mul(o tnum) tnum {
	sum := tnum{t.value * o.value, 0}
	unknown := tnum{}
	for t.value|t.mask != 0 {
		if t.value&1 != 0 {
			unknown = unknown.add(tnum{0, o.mask})
		} else if t.mask&1 != 0 {
			unknown = unknown.add(tnum{0, o.value | o.mask})
		}
		t = tnum{t.value >> 1, t.mask >> 1}
		o = tnum{o.value << 1, o.mask << 1}
	}
	return sum.add(unknown)
}

// low is the low n bits, the rest known as 0.
func (t tnum) low(n int) tnum {
	m := uint64(math.MaxUint64) >> (64 - n)
	return tnum{t.value & m, t.mask & m}
}

// signed sign-extends the low n bits.
func (t tnum) signed(n int) tnum {
	return tnum{extend(t.value, int16(n&63)), extend(t.mask, int16(n&63))}
}

// meet is what both know; ok is false where no number fits both.
func (t tnum) meet(o tnum) (tnum, bool) {
	mu := t.mask & o.mask
	return tnum{(t.value | o.value) &^ mu, mu}, (t.value^o.value)&^(t.mask|o.mask) == 0
}

// within is the least tnum that holds all from lo to hi.
func within(lo, hi uint64) tnum {
	m := uint64(1)<<bits.Len64(lo^hi) - 1
	return tnum{lo &^ m, m}
}

// scalar is a set of numbers: those that fit all of it.
type scalar struct {
	t            tnum
	umin, umax   uint64
	smin, smax   int64
	umin4, umax4 uint32 // of the low 32 bits
	smin4, smax4 int32
}

var anything = scalar{
	t: tnum{0, math.MaxUint64}, umax: math.MaxUint64, smin: math.MinInt64, smax: math.MaxInt64,
	umax4: math.MaxUint32, smin4: math.MinInt32, smax4: math.MaxInt32,
}

func constant(v uint64) scalar {
	return scalar{tnum{v, 0}, v, v, int64(v), int64(v), uint32(v), uint32(v), int32(v), int32(v)}
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

func (s *scalar) isConst() bool { return s.t.mask == 0 }

const anyNumber = "any number"

// String is the set as messages show it.
func (s *scalar) String() string {
	switch {
	case s.isConst():
		return fmt.Sprint(int64(s.t.value))
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
		s.umin, s.umax = max(s.umin, s.t.value), min(s.umax, s.t.value|s.t.mask)
		s.smin = max(s.smin, int64(s.t.value|s.t.mask&sign))
		s.smax = min(s.smax, int64(s.t.value|s.t.mask&^sign))
		v4, m4 := uint32(s.t.value), uint32(s.t.mask)
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
		s.t, ok = s.t.meet(within(s.umin, s.umax))
		low := within(uint64(s.umin4), uint64(s.umax4))
		low.mask |= math.MaxUint32 << 32
		s.t, ok4 = s.t.meet(low)
		if !ok || !ok4 {
			return false
		}
	}
	return true
}

// holds tells whether every number of o is one of s.
func (s *scalar) holds(o *scalar) bool {
	return o.t.mask&^s.t.mask == 0 && s.t.value == o.t.value&^s.t.mask &&
		s.umin <= o.umin && o.umax <= s.umax && s.smin <= o.smin && o.smax <= s.smax &&
		s.umin4 <= o.umin4 && o.umax4 <= s.umax4 && s.smin4 <= o.smin4 && o.smax4 <= s.smax4
}

// zero32 is the low half, zero-extended.
func (s scalar) zero32() scalar {
	r := scalar{t: s.t.low(32), umin: uint64(s.umin4), umax: uint64(s.umax4), smin: 0, smax: math.MaxUint32,
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
	r.t = s.t.signed(n)
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

// aluScalar is what an arithmetic instruction makes of numbers; Neg and End have
// their operand in a.
func aluScalar(i Insn, a, b scalar) scalar {
	if a.isConst() && b.isConst() && i.Alu() != Neg && i.Alu() != End {
		return constant(alu(i, a.t.value, b.t.value))
	}
	signed := i.Alu() == Arsh || i.Off == 1 && (i.Alu() == Div || i.Alu() == Mod)
	switch {
	case i.Alu() == End:
		if a.isConst() {
			return constant(swap(i, a.t.value))
		}
		return unsigned(0, uint64(math.MaxUint64)>>(64-i.Imm))
	case i.Alu() == Mov && i.Class() == ClassALU64:
		return b.sign(int(i.Off))
	case i.Alu() == Mov:
		return b.sign(int(i.Off)).zero32()
	case i.Class() == ClassALU64:
		return alu64Scalar(i, a, b, 63)
	case signed:
		return alu64Scalar(i, a.sign(32), b.sign(32), 31).zero32()
	}
	// The low half of a result comes of the low halves, however they are extended: two
	// answers, both right.
	r := alu64Scalar(i, a.zero32(), b.zero32(), 31).zero32()
	if i.Alu() == Add || i.Alu() == Sub {
		o := alu64Scalar(i, a.sign(32), b.sign(32), 31).zero32()
		r.t, _ = r.t.meet(o.t)
		r.umin, r.umax = max(r.umin, o.umin), min(r.umax, o.umax)
		r.smin4, r.smax4 = max(r.smin4, o.smin4), min(r.smax4, o.smax4)
		r.settle()
	}
	return r
}

// alu64Scalar is the 64-bit operation; width is the mask of a shift's count.
func alu64Scalar(i Insn, a, b scalar, width uint64) scalar {
	r := anything
	switch i.Alu() {
	case Neg:
		return alu64Scalar(Insn{Op: ClassALU64 | Sub}, constant(0), a, width)
	case Add:
		r.t = a.t.add(b.t)
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
	case Sub:
		r.t = a.t.sub(b.t)
		if a.umin >= b.umax {
			r.umin, r.umax = a.umin-b.umax, a.umax-b.umin
		}
		if lo, ok := subSigned(a.smin, b.smax); ok {
			if hi, ok := subSigned(a.smax, b.smin); ok {
				r.smin, r.smax = lo, hi
			}
		}
	case Mul:
		r.t = a.t.mul(b.t)
		if hi, lo := bits.Mul64(a.umax, b.umax); hi == 0 {
			r.umin, r.umax = a.umin*b.umin, lo
		}
	case And:
		r.t = a.t.and(b.t)
		r.umax = min(a.umax, b.umax)
	case Or:
		r.t = a.t.or(b.t)
		r.umin = max(a.umin, b.umin)
	case Xor:
		r.t = a.t.xor(b.t)
	case Lsh:
		if b.isConst() {
			n := b.t.value & width
			r.t = tnum{a.t.value << n, a.t.mask << n}
			if bits.Len64(a.umax)+int(n) <= 64 {
				r.umin, r.umax = a.umin<<n, a.umax<<n
			}
		}
	case Rsh:
		if b.isConst() {
			n := b.t.value & width
			r.t = tnum{a.t.value >> n, a.t.mask >> n}
			r.umin, r.umax = a.umin>>n, a.umax>>n
		} else {
			r.umax = a.umax
		}
	case Arsh:
		if b.isConst() {
			n := b.t.value & width
			r.t = tnum{uint64(int64(a.t.value) >> n), uint64(int64(a.t.mask) >> n)}
			r.smin, r.smax = a.smin>>n, a.smax>>n
		} else {
			r.smin, r.smax = min(a.smin, 0), max(a.smax, -1)
		}
	case Div:
		if i.Off == 0 {
			r.umax = a.umax // by 0 gives 0
			if b.umin > 0 {
				r.umin, r.umax = a.umin/b.umax, a.umax/b.umin
			}
		}
	case Mod:
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
	Jeq: Jne, Jne: Jeq, Jgt: Jle, Jle: Jgt, Jge: Jlt, Jlt: Jge,
	Jsgt: Jsle, Jsle: Jsgt, Jsge: Jslt, Jslt: Jsge, Jset: 0,
}

// refine narrows two numbers to where a jump is taken, or is not; false: never.
func refine(i Insn, taken bool, a, b *scalar) bool {
	op := i.Jump()
	if !taken {
		op = opposite[op]
	}
	half := i.Class() == ClassJMP32
	// One order of the operands is enough.
	switch op {
	case Jgt, Jge, Jsgt, Jsge:
		op = map[uint8]uint8{Jgt: Jlt, Jge: Jle, Jsgt: Jslt, Jsge: Jsle}[op]
		a, b = b, a
	}
	ok := true
	switch op {
	case Jeq:
		ok = meet(a, b, half)
	case Jne:
		ok = unequal(a, b, half) && unequal(b, a, half)
	case Jset, 0:
		// A mask that is known: its bits are 0, or one bit is 1.
		if m := b.t.value; b.isConst() {
			if half {
				m = uint64(uint32(m))
			}
			known := tnum{0, ^m}
			if op == Jset {
				if m&(a.t.value|a.t.mask) == 0 {
					return false
				}
				known.mask = math.MaxUint64
				if bits.OnesCount64(m) == 1 {
					known = tnum{m, ^m}
				}
			}
			a.t, ok = a.t.meet(known)
		}
	case Jlt, Jle:
		less := uint64(0)
		if op == Jlt {
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
	case Jslt, Jsle:
		less := int64(0)
		if op == Jslt {
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

// meet narrows both to what they may have in common.
func meet(a, b *scalar, half bool) bool {
	umin4, umax4 := max(a.umin4, b.umin4), min(a.umax4, b.umax4)
	smin4, smax4 := max(a.smin4, b.smin4), min(a.smax4, b.smax4)
	if !half {
		t, ok := a.t.meet(b.t)
		*a = scalar{t, max(a.umin, b.umin), min(a.umax, b.umax), max(a.smin, b.smin), min(a.smax, b.smax), umin4, umax4, smin4, smax4}
		*b = *a
		return ok
	}
	const high = math.MaxUint32 << 32
	ta, oka := a.t.meet(tnum{b.t.low(32).value, b.t.low(32).mask | high})
	tb, okb := b.t.meet(tnum{a.t.low(32).value, a.t.low(32).mask | high})
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
	v := b.t.value
	if a.isConst() {
		return a.t.value != v
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
