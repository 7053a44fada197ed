package syntax

import "strings"

// CStruct is a structure or union, as C declares it.
type CStruct struct {
	Name   string // "struct foo", "union u"; "" for none
	Alias  string // by a typedef
	Union  bool
	Fields []CField
	Attributes
}

// CField is a member.
type CField struct {
	Name  string // "" of an anonymous structure or union
	Type  *Type  // nil with Inner or Enum
	Inner *CStruct
	Enum  *CEnum
	Stars int // of an Inner or Enum
	Dims  []Expr
	Bits  Expr // of a bit-field
	Attributes
}

// CEnum is an enumeration.
type CEnum struct {
	Name  string // "enum e", "" for none
	Alias string
	Items []CEnumItem
}

// CEnumItem is one of its names; without a value it is one more than the last.
type CEnumItem struct {
	Name  string
	Value Expr
}

// CType is what a typedef makes another name of.
type CType struct {
	Alias string
	Type  *Type
}

// ParseC reads one declaration in C: a *CStruct, a *CEnum or a *CType; nil where it
// declares no type. Errors are placed in the declaration's own text.
func ParseC(src *Source) (decl any, err error) {
	p := &parser{src: src}
	p.try(func() {
		p.jump(0)
		alias := false
		if p.word("typedef") {
			p.next()
			alias = true
		}
		switch {
		case p.word("enum"):
			e := p.cEnum()
			if alias {
				e.Alias = p.ident("a type's name").text
			}
			decl = e
		case (p.word("struct") || p.word("union")) && p.bodyFollows():
			s := p.cStruct()
			if alias && p.tok.kind == tIdent {
				s.Alias = p.ident("a type's name").text
			}
			decl = s
		case alias:
			t := p.typ()
			c := &CType{Alias: p.ident("a type's name").text, Type: t}
			t.Dims = append(t.Dims, p.dims()...)
			decl = c
		}
	}, func() {})
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	return decl, nil
}

// bodyFollows tells a structure that is declared from one that is only named: its name, or an attribute, stands before its body.
func (p *parser) bodyFollows() bool {
	t := p.lex(p.tok.To)
	if t.text == "__attribute__" || t.text == "__packed" {
		return true
	}
	if t.kind == tIdent {
		t = p.lex(t.To)
	}
	return t.kind == tOp && t.text == "{"
}

func (p *parser) dims() (all []Expr) {
	for p.accept("[") {
		if p.is("]") {
			all = append(all, &Int{p.tok.Span, 0, "0"}) // as many as there are
		} else {
			all = append(all, p.expr())
		}
		p.expect("]")
	}
	return all
}

// Attributes are the layout that __attribute__((...)) asks for.
type Attributes struct {
	Packed  bool
	Aligned []Expr
}

// attributes passes __attribute__((...)), and takes what it says of layout.
func (p *parser) attributes(a *Attributes) {
	for p.word("__attribute__") || p.word("__packed") {
		if p.next().text == "__packed" {
			a.Packed = true
			continue
		}
		for depth := 0; ; {
			switch {
			case p.tok.kind == tEOF:
				p.bail(p.tok.Span, "syntax error, unexpected end of file, expecting )")
			case p.is("("):
				depth++
			case p.is(")"):
				depth--
			case p.word("packed") || p.word("__packed__"):
				a.Packed = true
			case p.word("aligned") || p.word("__aligned__"):
				at := p.next().Span
				if n := Expr(&Int{at, 16, "16"}); !p.accept("(") { // the largest that a type of C's wants
					a.Aligned = append(a.Aligned, n)
				} else {
					a.Aligned = append(a.Aligned, p.expr())
					p.expect(")")
				}
				continue
			}
			p.next()
			if depth == 0 {
				break
			}
		}
	}
}

func (p *parser) cStruct() *CStruct {
	defer p.deeper()()
	word := p.next().text
	s := &CStruct{Union: word == "union"}
	p.attributes(&s.Attributes)
	if p.tok.kind == tIdent {
		s.Name = word + " " + p.next().text
	}
	p.expect("{")
	for !p.accept("}") {
		p.cMembers(s)
	}
	p.attributes(&s.Attributes)
	return s
}

// qualifiers passes the words that say nothing of a type's layout.
func (p *parser) qualifiers() {
	for p.tok.kind == tIdent {
		switch p.tok.text {
		case "const", "volatile", "static", "restrict", "__restrict", "__restrict__":
			p.next()
		default:
			return
		}
	}
}

// cMembers reads the members that one type is written for: int a, *b[3], c : 4;
func (p *parser) cMembers(s *CStruct) {
	p.qualifiers()
	var f CField
	switch {
	case p.word("enum") && p.bodyFollows():
		f.Enum = p.cEnum()
	case (p.word("struct") || p.word("union")) && p.bodyFollows():
		f.Inner = p.cStruct()
		if p.accept(";") {
			s.Fields = append(s.Fields, f)
			return
		}
	default:
		f.Type = &Type{Span: p.tok.Span, Name: p.cName()}
	}
	for {
		g := f
		if f.Type != nil {
			t := *f.Type
			g.Type = &t
		}
		for p.accept("*") {
			if g.Type != nil {
				g.Type.Stars++
			} else {
				g.Stars++
			}
			p.qualifiers()
		}
		if p.accept("(") { // a pointer to a function
			p.expect("*")
			g.Name = p.ident("a member's name").text
			g.Type, g.Inner, g.Enum = &Type{Name: "void", Stars: 1}, nil, nil
			p.expect(")")
			p.expect("(")
			for depth := 1; depth > 0; p.next() {
				switch {
				case p.tok.kind == tEOF:
					p.bail(p.tok.Span, "syntax error, unexpected end of file, expecting )")
				case p.is("("):
					depth++
				case p.is(")"):
					depth--
				}
			}
		} else {
			if !p.is(":") {
				g.Name = p.ident("a member's name").text
			}
			g.Dims = p.dims()
			if p.accept(":") {
				g.Bits = p.expr()
			}
		}
		p.attributes(&g.Attributes)
		s.Fields = append(s.Fields, g)
		if p.accept(";") || p.is("}") {
			return
		}
		p.expect(",")
	}
}

// cName is a type's name: of several words, perhaps.
func (p *parser) cName() string {
	name := p.ident("a type").text
	for (name == "const" || name == "volatile") && p.tok.kind == tIdent {
		name = p.next().text
	}
	switch name {
	case "struct", "union", "enum":
		return name + " " + p.ident("a type's name").text
	}
	words := []string{name}
	for p.word("int") || p.word("long") || p.word("char") || p.word("short") || p.word("unsigned") || p.word("signed") || p.word("double") || p.word("const") || p.word("volatile") {
		words = append(words, p.next().text)
	}
	sign, kept := "", []string{}
	for _, w := range words {
		switch w {
		case "unsigned":
			sign = "unsigned "
		case "signed", "const", "volatile":
		default:
			kept = append(kept, w)
		}
	}
	if len(kept) > 1 && kept[len(kept)-1] == "int" {
		kept = kept[:len(kept)-1]
	}
	if len(kept) == 0 {
		kept = []string{"int"}
	}
	return sign + strings.Join(kept, " ")
}

func (p *parser) cEnum() *CEnum {
	p.next()
	e := &CEnum{}
	if p.tok.kind == tIdent {
		e.Name = "enum " + p.next().text
	}
	if p.accept(":") {
		p.cName()
	}
	p.expect("{")
	for !p.accept("}") {
		item := CEnumItem{Name: p.ident("a name").text}
		if p.accept("=") {
			item.Value = p.expr()
		}
		e.Items = append(e.Items, item)
		if !p.is("}") {
			p.expect(",")
		}
	}
	return e
}
