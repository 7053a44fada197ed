package event

import (
	"errors"

	"kprobe/spec"
)

// guard is a condition for a hop: where it does not hold, the word that the hop would start from is
// 0. A hop of all hops' number is the sink's.
type guard struct {
	hop   int
	of    *fetch
	minus *fetch // nil: nothing
	equal bool
	not   bool
	n     int64
}

// maxGuards is the largest number of guards of an argument, those of guards included.
const maxGuards = 6

// guard compiles the condition of the next hop.
func (c *Capture) guard(f *fetch, g *spec.Guard) error {
	out := guard{hop: len(f.hops), equal: g.Equal, not: g.Not, n: g.N}
	for _, part := range []struct {
		to **fetch
		x  *spec.Fetch
	}{{&out.of, g.Of}, {&out.minus, g.Minus}} {
		if part.x == nil {
			continue
		}
		*part.to = new(fetch)
		t := spec.Type{Written: "guard", Base: spec.Unsigned, Size: g.Size}
		if g.At != 0 {
			t.Base, t.Size, t.BitW, t.BitO = spec.Bitfield, c.arch.PtrSize, 8*g.Size, g.At
		}
		if err := c.compile(*part.to, &spec.Arg{Name: f.name, Fetch: *part.x, Type: t}); err != nil {
			return err
		}
		if f.user != 0 || (*part.to).src == LoadComm || (*part.to).src == LoadText || (*part.to).src == LoadStack {
			return errors.New("a guard of what is no number")
		}
	}
	if out.of == nil {
		return errors.New("a guard of nothing")
	}
	f.guards = append(f.guards, out)
	if g.And != nil {
		return c.guard(f, g.And)
	}
	if f.guarded() > maxGuards {
		return errors.New("it lies too deep in what may not be there")
	}
	return nil
}

// guarded counts the guards of a fetch, with those of its guards.
func (f *fetch) guarded() (n int) {
	if f == nil {
		return 0
	}
	for i := range f.guards {
		n += 1 + f.guards[i].of.guarded() + f.guards[i].minus.guarded()
	}
	return n
}

// passes tells whether the guards of a hop hold.
func (c *Capture) passes(f *fetch, hop int, ctx *Context) (yes, ok bool) {
	for i := range f.guards {
		g := &f.guards[i]
		if g.hop != hop {
			continue
		}
		n, ok := c.amount(g.of, ctx)
		if ok && g.minus != nil {
			var m uint64
			m, ok = c.amount(g.minus, ctx)
			n -= m
		}
		if !ok {
			return false, false
		}
		if g.equal && (n == uint64(g.n)) == g.not || !g.equal && int64(n) <= g.n {
			return false, true
		}
	}
	return true, true
}

// amount is the number that a fetch of one reads.
func (c *Capture) amount(f *fetch, ctx *Context) (uint64, bool) {
	var v Value
	c.capture(&v, f, ctx, nil)
	return v.Bits, !v.Fault
}
