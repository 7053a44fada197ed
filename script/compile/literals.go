package compile

import (
	"cmp"
	"math/big"
	"slices"
	"strconv"

	"kprobe/script/syntax"
	"kprobe/script/types"
)

// overflows refuses what literals alone come to where 64 bits do not hold it.
func (c *Checker) overflows(x *syntax.Binary) {
	a, okA := c.written(x.X)
	b, okB := c.written(x.Y)
	if !okA || !okB {
		n, known := c.Constant(x.Y)
		if _, both := c.Constant(x.X); both && known && n == 0 && c.boolean(x) && (x.Op == "/" || x.Op == "%") {
			c.Errorf(x, "division by zero: unable to fold literals")
		}
		return
	}
	if what := types.Overflow(x.Op, a, b); what != "" {
		c.Errorf(x, "%s", what)
	}
}

// written is the number that is made of literals alone. Those that are not negative have no sign, and so has what they come to.
func (c *Checker) written(x syntax.Expr) (*big.Int, bool) {
	n, ok := c.LiteralNumber(x)
	if !ok {
		return nil, false
	}
	switch x := x.(type) {
	case *syntax.Unary:
		switch v, ok := c.written(x.X); {
		case ok && x.Op == "-":
			return v.Neg(v), true
		case ok && x.Op == "~" && v.Sign() < 0:
			return v.Not(v), true
		case ok && x.Op == "~":
			return v.Xor(v, types.AllOnes), true
		}
	case *syntax.Binary:
		a, okA := c.written(x.X)
		b, okB := c.written(x.Y)
		if okA && okB {
			if v := types.Reckon(x.Op, a, b); v != nil {
				return v, true
			}
		}
	}
	if int64(n) < 0 && !c.Unsigned(x) {
		return big.NewInt(int64(n)), true
	}
	return new(big.Int).SetUint64(n), true
}

// boolean tells of an operation on two truth values, whose result is one.
func (c *Checker) boolean(x *syntax.Binary) bool {
	a, b := c.Types[x.X], c.Types[x.Y]
	return a != nil && b != nil && a.Kind == types.Bool && b.Kind == types.Bool
}

// same compares what is known before the script runs: texts, numbers, and tuples of them.
func (c *Checker) same(x, y syntax.Expr) (same, known bool) {
	a, okA := x.(*syntax.Tuple)
	b, okB := y.(*syntax.Tuple)
	if okA && okB {
		if len(a.Elems) != len(b.Elems) {
			return false, true
		}
		same, known = true, true
		for i := range a.Elems {
			s, k := c.same(a.Elems[i], b.Elems[i])
			same, known = same && s, known && k
		}
		return same, known
	}
	textA, okA := c.StringLiteral(x)
	textB, okB := c.StringLiteral(y)
	if okA != okB {
		_, other := c.Constant(x)
		_, and := c.Constant(y)
		return false, other || and
	}
	if okA {
		return textA == textB, true
	}
	n, okA := c.Constant(x)
	m, okB := c.Constant(y)
	return n == m, okA && okB
}

// literalOr is the type of a number that is made of literals alone, else t.
func (c *Checker) literalOr(x syntax.Expr, t *types.Type) *types.Type {
	if n, ok := c.LiteralNumber(x); ok && t != nil && t.Kind == types.Int {
		return types.LiteralOf(n, int64(n) < 0 && !c.Unsigned(x))
	}
	return t
}

// Unsigned tells of a constant with its highest bit set that this is no sign.
func (c *Checker) Unsigned(x syntax.Expr) bool {
	n, ok := c.Constant(x)
	if !ok || int64(n) >= 0 {
		return false
	}
	switch x := x.(type) {
	case *syntax.Int:
		return true
	case *syntax.Positional:
		return c.Opts.Params[x.N-1][0] != '-'
	case *syntax.Cast:
		t := c.castTo(x)
		return t != nil && !t.Signed
	case *syntax.Comptime:
		return c.Unsigned(x.X)
	case *syntax.Block:
		return c.Unsigned(x.Value)
	case *syntax.Call:
		t := c.Types[x]
		return t != nil && t.Kind == types.Int && !t.Signed
	case *syntax.Unary, *syntax.Binary:
		if v, ok := c.written(x); ok {
			return v.Sign() > 0 && !v.IsInt64()
		}
		if x, ok := x.(*syntax.Binary); ok {
			return x.Op != "-" && c.unsignedPair(x)
		}
	}
	return false
}

// unsignedPair tells that two constants are reckoned with as unsigned numbers: one of them is one, and none is negative.
func (c *Checker) unsignedPair(x *syntax.Binary) bool {
	a, _ := c.Constant(x.X)
	b, _ := c.Constant(x.Y)
	ua, ub := c.Unsigned(x.X), c.Unsigned(x.Y)
	if x.Op == "<<" || x.Op == ">>" {
		return ua
	}
	return ua && (ub || int64(b) >= 0) || ub && int64(a) >= 0
}

// LiteralNumber is the value of what is written in numbers alone.
func (c *Checker) LiteralNumber(x syntax.Expr) (uint64, bool) {
	switch x := x.(type) {
	case *syntax.Int:
		return x.Value, true
	case *syntax.Positional:
		return c.Constant(x)
	case *syntax.Ident:
		if c.constantOf(x.Name); c.Enums[x.Name] != nil {
			return 0, false
		}
		n, ok := c.Consts[x.Name]
		return n, ok
	case *syntax.Unary:
		if _, ok := c.LiteralNumber(x.X); ok && x.Op != "!" {
			return c.Constant(x)
		}
	case *syntax.Binary:
		_, okX := c.LiteralNumber(x.X)
		_, okY := c.LiteralNumber(x.Y)
		if okX && okY {
			return c.Constant(x)
		}
	}
	return 0, false
}

// Constant is the value of an expression that is known before the script runs.
func (c *Checker) Constant(x syntax.Expr) (uint64, bool) {
	switch x := x.(type) {
	case *syntax.Int:
		return x.Value, true
	case *syntax.Bool:
		return types.Word(x.Value), true
	case *syntax.Positional:
		switch {
		case x.N == 0:
			return uint64(len(c.Opts.Params)), true
		case x.N > len(c.Opts.Params):
			return 0, true
		}
		text := c.Opts.Params[x.N-1]
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return uint64(n), true
		}
		n, err := strconv.ParseUint(text, 0, 64)
		return n, err == nil
	case *syntax.Ident:
		if v := c.lib.Values[x.Name]; v != nil && v.Known != nil {
			return v.Known(c), true
		}
		c.constantOf(x.Name)
		n, ok := c.Consts[x.Name]
		return n, ok
	case *syntax.Comptime:
		return c.Constant(x.X)
	case *syntax.Field:
		if elem := element(x); elem != nil {
			return c.Constant(elem)
		}
	case *syntax.Cast:
		if t := c.castTo(x); t != nil && (t.Kind == types.Int || t.Kind == types.Bool || t.Kind == types.Enum) {
			n, ok := c.Constant(x.X)
			if t.Kind == types.Bool {
				return types.Word(n != 0), ok
			}
			return types.Truncate(n, t), ok
		}
	case *syntax.Block:
		if len(x.Stmts) == 0 && x.Value != nil {
			return c.Constant(x.Value)
		}
	case *syntax.Unary:
		n, ok := c.Constant(x.X)
		switch x.Op {
		case "-":
			return -n, ok
		case "~":
			return ^n, ok
		case "!":
			return types.Word(n == 0), ok
		}
	case *syntax.Binary:
		if same, ok := c.sameText(x); ok {
			return types.Word(same == (x.Op == "==")), true
		}
		if holds, ok := c.textual(x); ok {
			return types.Word(holds), true
		}
		a, okA := c.Constant(x.X)
		b, okB := c.Constant(x.Y)
		if okA && okB {
			n, ok := types.Fold(x.Op, a, b, !c.unsignedPair(x))
			if c.boolean(x) {
				n = types.Word(n != 0)
			}
			return n, ok
		}
	case *syntax.Ternary:
		n, ok := c.Constant(x.Cond)
		switch {
		case !ok || n != 0 && x.Then == nil:
			return n, ok
		case n != 0:
			return c.Constant(x.Then)
		}
		return c.Constant(x.Else)
	case *syntax.Call:
		if f := c.lib.Functions[x.Name]; f != nil && f.Known != nil && f.Least <= len(x.Args) && len(x.Args) <= f.Most {
			return f.Known(c, x)
		}
	}
	return 0, false
}

// element is the expression that .N of a tuple is whose elements are written there; nil for all else.
func element(x *syntax.Field) syntax.Expr {
	of := x.X
	for {
		if k, ok := of.(*syntax.Comptime); ok {
			of = k.X
			continue
		}
		break
	}
	t, ok := of.(*syntax.Tuple)
	if n, err := strconv.Atoi(x.Name); ok && err == nil && n >= 0 && n < len(t.Elems) {
		return t.Elems[n]
	}
	return nil
}

// isKnown tells the constants: numbers, texts, and tuples of them.
func (c *Checker) isKnown(x syntax.Expr) bool {
	if t, ok := x.(*syntax.Tuple); ok {
		return !slices.ContainsFunc(t.Elems, func(e syntax.Expr) bool { return !c.isKnown(e) })
	}
	_, number := c.Constant(x)
	_, text := c.StringLiteral(x)
	return number || text
}

// textual is && or || of constants, texts among them: a text holds unless it is empty.
func (c *Checker) textual(x *syntax.Binary) (holds, known bool) {
	if x.Op != "&&" && x.Op != "||" {
		return false, false
	}
	texts := 0
	truth := func(x syntax.Expr) (bool, bool) {
		if text, ok := c.StringLiteral(x); ok {
			texts++
			return text != "", true
		}
		n, ok := c.Constant(x)
		return n != 0, ok
	}
	a, okA := truth(x.X)
	b, okB := truth(x.Y)
	return a && b || x.Op == "||" && (a || b), okA && okB && texts > 0
}

// Sized is the type of what sizeof and the like were asked about, when it has been looked at.
func (c *Checker) Sized(x syntax.Expr) *types.Type {
	if arg, ok := x.(*syntax.TypeArg); ok {
		return c.typeOf(arg.Type)
	}
	return cmp.Or(c.Stored[x], c.Types[x])
}

// sameText compares what is text before the script runs, and types.
func (c *Checker) sameText(x *syntax.Binary) (same, known bool) {
	if x.Op != "==" && x.Op != "!=" {
		return false, false
	}
	a, okA := x.X.(*syntax.Call)
	b, okB := x.Y.(*syntax.Call)
	if okA && okB && a.Name == "typeinfo" && b.Name == "typeinfo" && len(a.Args) == 1 && len(b.Args) == 1 {
		ta, tb := c.Sized(a.Args[0]), c.Sized(b.Args[0])
		if ta == nil || tb == nil || ta.Kind == types.None || tb.Kind == types.None {
			return false, false
		}
		return types.Same(ta.Plain(), tb.Plain()), true
	}
	if _, tuple := x.X.(*syntax.Tuple); tuple {
		return c.same(x.X, x.Y)
	}
	textA, okA := c.StringLiteral(x.X)
	textB, okB := c.StringLiteral(x.Y)
	if okA != okB { // a text is no number
		return false, c.isKnown(x.X) && c.isKnown(x.Y)
	}
	return textA == textB, okA && okB
}
