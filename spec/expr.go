package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ExprOp is the operation of an Expr.
type ExprOp uint8

const (
	ExprName    ExprOp = iota // a variable, or an argument of the definition: Name
	ExprNumber                // N
	ExprText                  // Name, which was in quotes
	ExprDollar                // $retval, $comm, $arg1 ...: Name without the sign
	ExprMember                // L.Name
	ExprArrow                 // L->Name
	ExprIndex                 // L[R]
	ExprDeref                 // *L
	ExprAddress               // &L
	ExprCast                  // (Name *)L, with N asterisks
	ExprUnary                 // Name is "-", "!" or "~"
	ExprBinary                // Name is the operator, as in C; "~" matches text with a pattern
	ExprFloat                 // a floating-point number, Name as it was written; N has the bits of a double
)

// Expr is an expression over the names of a program's source, in C's notation:
//
//	or      = and { "||" and }
//	and     = bits { "&&" bits }
//	bits    = equal { ( "|" | "^" | "&" ) equal }      (with C's precedence among them)
//	equal   = less { ( "==" | "!=" | "~" ) less }
//	less    = shift { ( "<" | "<=" | ">" | ">=" ) shift }
//	shift   = sum { ( "<<" | ">>" ) sum }
//	sum     = product { ( "+" | "-" ) product }
//	product = unary { ( "*" | "/" | "%" ) unary }
//	unary   = ( "*" | "&" | "-" | "!" | "~" ) unary | "(" TYPE ")" unary | postfix
//	postfix = primary { "." NAME | "->" NAME | "[" or "]" }
//	primary = NAME { "::" NAME } | number | decimal [ "f" ] | "'" character "'" | '"' text '"' | "$" NAME | "(" or ")"
//	TYPE    = [ "struct" | "union" | "class" | "enum" ] NAME { "*" }
//
// A TYPE without asterisk and without struct, union, class or enum is read as a name in
// parentheses, unless it is one of C's own.
type Expr struct {
	Op   ExprOp
	Name string
	N    uint64
	L, R *Expr
	At   int // where it begins in the text
}

// ExprError is a mistake in an expression, with its place.
type ExprError struct {
	At     int // bytes into the text
	Reason string
}

func (e *ExprError) Error() string { return e.Reason }

const (
	maxExprDepth = 64
	maxExprText  = 4096
)

// ParseExpr reads an expression. Errors: *ExprError.
func ParseExpr(text string) (*Expr, error) {
	p := &exprParser{text: text}
	if len(text) > maxExprText {
		return nil, &ExprError{0, fmt.Sprintf("an expression of more than %d bytes", maxExprText)}
	}
	p.next()
	e := p.binary(0)
	if p.err == nil && p.tok != "" {
		p.fail("%q is too much", p.tok)
	}
	if p.err != nil {
		return nil, p.err
	}
	return e, nil
}

type exprParser struct {
	text  string
	at    int // of tok
	pos   int // behind tok
	tok   string
	depth int
	err   *ExprError
}

func (p *exprParser) fail(format string, a ...any) *Expr {
	if p.err == nil {
		p.err = &ExprError{p.at, fmt.Sprintf(format, a...)}
	}
	p.tok, p.pos = "", len(p.text)
	return &Expr{}
}

// binaries are the operators that stand between two operands, those that bind least first.
var binaries = [][]string{{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!=", "~"}, {"<", "<=", ">", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}}

var signs = []string{"||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "->", "::"}

// next reads a token: an operator, a quoted text or character with its quotes, or a word.
func (p *exprParser) next() {
	rest := strings.TrimLeft(p.text[p.pos:], blanks)
	p.at = len(p.text) - len(rest)
	n := 1
	switch {
	case rest == "":
		n = 0
	case slices.Contains(signs, rest[:min(2, len(rest))]):
		n = 2
	case rest[0] == '"' || rest[0] == '\'':
		n = closing(rest)
		if n == 0 {
			p.fail("a quote is not closed")
			return
		}
	case isDigit(rest[0]) && p.tok != "." && p.tok != "->" && pointed(rest) > 0:
		n = pointed(rest)
	case wordByte(rest[0]) || rest[0] == '$':
		for n < len(rest) && wordByte(rest[n]) {
			n++
		}
	}
	p.tok, p.pos = rest[:n], p.at+n
}

func wordByte(c byte) bool { return isAlpha(c) || isDigit(c) || c >= 0x80 }

// pointed is the length of a number with a point, or with an exponent of ten, that a text begins
// with, and an f behind it; 0 where none is there.
func pointed(text string) int {
	digits := func(i int) int {
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		return i
	}
	n := digits(0)
	whole := n
	if n+1 < len(text) && text[n] == '.' && isDigit(text[n+1]) {
		n = digits(n + 1)
	}
	if n < len(text) && (text[n] == 'e' || text[n] == 'E') {
		i := n + 1
		if i < len(text) && (text[i] == '-' || text[i] == '+') {
			i++
		}
		if end := digits(i); end > i {
			n = end
		}
	}
	switch {
	case n == whole || n < len(text) && wordByte(text[n]) && text[n] != 'f':
		return 0
	case n < len(text) && text[n] == 'f':
		n++
	}
	return n
}

// floating reads a number that pointed has found: a double, or a float where an f is behind it.
func (p *exprParser) floating(tok string, at int) *Expr {
	digits, short := strings.CutSuffix(tok, "f")
	bits := 64
	if short {
		bits = 32
	}
	x, err := strconv.ParseFloat(digits, bits)
	if err != nil {
		return p.fail("%q is no number", tok)
	}
	p.next()
	return &Expr{Op: ExprFloat, Name: tok, N: math.Float64bits(x), At: at}
}

// closing is the length of a quoted piece, with its quotes; 0 where it is not closed.
func closing(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[0]:
			return i + 1
		}
	}
	return 0
}

// accept goes on behind a token, if it is that.
func (p *exprParser) accept(tok string) bool {
	if p.tok != tok {
		return false
	}
	p.next()
	return true
}

// deeper guards what calls itself.
func (p *exprParser) deeper() (leave func(), ok bool) {
	p.depth++
	if p.depth > maxExprDepth {
		p.fail("nested deeper than %d", maxExprDepth)
		return nil, false
	}
	return func() { p.depth-- }, true
}

func (p *exprParser) binary(level int) *Expr {
	if level == len(binaries) {
		return p.unary()
	}
	left := p.binary(level + 1)
	for slices.Contains(binaries[level], p.tok) {
		e := &Expr{Op: ExprBinary, Name: p.tok, L: left, At: p.at}
		p.next()
		e.R = p.binary(level + 1)
		left = e
	}
	return left
}

func (p *exprParser) unary() *Expr {
	leave, ok := p.deeper()
	if !ok {
		return &Expr{}
	}
	defer leave()
	at := p.at
	switch p.tok {
	case "*", "&":
		op := map[string]ExprOp{"*": ExprDeref, "&": ExprAddress}[p.tok]
		p.next()
		return &Expr{Op: op, L: p.unary(), At: at}
	case "-", "!", "~":
		name := p.tok
		p.next()
		return &Expr{Op: ExprUnary, Name: name, L: p.unary(), At: at}
	case "(":
		if e := p.cast(); e != nil {
			return e
		}
	}
	return p.postfix()
}

// cTypes are C's own names of types, which no variable has.
var cTypes = []string{"char", "short", "int", "long", "unsigned", "signed", "void", "_Bool"}

// cast reads "(" TYPE ")" unary; nil where something else is in the parentheses.
func (p *exprParser) cast() *Expr {
	back := *p
	at := p.at
	p.next()
	var words []string
	sure := false
	for p.tok != "" && wordByte(p.tok[0]) && !isDigit(p.tok[0]) || p.tok == "::" {
		sure = sure || slices.Contains(cTypes, p.tok) || slices.Contains([]string{"struct", "union", "class", "enum"}, p.tok)
		if n := len(words); n > 0 && (p.tok == "::" || strings.HasSuffix(words[n-1], "::")) {
			words[n-1] += p.tok
		} else if p.tok != "const" {
			words = append(words, p.tok)
		}
		p.next()
	}
	stars := uint64(0)
	for p.tok == "*" {
		stars++
		p.next()
	}
	if len(words) == 0 || !p.accept(")") || !sure && (stars == 0 || len(words) > 1) {
		*p = back
		return nil
	}
	return &Expr{Op: ExprCast, Name: strings.Join(words, " "), N: stars, L: p.unary(), At: at}
}

func (p *exprParser) postfix() *Expr {
	e := p.primary()
	for p.err == nil {
		at := p.at
		switch p.tok {
		case ".", "->":
			op := map[string]ExprOp{".": ExprMember, "->": ExprArrow}[p.tok]
			p.next()
			if p.tok == "" || !wordByte(p.tok[0]) {
				return p.fail("a member's name is missing")
			}
			e = &Expr{Op: op, Name: p.tok, L: e, At: p.at}
			p.next()
		case "[":
			p.next()
			i := p.binary(0)
			if !p.accept("]") {
				return p.fail("an index is not closed with ]")
			}
			e = &Expr{Op: ExprIndex, L: e, R: i, At: at}
		default:
			return e
		}
	}
	return e
}

func (p *exprParser) primary() *Expr {
	at, tok := p.at, p.tok
	switch {
	case tok == "":
		return p.fail("something is missing here")
	case tok == "(":
		p.next()
		e := p.binary(0)
		if !p.accept(")") {
			return p.fail("a parenthesis is not closed")
		}
		return e
	case tok[0] == '"':
		p.next()
		return &Expr{Op: ExprText, Name: unquote(tok), At: at}
	case tok[0] == '\'':
		c := unquote(tok)
		if len(c) != 1 {
			return p.fail("%s is no character", tok)
		}
		p.next()
		return &Expr{Op: ExprNumber, N: uint64(c[0]), At: at}
	case tok[0] == '$':
		if len(tok) == 1 {
			return p.fail("a name is missing behind $")
		}
		p.next()
		return &Expr{Op: ExprDollar, Name: tok[1:], At: at}
	case isDigit(tok[0]) && pointed(tok) == len(tok):
		return p.floating(tok, at)
	case isDigit(tok[0]):
		n, ok := parseUint(strings.TrimRight(tok, "uUlL"), 64)
		if !ok {
			return p.fail("%q is no number", tok)
		}
		p.next()
		return &Expr{Op: ExprNumber, N: n, At: at}
	case wordByte(tok[0]) || tok == "::":
		name := ""
		for p.tok == "::" || p.tok != "" && wordByte(p.tok[0]) && (name == "" || strings.HasSuffix(name, "::")) {
			name += p.tok
			p.next()
		}
		return &Expr{Op: ExprName, Name: strings.TrimPrefix(name, "::"), At: at}
	}
	return p.fail("%q cannot stand here", tok)
}

// unquote takes the quotes off, and the backslashes in front of protected characters.
func unquote(tok string) string {
	var b strings.Builder
	for i := 1; i < len(tok)-1; i++ {
		c := tok[i]
		if c == '\\' && i+1 < len(tok)-1 {
			i++
			switch c = tok[i]; c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case '0':
				c = 0
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// String prints the expression with all of its parentheses.
func (e *Expr) String() string {
	switch e.Op {
	case ExprName, ExprFloat:
		return e.Name
	case ExprNumber:
		return decimal(e.N)
	case ExprText:
		r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\x00", `\0`)
		return `"` + r.Replace(e.Name) + `"`
	case ExprDollar:
		return "$" + e.Name
	case ExprMember:
		return e.L.String() + "." + e.Name
	case ExprArrow:
		return e.L.String() + "->" + e.Name
	case ExprIndex:
		return e.L.String() + "[" + e.R.String() + "]"
	case ExprDeref:
		return "(*" + e.L.String() + ")"
	case ExprAddress:
		return "(&" + e.L.String() + ")"
	case ExprCast:
		return "((" + e.Name + strings.Repeat("*", int(e.N)) + ")" + e.L.String() + ")"
	case ExprUnary:
		return "(" + e.Name + e.L.String() + ")"
	case ExprBinary:
		return "(" + e.L.String() + e.Name + e.R.String() + ")"
	}
	return "?"
}

// Equal tells whether two expressions are the same.
func (e *Expr) Equal(o *Expr) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.Op == o.Op && e.Name == o.Name && e.N == o.N && e.L.Equal(o.L) && e.R.Equal(o.R)
}
