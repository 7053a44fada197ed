// Package builtin has the names of the language: values such as pid, and functions such as str.
// Each has one record in tables.go. A value's type decides how it is shown.
package builtin

import (
	"kprobe/script/compile"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Library is all of it.
func Library() *compile.Library {
	all := &compile.Library{Values: map[string]*compile.Value{}, Functions: map[string]*compile.Function{}}
	for name, v := range values {
		all.Values[name] = &compile.Value{Type: v.typ, Check: asChecker(v.check), Number: asGenerator(v.number), Memory: writing(v.memory),
			Known: v.known, Text: v.text, AtProbe: v.atProbe, Alone: v.alone}
	}
	for name, f := range functions {
		all.Functions[name] = &compile.Function{Least: f.least, Most: f.most, Check: asChecker(f.check), Number: asGenerator(f.number), Memory: writing(f.memory),
			Act: asGenerator(f.act), Known: f.known, Text: f.text, Gathers: f.gathers}
	}
	return all
}

// checker is the compiler's while it checks, and generator while it makes code. What is said here of the library's entries are
// methods of these two.
type (
	checker   struct{ *compile.Checker }
	generator struct{ *compile.Generator }
)

// checks has what was found out when the script was checked.
func (g generator) checks() checker { return checker{g.Checker} }

// value is a name that is a value: compile.Value says what each part does.
type value struct {
	typ    *types.Type
	check  func(checker, *syntax.Ident) *types.Type
	number func(generator, *syntax.Ident)
	memory func(generator, *syntax.Ident, compile.Place, *types.Type)
	known  func(*compile.Checker) uint64
	text   func(*compile.Checker) (string, bool)

	atProbe, alone bool
}

// function is a name that something is asked of in parentheses: compile.Function says what each part does.
type function struct {
	least, most int
	check       func(checker, *syntax.Call) *types.Type
	number      func(generator, *syntax.Call)
	memory      func(generator, *syntax.Call, compile.Place, *types.Type)
	act         func(generator, *syntax.Call)
	known       func(*compile.Checker, *syntax.Call) (uint64, bool)
	text        func(*compile.Checker, *syntax.Call) (string, bool)
	gathers     bool
	missing     bool // its check refuses it
}

func asChecker[X any](check func(checker, X) *types.Type) func(*compile.Checker, X) *types.Type {
	if check == nil {
		return nil
	}
	return func(c *compile.Checker, x X) *types.Type { return check(checker{c}, x) }
}

func asGenerator[X any](leave func(generator, X)) func(*compile.Generator, X) {
	if leave == nil {
		return nil
	}
	return func(g *compile.Generator, x X) { leave(generator{g}, x) }
}

func writing[X any](write func(generator, X, compile.Place, *types.Type)) func(*compile.Generator, X, compile.Place, *types.Type) {
	if write == nil {
		return nil
	}
	return func(g *compile.Generator, x X, dst compile.Place, t *types.Type) { write(generator{g}, x, dst, t) }
}

// Kinds of functions.

func numbered(least, most int, check func(checker, *syntax.Call) *types.Type, leave func(generator, *syntax.Call)) *function {
	return &function{least: least, most: most, check: check, number: leave}
}

func written(least, most int, check func(checker, *syntax.Call) *types.Type, write func(generator, *syntax.Call, compile.Place, *types.Type)) *function {
	return &function{least: least, most: most, check: check, memory: write}
}

func acting(least, most int, check func(checker, *syntax.Call) *types.Type, act func(generator, *syntax.Call)) *function {
	return &function{least: least, most: most, check: check, act: act}
}

func gathered(least, most int, check func(checker, *syntax.Call) *types.Type) *function {
	return &function{least: least, most: most, check: check, gathers: true}
}

// constant is a function whose value is known before the script runs: known tells it, where it is known yet.
func constant(args int, check func(checker, *syntax.Call) *types.Type, known func(checker, *syntax.Call) (uint64, bool)) *function {
	return (&function{least: args, most: args, check: check}).knows(known)
}

// refused has bpftrace's names that are missing here.
func refused(least, most int, why string) *function {
	return &function{least: least, most: most, check: notHere(why), missing: true}
}

// acts has a function that has a value do this as a statement.
func (f *function) acts(act func(generator, *syntax.Call)) *function {
	f.act = act
	return f
}

// leaves has a constant's word made by this where it is not known.
func (f *function) leaves(word func(generator, *syntax.Call)) *function {
	f.number = word
	return f
}

// knows has a function's value found by this before the script runs.
func (f *function) knows(known func(checker, *syntax.Call) (uint64, bool)) *function {
	f.known = func(c *compile.Checker, x *syntax.Call) (uint64, bool) { return known(checker{c}, x) }
	return f
}

// tells has a function's text found by this before the script runs.
func (f *function) tells(text func(checker, *syntax.Call) (string, bool)) *function {
	f.text = func(c *compile.Checker, x *syntax.Call) (string, bool) { return text(checker{c}, x) }
	return f
}

// What arguments have to be.

// notHere refuses what has no meaning on our targets, with the reason.
func notHere(why string) func(checker, *syntax.Call) *types.Type {
	return func(c checker, x *syntax.Call) *types.Type {
		c.Errorf(x, "%s() can not be used here: %s", x.Name, why)
		return nil
	}
}

// literal holds that an argument is a string in quotes.
func (c checker) literal(x *syntax.Call, i int) (string, bool) {
	if s, ok := x.Args[i].(*syntax.Str); ok {
		return s.Value, true
	}
	t := c.Expr(x.Args[i])
	if text, ok := c.StringLiteral(x.Args[i]); ok && t.Kind == types.String {
		x.Args[i] = &syntax.Str{Span: x.Args[i].At(), Value: text}
		return text, true
	}
	c.Errorf(x, "%s() expects a string literal (%s provided)", x.Name, t.Family())
	return "", false
}

// known tells a number that is known and not negative, and says what is wrong otherwise.
func (c checker) natural(x *syntax.Call, a syntax.Expr, what string) (uint64, bool) {
	c.Expr(a)
	n, ok := c.Constant(a)
	switch {
	case !ok:
		c.Errorf(x, "%s() expects a int literal (%s provided)", x.Name, c.Types[a].Family())
	case int64(n) < 0:
		c.Errorf(x, "%s: invalid %s value (must be non-negative literal)", x.Name, what)
		return 0, false
	}
	return n, ok
}
