package symbol

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// lookupDemangled finds what demangles to name. Demangling every symbol of a
// large program takes a second, so only those are tried that contain the last
// identifier of the name: mangling leaves identifiers as they are.
func (f *File) lookupDemangled(name string) []Symbol {
	want := newDemangledName(name)
	if strings.IndexFunc(want.text, isIdent) < 0 {
		return nil // "*", which is a pattern, and the name of nothing
	}
	var syms []Symbol
	for _, s := range f.Memo(mangled{}, f.allMangled).([]*Symbol) {
		if strings.Contains(s.Name, want.ident) && want.matches(s.Name) {
			syms = append(syms, *s)
		}
	}
	return syms
}

// mangled is the key of what allMangled answers.
type mangled struct{}

// allMangled are the symbols of mangled names: a library of C has none, and is asked for many names
// that it does not have.
func (f *File) allMangled() any {
	var all []*Symbol
	t := f.table()
	for _, list := range [][]Symbol{t.funcs, t.data} {
		for i := range list {
			if isMangled(list[i].Name) {
				all = append(all, &list[i])
			}
		}
	}
	return all
}

// isMangled tells C++ (_Z) and Rust (_R, or _ZN with a hash) names.
func isMangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R")
}

// demangledName is a name as a programmer writes it.
type demangledName struct {
	text  string // without spaces
	ident string // must occur in the mangled name; "" where none is sure to
}

// abbreviated are the names that C++ mangling has short forms for.
var abbreviated = map[string]bool{
	"std": true, "allocator": true, "basic_string": true, "string": true,
	"istream": true, "ostream": true, "iostream": true,
	"basic_istream": true, "basic_ostream": true, "basic_iostream": true,
}

func newDemangledName(name string) demangledName {
	d := demangledName{text: squeeze(name)}
	// The hash of a Rust name is left out by the demangler. It is the last
	// identifier below, so only the mangled name that contains it matches.
	if i := len(d.text) - len("::h0123456789abcdef"); i > 0 && strings.HasPrefix(d.text[i:], "::h") && isHex(d.text[i+3:]) {
		d.text = d.text[:i]
	}
	// The last identifier before the parameters and template arguments.
	head := name
	if i := strings.IndexAny(head, "(<"); i > 0 {
		head = head[:i]
	}
	parts := strings.FieldsFunc(head, func(r rune) bool { return r > 0x7f || !isIdent(r) })
	ascii := strings.IndexFunc(name, func(r rune) bool { return r > 0x7f }) < 0
	if len(parts) > 0 && ascii && !slices.Contains(parts, "operator") && !strings.Contains(name, "(anonymous") && !strings.Contains(name, "{") {
		if last := parts[len(parts)-1]; !abbreviated[last] {
			d.ident = last
		}
	}
	return d
}

func isIdent(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f
}

// matches tells whether a mangled name stands for d, with or without its
// parameters. Clones ("f(int) [clone .cold]") are other functions.
func (d demangledName) matches(mangled string) bool {
	full, err := demangle.ToString(mangled)
	if err != nil || strings.Contains(full, "[clone ") {
		return false
	}
	squeezed := squeeze(full)
	if squeezed == d.text {
		return true
	}
	// A template function's full form begins with its return type.
	bare, err := demangle.ToString(mangled, demangle.NoParams)
	if err != nil {
		return false
	}
	bare = squeeze(bare)
	if bare == d.text {
		return true
	}
	i := strings.Index(squeezed, bare)
	return i > 0 && squeezed[i:] == d.text
}

// squeeze removes spaces: people and demanglers differ in where they put them.
func squeeze(s string) string { return strings.ReplaceAll(s, " ", "") }

func isHex(s string) bool {
	_, err := strconv.ParseUint(s, 16, 64)
	return err == nil
}
