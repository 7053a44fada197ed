package syntax

import (
	"slices"
	"strings"
)

// precedence of binary operators, as in C; all are of the left.
var precedence = map[string]int{
	"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
	"<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

// expr reads an expression.
func (p *parser) expr() Expr {
	defer p.deeper()()
	from := p.tok.From
	x := p.binary(1)
	if !p.accept("?") {
		return x
	}
	t := &Ternary{Cond: x}
	if !p.is(":") {
		t.Then = p.expr()
	}
	p.expect(":")
	t.Else = p.expr()
	t.Span = p.since(from)
	return t
}

func (p *parser) binary(least int) Expr {
	from := p.tok.From
	x := p.unary()
	for p.tok.kind == tOp {
		op := p.tok.text
		prec := precedence[op]
		if prec < least || p.pred && op == "/" && p.endsPredicate(p.tok.From) {
			break
		}
		p.next()
		y := p.binary(prec + 1)
		x = &Binary{p.since(from), op, x, y}
	}
	return x
}

func (p *parser) unary() Expr {
	defer p.deeper()()
	from := p.tok.From
	if p.word("comptime") {
		p.next()
		x := p.unary()
		return &Comptime{p.since(from), x}
	}
	if p.tok.kind == tOp {
		switch op := p.tok.text; op {
		case "-", "!", "~", "*", "&", "++", "--":
			p.next()
			x := p.unary()
			p.counts(op, x)
			return &Unary{p.since(from), op, x, false}
		case "(":
			if t := p.castType(); t != nil {
				x := p.unary()
				return &Cast{p.since(from), t, x}
			}
		}
	}
	return p.postfix(p.primary())
}

// counts holds that ++ and -- have something to change.
func (p *parser) counts(op string, x Expr) {
	if op != "++" && op != "--" {
		return
	}
	switch x.(type) {
	case *Var, *Map:
	default:
		p.fail(x.At(), "The %s operator must be applied to a map or variable", op)
	}
}

func (p *parser) postfix(x Expr) Expr {
	for {
		from := x.At().From
		switch {
		case p.is(".") || p.is("->"):
			p.next() // the two have long meant the same
			var name string
			switch p.tok.kind {
			case tIdent:
				name = p.next().text
			case tInt:
				name = p.next().text
			default:
				p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a field", p.shown())
			}
			x = &Field{p.since(from), x, name}
		case p.is("["):
			p.next()
			var keys []Expr
			for {
				keys = append(keys, p.inside(p.expr))
				if !p.accept(",") {
					break
				}
			}
			p.expect("]")
			if m, ok := x.(*Map); ok && m.Key == nil {
				key := keys[0]
				if len(keys) > 1 {
					key = &Tuple{Span{From: keys[0].At().From, To: keys[len(keys)-1].At().To}, keys}
				}
				x = &Map{p.since(from), m.Name, key}
			} else if len(keys) > 1 {
				p.bail(p.since(from), "syntax error, unexpected ,: an array has one index")
			} else {
				x = &Index{p.since(from), x, keys[0]}
			}
		case p.is("++") || p.is("--"):
			op := p.next().text
			p.counts(op, x)
			x = &Unary{p.since(from), op, x, true}
		default:
			return x
		}
	}
}

// inside reads with a slash being a division: within brackets nothing ends a predicate.
func (p *parser) inside(read func() Expr) Expr {
	pred := p.pred
	p.pred = false
	x := read()
	p.pred = pred
	return x
}

// reserved tells of builtins whose names nothing else can have.
func reserved(name string) bool {
	switch name {
	case "args", "ctx", "kstack", "nsecs", "pid", "tid", "ustack":
		return true
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(name, "s"), "arg")
	return rest != "" && strings.HasSuffix(name, "arg"+rest) && strings.Trim(rest, "0123456789") == ""
}

// typeFuncs take a type as an argument.
var typeFuncs = map[string]bool{"sizeof": true, "offsetof": true, "typeof": true, "typeinfo": true}

func (p *parser) primary() Expr {
	t := p.tok
	switch t.kind {
	case tInt:
		p.next()
		return &Int{t.Span, t.num, t.text}
	case tStr:
		p.next()
		return &Str{t.Span, t.text}
	case tVar:
		p.next()
		return &Var{t.Span, t.text}
	case tMap:
		p.next()
		return &Map{t.Span, t.text, nil}
	case tNumArg:
		p.next()
		return &Positional{t.Span, int(t.num)}
	case tIdent:
		if t.text == "if" {
			return p.ifExpr()
		}
		return p.identExpr()
	case tOp:
		switch t.text {
		case "(":
			return p.paren()
		case "{":
			return p.block(true)
		}
	}
	p.bail(t.Span, "syntax error, unexpected %s", p.shown())
	return nil
}

// ifExpr is if (x) { a } else { b } where a value stands.
func (p *parser) ifExpr() Expr {
	defer p.deeper()()
	from := p.next().From
	t := &Ternary{Cond: p.condition(), Then: p.block(true)}
	if !p.word("else") {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting else", p.shown())
	}
	p.next()
	if p.word("if") {
		t.Else = p.ifExpr()
	} else {
		t.Else = p.block(true)
	}
	t.Span = p.since(from)
	return t
}

func (p *parser) identExpr() Expr {
	t := p.next()
	switch {
	case t.text == "true" || t.text == "false":
		return &Bool{t.Span, t.text == "true"}
	case p.is("(") && typeFuncs[t.text]:
		p.next()
		c := &Call{Name: t.text}
		if ty := p.typeArg(); ty != nil {
			c.Args = append(c.Args, &TypeArg{ty.Span, ty})
		} else {
			c.Args = append(c.Args, p.inside(p.expr))
		}
		for p.accept(",") {
			if t.text == "offsetof" && p.tok.kind == tIdent { // a member, whose name may be a word of the language
				name := p.next()
				c.Args = append(c.Args, p.postfix(&Ident{name.Span, name.text}))
				continue
			}
			c.Args = append(c.Args, p.inside(p.expr))
		}
		p.expect(")")
		c.Span = p.since(t.From)
		return c
	case p.is("("):
		p.next()
		c := &Call{Name: t.text}
		for !p.accept(")") {
			if len(c.Args) > 0 {
				p.expect(",")
			}
			if p.word("typeof") || p.word("struct") || p.word("union") || p.word("enum") { // of a macro's, or container_of's
				from := p.tok.From
				ty := p.typ()
				c.Args = append(c.Args, &TypeArg{p.since(from), ty})
				continue
			}
			c.Args = append(c.Args, p.inside(p.expr))
		}
		c.Span = p.since(t.From)
		return c
	case p.is("::"): // a C++ name, or an enum's value
		p.next()
		n := p.ident("a name")
		return &Ident{p.since(t.From), t.text + "::" + n.text}
	}
	return &Ident{t.Span, t.text}
}

// paren reads (x), a tuple or a record.
func (p *parser) paren() Expr {
	from := p.next().From
	if p.accept(")") {
		return &Tuple{p.since(from), nil}
	}
	if p.tok.kind == tIdent && p.follows("=") && !reserved(p.tok.text) {
		r := &Record{}
		for !p.accept(")") {
			if len(r.Names) > 0 {
				p.expect(",")
			}
			name := p.ident("a field's name")
			if slices.Contains(r.Names, name.text) {
				p.fail(name.Span, "Named argument list already contains name: %s", name.text)
			}
			r.Names = append(r.Names, name.text)
			p.expect("=")
			r.Elems = append(r.Elems, p.inside(p.expr))
		}
		r.Span = p.since(from)
		return r
	}
	x := p.inside(p.expr)
	if !p.is(",") {
		p.expect(")")
		return x
	}
	elems := []Expr{x}
	for p.accept(",") {
		if p.is(")") {
			break
		}
		elems = append(elems, p.inside(p.expr))
	}
	p.expect(")")
	return &Tuple{p.since(from), elems}
}

// typeWords are the names of types that are no struct's.
var typeWords = map[string]bool{
	"bool": true, "int8": true, "int16": true, "int32": true, "int64": true, "uint8": true, "uint16": true, "uint32": true,
	"uint64": true, "void": true, "string": true, "inet": true, "buffer": true, "min_t": true, "max_t": true, "sum_t": true,
	"count_t": true, "avg_t": true, "stats_t": true, "hist_t": true, "lhist_t": true, "usym_t": true, "ksym_t": true,
	"username": true, "timestamp": true, "macaddr_t": true, "cgroup_path_t": true, "strerror_t": true, "kstack_t": true,
	"ustack_t": true, "char": true, "short": true, "int": true, "long": true, "size_t": true,
}

// castType reads "(type)" where a cast stands, and nil where none does.
func (p *parser) castType() *Type {
	tok, prev, n := p.tok, p.prev, len(p.errs)
	back := func() *Type {
		p.tok, p.prev, p.errs = tok, prev, p.errs[:n]
		return nil
	}
	p.next()
	if p.tok.kind != tIdent {
		return back()
	}
	name := p.tok.text
	sure := typeWords[name] || name == "struct" || name == "union" || name == "enum" || name == "typeof"
	var t *Type
	failed := false
	p.try(func() { t = p.typ() }, func() { failed = true })
	if failed && sure {
		panic(bail{}) // reading it anew would take twice the time at each level
	}
	if !failed && name == "typeof" {
		p.closed(p.is(")"))
	}
	if failed || !p.is(")") {
		return back()
	}
	p.next()
	if sure {
		return t
	}
	if t.Stars == 0 && (strings.HasSuffix(name, "_t") || len(t.Dims) > 0) || t.Stars > 0 {
		if p.begins() {
			return t
		}
		return back()
	}
	// (name) x: a cast to an enum or a type of the kernel's, where an operand follows that
	// could not stand behind a value.
	switch p.tok.kind {
	case tIdent, tVar, tMap, tInt, tStr, tNumArg:
		return t
	}
	return back()
}

// closed holds that a typeof() ends where it does: it is no value that more could be done with. To read it anew as one would take twice
// the time at each level.
func (p *parser) closed(ends bool) {
	if !ends {
		p.bail(p.tok.Span, "syntax error, unexpected %s, expecting )", p.shown())
	}
}

// begins tells whether an operand begins here.
func (p *parser) begins() bool {
	switch p.tok.kind {
	case tIdent, tVar, tMap, tInt, tStr, tNumArg:
		return true
	}
	return p.is("(") || p.is("*") || p.is("&") || p.is("-") || p.is("~") || p.is("!")
}

// typeArg reads a type where an expression may stand too.
func (p *parser) typeArg() *Type {
	if p.tok.kind != tIdent {
		return nil
	}
	tok, prev, n := p.tok, p.prev, len(p.errs)
	name := tok.text
	sure := typeWords[name] || name == "struct" || name == "union" || name == "enum" || name == "typeof"
	var t *Type
	failed := false
	p.try(func() { t = p.typ() }, func() { failed = true })
	if failed && name == "typeof" {
		panic(bail{})
	}
	if name == "typeof" {
		p.closed(p.is(")") || p.is(","))
	}
	if !failed && (p.is(")") || p.is(",")) && (sure || t.Stars > 0) {
		return t
	}
	p.tok, p.prev, p.errs = tok, prev, p.errs[:n]
	return nil
}

// typ reads a type.
func (p *parser) typ() *Type {
	from := p.tok.From
	t := &Type{}
	if p.word("typeof") {
		p.next()
		p.expect("(")
		if of := p.typeArg(); of != nil {
			t.Of = &TypeArg{of.Span, of}
		} else {
			t.Of = p.inside(p.expr)
		}
		p.expect(")")
	} else {
		t.Name = p.ident("a type").text
		switch t.Name {
		case "struct", "union", "enum":
			t.Name += " " + p.ident("a type's name").text
		case "unsigned", "signed", "long", "short":
			for p.tok.kind == tIdent && typeWords[p.tok.text] {
				t.Name += " " + p.next().text
			}
		}
	}
	for p.accept("*") {
		t.Stars++
	}
	for p.is("[") {
		p.next()
		if p.accept("]") {
			t.Dims = append(t.Dims, nil)
			continue
		}
		if k := p.tok.kind; k != tInt && k != tIdent && k != tNumArg {
			p.bail(p.tok.Span, "syntax error, unexpected %s, expecting a number of elements", p.shown())
		}
		t.Dims = append(t.Dims, p.primary())
		p.expect("]")
	}
	t.Span = p.since(from)
	if p.is("*") && len(t.Dims) > 0 { // to an array
		t = &Type{Of: &TypeArg{t.Span, t}}
		for p.accept("*") {
			t.Stars++
		}
		t.Span = p.since(from)
	}
	return t
}
