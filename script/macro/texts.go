package macro

import (
	"strings"

	"kprobe/script/syntax"
)

// texts warns of what it cuts.
type texts struct {
	warn func(at syntax.Node, format string, a ...any)
}

// Texts joins, cuts and compares the strings of a script that are known before it runs.
func Texts(f *syntax.File, warn func(at syntax.Node, format string, a ...any)) {
	t := texts{warn}
	for _, it := range f.Items {
		switch it := it.(type) {
		case *syntax.Probe:
			it.Body = syntax.Copy(it.Body, t.fold)
			if it.Pred != nil {
				it.Pred = syntax.Copy(it.Pred, t.fold)
			}
		case *syntax.Fn:
			it.Body = syntax.Copy(it.Body, t.fold)
		}
	}
}

// fold puts one string where an operator has strings that are known: "a" + "b", and "abc" + 1 for "bc". What compares two
// is true or false.
func (t texts) fold(x syntax.Expr) syntax.Expr {
	b, ok := x.(*syntax.Binary)
	if !ok {
		return nil
	}
	b = &syntax.Binary{Span: b.Span, Op: b.Op, X: syntax.Copy(b.X, t.fold), Y: syntax.Copy(b.Y, t.fold)}
	text, ok := b.X.(*syntax.Str)
	if !ok {
		return b
	}
	switch y := b.Y.(type) {
	case *syntax.Str:
		order := strings.Compare(text.Value, y.Value)
		switch b.Op {
		case "+":
			return &syntax.Str{Span: b.Span, Value: text.Value + y.Value}
		case "<":
			return &syntax.Bool{Span: b.Span, Value: order < 0}
		case "<=":
			return &syntax.Bool{Span: b.Span, Value: order <= 0}
		case ">":
			return &syntax.Bool{Span: b.Span, Value: order > 0}
		case ">=":
			return &syntax.Bool{Span: b.Span, Value: order >= 0}
		}
	case *syntax.Int:
		if b.Op == "+" {
			if y.Value >= uint64(len(text.Value)) {
				t.warn(b, "adding %d to the literal string: the literal string will always be empty", y.Value)
			}
			return &syntax.Str{Span: b.Span, Value: text.Value[min(y.Value, uint64(len(text.Value))):]}
		}
	}
	return b
}
