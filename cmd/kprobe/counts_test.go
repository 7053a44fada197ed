package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// calledAs are the calls that a program says it has made of a function.
func calledAs(lines []string, name string) int {
	for _, l := range lines {
		n := -1
		if _, err := fmt.Sscanf(l, name+" %d", &n); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// TestCountsOfRepeatedCopies holds that a call counts once where a compiler has copied once more what it had inlined, or that
// it is told which places may be missing; and that none counts twice: as the counters say that the functions have themselves.
func TestCountsOfRepeatedCopies(t *testing.T) {
	merged := []string{"clamp", "around", "pick", "tick"} // not known: GCC has what it counts with run before the branch, of which one has no code of it
	c, rust, cc := []string{"clamp", "known", "around", "pick", "tick"}, []string{"clampi", "S::add", "S::len2"}, []string{"most<int>", "most<short>"}
	for _, b := range []struct {
		with  []string
		names []string
		doubt string // of what some calls may be missing
	}{
		{[]string{"gcc", "-O1", "-g", "repeated.c"}, c, ""},
		{[]string{"gcc", "-O2", "-g", "repeated.c"}, merged, ""},
		{[]string{"gcc", "-O3", "-gdwarf-4", "repeated.c"}, merged, ""},
		{[]string{"clang", "-O1", "-g", "repeated.c"}, c, "tick"},
		{[]string{"clang", "-O2", "-g", "repeated.c"}, c, "tick"},
		{[]string{"clang", "-O3", "-gdwarf-4", "repeated.c"}, c, "tick"},
		{[]string{"g++", "-O2", "-g", "instances.cc"}, cc, ""},
		{[]string{"g++", "-O3", "-g", "instances.cc"}, cc, ""},
		{[]string{"clang++", "-O2", "-g", "instances.cc"}, cc, ""},
		{[]string{"rustc", "-Copt-level=3", "-g", "repeated.rs"}, rust, ""},
	} {
		if testing.Short() && slices.Contains([]string{"gcc -O2", "clang -O2", "g++ -O3"}, strings.Join(b.with[:2], " ")) {
			continue // of each compiler the least and the most
		}
		t.Run(strings.Join(b.with, " "), func(t *testing.T) {
			path := compiledSource(t, b.with...)
			args := []string{"trace"}
			for i, name := range b.names {
				args = append(args, fmt.Sprintf(`p:e%d "%s"`, i, name))
			}
			r := run(t, append(args, "--", path)...)
			for i, name := range b.names {
				want, got := calledAs(r.Lines, name), count(r.Lines, fmt.Sprintf(": e%d: ", i))
				told := strings.Contains(r.Stderr, fmt.Sprintf(`%q goes without`, args[1+i]))
				if got != want && !(told && got < want && name == b.doubt) {
					t.Errorf("%s: %d events, %d calls, told: %v", name, got, want, told)
				}
			}
			if t.Failed() {
				t.Log(r.Stderr)
			}
		})
	}
}

// TestPlanTellsWhatIsLeftOut holds that a plan has the places that are not probed, with the reason.
func TestPlanTellsWhatIsLeftOut(t *testing.T) {
	path := compiledSource(t, "clang", "-O2", "-g", "repeated.c")
	r := run(t, "plan", "p tick", "--", path)
	if text := strings.Join(r.Lines, "\n"); !r.OK() || !strings.Contains(text, "not probed") || !strings.Contains(text, "whether a call begins there") {
		t.Error(r)
	}
}

// TestLineInTwoBranches holds that a line is probed in each branch that GCC has copied it to.
func TestLineInTwoBranches(t *testing.T) {
	text, err := os.ReadFile("../../source/testdata/repeated.c")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "/* in two branches */")
	line := 1 + strings.Count(before, "\n")
	for _, cc := range [][]string{{"gcc", "-O0", "-g"}, {"gcc", "-O2", "-g"}, {"gcc", "-O3", "-g"}, {"clang", "-O0", "-g"}, {"clang", "-O2", "-g"}} {
		r := run(t, "trace", fmt.Sprintf("p:e repeated.c:%d", line), "--", compiledSource(t, append(slices.Clone(cc), "repeated.c")...))
		want, got := calledAs(r.Lines, "pick"), count(r.Lines, ": e: ")
		if told := strings.Contains(r.Stderr, "the line has code there, too"); got != want && !(told && got < want && cc[0] == "clang") {
			t.Errorf("%v: %d events, %d calls\n%s", cc, got, want, r.Stderr)
		}
	}
}
