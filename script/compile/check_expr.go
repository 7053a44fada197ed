package compile

import (
	"math/big"
	"strconv"
	"strings"

	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Expr finds an expression's type. NoType: not known yet, or an error was told.
func (c *Checker) Expr(x syntax.Expr) *types.Type {
	t := c.bare(x)
	if t == nil {
		t = types.NoType
	}
	c.Stored[x] = t
	c.Types[x] = t.Value()
	return c.Types[x]
}

func (c *Checker) bare(x syntax.Expr) *types.Type {
	switch x := x.(type) {
	case *syntax.Int:
		return types.LiteralOf(x.Value, false)
	case *syntax.Str:
		return types.StringOf(len(x.Value) + 1)
	case *syntax.Bool:
		return types.BoolT
	case *syntax.Positional:
		return c.param(x)
	case *syntax.Ident:
		return c.ident(x)
	case *syntax.Var:
		v := c.Find(x.Name)
		if v == nil {
			c.Errorf(x, "Undefined or undeclared variable: %s", x.Name)
			return nil
		}
		c.Uses[x] = v
		c.early(x, v)
		return v.Typ
	case *syntax.Map:
		m := c.MapUse(x)
		if m.Value.Aggregate() {
			m.Walked = true
		}
		return m.Value
	case *syntax.Unary:
		return c.literalOr(x, c.unary(x))
	case *syntax.Binary:
		return c.literalOr(x, c.binary(x))
	case *syntax.Ternary:
		return c.ternary(x)
	case *syntax.Call:
		return c.call(x)
	case *syntax.Field:
		return c.field(x)
	case *syntax.Index:
		return c.index(x)
	case *syntax.Cast:
		return c.cast(x)
	case *syntax.Tuple:
		return c.tuple(nil, x.Elems)
	case *syntax.Record:
		return c.tuple(x.Names, x.Elems)
	case *syntax.Comptime:
		t := c.Expr(x.X)
		if call, ok := x.X.(*syntax.Call); ok && call.Name == "typeinfo" {
			return t
		}
		if !c.isKnown(x.X) {
			c.Errorf(x, "Unable to evaluate at compile time.")
		}
		return t
	case *syntax.Block:
		c.open()
		defer c.shut()
		c.inner(x)
		if x.Value == nil {
			return types.VoidT
		}
		return c.Types[x.Value]
	}
	c.Errorf(x, "typeof names a type, which is no value")
	return nil
}

// param is $1: a number where it looks like one, else a string.
func (c *Checker) param(x *syntax.Positional) *types.Type {
	c.Provided(x)
	if n, ok := c.Constant(x); ok {
		return types.LiteralOf(n, int64(n) < 0 && c.Opts.Params[x.N-1][0] == '-')
	}
	return types.StringOf(len(c.Opts.Params[x.N-1]) + 1)
}

// Number finds the type of what must be one.
func (c *Checker) Number(x syntax.Expr, what string) *types.Type {
	t := c.Expr(x)
	if t.Kind != types.None && !t.Number() && !c.Counts(x, t) {
		c.Errorf(x, "%s: a number is wanted, not a value of type '%s'", what, t)
	}
	return t
}

// Counts tells of an aggregate in a map that can stand for a number.
func (c *Checker) Counts(x syntax.Expr, t *types.Type) bool {
	_, isMap := x.(*syntax.Map)
	return isMap && types.ValueOf(t).Number()
}

// Cond finds the type of a condition.
func (c *Checker) Cond(x syntax.Expr) {
	t := c.Expr(x)
	if _, ok := c.StringLiteral(x); ok {
		return // holds where there is text
	}
	if t.Kind != types.None && !t.Number() && !c.Counts(x, t) {
		c.Errorf(x, "Invalid condition: %s", t.Family())
	}
}

func (c *Checker) unary(x *syntax.Unary) *types.Type {
	if x.Op == "&" {
		return c.reference(x)
	}
	if m, ok := x.X.(*syntax.Map); ok && (x.Op == "++" || x.Op == "--") {
		info := c.MapUse(m)
		if k := info.Value.Kind; k == types.Pointer {
			return info.Value
		} else if k == types.Bool || !c.widen(&info.Value, types.Stepped(x.Op, info.Value)) || !info.Value.Number() {
			c.Errorf(x, "The %s operator can not be used on expressions of type '%s'", x.Op, info.Value)
		}
		return info.Value
	}
	t := c.Expr(x.X)
	if t.Kind == types.None {
		return nil
	}
	if x.Op == "*" {
		if t.Kind == types.Int {
			return types.Uint64 // as of a uint64 *
		}
		if t.Kind != types.Pointer || t.Elem == nil {
			c.Errorf(x, "Can not dereference type '%s'. It needs to be a pointer.", t)
			return nil
		}
		elem := c.Complete(t.Elem)
		if c.Ahead(elem) {
			c.Errorf(x, "Cannot resolve unknown type \"%s\"", elem)
			return nil
		}
		return elem
	}
	if c.Counts(x.X, t) {
		t = types.ValueOf(t)
	}
	steps := x.Op == "++" || x.Op == "--"
	if !t.Number() || t.Kind == types.Pointer && !steps || t.Kind == types.Bool && x.Op != "!" {
		c.Errorf(x, "The %s operator can not be used on expressions of type '%s'", x.Op, t)
		return nil
	}
	switch x.Op {
	case "!":
		return types.BoolT
	case "-":
		if n, ok := c.written(x.X); ok && n.Sign() > 0 && !new(big.Int).Neg(n).IsInt64() {
			c.Errorf(x, "underflow: unable to fold literals, 64 bits do not hold -%s", n)
		}
		return types.Int64
	case "~":
		if t.Lit && !c.Unsigned(x) {
			return types.Int64
		} else if t.Lit {
			return types.Uint64
		}
		return types.Wide(t)
	case "++", "--":
		if v, ok := x.X.(*syntax.Var); ok {
			if info := c.Uses[v]; !info.set && t.Kind == types.Int {
				c.widen(&info.Typ, types.Stepped(x.Op, t))
				t = info.Typ
			}
		}
		return t
	}
	return t
}

func (c *Checker) binary(x *syntax.Binary) *types.Type {
	a, b := c.Expr(x.X), c.Expr(x.Y)
	if a.Kind == types.None || b.Kind == types.None {
		return nil
	}
	if c.Counts(x.X, a) {
		a = types.ValueOf(a)
	}
	if c.Counts(x.Y, b) {
		b = types.ValueOf(b)
	}
	equality := x.Op == "==" || x.Op == "!="
	if _, ok := c.sameText(x); ok && equality && !types.Same(a.Plain(), b.Plain()) {
		return types.BoolT // of texts, numbers and tuples that are written there
	}
	if _, ok := c.textual(x); ok {
		return types.BoolT
	}
	switch {
	case a.Kind == types.String && b.Kind == types.String || a.Kind == types.Buffer && b.Kind == types.Buffer:
		if !equality {
			c.Errorf(x, "The %s operator can not be used on expressions of types '%s', '%s'", x.Op, a, b)
		}
		return types.BoolT
	case a.Kind == b.Kind && (a.Kind == types.Tuple || a.Kind == types.Array || a.Kind == types.Record && a.Name == ""):
		if !equality {
			c.Errorf(x, "The %s operator can not be used on expressions of types '%s', '%s'", x.Op, a, b)
		} else if types.Join(a, b) == nil {
			c.mismatch(x, a, b)
		}
		return types.BoolT
	case equality && a.Kind == b.Kind && a.Kind.Stack():
		c.Errorf(x, "The %s operator can not be used on expressions of types '%s', '%s'", x.Op, a.Family(), b.Family())
		return types.BoolT
	case equality && a.Kind == b.Kind && a.Scalar():
		c.signs(x, a, b)
		if a.Kind == types.Pointer && a.Elem != nil && b.Elem != nil && !types.Same(a.Elem, b.Elem) {
			c.Warnf(x, "comparison of distinct pointer types: %s, %s", a.Elem, b.Elem)
		}
		return types.BoolT
	case !types.Reckons(a) || !types.Reckons(b):
		c.mismatch(x, a, b)
		return nil
	case (a.Kind == types.Pointer || b.Kind == types.Pointer) && !c.pointers(x, a, b):
		return nil
	}
	c.overflows(x) // before what is only warned of at the same place
	c.signs(x, a, b)
	switch x.Op {
	case "==", "!=", "<", ">", "<=", ">=", "&&", "||":
		return types.BoolT
	}
	if c.Unsigned(x) {
		return types.Uint64
	}
	return types.Arithmetic(x.Op, a, b)
}

// signs warns of a number with a sign beside one of 64 bits without: no type holds what both may be.
func (c *Checker) signs(x *syntax.Binary, a, b *types.Type) {
	what := signed[x.Op]
	if what == "" || a.Kind != types.Int || b.Kind != types.Int || a.Signed == b.Signed || c.Types[x.X].Aggregate() && c.Types[x.Y].Aggregate() {
		return
	}
	minus, other, plain := x.X, b, a
	if b.Signed {
		minus, other, plain = x.Y, a, b
	}
	divides := x.Op == "/" || x.Op == "%"
	if n, ok := c.LiteralNumber(minus); other.Size < 8 && !divides || ok && plain.Lit && int64(n) >= 0 {
		return
	}
	c.Warnf(x, "%s integers of different signs: '%s' and '%s' can lead to undefined behavior", what, a, b)
}

func (c *Checker) mismatch(x *syntax.Binary, a, b *types.Type) {
	c.Errorf(x, "Type mismatch for '%s': comparing %s with %s", x.Op, a, b)
}

// pointers holds what may be done with a pointer: compare it, move it by a number.
func (c *Checker) pointers(x *syntax.Binary, a, b *types.Type) bool {
	switch x.Op {
	case "==", "!=", "<", ">", "<=", ">=", "&&", "||":
		return true
	case "+", "-":
		if a.Kind != b.Kind && (x.Op == "+" || a.Kind == types.Pointer) {
			return true
		}
	}
	c.Errorf(x, "The %s operator can not be used on expressions of types '%s', '%s'", x.Op, a, b)
	return false
}

func (c *Checker) ternary(x *syntax.Ternary) *types.Type {
	c.Cond(x.Cond)
	then := c.Types[x.Cond]
	if x.Then != nil {
		then = c.Expr(x.Then)
	}
	other := c.Expr(x.Else)
	j := types.Join(then, other)
	if j == nil {
		c.Errorf(x, "Branches must return the same type: have '%s' and '%s'", then, other)
		return nil
	}
	c.implied(x, j, then)
	c.implied(x, j, other)
	return j
}

func (c *Checker) tuple(names []string, elems []syntax.Expr) *types.Type {
	var ts []*types.Type
	for _, e := range elems {
		t := c.Expr(e)
		switch {
		case t.Kind == types.None:
			ts = append(ts, t)
			continue
		case t.Aggregate() || t.Kind == types.Void:
			if _, isMap := e.(*syntax.Map); !isMap || !types.ValueOf(t).Number() {
				what := "tuple"
				if names != nil {
					what = "record"
				}
				c.Errorf(e, "Map type %s cannot exist inside a %s.", t, what)
				return nil
			}
			t = types.ValueOf(t)
		}
		ts = append(ts, t)
	}
	for _, t := range ts {
		if t.Kind == types.None {
			return nil
		}
	}
	if names == nil {
		return types.TupleOf(nil, ts...)
	}
	return types.TupleOf(names, ts...)
}

func (c *Checker) field(x *syntax.Field) *types.Type {
	if syntax.IsArgs(x.X) {
		return c.arg(x)
	}
	t := c.Expr(x.X)
	if t.Kind == types.Pointer && t.Elem != nil {
		t = t.Elem
	}
	switch t = c.Complete(t); t.Kind {
	case types.None:
		return nil
	case types.Tuple:
		n, err := strconv.Atoi(x.Name)
		if err != nil {
			c.Errorf(x, "Tuples are indexed by numbers, not by %q", x.Name)
			return nil
		}
		if n >= len(t.Fields) {
			c.Errorf(x, "Invalid tuple index: %d. Found %d elements in tuple.", n, len(t.Fields))
			return nil
		}
		return t.Fields[n].Type
	case types.Record:
		for _, f := range t.Fields {
			if f.Name == x.Name {
				if f.Type.Kind == types.Float {
					c.Errorf(x, "'%s' is a floating-point number, which scripts cannot use", x.Name)
					return nil
				}
				return f.Type
			}
		}
		c.Errorf(x, "Struct/union of type '%s' does not contain a field named '%s'", t, x.Name)
		return nil
	}
	c.Errorf(x, "Can not access field '%s' on expression of type '%s'", x.Name, t)
	return nil
}

func (c *Checker) index(x *syntax.Index) *types.Type {
	t := c.Expr(x.X)
	it := c.Number(x.I, "index")
	n, known := c.Constant(x.I)
	switch {
	case t.Kind == types.None:
		return nil
	case known && int64(n) < 0:
		c.Errorf(x, "The array index operator [] does not accept negative literal indices.")
	case it.Kind != types.None && it.Kind != types.Int:
		c.Errorf(x, "The array index operator [] only accepts positive (unsigned) integer indices. Got %s.", it)
	}
	switch {
	case t.Kind == types.Tuple && known && int64(n) >= 0: // the same as .N
		if c.parts[x] == nil {
			c.parts[x] = &syntax.Field{Span: x.Span, X: x.X, Name: strconv.FormatUint(n, 10)}
		}
		return c.Expr(c.parts[x])
	case t.Kind == types.Tuple:
		c.Errorf(x, "The index of a tuple must be known before the script runs")
		return nil
	case t.Kind == types.String:
		if known && n >= uint64(t.Size) {
			c.Errorf(x, "the index %d is out of bounds for array of size %d", n, t.Size)
		}
		return types.Int8
	case t.Kind == types.Pointer && t.Elem != nil || t.Kind == types.Array:
		if known && t.Kind == types.Array && t.Len > 0 && n >= uint64(t.Len) {
			c.Errorf(x, "the index %d is out of bounds for array of size %d", n, t.Len)
		}
		return c.Complete(t.Elem)
	}
	c.Errorf(x, "The array index operator [] can only be used on arrays and pointers, found %s.", t)
	return nil
}

// typeOf is a written type; nil after an error.
func (c *Checker) typeOf(t *syntax.Type) *types.Type {
	var base *types.Type
	switch {
	case t.Of != nil:
		if base = c.SizeArg(t.Of); base == nil {
			return nil
		}
	case t.Name == "void":
		if t.Stars == 0 {
			c.Errorf(t, "Cannot resolve unknown type \"void\"")
			return nil
		}
		return types.PointerTo(nil)
	case t.Name == "string":
		n := uint64(c.Set.MaxStrlen)
		if len(t.Dims) == 1 {
			n, _ = c.Constant(t.Dims[0])
		}
		if n < 1 || n > 16<<10 {
			c.Errorf(t, "a string has 1 to %d bytes", 16<<10)
			return nil
		}
		return types.StringOf(int(n))
	default:
		base = c.Known(t.Name)
		if base == nil {
			if t.Stars > 0 && strings.HasPrefix(t.Name, "struct ") {
				c.Errorf(t, "Cannot resolve unknown type \"%s\"", t.Name)
				c.Hint("declare it in the script: struct foo { int x; };")
				return nil
			}
			if name, ok := strings.CutPrefix(t.Name, "enum "); ok {
				c.Errorf(t, "Unknown enum: %s", name)
				return nil
			}
			c.Errorf(t, "Cannot resolve unknown type \"%s\"", strings.TrimSpace(t.Name))
			return nil
		}
	}
	if len(t.Dims) > 0 && t.Stars == 0 && base.Aggregate() {
		c.Errorf(t, "Cannot resolve unknown type \"%s\"", strings.TrimSpace(t.Name))
		return nil
	}
	for range t.Stars {
		base = types.PointerTo(base)
	}
	for _, d := range t.Dims {
		if d == nil { // as many as there are
			base = types.ArrayOf(base, 0)
			continue
		}
		n, ok := c.Constant(d)
		if !ok || n < 1 || n > 1<<16 {
			c.Errorf(d, "an array has 1 to %d elements", 1<<16)
			return nil
		}
		base = &types.Type{Kind: types.Array, Elem: base, Len: int(n), Size: base.Size * int(n)}
	}
	return base
}

// ofExpr is the type that typeof asks about: of a map with keys that of its keys.
func (c *Checker) ofExpr(x syntax.Expr) *types.Type {
	if m, ok := x.(*syntax.Map); ok && m.Key == nil {
		info := c.MapOf(m.Name, m)
		switch {
		case info.Keyed:
			return info.Key
		case !info.Keyless && !c.Final: // it is named behind this place
			return types.NoType
		}
	}
	if len(c.scopes) == 0 { // code is made
		if t := c.Types[x]; t != nil {
			return t
		}
		return types.NoType
	}
	c.meta++
	defer func() { c.meta-- }()
	return c.Expr(x)
}

// castTo is the type that a cast makes.
func (c *Checker) castTo(x *syntax.Cast) *types.Type {
	if t := c.Types[x]; len(c.scopes) == 0 && t != nil {
		return t
	}
	return c.typeOf(x.Type)
}

func (c *Checker) cast(x *syntax.Cast) *types.Type {
	from, to := c.Expr(x.X), c.typeOf(x.Type)
	if to == nil || from.Kind == types.None || to.Kind == types.None {
		return nil
	}
	_, literal := c.LiteralNumber(x.X)
	if types.Same(to, from) && !literal && x.Type.Span != x.Span { // which is written
		c.Warnf(x, "Unnecessary cast: the value is of type '%s' already", to)
	}
	whole := func(n int) bool { return n == from.Size || literal && n <= 8 }
	switch {
	case from.Kind == types.Record && from.Name != "":
		c.Errorf(x, "Cannot cast from struct type \"%s\"", from)
		return nil
	case to.Kind == types.String && from.Kind == types.String && to.Size >= from.Size:
		return to
	case to.Kind == types.Enum && c.misses(x, to):
		return nil
	case to.Kind == types.Array && to.Elem.Scalar() && (from.Kind == types.Int || from.Kind == types.Bool):
		if to.Len == 0 && from.Size%to.Elem.Size == 0 {
			return types.ArrayOf(to.Elem, from.Size/to.Elem.Size)
		}
		if to.Len > 0 && whole(to.Size) {
			return to
		}
	case to.Kind == types.Array && from.Kind == types.String && to.Elem.Size == 1:
		if to.Len == 0 {
			return types.ArrayOf(to.Elem, from.Size)
		}
		if to.Len >= from.Size {
			return to
		}
	case to.Kind == types.Int && from.Kind == types.Array && from.Size == to.Size && from.Elem.Kind == types.Int:
		return to
	case to.Kind == types.Bool && from.Kind == types.String, to.Kind != types.Record && types.Same(to, from):
		return to
	case to.Number() && (from.Number() || c.Counts(x.X, from)):
		return types.Renamed(to, from)
	}
	c.Errorf(x, "Cannot cast from \"%s\" to \"%s\"", from, to)
	return nil
}

// misses tells whether a literal is none of an enum's values.
func (c *Checker) misses(x *syntax.Cast, to *types.Type) bool {
	n, ok := c.LiteralNumber(x.X)
	if _, there := to.Names[n]; !ok || there {
		return false
	}
	c.Errorf(x, "Enum: %s doesn't contain a variant value of %d", strings.TrimPrefix(to.Name, "enum "), int64(n))
	return true
}

// typeNamed is a type that one word names, as typedefs do; nil where the word is something else.
func (c *Checker) typeNamed(name string) *types.Type {
	if t := types.Ints[name]; t != nil {
		return t
	}
	if t := c.Named[name]; t != nil {
		return t
	}
	if _, constant := c.Consts[name]; constant || c.lib.has(name) {
		return nil
	}
	return c.ofTarget(name)
}

// SizeArg is the type that sizeof is asked about.
func (c *Checker) SizeArg(x syntax.Expr) *types.Type {
	if arg, ok := x.(*syntax.TypeArg); ok {
		return c.typeOf(arg.Type)
	}
	if id, ok := x.(*syntax.Ident); ok {
		if t := c.typeNamed(id.Name); t != nil {
			c.Types[x] = t
			return t
		}
	}
	return c.ofExpr(x)
}
