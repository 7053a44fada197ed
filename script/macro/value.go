package macro

import "kprobe/script/syntax"

// Value is what a call of what is a name too stands for, comm() for comm; nil where it is none. isValue tells of a name that it is
// one that stands for a value. See Named.
func Value(x syntax.Expr, isValue func(name string) bool) syntax.Expr {
	switch x := x.(type) {
	case *syntax.Ident:
		if other := Otherwise(x.Name, x.Span); other != nil {
			return other
		}
		if name := Plain(x.Name); name != x.Name {
			return &syntax.Ident{Span: x.Span, Name: name}
		}
	case *syntax.Call:
		if other := Otherwise(x.Name, x.Span); other != nil && (len(x.Args) == 0 || x.Name == "dw_ustack") {
			if _, alone := other.(*syntax.Ident); !alone || len(x.Args) == 0 {
				return other
			}
			return &syntax.Call{Span: x.Span, Name: "ustack", Args: x.Args}
		}
		name := Plain(x.Name)
		if name == "container_of" {
			return containerOf(x)
		}
		if format, ok := formats[name]; ok && len(x.Args) == 1 {
			return isFormat(x, format)
		}
		if len(x.Args) == 0 && isValue(name) {
			return &syntax.Ident{Span: x.Span, Name: name}
		}
		if name != x.Name {
			return &syntax.Call{Span: x.Span, Name: name, Args: x.Args}
		}
	}
	return nil
}
