package kprobe_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// The documents and the comments are to be read once, and understood. No tool can hold that, but a tool can count the
// habits that stand in the way. The documents have none of them. The comments have limits, which only fall: a text that
// gets plainer takes its limit down with it, so the habit does not come back.

const (
	longestLine     = 100 // columns
	longestSentence = 35  // words
)

// habits are the counts of one document.
type habits struct {
	lines     int // longer than longestLine, tables and code excepted
	sentences int // longer than longestSentence
	subjects  int // who, whoever, nobody, somebody: the reader has to find out which thread, process or user that is
}

// openings are the limits of comments that begin "X is what ...": the name's second name, in place of its meaning. The
// key is the folder at the root.
var openings = map[string]int{
	".": 13, "arch": 5, "bench": 16, "cmd": 27, "graph": 5, "internal": 200,
	"script": 67, "source": 28, "test": 15, "trace": 11, "view": 4,
}

var (
	subject  = regexp.MustCompile(`(?i)\b(who|whoever|nobody|somebody)\b`)
	opening  = regexp.MustCompile(`^[\w.]+ (is|are) (what|who|that|how)\b`)
	item     = regexp.MustCompile(`^\s*(- |\d+\. )`)
	inline   = regexp.MustCompile("`[^`]*`")
	sentence = regexp.MustCompile(`[.!?][)"'*]*\s+`) // the end of one, if a capital, a digit or code follows
	begins   = regexp.MustCompile("^[A-Z0-9`\"(*\\[]")
)

// weigh counts a document's habits, and tells where they are.
func weigh(name, text string) (h habits, found []string) {
	var paragraph []string
	start := 0
	end := func() {
		said := inline.ReplaceAllString(strings.Join(paragraph, " "), "CODE")
		paragraph = nil
		for _, s := range sentences(said) {
			if n := len(strings.Fields(s)); n > longestSentence {
				h.sentences++
				found = append(found, fmt.Sprintf("%s:%d: a sentence of %d words: %.60s", name, start, n, s))
			}
			for _, word := range subject.FindAllString(s, -1) {
				h.subjects++
				found = append(found, fmt.Sprintf("%s:%d: %q in: %.60s", name, start, word, s))
			}
		}
	}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		fenced = fenced != fence
		if fence || fenced || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") {
			end()
			continue
		}
		if n := utf8.RuneCountInString(line); n > longestLine {
			h.lines++
			found = append(found, fmt.Sprintf("%s:%d: a line of %d columns", name, i+1, n))
		}
		heading := strings.HasPrefix(line, "#")
		if line == "" || heading || item.MatchString(line) {
			end()
		}
		if line == "" {
			continue
		}
		if paragraph == nil {
			start = i + 1
		}
		if paragraph = append(paragraph, item.ReplaceAllString(line, "")); heading {
			end()
		}
	}
	end()
	return h, found
}

// sentences parts a paragraph.
func sentences(text string) (all []string) {
	begin := 0
	for _, at := range sentence.FindAllStringIndex(text, -1) {
		if begins.MatchString(text[at[1]:]) {
			all = append(all, text[begin:at[0]+1])
			begin = at[1]
		}
	}
	return append(all, text[begin:])
}

// tell reports a count that is not its limit: the places where it is more, the new limit where it is less.
func tell[T comparable](t *testing.T, name string, have, limit T, more bool, found []string) {
	t.Helper()
	switch {
	case have == limit:
	case more:
		t.Errorf("%s has %+v, and may have %+v:\n%s", name, have, limit, strings.Join(found, "\n"))
	default:
		t.Errorf("%s has %+v: lower the limit of %+v in words_test.go", name, have, limit)
	}
}

// The documents have no long lines, no long sentences, and no vague subjects.
func TestDocumentsArePlain(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	docs = append(docs, "README.md")
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		have, found := weigh(doc, string(text))
		if have != (habits{}) {
			t.Errorf("%s has %+v:\n%s", doc, have, strings.Join(found, "\n"))
		}
	}

	long := "Word" + strings.Repeat("\nword", longestSentence-1)
	wide := strings.Repeat("x", longestLine+1)
	for text, want := range map[string]habits{
		wide:                                   {lines: 1},
		wide[1:]:                               {},
		strings.Repeat("é", longestLine):       {},
		"| " + wide + " |":                     {},
		"    " + wide:                          {},
		"```\n" + wide + "\nwho\n```\n":        {},
		"Who comes?\n\nSomebody who\ncomes.":   {subjects: 3},
		"# Who comes?\n`nobody` comes. Whole.": {subjects: 1},
		long:                                   {},
		long + " end.":                         {sentences: 1},
		long + "\n`a b`":                       {sentences: 1},
		long + "\n\nEnd.":                      {},
		long + "\n- an item":                   {},
		long + "\n1. an item":                  {},
		"# A heading\n" + long:                 {},
		"One! " + long + ". " + long:           {},
		"One, i.e. two, " + long:               {sentences: 1},
	} {
		if have, found := weigh("text", text); have != want {
			t.Errorf("%q has %+v, want %+v: %q", text, have, want, found)
		}
	}
}

// opened are the comments of a file that begin "X is what ...".
func opened(f source) (found []string) {
	for _, c := range f.ast.Comments {
		text, _, _ := strings.Cut(c.Text(), "\n")
		if opening.MatchString(text) {
			found = append(found, fmt.Sprintf("%s: %s", f.at(c.Pos()), text))
		}
	}
	return found
}

// A comment begins with the meaning of a name, and does not give it a second name: there are no more of the latter than
// the limits allow.
func TestCommentsBeginWithAMeaning(t *testing.T) {
	found := map[string][]string{}
	for _, f := range read(t, os.DirFS(".")) {
		top, _, _ := strings.Cut(f.dir, "/")
		found[top] = append(found[top], opened(f)...)
	}
	for _, top := range slices.Sorted(maps.Keys(found)) {
		have, limit := len(found[top]), openings[top]
		tell(t, "folder "+top, have, limit, have > limit, found[top])
	}
	for top := range openings {
		if _, is := found[top]; !is {
			t.Errorf("there is no folder %s, but a limit of it", top)
		}
	}

	bad := read(t, fstest.MapFS{"a/a.go": {Data: []byte("// Package a is what it is.\npackage a\n\n// F is what comes.\n// It is who.\nfunc F() {}\n\n// G are those that come. H is how.\nvar G, H int // I.J are how\n\n// K returns what is.\nfunc K() {}\n")}})
	if got := strings.Join(opened(bad[0]), "\n"); got != "a/a.go:4: F is what comes.\na/a.go:9: I.J are how" {
		t.Errorf("found\n%s", got)
	}
}
