package syntax

import (
	"reflect"
	"strings"
)

// Mutates tells whether a body changes a variable.
func Mutates(body *Block, name string) (yes bool) {
	is := func(x Expr) bool {
		v, ok := x.(*Var)
		return ok && v.Name == name
	}
	visit(reflect.ValueOf(body), func(n any) {
		switch n := n.(type) {
		case *Assign:
			yes = yes || is(n.Target)
		case *Unary:
			yes = yes || (n.Op == "++" || n.Op == "--" || n.Op == "&") && is(n.X)
		}
	})
	return yes
}

// Names tells whether an identifier occurs in a tree.
func Names(tree any, name string) (yes bool) {
	visit(reflect.ValueOf(tree), func(n any) {
		id, ok := n.(*Ident)
		yes = yes || ok && id.Name == name
	})
	return yes
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

var exprType = reflect.TypeFor[Expr]()

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
