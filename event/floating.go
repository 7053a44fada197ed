package event

import (
	"fmt"
	"math"

	"kprobe/spec"
)

// Floating tells whether a number of a condition is a floating-point number: one of the target's,
// one with a point, or one computed with such. They are compared and computed as C does with
// double.
func (c *Capture) Floating(e *spec.Expr) bool {
	if k, ok := c.cond.Leaf[e]; ok {
		return k >= 0 && c.fetches[k].typ.Base == spec.Float
	}
	switch e.Op {
	case spec.ExprFloat:
		return true
	case spec.ExprUnary:
		return e.Name == "-" && c.Floating(e.L)
	case spec.ExprBinary:
		return c.KindOf(e) == Number && (c.Floating(e.L) || c.Floating(e.R))
	}
	return false
}

// whole refuses the operations of integers.
func (c *Capture) whole(e *spec.Expr) error {
	for _, sub := range []*spec.Expr{e.L, e.R} {
		if sub == nil || !c.Floating(sub) {
			continue
		}
		switch e.Name {
		case "&", "|", "^", "<<", ">>", "%", "~":
			return fmt.Errorf("%s: %s is a floating-point number, for which there is no %s", e, sub, e.Name)
		}
	}
	return nil
}

// float is a number of a condition as a floating-point number.
func (c *Capture) float(e *spec.Expr, values []Value, ctx *Context) (float64, error) {
	if k, ok := c.cond.Leaf[e]; ok && c.Floating(e) {
		if values[k].Fault {
			return 0, errUnread
		}
		return values[k].Float(), nil
	}
	if e.Op == spec.ExprFloat {
		return math.Float64frombits(e.N), nil
	}
	if !c.Floating(e) {
		n, err := c.number(e, values, ctx)
		if c.Unsigned(e) {
			return float64(n), err
		}
		return float64(int64(n)), err
	}
	a, err := c.float(e.L, values, ctx)
	if err != nil || e.Op == spec.ExprUnary {
		return -a, err
	}
	b, err := c.float(e.R, values, ctx)
	switch e.Name {
	case "+":
		return a + b, err
	case "-":
		return a - b, err
	case "*":
		return a * b, err
	}
	if err == nil && b == 0 {
		err = errByZero
	}
	return a / b, err
}

// compared tells whether a comparison of floating-point numbers holds: with NaN only != does.
func compared(op string, a, b float64) bool {
	switch op {
	case "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}
