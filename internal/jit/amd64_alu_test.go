package jit

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// Quotients by multiplication, at the places where rounding goes wrong first:
// around multiples of the divisor, and at the ends.
func TestReciprocal(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	check := func(n int, x, d uint64) {
		m, shift, add := reciprocal(n, d)
		hi, _ := bits.Mul64(x, m)
		if add {
			hi += (x - hi) >> 1
		}
		if hi>>shift != x/d {
			t.Fatalf("%d bytes: %d / %d = %d, want %d", n, x, d, hi>>shift, x/d)
		}
	}
	for i := range 200000 {
		for n, top := range map[int]uint64{4: 1<<32 - 1, 8: 1<<64 - 1} {
			d := rng.Uint64() & top >> rng.IntN(8*n-2)
			if i < 1000 {
				d = uint64(i)
			}
			if d&(d-1) == 0 {
				continue
			}
			q := rng.Uint64() % (top/d + 1)
			for _, x := range []uint64{q * d, q*d - 1, q*d + d - 1, top, top - top%d, top - top%d - 1, rng.Uint64()} {
				check(n, x&top, d)
			}
		}
	}
}
