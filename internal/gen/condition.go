package gen

import (
	"fmt"
	"math"
	"strings"

	"kprobe/event"
	"kprobe/spec"
)

// condition turns a definition's condition into the program's filter.
type condition struct {
	capture *event.Capture
	loads   []event.Load
	at      []int // of each argument, its index among the record's; -1: it is not in it
	thread  func(shift uint) *Number
}

var ops = map[string]FilterOp{"&&": FilterAnd, "||": FilterOr, "==": FilterEq, "!=": FilterNotEq,
	"<": FilterLess, "<=": FilterLessEq, ">": FilterGreater, ">=": FilterGreaterEq}

var numberOps = map[string]NumberOp{"+": NumberAdd, "-": NumberSub, "*": NumberMul, "/": NumberDiv, "%": NumberMod,
	"&": NumberAnd, "|": NumberOr, "^": NumberXor, "<<": NumberLsh, ">>": NumberRsh}

func (c *condition) filter(e *spec.Expr) (*Filter, error) {
	_, leaf := c.capture.Condition().Leaf[e]
	switch {
	case c.capture.Floating(e): // it holds where it is not 0
		return c.floats(&spec.Expr{Op: spec.ExprBinary, Name: "!=", L: e, R: &spec.Expr{Op: spec.ExprNumber}})
	case leaf || c.capture.KindOf(e) == event.Number: // it holds where it is not 0
		n, err := c.number(e)
		return &Filter{Op: FilterNotEq, A: n, B: &Number{}}, err
	case e.Op == spec.ExprUnary:
		f, err := c.filter(e.L)
		return &Filter{Op: FilterNot, Left: f}, err
	case e.Name == "&&" || e.Name == "||":
		l, err := c.filter(e.L)
		if err != nil {
			return nil, err
		}
		r, err := c.filter(e.R)
		return &Filter{Op: ops[e.Name], Left: l, Right: r}, err
	case c.capture.KindOf(e.L) == event.Text:
		return c.text(e)
	}
	if c.capture.Floating(e.L) || c.capture.Floating(e.R) {
		return c.floats(e)
	}
	a, err := c.number(e.L)
	if err != nil {
		return nil, err
	}
	b, err := c.number(e.R)
	return &Filter{Op: ops[e.Name], A: a, B: b, Signed: !c.capture.Unsigned(e.L) && !c.capture.Unsigned(e.R)}, err
}

// text compares a text as far as a program can.
func (c *condition) text(e *spec.Expr) (*Filter, error) {
	k := c.at[c.capture.Condition().Leaf[e.L]]
	if k < 0 {
		return nil, fmt.Errorf("%s is a constant", e.L)
	}
	f := &Filter{Op: ops[e.Name], Arg: k, IsText: true, Text: e.R.Name}
	if strings.IndexByte(f.Text, 0) >= 0 {
		return nil, fmt.Errorf("%q: a text ends at a NUL", f.Text)
	}
	if e.Name == "~" {
		f.Op = FilterEq
		if f.Text, f.Prefix = strings.CutSuffix(f.Text, "*"); strings.ContainsAny(f.Text, "*?[") {
			return nil, fmt.Errorf("pattern %q: programs know those that are a text with * behind it", e.R.Name)
		}
	}
	return f, nil
}

func (c *condition) number(e *spec.Expr) (*Number, error) {
	if k, ok := c.capture.Condition().Leaf[e]; ok {
		switch {
		case k == event.LeafTID:
			return c.thread(0), nil
		case k == event.LeafPID:
			return c.thread(32), nil
		case c.at[k] < 0:
			return nil, fmt.Errorf("%s is a constant", e)
		}
		l := &c.loads[k]
		n := &Number{Op: NumberArg, Arg: c.at[k], Bytes: l.Size, Unsigned: !l.Signed, Shift: uint(l.Shift), Bits: uint(l.SignBits)}
		if l.Mask != math.MaxUint64 {
			n.Mask = l.Mask
		}
		return n, nil
	}
	if e.Op == spec.ExprNumber {
		return &Number{N: e.N}, nil
	}
	l, err := c.number(e.L)
	if err != nil {
		return nil, err
	}
	if e.Op == spec.ExprUnary {
		op := NumberInvert
		if e.Name == "-" {
			op = NumberNeg
		}
		return &Number{Op: op, L: l}, nil
	}
	r, err := c.number(e.R)
	return &Number{Op: numberOps[e.Name], L: l, R: r, Unsigned: c.capture.Unsigned(e)}, err
}
