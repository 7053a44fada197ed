package syntax

import (
	"fmt"
	"strings"
)

// Format is the script in its one form: tabs, a statement a line, no brackets that
// are not needed. Comments are not kept. Parse of it gives the same tree.
func Format(f *File) string {
	w := &writer{}
	if f.Shebang != "" {
		w.line("%s", f.Shebang)
	}
	if len(f.Config) > 0 {
		w.line("config = {")
		w.depth++
		for _, c := range f.Config {
			v := c.Value
			if c.Quoted {
				v = quote(v)
			}
			w.line("%s = %s;", c.Name, v)
		}
		w.depth--
		w.line("}")
	}
	for _, i := range f.Imports {
		w.line("import %s;", quote(i.Path))
	}
	for _, c := range f.C {
		w.line("%s", c.Text)
	}
	for i, it := range f.Items {
		if i > 0 || w.b.Len() > 0 {
			w.b.WriteByte('\n')
		}
		w.item(it)
	}
	return w.b.String()
}

// Written is an expression in its one form.
func Written(x Expr) string { return new(writer).expr(x, 0) }

type writer struct {
	b     strings.Builder
	depth int
}

func (w *writer) line(format string, a ...any) {
	w.b.WriteString(strings.Repeat("\t", w.depth))
	fmt.Fprintf(&w.b, format, a...)
	w.b.WriteByte('\n')
}

func (w *writer) item(it Item) {
	switch it := it.(type) {
	case *Probe:
		head := ""
		if it.Name != "" {
			head = it.Name + " = "
		}
		for i, pt := range it.Points {
			if i > 0 {
				head += ",\n"
			}
			head += pt.Text
		}
		if it.Pred != nil {
			head += " / " + w.expr(it.Pred, 0) + " /"
		}
		w.body(head, it.Body)
	case *Macro:
		w.body("macro "+it.Name+w.params(it.Params), it.Body)
	case *Fn:
		w.body("fn "+it.Name+w.params(it.Params)+" : "+w.typ(it.Result), it.Body)
	case *MapDecl:
		w.line("let %s = %s(%s);", it.Name, it.Kind, w.expr(it.Size, 0))
	}
}

func (w *writer) params(ps []Param) string {
	var all []string
	for _, p := range ps {
		s := p.Name
		if p.Type != nil {
			s += " : " + w.typ(p.Type)
		}
		all = append(all, s)
	}
	return "(" + strings.Join(all, ", ") + ")"
}

func (w *writer) typ(t *Type) string {
	s := t.Name
	if t.Of != nil {
		s = "typeof(" + w.expr(t.Of, 0) + ")"
	}
	s += strings.Repeat("*", t.Stars)
	for _, d := range t.Dims {
		if d == nil {
			s += "[]"
			continue
		}
		s += "[" + w.expr(d, 0) + "]"
	}
	return s
}

func (w *writer) body(head string, b *Block) {
	w.line("%s {", head)
	w.inner(b)
	w.line("}")
}

func (w *writer) inner(b *Block) {
	w.depth++
	for _, s := range b.Stmts {
		w.stmt(s)
	}
	if b.Value != nil {
		w.line("%s", w.expr(b.Value, 0))
	}
	w.depth--
}

func (w *writer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Block:
		w.line("{")
		w.inner(s)
		w.line("}")
	case *ExprStmt:
		if b, ok := s.X.(*Block); ok {
			w.stmt(b)
			return
		}
		w.line("%s;", w.expr(s.X, 0))
	case *Assign:
		w.line("%s %s %s;", w.expr(s.Target, 0), s.Op, w.expr(s.Value, 0))
	case *Let:
		text := "let " + s.Name
		if s.Type != nil {
			text += " : " + w.typ(s.Type)
		}
		if s.Value != nil {
			text += " = " + w.expr(s.Value, 0)
		}
		w.line("%s;", text)
	case *If:
		w.ifStmt("", s)
	case *While:
		w.body("while ("+w.expr(s.Cond, 0)+")", s.Body)
	case *Unroll:
		w.body("unroll ("+w.expr(s.Times, 0)+")", s.Body)
	case *For:
		over := ""
		if s.Over != nil {
			over = w.expr(s.Over, 0)
		} else {
			over = w.bound(s.From) + ".." + w.bound(s.To)
		}
		w.body("for "+s.Var+" : "+over, s.Body)
	case *Use:
		w.line("import %s;", quote(s.Path))
	case *Jump:
		if s.Value != nil {
			w.line("return %s;", w.expr(s.Value, 0))
		} else {
			w.line("%s;", s.Kind)
		}
	}
}

func (w *writer) ifStmt(lead string, s *If) {
	for {
		if s.Comptime {
			w.line("%sif comptime %s {", lead, w.expr(s.Cond, levelUnary))
		} else {
			w.line("%sif (%s) {", lead, w.expr(s.Cond, 0))
		}
		w.inner(s.Then)
		switch e := s.Else.(type) {
		case *If:
			lead, s = "} else ", e
			continue
		case *Block:
			w.line("} else {")
			w.inner(e)
		}
		w.line("}")
		return
	}
}

// bound writes where a loop begins or ends.
func (w *writer) bound(x Expr) string {
	switch x.(type) {
	case *Int, *Ident, *Call, *Var, *Positional:
		return w.expr(x, 0)
	}
	return "(" + w.expr(x, 0) + ")"
}

// Levels of expressions: 0 is a ternary, 1 to 10 are those of precedence.
const (
	levelUnary   = 11
	levelPostfix = 12
)

// expr writes an expression that stands where one of that level may.
func (w *writer) expr(x Expr, level int) string {
	s, own := w.bare(x)
	if own < level {
		return "(" + s + ")"
	}
	return s
}

func (w *writer) list(xs []Expr) string {
	var all []string
	for _, x := range xs {
		all = append(all, w.expr(x, 0))
	}
	return strings.Join(all, ", ")
}

func (w *writer) bare(x Expr) (text string, level int) {
	switch x := x.(type) {
	case *Int:
		return x.Text, levelPostfix
	case *Str:
		return quote(x.Value), levelPostfix
	case *Bool:
		return fmt.Sprint(x.Value), levelPostfix
	case *Ident:
		return x.Name, levelPostfix
	case *Positional:
		if x.N == 0 {
			return "$#", levelPostfix
		}
		return fmt.Sprintf("$%d", x.N), levelPostfix
	case *Var:
		return x.Name, levelPostfix
	case *Map:
		switch k := x.Key.(type) {
		case nil:
			return x.Name, levelPostfix
		case *Tuple:
			if len(k.Elems) > 1 {
				return x.Name + "[" + w.list(k.Elems) + "]", levelPostfix
			}
		}
		return x.Name + "[" + w.expr(x.Key, 0) + "]", levelPostfix
	case *Unary:
		if x.Post {
			return w.expr(x.X, levelPostfix) + x.Op, levelPostfix
		}
		inner := w.expr(x.X, levelUnary)
		if inner[0] == x.Op[0] && strings.IndexByte("-+&", inner[0]) >= 0 {
			inner = "(" + inner + ")" // --x would be another operator
		}
		return x.Op + inner, levelUnary
	case *Binary:
		p := precedence[x.Op]
		return w.expr(x.X, p) + " " + x.Op + " " + w.expr(x.Y, p+1), p
	case *Ternary:
		if x.Then == nil {
			return w.expr(x.Cond, 1) + " ?: " + w.expr(x.Else, 0), 0
		}
		return w.expr(x.Cond, 1) + " ? " + w.expr(x.Then, 0) + " : " + w.expr(x.Else, 0), 0
	case *Call:
		return x.Name + "(" + w.list(x.Args) + ")", levelPostfix
	case *Field:
		return w.expr(x.X, levelPostfix) + "." + x.Name, levelPostfix
	case *Index:
		s := w.expr(x.X, levelPostfix)
		if m, ok := x.X.(*Map); ok && m.Key == nil {
			s = "(" + s + ")"
		}
		return s + "[" + w.expr(x.I, 0) + "]", levelPostfix
	case *Cast:
		return "(" + w.typ(x.Type) + ")" + w.expr(x.X, levelUnary), levelUnary
	case *TypeArg:
		return w.typ(x.Type), levelPostfix
	case *Tuple:
		switch len(x.Elems) {
		case 0:
			return "()", levelPostfix
		case 1:
			return "(" + w.expr(x.Elems[0], 0) + ",)", levelPostfix
		}
		return "(" + w.list(x.Elems) + ")", levelPostfix
	case *Record:
		var all []string
		for i, n := range x.Names {
			all = append(all, n+" = "+w.expr(x.Elems[i], 0))
		}
		return "(" + strings.Join(all, ", ") + ")", levelPostfix
	case *Comptime:
		return "comptime " + w.expr(x.X, levelUnary), levelUnary
	case *Block:
		in := &writer{depth: w.depth + 1}
		for _, s := range x.Stmts {
			in.stmt(s)
		}
		if x.Value != nil {
			in.line("%s", in.expr(x.Value, 0))
		}
		return "{\n" + in.b.String() + strings.Repeat("\t", w.depth) + "}", levelPostfix
	}
	return "", levelPostfix
}

// quote writes a string so that it is read as it was.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
