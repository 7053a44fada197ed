package compile

import (
	"slices"
	"strconv"

	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Names and calls: what the library says of each is asked there.

// outside refuses what has a meaning at a probe alone.
func (c *Checker) outside(at syntax.Node, name string) bool {
	if len(c.At) == 0 {
		c.Errorf(at, "Builtin %s not supported outside probe", name)
	}
	return len(c.At) == 0
}

// Everywhere tells whether a condition holds for all attach points.
func (c *Checker) Everywhere(holds func(*point.Point) bool) bool {
	for _, p := range c.At {
		if !holds(p) {
			return false
		}
	}
	return true
}

// elsewhere says why the functions of an attach point have arguments in no registers that are known; "" where they have.
func (c *Checker) elsewhere() string {
	for _, p := range c.At {
		if why := p.Passing.Refusal(); why != "" {
			return why
		}
	}
	return ""
}

func (c *Checker) ident(x *syntax.Ident) *types.Type {
	c.constantOf(x.Name)
	if t := c.Enums[x.Name]; t != nil {
		return t
	}
	if n, ok := c.Consts[x.Name]; ok {
		return types.LiteralOf(n, int64(n) < 0)
	}
	n, stack, isArg := point.Argument(x.Name)
	v := c.lib.Values[x.Name]
	if (isArg || v != nil && v.AtProbe) && c.outside(x, x.Name) {
		return nil
	}
	if i := slices.IndexFunc(c.At, func(p *point.Point) bool { return p.Inlined }); isArg && i >= 0 {
		c.Errorf(x, "The %s builtin can not be used where %s is inlined: its parameters lie wherever the compiler has them", x.Name, c.At[i].Function)
		return types.Uint64
	}
	if isArg {
		why := ""
		if !stack {
			why = c.elsewhere()
		}
		switch {
		case !c.Everywhere((*point.Point).Inside) || c.At[0].Syscall != nil || c.At[0].Watch != nil || c.At[0].Event != nil && !c.At[0].Raw:
			c.Errorf(x, "The %s builtin can only be used with 'kprobes', 'uprobes' and 'usdt' probes", x.Name)
		case why != "":
			c.Errorf(x, "%s is not known here: %s", x.Name, why)
		case !stack && !c.Everywhere(func(p *point.Point) bool { return p.Provider == "usdt" || n < len(p.Args(c.Machine)) }):
			c.Errorf(x, "%s doesn't support %s", c.Machine.Name, x.Name)
		}
		return types.Uint64
	}
	switch {
	case v == nil:
	case v.Check != nil:
		return v.Check(c, x)
	default:
		return v.Type
	}
	if c.lib.Functions[x.Name] != nil && x.Name != "count" {
		return c.call(&syntax.Call{Span: x.Span, Name: x.Name})
	}
	c.Errorf(x, "Unknown identifier: '%s'", x.Name)
	return nil
}

func (c *Checker) call(x *syntax.Call) *types.Type {
	f := c.lib.Functions[x.Name]
	if direct := c.direct == x; f != nil && f.Gathers && !direct {
		c.Errorf(x, "%s() must be assigned directly to a map", x.Name)
		return nil
	}
	c.direct = nil
	if info := c.fns[x.Name]; info != nil {
		return c.fnCall(x, info)
	}
	if f == nil {
		c.Errorf(x, "Unknown function: '%s'", x.Name)
		for _, a := range x.Args {
			c.Expr(a)
		}
		return nil
	}
	switch n := len(x.Args); {
	case n < f.Least && f.Least == f.Most, n > f.Most && f.Least == f.Most:
		c.Errorf(x, "%s() requires %s (%d provided)", x.Name, arguments(f.Least), n)
		return nil
	case n < f.Least:
		c.Errorf(x, "%s() requires at least %s (%d provided)", x.Name, arguments(f.Least), n)
		return nil
	case n > f.Most:
		c.Errorf(x, "%s() takes up to %s (%d provided)", x.Name, arguments(f.Most), n)
		return nil
	}
	return f.Check(c, x)
}

func arguments(n int) string {
	if n < 2 {
		return []string{"no arguments", "one argument"}[n]
	}
	return strconv.Itoa(n) + " arguments"
}

// Provided warns of parameters that were not given.
func (c *Checker) Provided(x syntax.Expr) {
	if p, ok := x.(*syntax.Positional); ok && p.N > len(c.Opts.Params) {
		c.Warnf(p, "Positional parameter $%d is empty or not provided.", p.N)
	}
}

// StringLiteral is the text of what is a string before the script runs: "x", { "x" },
// str($1).
func (c *Checker) StringLiteral(x syntax.Expr) (string, bool) {
	switch x := x.(type) {
	case *syntax.Str:
		return x.Value, true
	case *syntax.Block:
		if len(x.Stmts) == 0 && x.Value != nil {
			return c.StringLiteral(x.Value)
		}
	case *syntax.Comptime:
		return c.StringLiteral(x.X)
	case *syntax.Ident:
		if v := c.lib.Values[x.Name]; v != nil && v.Text != nil {
			return v.Text(c)
		}
	case *syntax.Positional:
		if x.N > 0 && x.N <= len(c.Opts.Params) {
			return c.Opts.Params[x.N-1], true
		}
	case *syntax.Call:
		if f := c.lib.Functions[x.Name]; f != nil && f.Text != nil && f.Least <= len(x.Args) {
			return f.Text(c, x)
		}
	case *syntax.Field:
		if elem := element(x); elem != nil {
			return c.StringLiteral(elem)
		}
		if call, ok := x.X.(*syntax.Call); ok && call.Name == "typeinfo" && len(call.Args) == 1 {
			return types.Told(c.Types[call.Args[0]], x.Name)
		}
	}
	return "", false
}
