package syntax

import (
	"reflect"
	"slices"
	"strings"
)

// Declares is where a body declares a variable; nil where it does not.
func Declares(body *Block, name string) (let *Let) {
	visit(reflect.ValueOf(body), func(n any) {
		if l, ok := n.(*Let); ok && l.Name == name && let == nil {
			let = l
		}
	})
	return let
}

// PutTypes puts types in where their names are written as types: t in (t *)x, or let $x: t.
func PutTypes(body Expr, types map[string]*TypeArg) {
	visit(reflect.ValueOf(body), func(n any) {
		if t, ok := n.(*Type); ok && types[t.Name] != nil {
			t.Of, t.Name = types[t.Name], ""
		}
	})
}

// Names tells whether an identifier occurs in a tree.
func Names(tree any, name string) (yes bool) {
	return Any(tree, func(id *Ident) bool { return id.Name == name })
}

// Any tells whether a tree has such a name.
func Any(tree any, is func(*Ident) bool) (yes bool) {
	visit(reflect.ValueOf(tree), func(n any) {
		id, ok := n.(*Ident)
		yes = yes || ok && is(id)
	})
	return yes
}

// Statements puts others in the place of statements in all blocks of a tree.
func Statements(tree any, replace func(Stmt) Stmt) {
	visit(reflect.ValueOf(tree), func(n any) {
		if b, ok := n.(*Block); ok {
			for i, s := range b.Stmts {
				b.Stmts[i] = replace(s)
			}
		}
	})
}

// visit shows all nodes of a tree.
func visit(v reflect.Value, see func(node any)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			see(v.Interface())
			visit(v.Elem(), see)
		}
	case reflect.Slice:
		for i := range v.Len() {
			visit(v.Index(i), see)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			visit(v.Field(i), see)
		}
	}
}

// RenameDeclared renames what let and for declare in a body, but for names that have been given so.
func RenameDeclared(body Expr, rename func(string) string) {
	renameDeclared(reflect.ValueOf(body), rename)
}

func renameDeclared(v reflect.Value, rename func(string) string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		switch n := v.Interface().(type) {
		case *Let:
			if !strings.Contains(n.Name, "#") {
				n.Name = rename(n.Name)
			}
		case *For:
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

// Copy copies a tree; where replace gives an expression, that stands there.
func Copy[T any](tree T, replace func(Expr) Expr) T {
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	copyValue(out, reflect.ValueOf(&tree).Elem(), replace)
	return out.Interface().(T)
}

var (
	exprType      = reflect.TypeFor[Expr]()
	spanType      = reflect.TypeFor[Span]()
	expansionType = reflect.TypeFor[*Expansion]()
)

// Expanded notes in all places of a tree that the macro of a call has put it there, but in those parts that the call has given.
func Expanded(tree Expr, call *Expansion, given []Expr) {
	expanded(reflect.ValueOf(tree), call, given)
}

func expanded(v reflect.Value, call *Expansion, given []Expr) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Type() == expansionType {
			return
		}
		if x, ok := v.Interface().(Expr); ok && slices.Contains(given, x) {
			return
		}
		expanded(v.Elem(), call, given)
	case reflect.Slice:
		for i := range v.Len() {
			expanded(v.Index(i), call, given)
		}
	case reflect.Struct:
		if v.Type() != spanType {
			for i := range v.NumField() {
				expanded(v.Field(i), call, given)
			}
			return
		}
		if s, ok := v.Addr().Interface().(*Span); ok && s.Call == nil {
			s.Call = call
		} else if ok { // of a macro that this one calls
			last := s.Call
			for last.Call != nil {
				last = last.Call
			}
			if last != call {
				last.Call = call
			}
		}
	}
}

func copyValue(dst, src reflect.Value, replace func(Expr) Expr) {
	switch src.Kind() {
	case reflect.Interface:
		if src.IsNil() {
			return
		}
		if src.Type() == exprType {
			if x := replace(src.Interface().(Expr)); x != nil {
				dst.Set(reflect.ValueOf(x))
				return
			}
		}
		in := src.Elem()
		out := reflect.New(in.Type()).Elem()
		copyValue(out, in, replace)
		dst.Set(out)
	case reflect.Pointer:
		if src.IsNil() || src.Type() == expansionType {
			dst.Set(src) // one for all that it is about
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
