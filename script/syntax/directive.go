package syntax

import (
	"slices"
	"strings"
)

// haveBTF is what scripts ask whether the kernel tells its types. Here it is not known yet: both answers are read.
const haveBTF = "BPFTRACE_HAVE_BTF"

// directive is how long a line of C's preprocessor is, together with what it leaves out.
func (p *parser) directive(f *File, from int) int {
	length := func(at int) int { return len(strings.TrimRight(p.restOfLine(at), " \t\r\n\\")) }
	n := length(from)
	word, rest := directiveOf(p.src.Text[from : from+n])
	holds := true
	switch word {
	case "if", "ifdef", "ifndef":
		p.branches = append(p.branches, !strings.Contains(rest, haveBTF))
		holds = f.holds(word, rest)
	case "else", "elif":
		if m := len(p.branches); m > 0 {
			holds = !p.branches[m-1] // another branch was taken, or both are
		}
	case "endif":
		p.branches = p.branches[:max(len(p.branches)-1, 0)]
	}
	taken := word == "else" || word == "elif"
	for depth := 0; !holds && from+n < len(p.src.Text); {
		at := from + n + 1
		n += 1 + len(p.restOfLine(at))
		word, rest := directiveOf(strings.TrimSpace(p.src.Text[at : from+n]))
		switch {
		case strings.HasPrefix(word, "if"):
			depth++
		case word == "endif" && depth > 0:
			depth--
		case depth > 0:
		case word == "endif":
			p.branches = p.branches[:max(len(p.branches)-1, 0)]
			holds = true
		case word == "else" || word == "elif":
			holds = !taken && (word == "else" || f.holds("if", rest))
		}
	}
	return len(strings.TrimRight(p.src.Text[from:from+n], " \t\r\n\\"))
}

// directiveOf takes a line of the preprocessor apart; word is "" for another.
func directiveOf(line string) (word, rest string) {
	line, ok := strings.CutPrefix(line, "#")
	if !ok {
		return "", ""
	}
	line = strings.TrimSpace(line)
	n := strings.IndexFunc(line, func(c rune) bool { return c < 'a' || c > 'z' })
	if n < 0 {
		n = len(line)
	}
	return line[:n], strings.TrimSpace(line[n:])
}

// holds tells whether a condition of the preprocessor does. What cannot be told does.
func (f *File) holds(word, rest string) bool {
	if word != "if" {
		return rest == haveBTF || f.defines(rest) == (word == "ifdef")
	}
	each := func(x string) bool { return f.holds(word, x) }
	if some := strings.Split(rest, "||"); len(some) > 1 {
		return slices.ContainsFunc(some, each)
	}
	if all := strings.Split(rest, "&&"); len(all) > 1 {
		return !slices.ContainsFunc(all, func(x string) bool { return !each(x) })
	}
	rest, not := strings.CutPrefix(strings.Trim(rest, " \t"), "!")
	if name, ok := strings.CutPrefix(strings.TrimSpace(rest), "defined"); ok {
		name = strings.Trim(name, " ()\t")
		return name == haveBTF || f.defines(name) != not
	}
	return strings.Trim(rest, " ()\t") != "0" || not
}

// defines tells whether a name is one of the preprocessor's.
func (f *File) defines(name string) (defined bool) {
	for _, d := range f.C {
		word, rest := directiveOf(d.Text)
		if i := strings.IndexAny(rest, " \t("); i >= 0 {
			rest = rest[:i]
		}
		if (word == "define" || word == "undef") && rest == name {
			defined = word == "define"
		}
	}
	return defined
}

// conditional tells of the preprocessor's conditions, which may have probes between them.
func (p *parser) conditional() bool {
	word, _ := directiveOf(p.restOfLine(p.tok.From))
	switch word {
	case "if", "ifdef", "ifndef", "else", "elif", "endif":
		return true
	}
	return false
}
