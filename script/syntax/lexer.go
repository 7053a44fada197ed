package syntax

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kind is what a token is.
type kind uint8

const (
	tEOF    kind = iota
	tIdent       // name
	tVar         // $name
	tMap         // @name
	tNumArg      // $1, $#
	tInt
	tStr
	tOp  // an operator or a bracket
	tBad // no token of the language
)

type token struct {
	Span
	kind kind
	text string // of a string its value, of an operator itself
	num  uint64
}

// operators, the longest first.
var operators = []string{
	"<<=", ">>=", "...", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=",
	"^=", "->", "..", "::", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "=", "?", ":", ";", ",", ".", "(", ")",
	"[", "]", "{", "}", "#",
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// blanks is the place behind blanks and comments that begin at i.
func (p *parser) blanks(i int) int {
	text := p.src.Text
	for i < len(text) {
		switch {
		case strings.IndexByte(" \t\r\n\v\f", text[i]) >= 0:
			i++
		case strings.HasPrefix(text[i:], "//"):
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(text)
			}
		case strings.HasPrefix(text[i:], "/*"):
			n := strings.Index(text[i+2:], "*/")
			if n < 0 {
				p.fail(Span{From: i, To: i + 2}, "the comment has no end")
				return len(text)
			}
			i += n + 4
		default:
			return i
		}
	}
	return i
}

// name is the end of an identifier that begins at i.
func (p *parser) name(i int) int {
	for i < len(p.src.Text) && (letter(p.src.Text[i]) || digit(p.src.Text[i])) {
		i++
	}
	return i
}

// lex reads the token at or behind i.
func (p *parser) lex(i int) token {
	i = p.blanks(i)
	text := p.src.Text
	if i >= len(text) {
		return token{Span: Span{From: len(text), To: len(text)}, kind: tEOF}
	}
	of := func(k kind, end int) token { return token{Span: Span{From: i, To: end}, kind: k, text: text[i:end]} }
	c := text[i]
	next := byte(0)
	if i+1 < len(text) {
		next = text[i+1]
	}
	switch {
	case letter(c):
		return of(tIdent, p.name(i))
	case c == '$' && (letter(next)):
		return of(tVar, p.name(i+1))
	case c == '$' && next == '#':
		return of(tNumArg, i+2)
	case c == '$' && digit(next):
		end := i + 1
		for end < len(text) && digit(text[end]) {
			end++
		}
		t := of(tNumArg, end)
		var err error
		if t.num, err = strconv.ParseUint(text[i+1:end], 10, 63); err != nil || t.num == 0 {
			p.fail(t.Span, "param %s is out of integer range [1, %d]", t.text, math.MaxInt64)
		}
		return t
	case c == '@':
		if !letter(next) {
			return of(tMap, i+1)
		}
		return of(tMap, p.name(i+1))
	case digit(c):
		return p.number(i)
	case c == '"':
		return p.str(i)
	}
	for _, op := range operators {
		if strings.HasPrefix(text[i:], op) {
			return of(tOp, i+len(op))
		}
	}
	end := i + 1
	for end < len(text) && text[end] >= 0x80 { // the rest of a character
		end++
	}
	return of(tBad, end)
}

// number reads 10, 0x1f, 017, 1e6, 1_000, 5ms, 3ULL.
func (p *parser) number(i int) token {
	end := p.name(i)
	t := token{Span: Span{From: i, To: end}, kind: tInt, text: p.src.Text[i:end]}
	var err error
	if t.num, err = Number(t.text); err != nil {
		p.fail(t.Span, "%v", err)
	}
	return t
}

// str reads a string.
func (p *parser) str(i int) token {
	text := p.src.Text
	var b strings.Builder
	for j := i + 1; j < len(text); j++ {
		switch c := text[j]; c {
		case '"':
			return token{Span: Span{From: i, To: j + 1}, kind: tStr, text: b.String()}
		case '\n':
			p.fail(Span{From: i, To: j}, "the string has no end on its line")
			return token{Span: Span{From: i, To: j}, kind: tStr, text: b.String()}
		case '\\':
			n, c, bad := escape(text[j+1:])
			if bad != "" {
				p.fail(Span{From: j, To: min(j+1+max(n, 1), len(text))}, "%s", bad)
			}
			b.WriteByte(c)
			j += n
		default:
			b.WriteByte(c)
		}
	}
	p.fail(Span{From: i, To: len(text)}, "the string has no end")
	return token{Span: Span{From: i, To: len(text)}, kind: tStr, text: b.String()}
}

// escape reads what stands behind a backslash: n bytes that mean c.
func escape(s string) (n int, c byte, bad string) {
	if s == "" {
		return 0, '\\', ""
	}
	if i := strings.IndexByte(`n"\tr`, s[0]); i >= 0 {
		return 1, "\n\"\\\t\r"[i], ""
	}
	if s[0] >= '0' && s[0] <= '7' {
		n = 1
		for n < len(s) && n < 3 && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[:n], 8, 16)
		if v > 255 {
			return n, 0, fmt.Sprintf(`octal escape sequence out of range '\%s'`, s[:n])
		}
		return n, byte(v), ""
	}
	if s[0] == 'x' || s[0] == 'X' {
		n = 1
		for n < len(s) && n < 3 && strings.IndexByte("0123456789abcdefABCDEF", s[n]) >= 0 {
			n++
		}
		v, err := strconv.ParseUint(s[1:n], 16, 8)
		if err != nil {
			return n, 0, `invalid hex escape sequence`
		}
		return n, byte(v), ""
	}
	return 1, s[0], fmt.Sprintf(`invalid escape character '\%c'`, s[0])
}
