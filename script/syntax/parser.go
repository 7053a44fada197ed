package syntax

import (
	"fmt"
	"strings"
)

// Parse reads a script. What it gives beside errors is what could be read. The
// error is an Errors.
func Parse(src *Source) (*File, error) { return ParseFrom(src, 0) }

// ParseFrom reads the script whose text begins at a byte of the source's and is its last.
func ParseFrom(src *Source, from int) (*File, error) {
	p := &parser{src: src}
	f := p.file(from)
	if len(p.errs) == 0 {
		return f, nil
	}
	p.errs.Sort()
	return f, p.errs
}

// parser is a recursive descent with one token in hand. Tokens are read when they
// are wanted, since what a byte means depends on where it stands: attach points are
// raw text, and a slash may end a predicate.
type parser struct {
	src   *Source
	tok   token
	prev  int // end of the token before
	depth int
	pred  bool // within a predicate: "/" before "{" ends it
	errs  Errors

	configured bool     // the settings were read
	uses       []Import // within bodies

	branches []bool // of the preprocessor's conditions that are open: whether only one is read
}

// Limits that keep a damaged script from taking everything.
const (
	maxErrors = 20
	maxDepth  = 500
)

// bail ends the reading of a statement or declaration.
type bail struct{}

func (p *parser) fail(at Span, format string, a ...any) {
	if n := len(p.errs); n < maxErrors && (n == 0 || p.errs[n-1].From != at.From) {
		p.errs = append(p.errs, &Error{Span: at, Msg: fmt.Sprintf(format, a...), Source: p.src})
	}
}

func (p *parser) bail(at Span, format string, a ...any) {
	p.fail(at, format, a...)
	panic(bail{})
}

// try reads something; after an error it goes on where it can.
func (p *parser) try(read func(), recoverAt func()) {
	depth, pred := p.depth, p.pred
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(bail); !ok {
				panic(r)
			}
			p.depth, p.pred = depth, pred
			recoverAt()
		}
	}()
	read()
}

func (p *parser) next() token {
	t := p.tok
	p.prev = t.To
	p.tok = p.lex(t.To)
	return t
}

// jump goes on reading at a byte.
func (p *parser) jump(at int) { p.tok = p.lex(at) }

func (p *parser) is(op string) bool { return p.tok.kind == tOp && p.tok.text == op }
func (p *parser) word(w string) bool {
	return p.tok.kind == tIdent && p.tok.text == w
}

func (p *parser) accept(op string) bool {
	if p.is(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) shown() string {
	switch p.tok.kind {
	case tEOF:
		return "end of file"
	case tStr:
		return "string"
	}
	return p.tok.text
}

func (p *parser) expect(op string) token {
	if !p.is(op) {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting %s", p.shown(), op)
	}
	return p.next()
}

func (p *parser) ident(what string) token {
	if p.tok.kind != tIdent {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting %s", p.shown(), what)
	}
	return p.next()
}

func (p *parser) since(from int) Span { return Span{From: from, To: max(p.prev, from)} }

// file reads everything.
func (p *parser) file(at int) *File {
	f := &File{}
	if begin := p.blanks(at); strings.HasPrefix(p.src.Text[begin:], "#!") {
		f.Shebang = p.restOfLine(begin)
		at = begin + len(f.Shebang)
	}
	p.jump(at)
	for p.tok.kind != tEOF {
		start := p.tok.From
		p.try(func() { p.item(f) }, func() { p.resume(start) })
	}
	f.Uses = p.uses
	return f
}

// resume goes on behind a failed item: at what follows its closing brace.
func (p *parser) resume(start int) {
	depth := strings.Count(p.src.Text[start:p.tok.From], "{") - strings.Count(p.src.Text[start:p.tok.From], "}")
	for p.tok.kind != tEOF {
		switch {
		case p.is("{"):
			depth++
		case p.is("}"):
			if depth--; depth <= 0 {
				p.next()
				return
			}
		}
		p.next()
	}
}

func (p *parser) restOfLine(i int) string {
	text := p.src.Text[i:]
	n := strings.IndexByte(text, '\n')
	for n > 0 && text[n-1] == '\\' { // goes on
		more := strings.IndexByte(text[n+1:], '\n')
		if more < 0 {
			n = -1
			break
		}
		n += 1 + more
	}
	if n < 0 {
		return text
	}
	return text[:n]
}

// item reads one thing of the file's level.
func (p *parser) item(f *File) {
	from := p.tok.From
	if what := p.late(f); what != "" {
		p.bail(p.tok.Span, "syntax error, unexpected %s: %s", p.shown(), what)
	}
	switch {
	case p.is("#"):
		text := p.src.Text[from : from+p.directive(f, from)]
		f.C = append(f.C, CDecl{Span{From: from, To: from + len(text)}, text})
		p.prev = from + len(text)
		p.jump(p.prev)
	case p.word("struct"), p.word("union"), p.word("enum"), p.word("typedef"):
		p.cDecl(f)
	case p.word("config") && p.follows("=", "{"):
		p.config(f)
	case p.word("import"):
		p.next()
		f.Imports = append(f.Imports, p.imported(from))
	case p.word("macro"):
		p.next()
		m := &Macro{Name: p.ident("a macro's name").text}
		m.Params = p.params(false)
		m.Body = p.block(true)
		m.Span = p.since(from)
		f.Items = append(f.Items, m)
	case p.word("fn"):
		p.next()
		fn := &Fn{Name: p.ident("a function's name").text}
		fn.Params = p.params(true)
		p.expect(":")
		fn.Result = p.typ()
		fn.Body = p.block(false)
		fn.Span = p.since(from)
		f.Items = append(f.Items, fn)
	case p.word("let"):
		f.Items = append(f.Items, p.mapDecl())
	default:
		f.Items = append(f.Items, p.probe())
	}
}

// late tells why an item cannot stand here: settings, imports and what is C come before all else.
func (p *parser) late(f *File) string {
	switch {
	case p.word("config") && p.follows("=", "{"):
		switch {
		case len(f.Items) > 0:
			return "it comes before all probes"
		case p.configured:
			return "there is one block of settings"
		}
		p.configured = true
	case p.word("import"):
		if len(f.Items) > 0 {
			return "imports come before all probes and functions"
		}
	case p.is("#"), p.word("struct"), p.word("union"), p.word("enum"), p.word("typedef"):
		if len(f.Items) > 0 && !p.conditional() {
			return "what is C comes before all probes and functions"
		}
	}
	return ""
}

// imported reads the path that an import names.
func (p *parser) imported(from int) Import {
	if p.tok.kind != tStr {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a path in quotes", p.shown())
	}
	i := Import{Path: p.next().text}
	p.expect(";")
	i.Span = p.since(from)
	return i
}

// follows tells whether those tokens come behind the one in hand.
func (p *parser) follows(ops ...string) bool {
	at := p.tok.To
	for _, op := range ops {
		t := p.lex(at)
		if t.kind != tOp || t.text != op {
			return false
		}
		at = t.To
	}
	return true
}

// cDecl takes a declaration up to the semicolon behind its braces.
func (p *parser) cDecl(f *File) {
	from, depth := p.tok.From, 0
	alias := p.word("typedef")
	for {
		switch {
		case p.tok.kind == tEOF:
			p.bail(Span{From: from, To: from + 6}, "syntax error, unexpected end of file: the declaration has no end")
		case p.is("{"):
			depth++
		case p.is("}"):
			depth--
		case p.is(";") && depth <= 0:
			p.next()
			f.C = append(f.C, CDecl{p.since(from), p.src.Text[from:p.prev]})
			return
		}
		p.next()
		if depth == 0 && p.src.Text[p.prev-1] == '}' && !alias {
			p.attributes(&Attributes{})
			if !p.is(";") && !p.is("*") && !p.declarator() {
				// A semicolon that is left out.
				f.C = append(f.C, CDecl{p.since(from), p.src.Text[from:p.prev] + ";"})
				return
			}
		}
	}
}

// declarator tells whether a name follows that belongs to the declaration before it, not a probe.
func (p *parser) declarator() bool {
	return p.tok.kind == tIdent && (strings.HasPrefix(p.tok.text, "__") || p.follows(";") || p.follows("["))
}

// config reads config = { name = value; ... }.
func (p *parser) config(f *File) {
	p.next()
	p.expect("=")
	p.expect("{")
	for !p.accept("}") {
		from := p.tok.From
		c := Config{Name: p.ident("a setting's name").text}
		p.expect("=")
		switch p.tok.kind {
		case tIdent, tInt:
			c.Value = p.next().text
		case tStr:
			c.Value, c.Quoted = p.next().text, true
		default:
			p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a setting's value", p.shown())
		}
		if !p.is("}") {
			p.expect(";")
		}
		c.Span = p.since(from)
		f.Config = append(f.Config, c)
	}
}

func (p *parser) params(typed bool) (ps []Param) {
	p.expect("(")
	for !p.accept(")") {
		if len(ps) > 0 {
			p.expect(",")
		}
		from := p.tok.From
		switch k := p.tok.kind; {
		case k == tIdent && !typed && reserved(p.tok.text):
			p.bail(p.tok.Span, "syntax error, unexpected %s: a builtin cannot be a macro's parameter", p.tok.text)
		case k != tVar && (typed || k != tIdent && k != tMap):
			p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a parameter", p.shown())
		}
		param := Param{Name: p.next().text}
		if typed {
			p.expect(":")
			param.Type = p.typ()
		}
		param.Span = p.since(from)
		ps = append(ps, param)
	}
	return ps
}

func (p *parser) mapDecl() *MapDecl {
	from := p.next().From
	if p.tok.kind != tMap {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a map", p.shown())
	}
	m := &MapDecl{Name: p.next().text}
	p.expect("=")
	m.Kind = p.ident("a map's kind").text
	p.expect("(")
	if p.tok.kind != tInt {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a number of entries", p.shown())
	}
	m.Size = p.primary()
	p.expect(")")
	p.accept(";")
	m.Span = p.since(from)
	return m
}

// probe reads attach points, a predicate and the body.
func (p *parser) probe() *Probe {
	pr := &Probe{}
	from := p.tok.From
	if p.tok.kind == tIdent && p.follows("=") {
		pr.Name = p.next().text
		p.next()
	}
	for {
		pr.Points = append(pr.Points, p.point())
		if !p.is(",") {
			break
		}
		p.next()
		if p.is("{") || p.is("/") {
			break // a comma too many was always let pass
		}
	}
	if p.is("/") {
		p.next()
		p.pred = true
		pr.Pred = p.expr()
		p.pred = false
		p.expect("/")
	}
	if !p.is("{") {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting {", p.shown())
	}
	pr.Body = p.block(false)
	pr.Span = p.since(from)
	return pr
}

// point takes the raw text of an attach point.
func (p *parser) point() Point {
	text := p.src.Text
	from := p.tok.From
	i, colon, quoted := from, false, false
	for ; i < len(text); i++ {
		c := text[i]
		if c == '"' {
			quoted = !quoted
		}
		if quoted {
			if c == '\\' {
				i++ // what follows is kept, a quote too
			}
			continue
		}
		if strings.IndexByte(" \t\r\n{,;}", c) >= 0 || c == '/' && (!colon || p.endsPredicate(i)) {
			break
		}
		if strings.HasPrefix(text[i:], "/*") && !colon {
			break
		}
		colon = colon || c == ':'
	}
	if i == from {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a probe", p.shown())
	}
	if quoted {
		p.bail(Span{From: from, To: i}, "the probe's quote has no end")
	}
	p.prev = i
	p.jump(i)
	return Point{Span{From: from, To: i}, text[from:i]}
}

// endsPredicate tells whether the slash at i is the one before the body.
func (p *parser) endsPredicate(i int) bool {
	i = p.blanks(i + 1)
	return i < len(p.src.Text) && p.src.Text[i] == '{'
}

// deeper counts the nesting.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxDepth {
		p.bail(p.tok.Span, "nested deeper than %d", maxDepth)
	}
	return func() { p.depth-- }
}

// block reads { statements }; with a value, its last expression may be without a
// semicolon and is the block's value.
func (p *parser) block(value bool) *Block {
	defer p.deeper()()
	pred := p.pred
	p.pred = false
	defer func() { p.pred = pred }()
	b := &Block{}
	from := p.expect("{").From
	for !p.is("}") {
		if p.tok.kind == tEOF {
			p.bail(p.tok.Span, "syntax error, unexpected end of file, expecting }")
		}
		start := p.tok.From
		p.try(func() { p.statement(b, value) }, func() { p.skipStatement(start) })
	}
	p.next()
	b.Span = p.since(from)
	return b
}

// skipStatement goes behind the next semicolon, or before the brace that ends the block.
func (p *parser) skipStatement(start int) {
	depth := 0
	for p.tok.kind != tEOF {
		switch {
		case p.is("{"):
			depth++
		case p.is("}"):
			if depth == 0 {
				if p.tok.From == start {
					panic(bail{}) // no way on here
				}
				return
			}
			if depth--; depth == 0 {
				p.next()
				return
			}
		case p.is(";") && depth == 0:
			p.next()
			return
		}
		p.next()
	}
}

func (p *parser) statement(b *Block, value bool) {
	if p.word("import") {
		from := p.next().From
		i := p.imported(from)
		p.uses = append(p.uses, i)
		b.Stmts = append(b.Stmts, &Use{i.Span, i.Path})
		return
	}
	s, needs := p.simple()
	b.Stmts = append(b.Stmts, s)
	if !needs {
		if x, ok := s.(*ExprStmt); ok && value && p.is("}") {
			b.Stmts, b.Value = b.Stmts[:len(b.Stmts)-1], x.X
			return
		}
		if f, ok := s.(*If); ok && value && p.is("}") {
			if x := f.value(); x != nil {
				b.Stmts, b.Value = b.Stmts[:len(b.Stmts)-1], x
			}
			return
		}
		switch s.(type) {
		case *If, *ExprStmt, *Block: // which could be expressions
			p.accept(";")
		}
		return
	}
	switch {
	case p.is("}"):
		if x, ok := s.(*ExprStmt); ok && value {
			b.Stmts, b.Value = b.Stmts[:len(b.Stmts)-1], x.X
		}
	case !p.accept(";"):
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting ; or }", p.shown())
	}
}

// simple reads a statement; needs tells whether a semicolon must stand behind it.
func (p *parser) simple() (s Stmt, needs bool) {
	from := p.tok.From
	if p.tok.kind == tIdent {
		switch p.tok.text {
		case "if":
			return p.ifStmt(false), false
		case "comptime":
			p.next()
			if p.word("if") {
				s := p.ifStmt(true)
				s.From = from
				return s, false
			}
			x := &Comptime{X: p.unary()}
			x.Span = p.since(from)
			return &ExprStmt{x.Span, x}, true
		case "while":
			p.next()
			cond := p.condition()
			body := p.block(false)
			return &While{p.since(from), cond, body}, false
		case "unroll":
			p.next()
			n := p.condition()
			body := p.block(false)
			return &Unroll{p.since(from), n, body}, false
		case "for":
			return p.forStmt(), false
		case "let":
			return p.let(), true
		case "break", "continue", "return":
			j := &Jump{Kind: p.next().text}
			if j.Kind == "return" && !p.is(";") && !p.is("}") {
				j.Value = p.expr()
			}
			j.Span = p.since(from)
			return j, true
		}
	}
	if p.is("{") {
		b := p.block(true)
		if b.Value != nil {
			return &ExprStmt{b.Span, b}, false
		}
		return b, false
	}
	x := p.expr()
	if p.tok.kind == tOp {
		switch op := p.tok.text; op {
		case "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=":
			switch t := x.(type) {
			case *Var, *Map:
			case *Ident:
				if t.Name != "_" || op != "=" {
					p.bail(p.tok.Span, "syntax error, unexpected %s: %s cannot be assigned to", op, t.Name)
				}
			case *Field:
				p.bail(t.Span, "Tuples and records are immutable once created: assign a new one")
			default:
				p.bail(p.tok.Span, "syntax error, unexpected %s: only variables and maps can be assigned to", op)
			}
			p.next()
			v := p.expr()
			return &Assign{p.since(from), x, op, v}, true
		}
	}
	_, block := x.(*Block)
	return &ExprStmt{x.At(), x}, !block
}

// value is the expression that an if is whose branches all have values; else nil.
func (s *If) value() Expr {
	if s.Then.Value == nil || s.Comptime {
		return nil
	}
	switch e := s.Else.(type) {
	case *Block:
		if e.Value != nil {
			return &Ternary{s.Span, s.Cond, s.Then, e}
		}
	case *If:
		if x := e.value(); x != nil {
			return &Ternary{s.Span, s.Cond, s.Then, x}
		}
	}
	return nil
}

func (p *parser) ifStmt(comptime bool) *If {
	defer p.deeper()()
	from := p.next().From
	s := &If{Comptime: comptime}
	if p.word("comptime") {
		p.next()
		s.Comptime = true
	}
	s.Cond = p.condition()
	if k, ok := s.Cond.(*Comptime); ok {
		s.Cond, s.Comptime = k.X, true
	}
	s.Then = p.block(true)
	if p.word("else") {
		p.next()
		if p.word("if") {
			s.Else = p.ifStmt(comptime)
		} else {
			s.Else = p.block(true)
		}
	}
	s.Span = p.since(from)
	return s
}

// condition reads (x), or without parentheses what has no operator between two operands: the body follows.
func (p *parser) condition() Expr {
	if !p.accept("(") {
		return p.unary()
	}
	x := p.inside(p.expr)
	p.expect(")")
	return x
}

func (p *parser) forStmt() *For {
	from := p.next().From
	s := &For{}
	paren := p.accept("(")
	if p.tok.kind != tVar {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a variable", p.shown())
	}
	s.Var = p.next().text
	p.expect(":")
	x := p.bound()
	if p.accept("..") {
		s.From, s.To = x, p.bound()
	} else {
		s.Over = x
	}
	if paren {
		p.expect(")")
	}
	s.Body = p.block(false)
	s.Span = p.since(from)
	return s
}

// bound reads what a loop goes over, or where it begins or ends: what has operators is in parentheses there.
func (p *parser) bound() Expr { return p.postfix(p.primary()) }

func (p *parser) let() Stmt {
	from := p.next().From
	if p.tok.kind != tVar {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a variable", p.shown())
	}
	s := &Let{Name: p.next().text}
	if p.accept(":") {
		s.Type = p.typ()
	}
	if p.accept("=") {
		s.Value = p.expr()
	}
	s.Span = p.since(from)
	return s
}

// ParseExpr reads one expression: what a #define stands for.
func ParseExpr(src *Source) (x Expr, err error) {
	p := &parser{src: src}
	p.try(func() {
		p.jump(0)
		x = p.expr()
		if p.tok.kind != tEOF {
			p.bail(p.tok.Span, "syntax error, unexpected %s", p.shown())
		}
	}, func() {})
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return x, nil
}
