package kprobe_test

import (
	"go/ast"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// long is a place that leaves something to the long run (testprog.Long, in a file of tests or of what they share).
type long struct {
	in  string // the function, behind its folder: test/foreign.native
	why string // "" if it is no text that stands there
}

// longs finds them all.
func longs(files []source) (found []long) {
	for _, f := range files {
		for _, d := range f.ast.Decls {
			fn, _ := d.(*ast.FuncDecl)
			if fn == nil {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, _ := n.(*ast.CallExpr)
				if call == nil || len(call.Args) != 2 {
					return true
				}
				if s, _ := call.Fun.(*ast.SelectorExpr); s == nil || s.Sel.Name != "Long" {
					return true
				} else if of, _ := s.X.(*ast.Ident); of == nil || of.Name != "testprog" {
					return true
				}
				l := long{in: f.dir + "." + fn.Name.Name}
				if text, _ := call.Args[1].(*ast.BasicLit); text != nil {
					l.why, _ = strconv.Unquote(text.Value)
				}
				found = append(found, l)
				return true
			})
		}
	}
	return found
}

// leftTests reads the table of what the gate leaves out: the tests by reason.
func leftTests(doc string) map[string][]string {
	_, table, _ := strings.Cut(doc, "\n## What the gate leaves out\n")
	table, _, _ = strings.Cut(table, "\n## ")
	tests := make(map[string][]string)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 || strings.HasPrefix(line, "| Why") || strings.HasPrefix(line, "|--") {
			continue
		}
		why := strings.TrimSpace(cells[0])
		for i, word := range strings.Split(cells[1], "`") {
			if i%2 == 1 { // in backquotes
				tests[why] = append(tests[why], word)
			}
		}
	}
	return tests
}

// docs/TESTING.md says which tests the gate leaves to the long run, and why: just what the tests themselves say.
func TestGateIsTold(t *testing.T) {
	text, err := os.ReadFile("docs/TESTING.md")
	if err != nil {
		t.Fatal(err)
	}
	files := read(t, os.DirFS("."))
	told := leftTests(string(text))
	said := make(map[string][]string)
	for _, l := range longs(files) {
		if l.why == "" {
			t.Errorf("%s leaves something to the long run, and the reason is no text that stands there", l.in)
			continue
		}
		if said[l.why] = append(said[l.why], l.in); !slices.Contains(told[l.why], l.in) {
			t.Errorf("%s is left to the long run, as %q: docs/TESTING.md does not say so", l.in, l.why)
		}
	}
	if len(said) == 0 {
		t.Error("no test is left to the long run: this looks in the wrong place")
	}
	for _, why := range slices.Sorted(maps.Keys(told)) {
		for _, name := range told[why] {
			if !slices.Contains(said[why], name) {
				t.Errorf("docs/TESTING.md says that %s is left to the long run, as %q: it is not", name, why)
			}
		}
	}
	var boots []string
	for _, f := range files {
		if f.test() && f.path != "gate_test.go" && strings.Contains(string(f.text), "vmtest.Gate = true") {
			boots = append(boots, f.dir)
		}
	}
	if len(boots) != 1 {
		t.Errorf("the gate boots one guest, not one for each of %q", boots)
	}
}
