package source

import (
	"slices"
	"strings"
)

// spellings are the ways in which compilers write a C++ name with arguments of templates: GCC has most<long unsigned int>
// for clang's most<unsigned long>. The name comes first as it was given.
func spellings(name string) []string {
	out := []string{name}
	if !strings.Contains(name, "<") {
		return out
	}
	for _, gnu := range []bool{true, false} {
		if s := spelled(name, gnu); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// spelled writes each run of words that make an integer's type in one way.
func spelled(name string, gnu bool) string {
	var out strings.Builder
	var run []string
	flush := func() {
		out.WriteString(integer(run, gnu))
		run = nil
	}
	for i := 0; i < len(name); {
		n := i
		for n < len(name) && (name[n] == '_' || '0' <= name[n] && name[n] <= '9' || 'a' <= name[n]|0x20 && name[n]|0x20 <= 'z') {
			n++
		}
		word := name[i:n]
		switch {
		case slices.Contains([]string{"unsigned", "signed", "long", "short", "int", "char"}, word):
			run = append(run, word)
			i = n
		case n > i:
			if len(run) > 0 {
				flush()
				out.WriteByte(' ')
			}
			out.WriteString(word)
			i = n
		case name[i] == ' ' && len(run) > 0:
			i++
		default:
			flush()
			out.WriteByte(name[i])
			i++
		}
	}
	flush()
	return out.String()
}

// integer writes the words of a type: GCC's way is long, unsigned, int; clang's unsigned, long.
func integer(words []string, gnu bool) string {
	if len(words) == 0 {
		return ""
	}
	has := func(w string) bool { return slices.Contains(words, w) }
	sign, size := "", ""
	if has("unsigned") {
		sign = "unsigned"
	} else if has("signed") && has("char") {
		sign = "signed"
	}
	for _, w := range words {
		if w == "long" || w == "short" {
			size = strings.TrimPrefix(size+" "+w, " ")
		}
	}
	var parts []string
	switch {
	case has("char"):
		parts = []string{sign, "char"}
	case size == "":
		parts = []string{sign, "int"}
	case gnu:
		parts = []string{size, sign, "int"}
	default:
		parts = []string{sign, size}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}
