package compile

import (
	"fmt"
	"reflect"
	"strings"

	"kprobe/script/syntax"
)

// Macros are put in where they are called, before anything is checked.

// maxExpansion is how deep macros may call one another: one that calls itself has no end.
const maxExpansion = 64

// expander puts macros in.
type expander struct {
	c      *checker
	macros map[string][]*syntax.Macro
	count  int // of expansions, for names that nobody else has
	depth  int
}

// expand puts the file's macros into its probes.
func (c *checker) expand(f *syntax.File) {
	e := &expander{c: c, macros: map[string][]*syntax.Macro{}}
	for _, it := range f.Items {
		if m, ok := it.(*syntax.Macro); ok {
			for _, o := range e.macros[m.Name] {
				if len(o.Params) == len(m.Params) {
					c.errorf(m, "Redefinition of macro: %s", m.Name)
				}
			}
			e.macros[m.Name] = append(e.macros[m.Name], m)
		}
	}
	if len(e.macros) == 0 {
		return
	}
	for _, it := range f.Items {
		if p, ok := it.(*syntax.Probe); ok {
			p.Body = copyTree(p.Body, e.replace)
			if p.Pred != nil {
				p.Pred = copyTree(p.Pred, e.replace)
			}
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
	case *syntax.Ident:
		name = x.Name
	default:
		return nil
	}
	all := e.macros[name]
	if len(all) == 0 {
		return nil
	}
	for _, m := range all {
		if len(m.Params) == len(args) {
			return e.put(x, m, args)
		}
	}
	e.c.errorf(x, "Call to macro %s() has wrong number arguments. Expected: %d but got %d", name, len(all[0].Params), len(args))
	return &syntax.Int{Span: x.At(), Text: "0"}
}

// put makes the body of a macro for one call. Variables of its own get names that nobody
// else can write.
func (e *expander) put(at syntax.Expr, m *syntax.Macro, args []syntax.Expr) syntax.Expr {
	if e.depth++; e.depth > maxExpansion {
		e.depth--
		e.c.errorf(at, "Recursive macro call detected: %s", m.Name)
		return &syntax.Int{Span: at.At(), Text: "0"}
	}
	defer func() { e.depth-- }()
	e.count++
	own := fmt.Sprintf("#%d", e.count)
	given := map[string]syntax.Expr{}
	for i, p := range m.Params {
		arg := copyTree(args[i], e.replace)
		_, isVar := arg.(*syntax.Var)
		mx, isMap := arg.(*syntax.Map)
		switch {
		case strings.HasPrefix(p.Name, "$") && !isVar:
			e.c.errorf(args[i], "Mismatched arg to macro call. Macro expects a variable for arg %s but got an expression.", p.Name)
		case strings.HasPrefix(p.Name, "@") && (!isMap || mx.Key != nil):
			e.c.errorf(args[i], "Mismatched arg to macro call. Macro expects a map for arg %s but got an expression.", p.Name)
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
			return &syntax.Var{Span: x.Span, Name: rename(x.Name)}
		case *syntax.Map:
			if arg, ok := given[x.Name].(*syntax.Map); ok {
				y := &syntax.Map{Span: x.Span, Name: arg.Name}
				if x.Key != nil {
					y.Key = copyTree(x.Key, inner)
				}
				return y
			}
		case *syntax.Ident:
			if arg, ok := given[x.Name]; ok {
				return copyTree(arg, func(syntax.Expr) syntax.Expr { return nil })
			}
			return e.replace(x)
		case *syntax.Call:
			if len(e.macros[x.Name]) > 0 {
				call := &syntax.Call{Span: x.Span, Name: x.Name}
				for _, a := range x.Args {
					call.Args = append(call.Args, copyTree(a, inner))
				}
				return e.replace(call)
			}
		}
		return nil
	}
	body := copyTree(m.Body, inner)
	renameDeclared(reflect.ValueOf(body), rename)
	body.Span = at.At()
	if len(body.Stmts) == 0 && body.Value != nil {
		return body.Value // one that is an expression alone stays one
	}
	return body
}

// renameDeclared renames what let and for declare.
func renameDeclared(v reflect.Value, rename func(string) string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		switch n := v.Interface().(type) {
		case *syntax.Let:
			if !strings.Contains(n.Name, "#") {
				n.Name = rename(n.Name)
			}
		case *syntax.For:
			if !strings.Contains(n.Var, "#") {
				n.Var = rename(n.Var)
			}
		}
		renameDeclared(v.Elem(), rename)
	case reflect.Slice:
		for i := range v.Len() {
			renameDeclared(v.Index(i), rename)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			renameDeclared(v.Field(i), rename)
		}
	}
}

// copyTree copies a tree; where replace gives an expression, that stands there.
func copyTree[T any](tree T, replace func(syntax.Expr) syntax.Expr) T {
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	copyValue(out, reflect.ValueOf(&tree).Elem(), replace)
	return out.Interface().(T)
}

var exprType = reflect.TypeFor[syntax.Expr]()

func copyValue(dst, src reflect.Value, replace func(syntax.Expr) syntax.Expr) {
	switch src.Kind() {
	case reflect.Interface:
		if src.IsNil() {
			return
		}
		if src.Type() == exprType {
			if x := replace(src.Interface().(syntax.Expr)); x != nil {
				dst.Set(reflect.ValueOf(x))
				return
			}
		}
		in := src.Elem()
		out := reflect.New(in.Type()).Elem()
		copyValue(out, in, replace)
		dst.Set(out)
	case reflect.Pointer:
		if src.IsNil() {
			return
		}
		out := reflect.New(src.Type().Elem())
		copyValue(out.Elem(), src.Elem(), replace)
		dst.Set(out)
	case reflect.Slice:
		if src.IsNil() {
			return
		}
		dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
		for i := range src.Len() {
			copyValue(dst.Index(i), src.Index(i), replace)
		}
	case reflect.Struct:
		dst.Set(src)
		for i := range src.NumField() {
			copyValue(dst.Field(i), src.Field(i), replace)
		}
	default:
		dst.Set(src)
	}
}
