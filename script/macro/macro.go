// Package macro puts macros in where they are called, before anything is checked.
package macro

import (
	"fmt"
	"slices"
	"strings"

	"kprobe/script/syntax"
)

// Tell is who is told what is wrong.
type Tell struct {
	Errorf func(at syntax.Node, format string, a ...any)
	Hint   func(format string, a ...any) // what would help against the last error
}

// Named is what a call or a name stands for that is none of a macro's: comm for comm(); nil for itself.
type Named func(x syntax.Expr) syntax.Expr

// Library tells the meaning of names that are no macros of the script's.
type Library struct {
	Named Named
	Takes func(name string, n int) bool // whether it has a function of so many arguments
}

// expander puts macros in.
type expander struct {
	Tell
	Library
	macros map[string][]*syntax.Macro
	count  int             // of expansions, for names that nobody else has
	under  []*syntax.Macro // those whose calls are being put in
}

// Expand puts the file's macros into its probes and functions.
func Expand(f *syntax.File, tell Tell, library Library) {
	e := &expander{Tell: tell, Library: library, macros: map[string][]*syntax.Macro{}}
	for _, it := range f.Items {
		if m, ok := it.(*syntax.Macro); ok {
			for _, o := range e.macros[m.Name] {
				if alike(o, m) {
					e.Errorf(m, "Redefinition of macro: %s", m.Name)
				}
			}
			for i, p := range m.Params {
				for _, o := range m.Params[:i] {
					if o.Name == p.Name {
						e.Errorf(p, "%s for macro argument has already been used: %s", strings.ToUpper(kind(p)[:1])+kind(p)[1:], p.Name)
					}
				}
			}
			e.macros[m.Name] = append(e.macros[m.Name], m)
		}
	}
	for _, it := range f.Items {
		switch it := it.(type) {
		case *syntax.Probe:
			it.Body = syntax.Copy(it.Body, e.replace)
			if it.Pred != nil {
				it.Pred = syntax.Copy(it.Pred, e.replace)
			}
		case *syntax.Fn:
			it.Body = syntax.Copy(it.Body, e.replace)
		}
	}
}

// replace is what stands in the place of a macro's call, nil for what is none.
func (e *expander) replace(x syntax.Expr) syntax.Expr {
	var name string
	var args []syntax.Expr
	switch x := x.(type) {
	case *syntax.Call:
		name, args = x.Name, x.Args
		if e.isType(x) {
			return x
		}
	case *syntax.Ident:
		name = x.Name
	case *syntax.Field:
		return e.Named(x)
	default:
		return nil
	}
	all := e.macros[name]
	if len(all) == 0 {
		return e.within(e.Named(x))
	}
	var closest *syntax.Macro
	for _, m := range all {
		switch {
		case len(m.Params) != len(args):
		case suits(m, args):
			return e.put(x, m, args)
		case closest == nil:
			closest = m
		}
	}
	if closest == nil { // what has that name without a macro, with other arguments
		if y := e.Named(x); y != nil {
			return e.within(y)
		} else if e.Takes(name, len(args)) {
			return e.within(x)
		}
	}
	e.Errorf(x, "Call to %s() has arguments that do not match any definition.", name)
	if closest == nil {
		e.Hint("The closest definition of %s() has a different number of arguments. Expected: %d but got %d", name, len(all[0].Params), len(args))
		return &syntax.Int{Span: x.At(), Text: "0"}
	}
	for i, p := range closest.Params {
		if want := kind(p); !fits(p, args[i]) {
			got := "an expression"
			switch args[i].(type) {
			case *syntax.Var:
				got = "a variable"
			case *syntax.Map:
				got = "a map"
			}
			e.Errorf(args[i], "Mismatched arg. %s() expects a %s for arg %s but got %s.", name, want, p.Name, got)
		}
	}
	return &syntax.Int{Span: x.At(), Text: "0"}
}

// within puts macros into the parts of an expression that is none itself; nil of nil.
func (e *expander) within(y syntax.Expr) syntax.Expr {
	if y == nil {
		return nil
	}
	return syntax.Copy(y, func(x syntax.Expr) syntax.Expr {
		if x == y {
			return nil
		}
		return e.replace(x)
	})
}

// kind is what a parameter stands for.
func kind(p syntax.Param) string {
	switch p.Name[0] {
	case '$':
		return "variable"
	case '@':
		return "map"
	}
	return "ident"
}

// alike tells of two macros that no call tells apart.
func alike(a, b *syntax.Macro) bool {
	return slices.EqualFunc(a.Params, b.Params, func(p, q syntax.Param) bool { return kind(p) == kind(q) })
}

// suits tells whether arguments are what a macro's parameters stand for.
func suits(m *syntax.Macro, args []syntax.Expr) bool {
	for i, p := range m.Params {
		if !fits(p, args[i]) {
			return false
		}
	}
	return true
}

// fits tells whether a parameter may stand for an argument: a name alone stands for any.
func fits(p syntax.Param, arg syntax.Expr) bool {
	_, isVar := arg.(*syntax.Var)
	m, isMap := arg.(*syntax.Map)
	k := kind(p)
	return k == "ident" || k == "variable" && isVar || k == "map" && isMap && m.Key == nil
}

// isType tells of sizeof(name): a name alone is a type's there, whatever macros there are.
func (e *expander) isType(x *syntax.Call) bool {
	if x.Name != "sizeof" && x.Name != "typeinfo" && x.Name != "offsetof" || len(x.Args) == 0 {
		return false
	}
	id, ok := x.Args[0].(*syntax.Ident)
	return ok && len(e.macros[id.Name]) > 0
}

// put makes the body of a macro for one call. Variables of its own get names that nobody
// else can write.
func (e *expander) put(at syntax.Expr, m *syntax.Macro, args []syntax.Expr) syntax.Expr {
	given := map[string]syntax.Expr{}
	written := map[string]*syntax.TypeArg{} // arguments that are types
	for i, p := range m.Params {
		given[p.Name] = syntax.Copy(args[i], e.replace) // before the macro is under way: m(m(1)) has an end
		if t, ok := given[p.Name].(*syntax.TypeArg); ok {
			written[p.Name] = t
		}
		if let := syntax.Declares(m.Body, p.Name); let != nil {
			e.Errorf(let, "Variable declaration shadows macro arg %s", p.Name)
		}
	}
	if i := slices.Index(e.under, m); i >= 0 {
		chain := ""
		for _, o := range e.under[i:] {
			chain += o.Name + " > "
		}
		e.Errorf(at, "Recursive macro call detected. Call chain: %s%s", chain, m.Name)
		return &syntax.Int{Span: at.At(), Text: "0"}
	}
	e.under = append(e.under, m)
	defer func() { e.under = e.under[:len(e.under)-1] }()
	e.count++
	own := fmt.Sprintf("#%d", e.count)
	rename := func(name string) string {
		if v, ok := given[name].(*syntax.Var); ok {
			return v.Name
		}
		return name + own
	}
	var theirs []syntax.Expr // what the call has given
	var inner func(x syntax.Expr) syntax.Expr
	inner = func(x syntax.Expr) syntax.Expr {
		switch x := x.(type) {
		case *syntax.Var:
			return &syntax.Var{Span: x.Span, Name: rename(x.Name)}
		case *syntax.Map:
			if _, ok := given[x.Name]; !ok {
				e.Errorf(x, "Unhygienic access to map: %s. Maps must be passed into the macro as arguments.", x.Name)
			}
			if arg, ok := given[x.Name].(*syntax.Map); ok {
				y := &syntax.Map{Span: x.Span, Name: arg.Name}
				if x.Key != nil {
					y.Key = syntax.Copy(x.Key, inner)
				}
				return y
			}
		case *syntax.Ident:
			if arg, ok := given[x.Name]; ok {
				theirs = append(theirs, syntax.Copy(arg, func(syntax.Expr) syntax.Expr { return nil }))
				return theirs[len(theirs)-1]
			}
			return e.replace(x)
		case *syntax.Field:
			return e.Named(x)
		case *syntax.Call:
			if len(e.macros[x.Name]) > 0 || e.Named(x) != nil {
				call := &syntax.Call{Span: x.Span, Name: x.Name}
				for _, a := range x.Args {
					call.Args = append(call.Args, syntax.Copy(a, inner))
				}
				return e.replace(call)
			}
		}
		return nil
	}
	body := syntax.Copy(m.Body, inner)
	syntax.RenameDeclared(body, rename)
	syntax.PutTypes(body, written)
	syntax.Expanded(body, &syntax.Expansion{Span: at.At()}, theirs)
	body.Span = at.At()
	if len(body.Stmts) == 0 && body.Value != nil {
		return body.Value // one that is an expression alone stays one
	}
	return body
}
