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
				p.fail(Span{i, i + 2}, "the comment has no end")
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
		return token{Span: Span{len(text), len(text)}, kind: tEOF}
	}
	of := func(k kind, end int) token { return token{Span: Span{i, end}, kind: k, text: text[i:end]} }
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
		if t.num, err = strconv.ParseUint(text[i+1:end], 10, 31); err != nil || t.num == 0 {
			p.fail(t.Span, "param %s is out of integer range [1, %d]", t.text, math.MaxInt32)
		}
		return t
	case c == '@':
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

// durations are suffixes of numbers, in nanoseconds.
var durations = map[string]uint64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9}

// number reads 10, 0x1f, 017, 1e6, 1_000, 5ms, 3ULL.
func (p *parser) number(i int) token {
	text := p.src.Text
	end := p.name(i)
	t := token{Span: Span{i, end}, kind: tInt, text: text[i:end]}
	word := strings.ReplaceAll(t.text, "_", "")
	digits := strings.TrimRight(word, "ulUL")
	if strings.HasPrefix(word, "0x") || strings.HasPrefix(word, "0X") {
		digits = strings.TrimRight(word, "uUlL")
	}
	if len(word) > 1 && word[0] == '0' && strings.ContainsRune("bBoO", rune(word[1])) { // as Go has it
		p.fail(t.Span, "Failed to parse integer: %s is no number", t.text)
		return t
	}
	n, err := strconv.ParseUint(digits, 0, 64)
	if err == nil {
		t.num = n
		return t
	}
	if numErr := err.(*strconv.NumError); numErr.Err == strconv.ErrRange {
		p.fail(t.Span, "Failed to parse integer: %s does not fit into 64 bits", t.text)
		return t
	}
	if mant, exp, ok := strings.Cut(digits, "e"); ok {
		m, e1 := strconv.ParseUint(mant, 10, 64)
		e, e2 := strconv.ParseUint(exp, 10, 8)
		if e1 == nil && e2 == nil && e <= 19 {
			for range e {
				if m > math.MaxUint64/10 {
					p.fail(t.Span, "Failed to parse integer: %s does not fit into 64 bits", t.text)
					return t
				}
				m *= 10
			}
			t.num = m
			return t
		}
	}
	unit := strings.TrimLeft(word, "0123456789")
	if scale, ok := durations[unit]; ok {
		if n, err := strconv.ParseUint(word[:len(word)-len(unit)], 10, 64); err == nil && n <= math.MaxUint64/scale {
			t.num = n * scale
			return t
		}
	}
	p.fail(t.Span, "Failed to parse integer: %s is no number", t.text)
	return t
}

// str reads a string.
func (p *parser) str(i int) token {
	text := p.src.Text
	var b strings.Builder
	for j := i + 1; j < len(text); j++ {
		switch c := text[j]; c {
		case '"':
			return token{Span: Span{i, j + 1}, kind: tStr, text: b.String()}
		case '\n':
			p.fail(Span{i, j}, "the string has no end on its line")
			return token{Span: Span{i, j}, kind: tStr, text: b.String()}
		case '\\':
			n, c, bad := escape(text[j+1:])
			if bad != "" {
				p.fail(Span{j, min(j+1+max(n, 1), len(text))}, "%s", bad)
			}
			b.WriteByte(c)
			j += n
		default:
			b.WriteByte(c)
		}
	}
	p.fail(Span{i, len(text)}, "the string has no end")
	return token{Span: Span{i, len(text)}, kind: tStr, text: b.String()}
}

// escape reads what stands behind a backslash: n bytes that mean c.
func escape(s string) (n int, c byte, bad string) {
	if s == "" {
		return 0, '\\', ""
	}
	if i := strings.IndexByte(`n"\trabfve`, s[0]); i >= 0 {
		return 1, "\n\"\\\t\r\a\b\f\v\x1b"[i], ""
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
	if s[0] == 'x' {
		n = 1
		for n < len(s) && n < 3 && strings.IndexByte("0123456789abcdefABCDEF", s[n]) >= 0 {
			n++
		}
		v, err := strconv.ParseUint(s[1:n], 16, 8)
		if err != nil {
			return n, 0, `invalid hex escape sequence '\x'`
		}
		return n, byte(v), ""
	}
	return 1, s[0], fmt.Sprintf(`invalid escape character '\%c'`, s[0])
}
