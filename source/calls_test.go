package source

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestLinesOfCalls holds that a line is the function's that has it in its text, though all that is left of it may be in
// what it calls, or in the function's second part: it is listed, and found as a line of that function.
func TestLinesOfCalls(t *testing.T) {
	for _, c := range []struct {
		file, function string
		lines          []string
	}{
		{"list.c", "work", []string{"sum += twice(p->in[1].y);", "sum += twice(depth);", "tls += c;"}},
		{"halves.c", "split", []string{"calls[0]++;", "sink += p->n * by;", `printf("%s", sink == 42 ? "-" : "");`}},
		{"halves.c", "one", []string{"return split(p, 3) + split(p->next, 4); }"}},
		{"halves.c", "shutAll", []string{"if (p->kind == 1) {"}},
	} {
		text, err := os.ReadFile("testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, cc := range [][]string{{"gcc", "-O2", "-g"}, {"gcc", "-O3", "-gdwarf-4"}, {"clang", "-O2", "-g"}} {
			f := open(t, build(t, cc, c.file))
			fns, err := f.Function(c.function, "")
			if err != nil {
				t.Fatal(cc, err)
			}
			fn := fns[0]
			listed := f.Lines(fn)
			for _, want := range c.lines {
				before, _, ok := strings.Cut(string(text), want)
				if !ok {
					t.Fatal(want)
				}
				n := 1 + strings.Count(before, "\n")
				if n != fn.Line && !slices.Contains(listed, n) {
					t.Errorf("%v: %s: line %d, %s, is not among %v", cc, c.function, n, want, listed)
				}
				sites, err := f.FunctionLine(c.function, "", n-fn.Line)
				if err != nil || !slices.ContainsFunc(sites, func(s Site) bool { return s.Func == c.function }) {
					t.Errorf("%v: %s: line %d, %s: %+v, %v", cc, c.function, n, want, sites, err)
				}
			}
			for _, n := range listed {
				if _, err := f.FunctionLine(c.function, "", n-fn.Line); err != nil {
					t.Errorf("%v: %s: line %d is listed: %v", cc, c.function, n, err)
				}
			}
		}
	}
}

// TestLinesStandInTheFunction holds that a function's lines are of its text, though rows of what is inlined beside its
// copies share addresses with these.
func TestLinesStandInTheFunction(t *testing.T) {
	data, err := os.ReadFile("testdata/counted.c")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Split(string(data), "\n")
	f, seen := open(t, build(t, []string{"gcc", "-Os", "-g"}, "counted.c")), 0
	for _, name := range f.Functions() {
		fns, err := f.Function(name, "counted.c")
		if err != nil {
			continue // libc's
		}
		for _, fn := range fns {
			end := fn.Line
			if !strings.HasSuffix(text[end-1], "}") {
				end += 1 + slices.Index(text[end:], "}")
			}
			for _, n := range f.Lines(fn) {
				if seen++; n < fn.Line || n > end {
					t.Errorf("%s, of lines %d to %d, has line %d", name, fn.Line, end, n)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d lines", seen)
	}
}
