// Package tnum has numbers of which some bits are known, as the kernel's verifier has them.
package tnum

import (
	"math"
	"math/bits"
)

// Tnum has known bits: where Mask is 0, the bit is Value's. Value&Mask is 0.
type Tnum struct{ Value, Mask uint64 }

// Add returns the known bits of the sum, modulo 1<<64.
func (t Tnum) Add(o Tnum) Tnum {
	sv := t.Value + o.Value
	mu := (t.Mask + o.Mask + sv) ^ sv | t.Mask | o.Mask // bits that a carry may reach
	return Tnum{sv &^ mu, mu}
}

// Sub returns the known bits of t-o, modulo 1<<64.
func (t Tnum) Sub(o Tnum) Tnum {
	dv := t.Value - o.Value
	mu := (dv + t.Mask) ^ (dv - o.Mask) | t.Mask | o.Mask
	return Tnum{dv &^ mu, mu}
}

// And returns the known bits of t&o.
func (t Tnum) And(o Tnum) Tnum {
	v := t.Value & o.Value
	return Tnum{v, (t.Value | t.Mask) & (o.Value | o.Mask) &^ v}
}

// Or returns the known bits of t|o.
func (t Tnum) Or(o Tnum) Tnum {
	v := t.Value | o.Value
	return Tnum{v, (t.Mask | o.Mask) &^ v}
}

// Xor returns the known bits of t^o.
func (t Tnum) Xor(o Tnum) Tnum {
	mu := t.Mask | o.Mask
	return Tnum{(t.Value ^ o.Value) &^ mu, mu}
}

// Mul adds up the partial products; unknown bits of each spread by carries.
func (t Tnum) Mul(o Tnum) Tnum {
	sum := Tnum{t.Value * o.Value, 0}
	unknown := Tnum{}
	for t.Value|t.Mask != 0 {
		if t.Value&1 != 0 {
			unknown = unknown.Add(Tnum{0, o.Mask})
		} else if t.Mask&1 != 0 {
			unknown = unknown.Add(Tnum{0, o.Value | o.Mask})
		}
		t = Tnum{t.Value >> 1, t.Mask >> 1}
		o = Tnum{o.Value << 1, o.Mask << 1}
	}
	return sum.Add(unknown)
}

// Low is the low n bits, the rest known as 0.
func (t Tnum) Low(n int) Tnum {
	m := uint64(math.MaxUint64) >> (64 - n)
	return Tnum{t.Value & m, t.Mask & m}
}

// Signed sign-extends the low n bits.
func (t Tnum) Signed(n int) Tnum {
	by := 64 - n
	return Tnum{uint64(int64(t.Value<<by) >> by), uint64(int64(t.Mask<<by) >> by)}
}

// Meet joins the knowledge of both about one number; ok is false where no number fits both.
func (t Tnum) Meet(o Tnum) (Tnum, bool) {
	mu := t.Mask & o.Mask
	return Tnum{(t.Value | o.Value) &^ mu, mu}, (t.Value^o.Value)&^(t.Mask|o.Mask) == 0
}

// Within is the least Tnum that holds all from lo to hi.
func Within(lo, hi uint64) Tnum {
	m := uint64(1)<<bits.Len64(lo^hi) - 1
	return Tnum{lo &^ m, m}
}
