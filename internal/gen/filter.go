package gen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kprobe/event"
)

// ParseFilter reads a filter in the kernel's language (events.rst, section 5), over
// the arguments of a definition:
//
//	or      = and { "||" and }
//	and     = not { "&&" not }
//	not     = "!" not | "(" or ")" | compare
//	compare = NAME ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "&" ) VALUE
//	VALUE   = number | "text" (== and != only)
//
// Names are the arguments', loads what they read, and at their places in the record,
// -1 for those that are not in it. An argument that could not be read compares as
// false with everything. Errors name the place in the text.
func ParseFilter(text string, names []string, loads []event.Load, at []int) (*Filter, error) {
	p := &filterParser{text: text, names: names, loads: loads, at: at}
	p.next()
	f, err := p.or()
	if err == nil && p.tok != "" {
		err = p.fail("%q is too much", p.tok)
	}
	return f, err
}

const maxFilterDepth = 64

type filterParser struct {
	text  string
	pos   int // behind tok
	tok   string
	depth int
	names []string
	loads []event.Load
	at    []int
}

func (p *filterParser) fail(format string, a ...any) error {
	return fmt.Errorf("filter: at %d: %s", p.pos-len(p.tok), fmt.Sprintf(format, a...))
}

// next reads a token: an operator, a quoted text with its quotes, or a word.
func (p *filterParser) next() {
	rest := strings.TrimLeft(p.text[p.pos:], " \t\n")
	p.pos = len(p.text) - len(rest)
	n := 0
	switch {
	case rest == "":
	case slices.Contains([]string{"||", "&&", "==", "!=", "<=", ">="}, rest[:min(2, len(rest))]):
		n = 2
	case strings.ContainsRune("!()<>&~=|", rune(rest[0])):
		n = 1
	case rest[0] == '"':
		if n = strings.IndexByte(rest[1:], '"') + 2; n == 1 {
			n = len(rest)
		}
	default:
		if n = strings.IndexAny(rest, " \t\n!()<>&~=|\""); n < 0 {
			n = len(rest)
		}
	}
	p.tok, p.pos = rest[:n], p.pos+n
}

func (p *filterParser) or() (*Filter, error) {
	return p.list("||", FilterOr, func() (*Filter, error) {
		return p.list("&&", FilterAnd, p.not)
	})
}

// list reads what is joined by one operator.
func (p *filterParser) list(sign string, op FilterOp, one func() (*Filter, error)) (*Filter, error) {
	left, err := one()
	for err == nil && p.tok == sign {
		p.next()
		var right *Filter
		if right, err = one(); err == nil {
			left = &Filter{Op: op, Left: left, Right: right}
		}
	}
	return left, err
}

func (p *filterParser) not() (*Filter, error) {
	if p.depth++; p.depth > maxFilterDepth {
		return nil, p.fail("nested deeper than %d", maxFilterDepth)
	}
	defer func() { p.depth-- }()
	switch p.tok {
	case "!":
		p.next()
		f, err := p.not()
		return &Filter{Op: FilterNot, Left: f}, err
	case "(":
		p.next()
		f, err := p.or()
		if err == nil && p.tok != ")" {
			err = p.fail("a parenthesis is not closed")
		}
		p.next()
		return f, err
	}
	return p.compare()
}

func (p *filterParser) compare() (*Filter, error) {
	k := slices.Index(p.names, p.tok)
	switch {
	case p.tok == "":
		return nil, p.fail("a comparison is missing")
	case k < 0:
		return nil, p.fail("there is no argument %q: there are %s", p.tok, strings.Join(p.names, ", "))
	case p.at[k] < 0:
		return nil, p.fail("%s is a constant", p.tok)
	case p.loads[k].Count != 0:
		return nil, p.fail("%s is an array", p.tok)
	case p.loads[k].Float:
		return nil, p.fail("%s is a floating-point number", p.tok)
	}
	l := &p.loads[k]
	name := p.tok
	p.next()
	op := p.tok
	p.next()
	f := &Filter{Arg: p.at[k], IsText: l.Source == event.LoadComm || l.As == event.LoadTextAt || l.As == event.LoadTextPtr}
	switch op {
	case "==", "!=", "<", "<=", ">", ">=", "&":
		f.Op = map[string]FilterOp{"==": FilterEq, "!=": FilterNotEq, "<": FilterLess, "<=": FilterLessEq,
			">": FilterGreater, ">=": FilterGreaterEq, "&": FilterBits}[op]
	case "~":
		return nil, p.fail("patterns (~) are not possible in a program")
	default:
		return nil, p.fail("%q is no comparison", op)
	}
	if f.IsText {
		if f.Op != FilterEq && f.Op != FilterNotEq {
			return nil, p.fail("%s is a text: == and != are possible", name)
		}
		if len(p.tok) < 2 || p.tok[0] != '"' || p.tok[len(p.tok)-1] != '"' {
			return nil, p.fail("%s is a text: compare it with one in quotes", name)
		}
		f.Text = p.tok[1 : len(p.tok)-1]
	} else {
		v, err := number(p.tok)
		if err != nil {
			return nil, p.fail("%q is no number", p.tok)
		}
		f.N, f.Signed, f.Bytes = v, l.Signed, l.Size
		if f.Shift = uint(l.Shift); l.Mask != math.MaxUint64 {
			f.Mask = l.Mask
		}
	}
	p.next()
	return f, nil
}

func number(s string) (uint64, error) {
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return uint64(v), nil
	}
	return strconv.ParseUint(s, 0, 64)
}
