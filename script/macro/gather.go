package macro

import "kprobe/script/syntax"

// Gathering takes an assignment apart whose value is a block that ends with what a map gathers: @ = { $x++; avg($x) } does the one
// thing and then @ = avg($x).
func Gathering(f *syntax.File, gathers func(name string) bool) {
	for _, it := range f.Items {
		syntax.Statements(it, func(s syntax.Stmt) syntax.Stmt {
			a, ok := s.(*syntax.Assign)
			if !ok || a.Op != "=" {
				return s
			}
			b, ok := a.Value.(*syntax.Block)
			if !ok || b.Value == nil {
				return s
			}
			call, ok := b.Value.(*syntax.Call)
			_, within := b.Value.(*syntax.Block)
			if !within && (!ok || !gathers(call.Name)) {
				return s
			}
			last := &syntax.Assign{Span: a.Span, Target: a.Target, Op: "=", Value: b.Value}
			return &syntax.Block{Span: a.Span, Stmts: append(b.Stmts[:len(b.Stmts):len(b.Stmts)], last)}
		})
	}
}
