package spec

import (
	"errors"
	"slices"
	"strings"
)

// Condition is the part behind "if": an expression over the definition's arguments, the variables
// at its place, $retval, comm, pid and tid. A hit counts where it is not 0.
type Condition struct {
	Text string // as it was written
	Expr *Expr
}

// sourceFetch reads a fetch that only a program's debug data can place: an expression, or $locals.
// It answers false for any other.
func (p *parser) sourceFetch(text string, at int, f *Fetch) (ok bool, err error) {
	retval, field := strings.CutPrefix(text, "$retval")
	switch {
	case text == "$locals":
		f.Op = Locals
		return true, nil
	case field && retval != "" && strings.IndexByte("-.[", retval[0]) >= 0:
		if p.s.Kind == Probe || p.s.Place.Access != "" {
			return true, p.fail(at, RetvalOnProbe)
		}
	case strings.IndexByte("*&(", text[0]) >= 0, isAlpha(text[0]), strings.HasPrefix(text, "::"):
	default:
		return false, nil
	}
	e, err := ParseExpr(text)
	var bad *ExprError
	if errors.As(err, &bad) {
		se := p.fail(at+bad.At, BadFetchArg).(*SyntaxError)
		se.Err = bad
		return true, se
	}
	f.Op, f.Expr = Expression, e
	return true, nil
}

// exprName is the name that an argument goes by which is an expression: its variable's, or the last
// member's; "" for none.
func exprName(text string) string {
	e, err := ParseExpr(text)
	for err == nil {
		switch e.Op {
		case ExprName, ExprMember, ExprArrow:
			return e.Name[strings.LastIndexByte(e.Name, ':')+1:]
		case ExprDeref, ExprAddress, ExprCast, ExprIndex:
			e = e.L
		default:
			return ""
		}
	}
	return ""
}

// condition cuts "if EXPRESSION" off the words of a definition.
func (p *parser) condition(words []word) ([]word, error) {
	i := slices.IndexFunc(words, func(w word) bool { return w.text == "if" })
	if i < 0 || p.Dialect != Process {
		return words, nil
	}
	p.src.cond = words[i].at
	if i+1 == len(words) {
		return nil, p.fail(words[i].at, BadCondition)
	}
	at := words[i+1].at
	text := p.src.line[at:]
	e, err := ParseExpr(text)
	var bad *ExprError
	if errors.As(err, &bad) {
		se := p.fail(at+bad.At, BadCondition).(*SyntaxError)
		se.Err = bad
		return nil, se
	}
	p.s.If = &Condition{text, e}
	return words[:i], nil
}

// equal tells whether two conditions say the same.
func (c *Condition) equal(o *Condition) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Expr.Equal(o.Expr)
}

// grouped is the length of a parenthesis at the beginning of text, its end included: blanks in it
// do not end a word ("(struct foo *)p"). 0 where it is not closed.
func grouped(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
