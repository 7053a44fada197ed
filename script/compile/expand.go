package compile

import (
	"slices"
	"strings"

	"kprobe/script/syntax"
)

// plain is a name without what bpftrace's own library writes before it.
func plain(name string) string { return strings.TrimPrefix(name, "__builtin_") }

// named is what a call of what is a name too stands for, comm() for comm; nil where it is none. See macro.Named.
func named(x syntax.Expr) syntax.Expr {
	switch x := x.(type) {
	case *syntax.Ident:
		if name := plain(x.Name); name != x.Name {
			return &syntax.Ident{Span: x.Span, Name: name}
		}
	case *syntax.Call:
		name := plain(x.Name)
		_, builtin := builtins[name]
		if len(x.Args) == 0 && functions[name] == nil && (builtin || slices.Contains([]string{"func", "probe", "probetype", "retval"}, name)) {
			return &syntax.Ident{Span: x.Span, Name: name}
		}
		if name != x.Name {
			return &syntax.Call{Span: x.Span, Name: name, Args: x.Args}
		}
	}
	return nil
}
