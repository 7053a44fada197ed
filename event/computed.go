package event

import (
	"errors"
	"fmt"

	"kprobe/spec"
)

// computed is a number that debug data computes: of two numbers, or of one.
type computed struct {
	op   string
	a, b *fetch // b is nil where there is one
}

// operations lists the operations of a spec.Compute, with the number of operands of each. They are
// DWARF's: on 64 bits, div and the comparisons with a sign, mod without. Shifts are by the lower 6
// bits.
var operations = map[string]int{"load": 1, "abs": 1, "neg": 1, "not": 1, "and": 2, "or": 2, "xor": 2, "plus": 2, "minus": 2, "mul": 2, "div": 2, "mod": 2,
	"shl": 2, "shr": 2, "shra": 2, "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2}

// maxComputed limits the depth of computations within each other.
const maxComputed = 12

// compute compiles one.
func (c *Capture) compute(f *fetch, x *spec.Fetch, depth int) error {
	n := operations[x.Name]
	if n == 0 || c.arch.PtrSize != 8 {
		return fmt.Errorf("a computation (%s) that is not done", x.Name)
	}
	if depth > maxComputed {
		return errors.New("a computation that is nested too deep")
	}
	f.src, f.computed = LoadComputed, &computed{op: x.Name}
	for i, part := range []struct {
		to **fetch
		x  *spec.Fetch
	}{{&f.computed.a, x.Inner}, {&f.computed.b, x.Other}} {
		if i >= n {
			break
		}
		if part.x == nil {
			return errors.New("a computation of nothing")
		}
		t := spec.Type{Written: "part", Base: spec.Unsigned, Size: 8}
		if x.Name == "load" {
			t.Size = int(x.N)
		}
		*part.to = &fetch{nested: depth + 1}
		if err := c.compile(*part.to, &spec.Arg{Name: f.name, Fetch: *part.x, Type: t}); err != nil {
			return err
		}
		if s := (*part.to).src; s == LoadComm || s == LoadText || s == LoadStack {
			return errors.New("a computation with what is no number")
		}
	}
	return nil
}

// number works it out.
func (k *computed) number(c *Capture, ctx *Context) (uint64, bool) {
	a, ok := c.amount(k.a, ctx)
	if !ok || k.b == nil {
		switch k.op {
		case "neg":
			a = -a
		case "not":
			a = ^a
		case "abs":
			if int64(a) < 0 {
				a = -a
			}
		}
		return a, ok
	}
	b, ok := c.amount(k.b, ctx)
	truth := func(is bool) uint64 {
		if is {
			return 1
		}
		return 0
	}
	switch k.op {
	case "and":
		a &= b
	case "or":
		a |= b
	case "xor":
		a ^= b
	case "plus":
		a += b
	case "minus":
		a -= b
	case "mul":
		a *= b
	case "shl":
		a <<= b & 63
	case "shr":
		a >>= b & 63
	case "shra":
		a = uint64(int64(a) >> (b & 63))
	case "div", "mod":
		if b == 0 {
			return 0, false
		}
		a = compute(map[string]string{"div": "/", "mod": "%"}[k.op], a, b, k.op == "mod")
	case "eq":
		a = truth(a == b)
	case "ne":
		a = truth(a != b)
	case "lt":
		a = truth(int64(a) < int64(b))
	case "le":
		a = truth(int64(a) <= int64(b))
	case "gt":
		a = truth(int64(a) > int64(b))
	case "ge":
		a = truth(int64(a) >= int64(b))
	}
	return a, ok
}
