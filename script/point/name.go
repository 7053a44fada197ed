package point

import (
	"strings"

	"kprobe/script/syntax"
	"kprobe/symbol"
)

// Name is an attach point's name for functions.
type Name struct {
	Pattern string // as symbols' globs are; a name has a backslash before what is no wildcard
	Source  bool   // by the names that sources of C++ have: of one without parameters all overloads, and no function of C
}

// Name is the name of functions in a point's file.
func (p *Point) Name() Name { return Name{p.pattern, p.Source} }

// Many tells whether a point may be at several functions.
func (p *Point) Many() bool {
	return symbol.HasGlob(p.pattern) || p.Source && !strings.Contains(p.pattern, "(")
}

// NameOf is the name that the last parts of an attach point are: NAME, or cpp:NAME.
func NameOf(parts []syntax.Part) Name {
	var all []string
	for _, p := range parts {
		all = append(all, p.Pattern)
	}
	if len(all) > 1 && all[0] == "cpp" && all[1] != "" { // cpp::f is a name
		return Name{strings.Join(all[1:], ":"), true}
	}
	return Name{strings.Join(all, ":"), false}
}

// cutOffset cuts +OFFSET off a name.
func cutOffset(pattern string) (name, offset string, has bool) {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '+':
			return pattern[:i], pattern[i+1:], true
		}
	}
	return pattern, "", false
}
