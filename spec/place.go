package spec

import (
	"strings"
	"syscall"
)

// place reads where the probe goes, in the dialect's way.
func (p *parser) place(w word) error {
	p.src.place, p.src.data = w.at, w.at
	if p.s.Kind == Watch || p.s.Kind == Delete && p.Dialect == Process && isWatch(w.text) {
		return p.watchPlace(w)
	}
	switch p.Dialect {
	case Kprobes:
		return p.kernelPlace(w)
	case Uprobes:
		return p.filePlace(w)
	}
	return p.processPlace(w)
}

// suffix cuts "%return" off text, in which nothing else may follow "%". at is
// where text begins.
func (p *parser) suffix(text string, at int) (string, error) {
	i := strings.IndexByte(text, '%')
	if i < 0 {
		return text, nil
	}
	if text[i:] != "%return" {
		return "", p.fail(at+i, BadAddrSuffix)
	}
	p.s.Kind = Return
	p.s.Place.PctReturn = true
	return text[:i], nil
}

// kernelPlace = [MOD ":"] SYM ["+" OFFS] ["%return"] | ADDR.
func (p *parser) kernelPlace(w word) error {
	if strings.Contains(w.text, "/") && strings.Contains(w.text, ":") {
		return p.fail(w.at, BadCommand) // a file offset: uprobe_events has these
	}
	text, err := p.suffix(w.text, w.at)
	if err != nil {
		return err
	}
	pl := &p.s.Place
	if pl.Addr, pl.HasAddr = parseUint(text, 64); pl.HasAddr {
		return nil
	}
	symbol, err := p.symbolOffset(text, w.at, strings.IndexAny(text, "+-"))
	if err != nil {
		return err
	}
	module, symbol, hasModule := strings.Cut(symbol, ":")
	if !hasModule {
		module, symbol = "", module
	}
	// No kernel symbol has other characters, so the answer is the one for an
	// unknown symbol.
	if !isWord(symbol, ".$") || hasModule && !isWord(module, ".") {
		return p.failWith(w.at, BadProbeAddr, syscall.ENOENT)
	}
	pl.Module, pl.Symbol = module, symbol
	return nil
}

// symbolOffset cuts the offset off, which begins at i, or is not there if i is
// negative. at is where the caret goes: the kernel points at the whole place.
func (p *parser) symbolOffset(text string, at, i int) (symbol string, err error) {
	if i < 0 {
		return text, nil
	}
	n, ok := parseUint(text[i:], 32)
	if !ok || text[i] != '+' {
		return "", p.fail(at, BadProbeAddr)
	}
	p.s.Place.Offset = n
	return text[:i], nil
}

// filePlace = PATH ":" OFFSET ["(" REFCTR ")"] ["%return"].
func (p *parser) filePlace(w word) error {
	i := offsetColon(w.text)
	// A quote in it would have to be quoted when printed, which only the dialect
	// for processes reads.
	if i < 0 || !strings.Contains(w.text, "/") || strings.Contains(w.text, `"`) {
		return p.fail(w.at, BadCommand)
	}
	p.s.Place.Module = w.text[:i]
	return p.fileOffset(w.text[i+1:], w.at+i+1)
}

// offsetColon finds the colon before a file offset: the last one, because a
// path may have some. -1: there is no file offset.
func offsetColon(text string) int {
	i := strings.LastIndexByte(text, ':')
	if i <= 0 || text[i-1] == ':' || i+1 == len(text) || !isDigit(text[i+1]) {
		return -1
	}
	return i
}

// fileOffset reads the part behind PATH: in filePlace. The order of its errors is the kernel's.
func (p *parser) fileOffset(text string, at int) error {
	pl := &p.s.Place
	if i := strings.IndexByte(text, '('); i >= 0 {
		end := i + strings.IndexByte(text[i:], ')')
		switch {
		case end < i:
			return p.fail(at+len(text), RefcntOpenBrace)
		case end+1 < len(text):
			return p.fail(at+end+1, BadRefcntSuffix)
		}
		n, ok := parseUint(text[i+1:end], 64)
		if !ok {
			return p.fail(at+i+1, BadRefcnt)
		}
		pl.RefCtr, pl.HasRefCtr = n, n != 0 // the kernel takes 0 for none
		text = text[:i]
	}
	text, err := p.suffix(text, at)
	if err != nil {
		return err
	}
	if pl.FileOff, pl.HasFileOff = parseUint(text, 64); !pl.HasFileOff {
		return p.fail(at, BadUprobeOffs)
	}
	return nil
}

// processPlace = ADDR ["%return"]
//
//	| MODULE ":" OFFSET ["(" REFCTR ")"] ["%return"]
//	| [MODULE ":"] SYMBOL ["@" VERSION] ["+" OFFS] ["%return"].
//
// MODULE and SYMBOL may be in quotes, a quote inside doubled; without, they are told apart by the
// first colon that is not one of a pair (C++, Rust: "::").
func (p *parser) processPlace(w word) error {
	pl := &p.s.Place
	if i := offsetColon(w.text); i > 0 && !strings.Contains(w.text[:i], `"`) {
		pl.Module = w.text[:i]
		return p.fileOffset(w.text[i+1:], w.at+i+1)
	}
	if name, _, found := strings.Cut(w.text, "="); found && isIdent(name) {
		return p.fail(w.at, NoPlace) // "p:getenv name=+0(%di)": an argument stands here
	}
	name, rest, quoted := cutQuoted(w.text)
	if quoted && strings.HasPrefix(rest, ":") {
		pl.Module, rest = name, rest[1:]
		if name == "" {
			return p.fail(w.at, BadProbeAddr)
		}
		if rest != "" && isDigit(rest[0]) {
			return p.fileOffset(rest, w.at+len(w.text)-len(rest))
		}
		name, rest, quoted = cutQuoted(rest)
	} else if i := singleColon(rest); !quoted && i > 0 {
		pl.Module = rest[:i]
		if strings.Contains(pl.Module, `"`) {
			return p.fail(w.at, BadProbeAddr)
		}
		name, rest, quoted = cutQuoted(rest[i+1:])
	}

	// Behind an operator's name its characters have their usual meaning.
	skip := 0
	if !quoted {
		skip = afterOperator(rest)
	}
	tail, err := p.suffix(rest[skip:], w.at+len(w.text)-len(rest)+skip)
	if err != nil {
		return err
	}
	if !quoted && pl.Module == "" && skip == 0 {
		if pl.Addr, pl.HasAddr = parseUint(tail, 64); pl.HasAddr {
			return nil
		}
	}
	plus := strings.IndexByte(tail, '+')
	if plus < 0 && negative(tail) {
		return p.fail(w.at, BadProbeAddr)
	}
	if tail, err = p.symbolOffset(tail, w.at, plus); err != nil {
		return err
	}
	if i := strings.IndexByte(tail, '@'); i >= 0 {
		// "@@", the mark of a default version in listings, is the same here.
		pl.Version = strings.TrimPrefix(tail[i+1:], "@")
		if pl.Version == "" || strings.ContainsAny(pl.Version, `@":`) {
			return p.fail(w.at, BadProbeAddr)
		}
		tail = tail[:i]
	}
	if quoted {
		pl.Symbol, pl.Exact = name, hasWildcards(name)
		if name == "" || tail != "" {
			return p.fail(w.at, BadProbeAddr)
		}
		return nil
	}
	pl.Symbol = rest[:skip] + tail
	if pl.Symbol == "" || isDigit(pl.Symbol[0]) || strings.Contains(pl.Symbol, `"`) {
		return p.fail(w.at, BadProbeAddr)
	}
	return nil
}

// negative tells whether text ends in "-" and a number: an offset that cannot
// be, while other hyphens belong to names (Go: "main.(*T).M-fm").
func negative(text string) bool {
	i := strings.LastIndexByte(text, '-')
	if i < 0 {
		return false
	}
	_, ok := parseDigits(text[i+1:], 64)
	return ok
}

// cutQuoted splits `"NAME"REST`; without quotes in front all is rest. A quote
// inside the name is doubled (Go: struct tags are part of symbols).
func cutQuoted(text string) (name, rest string, quoted bool) {
	for i := 1; i < len(text) && text[0] == '"'; i++ {
		if text[i] != '"' {
			continue
		}
		if !strings.HasPrefix(text[i+1:], `"`) {
			return strings.ReplaceAll(text[1:i], `""`, `"`), text[i+1:], true
		}
		i++
	}
	return "", text, false
}

// singleColon finds the first run of colons of odd length and gives its first
// one; -1 if there is none. Of "a:::b" that leaves "a" and "::b".
func singleColon(text string) int {
	for i := 0; i < len(text); {
		n := 0
		for i+n < len(text) && text[i+n] == ':' {
			n++
		}
		if n%2 == 1 {
			return i
		}
		i += max(n, 1)
	}
	return -1
}

// text prints a place so that it reads back as the same.
func (pl *Place) text() string {
	if pl.HasAddr {
		return pl.watching(hex(pl.Addr))
	}
	prefix := ""
	if pl.Module != "" {
		prefix = pl.Module + ":"
	}
	if bare := pl.watching(prefix + pl.tail(pl.Symbol)); pl.is(bare) {
		return bare
	}
	if symbol := pl.watching(prefix + pl.tail(quote(pl.Symbol))); pl.is(symbol) {
		return symbol
	}
	if pl.Module != "" {
		prefix = quote(pl.Module) + ":"
	}
	if module := pl.watching(prefix + pl.tail(pl.Symbol)); pl.is(module) {
		return module
	}
	return pl.watching(prefix + pl.tail(quote(pl.Symbol)))
}

// tail is the part of a place behind MODULE:, with the symbol as it is given.
func (pl *Place) tail(symbol string) string {
	if pl.HasFileOff {
		text := "0x" + leftPad(pl.FileOff)
		if pl.HasRefCtr {
			text += "(" + hex(pl.RefCtr) + ")"
		}
		return text
	}
	if pl.Version != "" {
		symbol += "@" + pl.Version
	}
	switch {
	case pl.Access != "" && int64(pl.Offset) < 0:
		symbol += "-" + decimal(-pl.Offset)
	case pl.Offset != 0:
		symbol += "+" + decimal(pl.Offset)
	}
	return symbol
}

// is tells whether text, read for a process, is this very place; or else that
// with its wildcards gone, where the symbol needs quotes.
func (pl *Place) is(text string) bool {
	words := split(text, true)
	if len(words) != 1 || len(words[0].text) != len(text) {
		return false
	}
	var p parser
	read := p.processPlace
	if pl.Access != "" {
		read = p.watchPlace
	}
	if read(words[0]) != nil {
		return false
	}
	want := *pl
	want.PctReturn = false
	want.Exact = p.s.Place.Exact || want.Exact
	return p.s.Place == want
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// sameSpot tells whether two places are one, however they are written.
func (pl Place) sameSpot(o Place) bool {
	pl.PctReturn, o.PctReturn = false, false
	return pl == o
}
