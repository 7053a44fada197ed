package syntax

import (
	"fmt"
	"sort"
	"strings"
)

// Source is a script's text and its name in messages.
type Source struct {
	Name string // "stdin" for -e
	Text string
}

// Error is one thing that is wrong, at its place.
type Error struct {
	Span
	Warning bool
	Msg     string
	Hint    string // what would help, "" for nothing

	Source *Source
}

// Error is the message with its place, and the line with what is meant underlined:
//
//	stdin:1:9-14: ERROR: Undefined or undeclared variable: $x
//	begin { $x }
//	        ~~
func (e *Error) Error() string {
	var b strings.Builder
	kind := "ERROR"
	if e.Warning {
		kind = "WARNING"
	}
	line, col := e.Source.position(e.From)
	endLine, endCol := e.Source.position(max(e.To, e.From+1))
	if line != endLine {
		fmt.Fprintf(&b, "%s:%d-%d: %s: %s", e.Source.Name, line, endLine, kind, e.Msg)
	} else {
		fmt.Fprintf(&b, "%s:%d:%d-%d: %s: %s", e.Source.Name, line, col, endCol, kind, e.Msg)
	}
	text := e.Source.line(line)
	if line != endLine {
		endCol = len(text) + 1
	}
	lead := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, text[:min(col-1, len(text))])
	fmt.Fprintf(&b, "\n%s\n%s%s", text, lead, strings.Repeat("~", max(1, endCol-col)))
	if e.Hint != "" {
		fmt.Fprintf(&b, "\nHINT: %s", e.Hint)
	}
	return b.String()
}

// position is the line and column of a byte, both from 1.
func (s *Source) position(at int) (line, col int) {
	before := s.Text[:min(at, len(s.Text))]
	line = strings.Count(before, "\n") + 1
	return line, len(before) - (strings.LastIndexByte(before, '\n') + 1) + 1
}

// Line is the number of the line that holds a byte.
func (s *Source) Line(at int) int { line, _ := s.position(at); return line }

func (s *Source) line(n int) string {
	lines := strings.Split(s.Text, "\n")
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
