package patch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
)

// has tells whether an address is in reach, in the plainest way.
func (r *Reach) has(f *isa.JumpForm, a arch.Addr) bool {
	d := int64(a - r.From)
	if d != int64(int32(d)) {
		return false
	}
	for i, c := range r.Bytes {
		b := byte(d >> (8 * i))
		switch {
		case c == Any:
		case c == Trapping && !slices.ContainsFunc(f.Guards, func(g isa.Guard) bool { return g.Byte == b }):
			return false
		case c < Any && b != byte(c):
			return false
		}
	}
	return true
}

// The first address in reach is in reach, and none between the start and it is.
func TestReachFirst(t *testing.T) {
	form := amd64.ISA.JumpForm()
	g := newGuardSet(form)
	rng := rand.New(rand.NewPCG(1, 2))
	far := 0
	for range 20000 {
		r := Reach{From: 0x7f00_0000_0000 + arch.Addr(rng.Uint32())}
		for i := range r.Bytes {
			switch rng.IntN(3) {
			case 0:
				r.Bytes[i] = Any
			case 1:
				r.Bytes[i] = Trapping
			case 2:
				r.Bytes[i] = Choice(rng.IntN(256))
			}
		}
		lo := r.From + arch.Addr(int64(rng.Uint64N(5<<30))-5<<29)
		at, ok := r.first(g, lo)
		if ok && (at < lo || !r.has(form, at)) {
			t.Fatalf("%v from %v at %v: first is %v", r.String(), r.From, lo, at)
		}
		// Not all addresses between can be tried: these are the near part, and samples whose bytes
		// are likely ones.
		end := at
		if !ok {
			end = r.From + 1<<31
			far++
		}
		for a := lo; a < end && a < lo+300; a++ {
			if r.has(form, a) {
				t.Fatalf("%v from %v at %v: first is %v, but %v is in reach", r.String(), r.From, lo, at, a)
			}
		}
		for range 20 {
			var d uint32
			for i, c := range r.Bytes {
				b := uint32(c)
				switch c {
				case Any:
					b = uint32([]byte{0, 0xff, 0x80, 0x7f, byte(rng.Uint32())}[rng.IntN(5)])
				case Trapping:
					b = uint32(form.Guards[rng.IntN(len(form.Guards))].Byte)
				}
				d |= b << (8 * i)
			}
			if a := r.From + arch.Addr(int64(int32(d))); a >= lo && a < end {
				t.Fatalf("%v from %v at %v: first is %v, but %v is in reach", r.String(), r.From, lo, at, a)
			}
		}
	}
	if far < 1000 || far > 19000 {
		t.Errorf("%d of 20000 had nothing in reach", far)
	}
}
