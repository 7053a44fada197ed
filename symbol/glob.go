package symbol

import (
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Match finds the functions whose names a glob matches: "*" any text, "?" any one byte, "[a-z]" and
// "[!a-z]" classes, "\" takes the next byte as it is. A pattern with "::" is matched with C++ and
// Rust names without parameters, one that has a parenthesis with names that have them, too. PLT
// stubs and nameless functions match only patterns that ask for them, by "@plt" at the end or
// "sub_" at the beginning.
func (f *File) Match(glob string) []Symbol {
	plt := strings.HasSuffix(glob, pltSuffix)
	nameless := strings.HasPrefix(glob, subPrefix)
	demangled, parameters := strings.Contains(glob, "::"), strings.Contains(glob, "(")
	var syms []Symbol
	for _, s := range f.table().funcs {
		if s.Source == Plt && !plt || s.Name == "" && !nameless {
			continue
		}
		name := s.Label()
		whole := ""
		if demangled && isMangled(name) {
			if parameters {
				whole = Signature(name)
			}
			name = demangledGlobName(name)
		}
		if Glob(glob, name) || whole != "" && Glob(glob, whole) {
			syms = append(syms, s)
		}
	}
	return syms
}

// MatchReadable finds functions of C++ and Rust by the names that their sources have, spaces apart:
// those that a glob matches, with or without their parameters. A name without wildcards and
// parameters finds all overloads.
func (f *File) MatchReadable(glob string) (syms []Symbol) {
	if !HasGlob(glob) {
		return slices.DeleteFunc(f.lookupDemangled(Literal(glob)), func(s Symbol) bool { return s.Kind == Data || s.Source == Plt })
	}
	glob = squeeze(glob)
	for _, s := range f.Memo(mangled{}, f.allMangled).([]*Symbol) {
		if s.Kind == Data || s.Source == Plt {
			continue
		}
		bare, full := squeeze(demangledGlobName(s.Name)), squeeze(Signature(s.Name))
		if Glob(glob, bare) || Glob(glob, full[max(strings.Index(full, bare), 0):]) { // a template's begins with its result
			syms = append(syms, *s)
		}
	}
	return syms
}

// Signature is a symbol's name as its source has it, with parameters.
func Signature(name string) string {
	if full, err := demangle.ToString(name); err == nil && isMangled(name) {
		return full
	}
	return name
}

// Readable is a symbol's name as its source has it, without parameters: C++'s and Rust's are
// mangled, others stay.
func Readable(name string) string {
	if !isMangled(name) {
		return name
	}
	return demangledGlobName(name)
}

// ReadablePlace is a place as Loc.Place writes it, with the name readable.
func ReadablePlace(place string) string {
	at := strings.LastIndexByte(place, ':') + 1
	name := place[at:]
	if !isMangled(name) {
		return place
	}
	rest := ""
	if i := strings.IndexAny(name, "@+"); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	return place[:at] + Readable(name) + rest
}

// demangledGlobName is a mangled name as patterns see it: without parameters,
// but with the mark of a clone, which is not the function itself.
func demangledGlobName(mangled string) string {
	bare, err := demangle.ToString(mangled, demangle.NoParams)
	if err != nil {
		return mangled
	}
	if full, err := demangle.ToString(mangled); err == nil {
		if i := strings.Index(full, " [clone "); i >= 0 {
			bare += full[i:]
		}
	}
	return bare
}

// HasGlob tells whether a glob has wildcards: one without is a name.
func HasGlob(glob string) bool {
	for i := 0; i < len(glob); i++ {
		switch glob[i] {
		case '*', '?', '[':
			return true
		case '\\':
			i++
		}
	}
	return false
}

// Literal is the name that a glob without wildcards is.
func Literal(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		if glob[i] == '\\' && i+1 < len(glob) {
			i++
		}
		b.WriteByte(glob[i])
	}
	return b.String()
}

// Glob tells whether a name matches a pattern: "*" any text, "?" any one byte,
// "[a-z]" and "[!a-z]" classes, "\" takes the next byte as it is.
//
// It matches without recursion: on a mismatch the last "*" takes one byte more,
// so the time is at most the product of the lengths.
func Glob(glob, s string) bool {
	g, i := 0, 0
	star, from := -1, 0
	for i < len(s) {
		if g < len(glob) && glob[g] == '*' {
			star, from = g, i
			g++
			continue
		}
		if n, ok := globByte(glob[g:], s[i]); ok {
			g += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		g, i = star+1, from
	}
	return strings.Trim(glob[g:], "*") == ""
}

// globByte matches the first element of glob, which is no "*", with one byte,
// and returns the element's length.
func globByte(glob string, c byte) (int, bool) {
	if glob == "" {
		return 0, false
	}
	switch glob[0] {
	case '?':
		return 1, true
	case '\\':
		if len(glob) > 1 {
			return 2, glob[1] == c
		}
	case '[':
		if n, ok := globClass(glob, c); n > 0 {
			return n, ok
		}
		// Not closed: an ordinary character, as in the kernel.
	}
	return 1, glob[0] == c
}

// globClass matches a class that glob begins with; n is 0 if it is not closed.
func globClass(glob string, c byte) (n int, ok bool) {
	i := 1
	negate := i < len(glob) && glob[i] == '!'
	if negate {
		i++
	}
	for first := i; ; {
		if i >= len(glob) {
			return 0, false
		}
		if glob[i] == ']' && i > first {
			return i + 1, ok != negate
		}
		lo, hi := glob[i], glob[i]
		i++
		if i+1 < len(glob) && glob[i] == '-' && glob[i+1] != ']' {
			hi = glob[i+1]
			i += 2
		}
		ok = ok || lo <= c && c <= hi
	}
}
