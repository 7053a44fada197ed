package spec

import "strings"

// Wildcards: "*" any text, "?" any byte, "[a-z]", "[!a-z]" one byte of a set.
// In quotes there are none, so a glob has "?" for a blank. Names of compiled
// languages hold the same characters as parts of types, and those are not
// wildcards:
//
//   - between parentheses or angle brackets, which hold types: Go's (*T), C++'s
//     f(char*), Rust's drop_in_place<[u8]>. Only "(*)" and "<*>", which no type
//     is, mean anything there: f(*) is every f.
//   - the name of an operator: operator*, operator[].
//   - brackets that hold a dot or a colon: Go's Map[go.shape.int] and
//     Map[...], C++'s f[abi:cxx11].

// IsGlob tells whether the symbol has wildcards. A resolver should still try
// the symbol as it stands first: where a function of just this name exists, it
// is the one that was meant.
func (pl Place) IsGlob() bool { return !pl.Exact && hasWildcards(pl.Symbol) }

func hasWildcards(symbol string) bool {
	for _, t := range globTokens(symbol) {
		if t.kind != literal {
			return true
		}
	}
	return false
}

// Match tells whether the symbol, with its wildcards, matches name as a whole.
// Every name matches itself.
func (pl Place) Match(name string) bool {
	if pl.Exact || name == pl.Symbol {
		return name == pl.Symbol
	}
	tokens := globTokens(pl.Symbol)
	// One star remembered is enough: a later star can only widen the choice.
	star, retry := -1, 0
	t, i := 0, 0
	for i < len(name) || t < len(tokens) {
		switch {
		case t < len(tokens) && tokens[t].kind == anyText:
			star, retry = t, i
			t++
			continue
		case t < len(tokens) && i < len(name) && tokens[t].matches(name[i]):
			t++
			i++
			continue
		case star >= 0 && retry < len(name):
			retry++
			t, i = star+1, retry
			continue
		}
		return false
	}
	return true
}

type globKind uint8

const (
	literal globKind = iota
	anyByte
	anyText
	set
)

type globToken struct {
	kind globKind
	c    byte   // literal
	set  string // between the brackets
}

func (t *globToken) matches(c byte) bool {
	switch t.kind {
	case literal:
		return t.c == c
	case set:
		return t.inSet(c)
	}
	return t.kind == anyByte
}

func (t *globToken) inSet(c byte) bool {
	s := t.set
	not := len(s) > 1 && (s[0] == '!' || s[0] == '^')
	if not {
		s = s[1:]
	}
	for s != "" {
		lo, hi := s[0], s[0]
		s = s[1:]
		if len(s) > 1 && s[0] == '-' {
			hi = s[1]
			s = s[2:]
		}
		if lo <= c && c <= hi {
			return !not
		}
	}
	return not
}

// globTokens cuts a symbol into what each of its characters means.
func globTokens(symbol string) []globToken {
	plain := plainBytes(symbol)
	var tokens []globToken
	for i := 0; i < len(symbol); i++ {
		t := globToken{c: symbol[i]}
		switch {
		case plain[i]:
		case t.c == '*':
			t.kind = anyText
		case t.c == '?':
			t.kind = anyByte
		case t.c == '[':
			if end := strings.IndexByte(symbol[i:], ']'); end > 1 {
				t.kind, t.set = set, symbol[i+1:i+end]
				i += end
			}
		}
		tokens = append(tokens, t)
	}
	return tokens
}

// plainBytes marks the bytes of a symbol that cannot be wildcards.
func plainBytes(symbol string) []bool {
	plain := make([]bool, len(symbol))
	mark := func(from, to int) {
		for ; from < to; from++ {
			plain[from] = true
		}
	}
	var open []int
	for i := 0; i < len(symbol); i++ {
		if n := operatorAt(symbol, i); n > 0 {
			mark(i, i+n)
			i += n - 1
			continue
		}
		switch c := symbol[i]; c {
		case '[':
			if end := strings.IndexByte(symbol[i:], ']'); end > 0 && strings.ContainsAny(symbol[i:i+end], ".:") {
				mark(i, i+end+1)
			}
		case '(', '<':
			open = append(open, i)
		case ')', '>':
			partner := byte('(')
			if c == '>' {
				partner = '<'
			}
			// Unpaired angle brackets (an arrow, "less than") are skipped.
			for k := len(open) - 1; k >= 0; k-- {
				if symbol[open[k]] == partner {
					if symbol[open[k]+1:i] != "*" {
						mark(open[k], i+1)
					}
					open = open[:k]
					break
				}
			}
		}
	}
	return plain
}

// operators are the operators of C++ whose names hold characters that mean something in places,
// longest first.
var operators = []string{
	"->*", "<=>", "<<=", ">>=",
	"->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=",
	"*=", "/=", "%=", "^=", "&=", "|=", "()", "[]",
	"+", "-", "*", "/", "%", "^", "&", "|", "~", "!", "=", "<", ">", ",",
}

// operatorAt gives the length of the operator's characters at i, 0 if the name
// of no operator is there. None is followed by a letter or a digit, hence
// operator+8 is C's "operator" and an offset, and operator++8 C++'s operator+.
func operatorAt(symbol string, i int) int {
	head, ok := strings.CutSuffix(symbol[:i], "operator")
	if !ok || head != "" && isAlnum(head[len(head)-1]) {
		return 0
	}
	for _, op := range operators {
		if rest, ok := strings.CutPrefix(symbol[i:], op); ok && (rest == "" || !isAlnum(rest[0])) {
			return len(op)
		}
	}
	return 0
}

// afterOperator gives where the last operator's name ends, 0 if there is none.
func afterOperator(symbol string) int {
	end := 0
	for i := range len(symbol) {
		if n := operatorAt(symbol, i); n > 0 {
			end = i + n
		}
	}
	return end
}
