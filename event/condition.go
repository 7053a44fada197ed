package event

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// A condition is worked out with numbers of 64 bits, as C does with long: each argument is extended
// from its own size by its own sign. Two operands are compared, divided and shifted as unsigned
// numbers if one of them is an unsigned one of 64 bits. With a floating-point number they are such.
// A comparison does not hold if a side could not be read, or was divided by 0.

// Condition decides which hits count.
type Condition struct {
	Expr *spec.Expr

	// Leaf maps the expressions that are values to indexes of arguments, or to LeafTID and LeafPID.
	Leaf map[*spec.Expr]int
}

// Leaves that are no arguments.
const (
	LeafTID = -1 // the thread's number
	LeafPID = -2 // the process's
)

// CompileIf is Compile for a definition with a condition: the arguments from shown on are for the
// condition only, and no event has them. Errors: as Compile's; and that the condition compares
// values that cannot be compared.
func CompileIf(args []spec.Arg, shown int, cond *Condition, a *arch.Arch, r Resolver) (*Capture, error) {
	c, err := Compile(args, a, r)
	if err != nil {
		return nil, err
	}
	c.shown, c.cond = shown, cond
	return c, c.check(cond.Expr)
}

// Shown is the number of arguments that events have. The others are for the condition alone.
func (c *Capture) Shown() int {
	if c.cond == nil {
		return len(c.fetches)
	}
	return c.shown
}

// Condition is the capture's condition; nil for none.
func (c *Capture) Condition() *Condition { return c.cond }

// Kind is the sort of value that an expression of a condition has.
type Kind uint8

const (
	Number Kind = iota
	Text
	Truth // a comparison, or several
)

var comparisons = []string{"==", "!=", "<", "<=", ">", ">=", "~"}

// KindOf is the kind of an expression of a condition.
func (c *Capture) KindOf(e *spec.Expr) Kind {
	if k, ok := c.cond.Leaf[e]; ok {
		if k >= 0 && (isText(c.fetches[k].typ.Base) || c.fetches[k].src == LoadText) {
			return Text
		}
		return Number
	}
	switch {
	case e.Op == spec.ExprText:
		return Text
	case e.Op == spec.ExprUnary && e.Name == "!":
		return Truth
	case e.Op == spec.ExprBinary && (e.Name == "&&" || e.Name == "||" || slices.Contains(comparisons, e.Name)):
		return Truth
	}
	return Number
}

// check refuses expressions that make no sense.
func (c *Capture) check(e *spec.Expr) error {
	if k, ok := c.cond.Leaf[e]; ok {
		if k >= 0 && c.fetches[k].typ.Array != 0 {
			return fmt.Errorf("%s is an array: compare an element", e)
		}
		return nil
	}
	for _, sub := range []*spec.Expr{e.L, e.R} {
		if sub != nil {
			if err := c.check(sub); err != nil {
				return err
			}
		}
	}
	if err := c.whole(e); err != nil {
		return err
	}
	switch e.Op {
	case spec.ExprNumber, spec.ExprText, spec.ExprFloat:
		return nil
	case spec.ExprUnary:
		if kind := c.KindOf(e.L); kind == Text || e.Name != "!" && kind != Number {
			return fmt.Errorf("%s: %s is no number", e, e.L)
		}
		return nil
	case spec.ExprBinary:
	default:
		return fmt.Errorf("%s is no value", e)
	}
	l, r := c.KindOf(e.L), c.KindOf(e.R)
	switch {
	case e.Name == "&&" || e.Name == "||":
		if l == Text || r == Text {
			return fmt.Errorf("%s: a text is neither true nor false", e)
		}
	case l == Text || r == Text:
		if l != r || e.L.Op == spec.ExprText || e.R.Op != spec.ExprText {
			return fmt.Errorf("%s: a text is compared with one in quotes, which stands on the right", e)
		}
		if e.Name != "==" && e.Name != "!=" && e.Name != "~" {
			return fmt.Errorf("%s: texts are compared by ==, != and ~", e)
		}
	case e.Name == "~":
		return fmt.Errorf("%s: ~ compares a text with a pattern in quotes", e)
	case l == Truth || r == Truth:
		return fmt.Errorf("%s: a comparison is no number: set parentheses", e)
	}
	return nil
}

// Unsigned tells whether a number of a condition is compared as one without sign.
func (c *Capture) Unsigned(e *spec.Expr) bool {
	if k, ok := c.cond.Leaf[e]; ok {
		if k < 0 {
			return false
		}
		t := c.fetches[k].typ
		return t.Size == 8 && t.Base != spec.Signed && t.Base != spec.Enumeration && (!ofBits(&t) || t.BitW == 64)
	}
	switch e.Op {
	case spec.ExprNumber:
		return e.N>>63 != 0
	case spec.ExprUnary:
		return c.Unsigned(e.L)
	case spec.ExprBinary:
		if e.Name == "<<" || e.Name == ">>" {
			return c.Unsigned(e.L)
		}
		return c.Unsigned(e.L) || c.Unsigned(e.R)
	}
	return false
}

// Holds tells whether a hit counts, of which these are all the arguments.
func (c *Capture) Holds(values []Value, ctx *Context) bool {
	return c.cond == nil || c.holds(c.cond.Expr, values, ctx)
}

var (
	errUnread = errors.New("it could not be read")
	errByZero = errors.New("it was divided by 0")
)

func (c *Capture) holds(e *spec.Expr, values []Value, ctx *Context) bool {
	_, leaf := c.cond.Leaf[e]
	switch {
	case c.Floating(e):
		x, err := c.float(e, values, ctx)
		return err == nil && x != 0
	case leaf || c.KindOf(e) == Number:
		n, err := c.number(e, values, ctx)
		return err == nil && n != 0
	case e.Op == spec.ExprUnary:
		return !c.holds(e.L, values, ctx)
	case e.Name == "&&":
		return c.holds(e.L, values, ctx) && c.holds(e.R, values, ctx)
	case e.Name == "||":
		return c.holds(e.L, values, ctx) || c.holds(e.R, values, ctx)
	case c.KindOf(e.L) == Text:
		v := &values[c.cond.Leaf[e.L]]
		switch {
		case v.Fault:
			return false
		case e.Name == "~":
			return wildcard(e.R.Name, v.Text)
		}
		return (v.Text == e.R.Name) == (e.Name == "==")
	}
	if c.Floating(e.L) || c.Floating(e.R) {
		a, err1 := c.float(e.L, values, ctx)
		b, err2 := c.float(e.R, values, ctx)
		return err1 == nil && err2 == nil && compared(e.Name, a, b)
	}
	a, err1 := c.number(e.L, values, ctx)
	b, err2 := c.number(e.R, values, ctx)
	if err1 != nil || err2 != nil {
		return false
	}
	less, equal := int64(a) < int64(b), a == b
	if c.Unsigned(e.L) || c.Unsigned(e.R) {
		less = a < b
	}
	switch e.Name {
	case "==":
		return equal
	case "!=":
		return !equal
	case "<":
		return less
	case "<=":
		return less || equal
	case ">":
		return !less && !equal
	}
	return !less
}

func (c *Capture) number(e *spec.Expr, values []Value, ctx *Context) (uint64, error) {
	if k, ok := c.cond.Leaf[e]; ok {
		switch k {
		case LeafTID:
			return uint64(ctx.TID), nil
		case LeafPID:
			return uint64(ctx.PID), nil
		}
		v := &values[k]
		if v.Fault {
			return 0, errUnread
		}
		if v.Base == spec.Signed || v.Base == spec.Enumeration {
			return uint64(v.Int()), nil
		}
		return v.Bits, nil
	}
	if e.Op == spec.ExprNumber {
		return e.N, nil
	}
	a, err := c.number(e.L, values, ctx)
	if err != nil {
		return 0, err
	}
	if e.Op == spec.ExprUnary {
		if e.Name == "-" {
			return -a, nil
		}
		return ^a, nil
	}
	b, err := c.number(e.R, values, ctx)
	if err != nil {
		return 0, err
	}
	if b == 0 && (e.Name == "/" || e.Name == "%") {
		return 0, errByZero
	}
	return compute(e.Name, a, b, c.Unsigned(e)), nil
}

// compute is arithmetic as eBPF does it. Nothing is divided by 0.
func compute(op string, a, b uint64, unsigned bool) uint64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "&":
		return a & b
	case "|":
		return a | b
	case "^":
		return a ^ b
	case "<<":
		return a << (b & 63)
	case ">>":
		if unsigned {
			return a >> (b & 63)
		}
		return uint64(int64(a) >> (b & 63))
	}
	sa, sb := uint64(0), uint64(0) // all ones for negative numbers
	if !unsigned {
		sa, sb = uint64(int64(a)>>63), uint64(int64(b)>>63)
	}
	x, y := (a^sa)-sa, (b^sb)-sb
	q, r := x/y, x%y
	if op == "/" {
		s := sa ^ sb
		return (q ^ s) - s
	}
	return (r ^ sa) - sa
}
