package compile

import (
	"slices"
	"strconv"
	"strings"

	"kprobe/script/syntax"
	"kprobe/script/types"
)

// expr finds an expression's type. NoType: not known yet, or an error was told.
func (c *checker) expr(x syntax.Expr) *types.Type {
	t := c.bare(x)
	if t == nil {
		t = types.NoType
	}
	c.types[x] = t
	return t
}

func (c *checker) bare(x syntax.Expr) *types.Type {
	switch x := x.(type) {
	case *syntax.Int:
		if x.Value > 1<<63-1 {
			return types.Uint64
		}
		return types.Literal
	case *syntax.Str:
		return types.StringOf(len(x.Value) + 1)
	case *syntax.Bool:
		return types.BoolT
	case *syntax.Positional:
		return c.param(x)
	case *syntax.Ident:
		return c.ident(x)
	case *syntax.Var:
		v := c.find(x.Name)
		if v == nil {
			c.errorf(x, "Undefined or undeclared variable: %s", x.Name)
			return nil
		}
		c.uses[x] = v
		return v.typ
	case *syntax.Map:
		m := c.mapUse(x)
		if m.value.Aggregate() {
			m.walked = true
		}
		return m.value
	case *syntax.Unary:
		return c.unary(x)
	case *syntax.Binary:
		return c.binary(x)
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
		t := c.expr(x.X)
		if _, ok := c.constant(x.X); !ok {
			c.errorf(x, "Unable to evaluate at compile time.")
		}
		return t
	case *syntax.Block:
		c.open()
		defer c.shut()
		c.inner(x)
		if x.Value == nil {
			return types.VoidT
		}
		return c.types[x.Value]
	}
	c.errorf(x, "this is no expression")
	return nil
}

// param is $1: a number where it looks like one, else a string.
func (c *checker) param(x *syntax.Positional) *types.Type {
	if x.N == 0 {
		return types.Literal
	}
	if n, ok := c.constant(x); ok {
		if int64(n) < 0 {
			return types.Int64
		}
		return types.Literal
	}
	return types.StringOf(len(c.opts.Params[x.N-1]) + 1)
}

// constant is the value of an expression that is known before the script runs.
func (c *checker) constant(x syntax.Expr) (uint64, bool) {
	switch x := x.(type) {
	case *syntax.Int:
		return x.Value, true
	case *syntax.Bool:
		if x.Value {
			return 1, true
		}
		return 0, true
	case *syntax.Positional:
		switch {
		case x.N == 0:
			return uint64(len(c.opts.Params)), true
		case x.N > len(c.opts.Params):
			return 0, true
		}
		text := c.opts.Params[x.N-1]
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return uint64(n), true
		}
		n, err := strconv.ParseUint(text, 0, 64)
		return n, err == nil
	case *syntax.Ident:
		n, ok := c.consts[x.Name]
		return n, ok
	case *syntax.Comptime:
		return c.constant(x.X)
	case *syntax.Cast:
		if t := c.typeOf(x.Type); t != nil && t.Kind == types.Int {
			n, ok := c.constant(x.X)
			return truncate(n, t), ok
		}
	case *syntax.Unary:
		n, ok := c.constant(x.X)
		switch x.Op {
		case "-":
			return -n, ok
		case "~":
			return ^n, ok
		case "!":
			return word(n == 0), ok
		}
	case *syntax.Binary:
		a, okA := c.constant(x.X)
		b, okB := c.constant(x.Y)
		if okA && okB {
			return fold(x.Op, a, b)
		}
	case *syntax.Call:
		if x.Name == "getopt" {
			return c.option(x)
		}
		if x.Name == "sizeof" && len(x.Args) == 1 {
			if t := c.sizeArg(x.Args[0]); t != nil && t.Kind != types.None {
				return uint64(t.Size), true
			}
		}
	}
	return 0, false
}

func word(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// truncate is a number in a type's width.
func truncate(n uint64, t *types.Type) uint64 {
	shift := 64 - 8*t.Size
	if t.Signed {
		return uint64(int64(n<<shift) >> shift)
	}
	return n << shift >> shift
}

// fold reckons with signed numbers.
func fold(op string, a, b uint64) (uint64, bool) {
	x, y := int64(a), int64(b)
	switch op {
	case "+":
		return a + b, true
	case "-":
		return a - b, true
	case "*":
		return a * b, true
	case "/":
		if b == 0 {
			return 0, false
		}
		return uint64(x / y), true
	case "%":
		if b == 0 {
			return 0, false
		}
		return uint64(x % y), true
	case "&":
		return a & b, true
	case "|":
		return a | b, true
	case "^":
		return a ^ b, true
	case "<<":
		return a << (b & 63), true
	case ">>":
		return uint64(x >> (b & 63)), true
	case "==":
		return word(a == b), true
	case "!=":
		return word(a != b), true
	case "<":
		return word(x < y), true
	case "<=":
		return word(x <= y), true
	case ">":
		return word(x > y), true
	case ">=":
		return word(x >= y), true
	case "&&":
		return word(a != 0 && b != 0), true
	case "||":
		return word(a != 0 || b != 0), true
	}
	return 0, false
}

// number finds the type of what must be one.
func (c *checker) number(x syntax.Expr, what string) *types.Type {
	t := c.expr(x)
	if t.Kind != types.None && !t.Number() && !c.counts(x, t) {
		c.errorf(x, "%s: a number is wanted, not a value of type '%s'", what, t)
	}
	return t
}

// counts tells of an aggregate in a map that can stand for a number.
func (c *checker) counts(x syntax.Expr, t *types.Type) bool {
	_, isMap := x.(*syntax.Map)
	return isMap && aggregateValue(t).Number()
}

// aggregateValue is the type of an aggregate's number.
func aggregateValue(t *types.Type) *types.Type {
	switch t.Kind {
	case types.Count:
		return types.Uint64
	case types.Sum, types.Min, types.Max, types.Avg:
		if t.Signed {
			return types.Int64
		}
		return types.Uint64
	}
	return t
}

// cond finds the type of a condition.
func (c *checker) cond(x syntax.Expr) {
	t := c.expr(x)
	if t.Kind != types.None && !t.Number() && t.Kind != types.USym && t.Kind != types.KSym && !c.counts(x, t) {
		c.errorf(x, "Invalid condition: a number is wanted, not a value of type '%s'", t)
	}
}

func (c *checker) unary(x *syntax.Unary) *types.Type {
	if x.Op == "&" {
		c.expr(x.X)
		c.errorf(x, "addresses of variables and maps are not supported yet")
		return nil
	}
	if m, ok := x.X.(*syntax.Map); ok && (x.Op == "++" || x.Op == "--") {
		info := c.mapUse(m)
		if !c.widen(&info.value, types.Int64) || !info.value.Number() {
			c.errorf(x, "The %s operator can not be used on expressions of type '%s'", x.Op, info.value)
		}
		return info.value
	}
	t := c.expr(x.X)
	if t.Kind == types.None {
		return nil
	}
	if x.Op == "*" {
		if t.Kind == types.Int && !t.Lit {
			return types.Uint64 // as of a uint64 *
		}
		if t.Kind != types.Pointer || t.Elem == nil {
			c.errorf(x, "Can not dereference a value of type '%s'", t)
			return nil
		}
		return t.Elem
	}
	if c.counts(x.X, t) {
		t = aggregateValue(t)
	}
	if !t.Number() {
		c.errorf(x, "The %s operator can not be used on expressions of type '%s'", x.Op, t)
		return nil
	}
	switch x.Op {
	case "!":
		return types.BoolT
	case "-":
		return types.Int64
	case "~":
		if t.Lit {
			return types.Int64
		}
		return wide(t)
	case "++", "--":
		if v, ok := x.X.(*syntax.Var); ok {
			if info := c.uses[v]; !info.set && t.Kind == types.Int {
				if t.Lit {
					t = types.Int64
				}
				c.widen(&info.typ, t)
			}
		}
		return t
	}
	return t
}

func (c *checker) binary(x *syntax.Binary) *types.Type {
	a, b := c.expr(x.X), c.expr(x.Y)
	if a.Kind == types.None || b.Kind == types.None {
		return nil
	}
	if c.counts(x.X, a) {
		a = aggregateValue(a)
	}
	if c.counts(x.Y, b) {
		b = aggregateValue(b)
	}
	equality := x.Op == "==" || x.Op == "!="
	switch {
	case a.Kind == types.String && b.Kind == types.String || a.Kind == types.Buffer && b.Kind == types.Buffer:
		if !equality {
			c.errorf(x, "The %s operator can not be used on expressions of types '%s', '%s'", x.Op, a, b)
		}
		return types.BoolT
	case equality && a.Kind == b.Kind && (a.Kind == types.Tuple || a.Scalar()):
		if a.Kind == types.Tuple && types.Join(a, b) == nil {
			c.errorf(x, "Type mismatch for '%s': comparing %s with %s", x.Op, a, b)
		}
		return types.BoolT
	case !a.Number() && a.Kind != types.USym && a.Kind != types.KSym || !b.Number() && b.Kind != types.USym && b.Kind != types.KSym:
		if equality || !a.Number() && !b.Number() || slices.Contains([]string{"<", ">", "<=", ">="}, x.Op) {
			c.errorf(x, "Type mismatch for '%s': comparing %s with %s", x.Op, a, b)
		} else {
			c.errorf(x, "The %s operator can not be used on expressions of types '%s', '%s'", x.Op, a, b)
		}
		return nil
	}
	switch x.Op {
	case "==", "!=", "<", ">", "<=", ">=", "&&", "||":
		return types.BoolT
	}
	if n, ok := c.constant(x.Y); ok && n == 0 && (x.Op == "/" || x.Op == "%") {
		c.errorf(x, "division by zero")
	}
	return c.arithmetic(x.Op, a, b)
}

// arithmetic is the type of a op b.
func (c *checker) arithmetic(op string, a, b *types.Type) *types.Type {
	switch {
	case a.Kind == types.Pointer && b.Kind == types.Pointer:
		return types.Int64
	case a.Kind == types.Pointer:
		return a
	case b.Kind == types.Pointer:
		return b
	case op == "<<" || op == ">>":
		if a.Lit {
			return types.Literal
		}
		return wide(a)
	case a.Kind != types.Int || b.Kind != types.Int:
		return types.Int64
	case a.Lit && b.Lit && op != "-":
		return types.Literal
	case op == "-":
		return types.Int64
	}
	return wide(joinInts(a, b))
}

func joinInts(a, b *types.Type) *types.Type {
	if j := types.Join(a, b); j != nil {
		return j
	}
	return types.Int64
}

func (c *checker) ternary(x *syntax.Ternary) *types.Type {
	c.cond(x.Cond)
	then := c.types[x.Cond]
	if x.Then != nil {
		then = c.expr(x.Then)
	}
	other := c.expr(x.Else)
	j := types.Join(then, other)
	if j == nil {
		c.errorf(x, "Ternary operator must return the same type: have '%s' and '%s'", then, other)
	}
	return j
}

func (c *checker) tuple(names []string, elems []syntax.Expr) *types.Type {
	var ts []*types.Type
	for _, e := range elems {
		t := c.expr(e)
		switch {
		case t.Kind == types.None:
			ts = append(ts, t)
			continue
		case t.Kind == types.Int && t.Lit:
			t = types.Int64
		case t.Aggregate() || t.Kind == types.Void:
			if !aggregateValue(t).Number() {
				c.errorf(e, "A value of type '%s' cannot be part of a tuple", t)
				return nil
			}
			t = aggregateValue(t)
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

func (c *checker) field(x *syntax.Field) *types.Type {
	t := c.expr(x.X)
	if t.Kind == types.Pointer && t.Elem != nil {
		t = t.Elem
	}
	switch t.Kind {
	case types.None:
		return nil
	case types.Tuple:
		n, err := strconv.Atoi(x.Name)
		if err != nil {
			c.errorf(x, "Tuples are indexed by numbers, not by %q", x.Name)
			return nil
		}
		if n >= len(t.Fields) {
			c.errorf(x, "Invalid tuple index: %d. Found %d elements in tuple.", n, len(t.Fields))
			return nil
		}
		return t.Fields[n].Type
	case types.Record:
		for _, f := range t.Fields {
			if f.Name == x.Name {
				return f.Type
			}
		}
		c.errorf(x, "Struct/union of type '%s' does not contain a field named '%s'", t, x.Name)
		return nil
	}
	c.errorf(x, "Can not access field '%s' on expression of type '%s'", x.Name, t)
	return nil
}

func (c *checker) index(x *syntax.Index) *types.Type {
	t := c.expr(x.X)
	c.number(x.I, "index")
	switch {
	case t.Kind == types.None:
		return nil
	case t.Kind == types.Pointer && t.Elem != nil || t.Kind == types.Array:
		if n, ok := c.constant(x.I); ok && t.Kind == types.Array && n >= uint64(t.Len) {
			c.errorf(x, "the index %d is out of bounds for array of size %d", n, t.Len)
		}
		return t.Elem
	}
	c.errorf(x, "The array index operator [] can only be used on arrays and pointers, found %s.", t)
	return nil
}

// intTypes by their names.
var intTypes = map[string]*types.Type{
	"bool": types.BoolT, "uint8": types.Uint8, "uint32": types.Uint32, "uint64": types.Uint64, "int32": types.Int32, "int64": types.Int64,
	"uint16": {Kind: types.Int, Size: 2}, "int8": {Kind: types.Int, Size: 1, Signed: true}, "int16": {Kind: types.Int, Size: 2, Signed: true},
	"char": {Kind: types.Int, Size: 1, Signed: true}, "short": {Kind: types.Int, Size: 2, Signed: true}, "int": types.Int32,
	"long": types.Int64, "size_t": types.Uint64, "unsigned int": types.Uint32, "unsigned long": types.Uint64, "unsigned char": types.Uint8,
	"long long": types.Int64, "unsigned long long": types.Uint64, "unsigned short": {Kind: types.Int, Size: 2},
	"uint8_t": types.Uint8, "uint16_t": {Kind: types.Int, Size: 2}, "uint32_t": types.Uint32, "uint64_t": types.Uint64,
	"int8_t": {Kind: types.Int, Size: 1, Signed: true}, "int16_t": {Kind: types.Int, Size: 2, Signed: true}, "int32_t": types.Int32, "int64_t": types.Int64,
	"u8": types.Uint8, "u16": {Kind: types.Int, Size: 2}, "u32": types.Uint32, "u64": types.Uint64, "pid_t": types.Int32, "uintptr_t": types.Uint64,
}

// typeOf is a written type; nil after an error.
func (c *checker) typeOf(t *syntax.Type) *types.Type {
	var base *types.Type
	switch {
	case t.Of != nil:
		if arg, ok := t.Of.(*syntax.TypeArg); ok {
			base = c.typeOf(arg.Type)
			if base == nil {
				return nil
			}
		} else {
			base = c.expr(t.Of)
		}
	case t.Name == "void":
		if t.Stars == 0 {
			c.errorf(t, "Cannot resolve unknown type \"void\"")
			return nil
		}
		return types.PointerTo(nil)
	case t.Name == "string":
		n := uint64(c.set.MaxStrlen)
		if len(t.Dims) == 1 {
			n, _ = c.constant(t.Dims[0])
		}
		if n < 1 || n > 16<<10 {
			c.errorf(t, "a string has 1 to %d bytes", 16<<10)
			return nil
		}
		return types.StringOf(int(n))
	default:
		base = c.known(t.Name)
		if base == nil {
			if t.Stars > 0 && strings.HasPrefix(t.Name, "struct ") {
				c.errorf(t, "Cannot resolve unknown type \"%s\"", t.Name)
				c.hint("declare it in the script: struct foo { int x; };")
				return nil
			}
			c.errorf(t, "Cannot resolve unknown type \"%s\"", strings.TrimSpace(t.Name))
			return nil
		}
	}
	for range t.Stars {
		base = types.PointerTo(base)
	}
	for _, d := range t.Dims {
		n, ok := c.constant(d)
		if !ok || n < 1 || n > 1<<16 {
			c.errorf(d, "an array has 1 to %d elements", 1<<16)
			return nil
		}
		base = &types.Type{Kind: types.Array, Elem: base, Len: int(n), Size: base.Size * int(n)}
	}
	return base
}

func (c *checker) cast(x *syntax.Cast) *types.Type {
	from, to := c.expr(x.X), c.typeOf(x.Type)
	switch {
	case to == nil || from.Kind == types.None:
		return nil
	case to.Kind == types.String && from.Kind == types.String, types.Same(to, from):
		return to
	case to.Scalar() && (from.Scalar() || c.counts(x.X, from)):
		return to
	}
	c.errorf(x, "Cannot cast from \"%s\" to \"%s\"", from, to)
	return nil
}

// sizeArg is the type that sizeof is asked about.
func (c *checker) sizeArg(x syntax.Expr) *types.Type {
	if arg, ok := x.(*syntax.TypeArg); ok {
		return c.typeOf(arg.Type)
	}
	return c.expr(x)
}
