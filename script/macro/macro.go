// Package macro puts macros in where they are called, before anything is checked.
package macro

import (
	"fmt"
	"strings"

	"kprobe/script/syntax"
)

// maxExpansion is how deep macros may call one another: one that calls itself has no end.
const maxExpansion = 64

// Errorf tells what is wrong at a place.
type Errorf func(at syntax.Node, format string, a ...any)

// Named is what a call or a name stands for that is none of a macro's: comm for comm(); nil for itself.
type Named func(x syntax.Expr) syntax.Expr

// expander puts macros in.
type expander struct {
	errorf Errorf
	named  Named
	macros map[string][]*syntax.Macro
	count  int // of expansions, for names that nobody else has
	depth  int
}

// Expand puts the file's macros into its probes and functions.
func Expand(f *syntax.File, errorf Errorf, named Named) {
	e := &expander{errorf: errorf, named: named, macros: map[string][]*syntax.Macro{}}
	for _, it := range f.Items {
		if m, ok := it.(*syntax.Macro); ok {
			for _, o := range e.macros[m.Name] {
				if len(o.Params) == len(m.Params) {
					e.errorf(m, "Redefinition of macro: %s", m.Name)
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
	default:
		return nil
	}
	all := e.macros[name]
	if len(all) == 0 {
		y := e.named(x)
		if call, ok := y.(*syntax.Call); ok {
			for i, a := range call.Args {
				call.Args[i] = syntax.Copy(a, e.replace)
			}
		}
		return y
	}
	for _, m := range all {
		if len(m.Params) == len(args) {
			return e.put(x, m, args)
		}
	}
	e.errorf(x, "Call to macro %s() has wrong number arguments. Expected: %d but got %d", name, len(all[0].Params), len(args))
	return &syntax.Int{Span: x.At(), Text: "0"}
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
	if e.depth++; e.depth > maxExpansion {
		e.depth--
		e.errorf(at, "Recursive macro call detected: %s", m.Name)
		return &syntax.Int{Span: at.At(), Text: "0"}
	}
	defer func() { e.depth-- }()
	e.count++
	own := fmt.Sprintf("#%d", e.count)
	given := map[string]syntax.Expr{}
	for i, p := range m.Params {
		arg := syntax.Copy(args[i], e.replace)
		_, isVar := arg.(*syntax.Var)
		mx, isMap := arg.(*syntax.Map)
		switch {
		case strings.HasPrefix(p.Name, "$") && !isVar && syntax.Mutates(m.Body, p.Name):
			e.errorf(args[i], "Mismatched arg to macro call. Macro expects a variable for arg %s but got an expression.", p.Name)
		case strings.HasPrefix(p.Name, "@") && (!isMap || mx.Key != nil):
			e.errorf(args[i], "Mismatched arg to macro call. Macro expects a map for arg %s but got an expression.", p.Name)
		}
		given[p.Name] = arg
	}
	rename := func(name string) string {
		if v, ok := given[name].(*syntax.Var); ok {
			return v.Name
		}
		return name + own
	}
	var inner func(x syntax.Expr) syntax.Expr
	inner = func(x syntax.Expr) syntax.Expr {
		switch x := x.(type) {
		case *syntax.Var:
			if arg, ok := given[x.Name]; ok {
				if _, isVar := arg.(*syntax.Var); !isVar {
					return syntax.Copy(arg, func(syntax.Expr) syntax.Expr { return nil })
				}
			}
			return &syntax.Var{Span: x.Span, Name: rename(x.Name)}
		case *syntax.Map:
			if _, ok := given[x.Name]; !ok {
				e.errorf(x, "Unhygienic access to map: %s. Maps must be passed into the macro as arguments.", x.Name)
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
				return syntax.Copy(arg, func(syntax.Expr) syntax.Expr { return nil })
			}
			return e.replace(x)
		case *syntax.Call:
			if len(e.macros[x.Name]) > 0 || e.named(x) != nil {
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
	body.Span = at.At()
	if len(body.Stmts) == 0 && body.Value != nil {
		return body.Value // one that is an expression alone stays one
	}
	return body
}
