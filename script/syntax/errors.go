package syntax

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// Source is a script's text and its name in messages.
type Source struct {
	Name string // "stdin" for -e
	Text string // with that of all that is imported behind it

	parts []part
}

// Find is where a name stands for the first time from the beginning of a span on; the span itself where it does not.
func (s *Source) Find(in Span, name string) Span {
	if i := strings.Index(s.Text[min(in.From, len(s.Text)):], name); i >= 0 {
		return Span{From: in.From + i, To: in.From + i + len(name)}
	}
	return in
}

// part is an imported script's text.
type part struct {
	from int
	name string
}

// Append puts an imported script's text behind the others', and tells where it begins.
func (s *Source) Append(name, text string) (from int) {
	s.Text += "\n"
	s.parts = append(s.parts, part{len(s.Text), name})
	s.Text += text
	return len(s.Text) - len(text)
}

// Part is the script that holds a byte: its name and text, and where that begins.
func (s *Source) Part(at int) (name, text string, from int) {
	name, to := s.Name, len(s.Text)
	for _, p := range s.parts {
		if p.from > at {
			to = p.from - 1
			break
		}
		name, from = p.name, p.from
	}
	return name, s.Text[from:to], from
}

// PartName is the name of the script that holds a byte.
func (s *Source) PartName(at int) string { name, _, _ := s.Part(at); return name }

// Error is one thing that is wrong, at its place.
type Error struct {
	Span
	Warning bool
	Msg     string
	Hint    string // what would help, "" for nothing

	Source *Source
}

// tabs are shown as so many blanks, so that what is underlined does not depend on who shows it.
var tabs = strings.NewReplacer("\t", "    ")

// Error is the message with its place, and the line with what is meant underlined; of several lines all, as they are:
//
//	stdin:1:9-14: ERROR: Undefined or undeclared variable: $x
//	begin { $x }
//	        ~~
//
// Where a macro has put it there, the macro's text is shown, and behind it who calls the macro.
func (e *Error) Error() string {
	var b strings.Builder
	kind := "ERROR"
	if e.Warning {
		kind = "WARNING"
	}
	e.tell(&b, e.Span, kind, own.ReplaceAllString(e.Msg, "$1"))
	for c := e.Call; c != nil; c = c.Call {
		b.WriteByte('\n')
		e.tell(&b, c.Span, kind, "expanded from")
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "\nHINT: %s", e.Hint)
	}
	return b.String()
}

// own is a variable that a macro's call has for itself: it is shown as the macro writes it.
var own = regexp.MustCompile(`(\$\w+)#\d+`)

// tell tells something about a place.
func (e *Error) tell(b *strings.Builder, at Span, kind, msg string) {
	line, col := e.Source.Position(at.From)
	endLine, endCol := e.Source.Position(max(at.To, at.From+1))
	fmt.Fprintf(b, "%s: %s: %s", e.Source.Place(at), kind, msg)
	for n := line; n <= endLine; n++ {
		text := e.Source.line(at.From, n)
		b.WriteString("\n" + tabs.Replace(text))
		if line == endLine {
			lead := tabs.Replace(text[:min(col-1, len(text))])
			meant := tabs.Replace(text[min(col-1, len(text)):min(endCol-1, len(text))])
			b.WriteString("\n" + strings.Repeat(" ", len(lead)) + strings.Repeat("~", max(1, len(meant))))
		}
	}
}

// Place is where a span is, in words: the line and the columns, or the lines.
func (s *Source) Place(at Span) string {
	line, col := s.Position(at.From)
	endLine, endCol := s.Position(max(at.To, at.From+1))
	name := s.PartName(at.From)
	if line != endLine {
		return fmt.Sprintf("%s:%d-%d", name, line, endLine)
	}
	return fmt.Sprintf("%s:%d:%d-%d", name, line, col, endCol)
}

// Position is the line and column of a byte, both from 1.
func (s *Source) Position(at int) (line, col int) {
	_, text, from := s.Part(at)
	before := text[:min(at-from, len(text))]
	line = strings.Count(before, "\n") + 1
	return line, len(before) - (strings.LastIndexByte(before, '\n') + 1) + 1
}

// Line is the number of the line that holds a byte.
func (s *Source) Line(at int) int { line, _ := s.Position(at); return line }

// line is the n-th of the script that holds a byte.
func (s *Source) line(at, n int) string {
	_, text, _ := s.Part(at)
	lines := strings.Split(text, "\n")
	if n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// Errors are all that is wrong with a script, in the order of their places.
type Errors []*Error

func (es Errors) Error() string {
	var all []string
	for _, e := range es {
		all = append(all, e.Error())
	}
	return strings.Join(all, "\n")
}

// Sort orders them by place.
func (es Errors) Sort() {
	sort.SliceStable(es, func(i, j int) bool { return es[i].From < es[j].From })
}

// Fatal are those that are not warnings.
func (es Errors) Fatal() (fatal Errors) {
	for _, e := range es {
		if !e.Warning {
			fatal = append(fatal, e)
		}
	}
	return fatal
}
