// Tally tells how runs of the tests ended. Each file that it is given holds what one run of
// "go test -json" printed, with the tests of it that ran again (gotestsum's --jsonfile):
//
//	tally FILE...
//
// It prints what failed, with all that it said; what failed in company and passed alone, with both;
// the reason of each skip; and at the end
//
//	slowest: PACKAGE SECONDS, ...
//	not on this machine: FACULTY: REASON (N tests)
//	N passed, N failed, N skipped, N failed in company, N left to test-all, N not on this machine
//
// Subtests count as tests, except among those that failed in company: they ran again with the test that
// they are of. Tally fails where a test, a package or a build failed at its last try, and, where CI is set,
// where a test was skipped: there, nothing may be missing that can be had. What the machine itself cannot
// do is told apart (testprog.Faculty), and so is what the gate leaves to the long run (testprog.Long).
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"kprobe/internal/testprog"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: tally FILE...")
		os.Exit(2)
	}
	if err := tally(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

// tally reads the files and prints all that there is to tell of them.
func tally(files []string, w io.Writer) error {
	out := bufio.NewWriter(w)
	defer out.Flush()
	var n counts
	took := make(map[string]float64)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		r, err := read(f)
		f.Close()
		if err != nil {
			return err
		}
		r.tell(out)
		n.add(r.counts())
		for pkg, seconds := range r.took {
			took[pkg] += seconds
		}
	}
	if slow := slowest(took); slow != "" {
		fmt.Fprintln(out, "slowest:", slow)
	}
	for _, what := range slices.Sorted(maps.Keys(n.without)) {
		fmt.Fprintf(out, "%s%s (%d tests)\n", testprog.NotHere, what, n.without[what])
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped, %d failed in company, %d left to test-all, %d not on this machine\n",
		n.passed, n.failed, n.skipped, n.company, n.left, n.notHere)
	return verdict(n, os.Getenv("CI") != "")
}

// counts are numbers of tests, by how they ended.
type counts struct {
	passed, failed, skipped int
	company                 int // failed once, and passed when they ran again; they are among passed
	left                    int // to the long run
	notHere                 int
	without                 map[string]int // what the machine lacks, and how many tests said so
}

func (n *counts) add(m counts) {
	n.passed += m.passed
	n.failed += m.failed
	n.skipped += m.skipped
	n.company += m.company
	n.left += m.left
	n.notHere += m.notHere
	if n.without == nil {
		n.without = make(map[string]int)
	}
	for what, tests := range m.without {
		n.without[what] += tests
	}
}

// verdict is what the counts mean for the run.
func verdict(n counts, ci bool) error {
	switch {
	case n.failed > 0:
		return errors.New("tests failed")
	case n.passed == 0: // a machine that can do nothing is none to test on
		return errors.New("no test ran")
	case ci && n.skipped > 0:
		return errors.New("tests were skipped, and CI is set")
	}
	return nil
}

// slowest are the packages that took longest, in seconds, of all that took a second or more.
func slowest(took map[string]float64) string {
	const most = 8
	var lines []string
	order := slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		return cmp.Or(cmp.Compare(took[b], took[a]), cmp.Compare(a, b))
	})
	for _, pkg := range order[:min(most, len(order))] {
		if took[pkg] >= 1 {
			lines = append(lines, fmt.Sprintf("%s %.0f s", pkg, took[pkg]))
		}
	}
	return strings.Join(lines, ", ")
}

// event is a line of go test -json: see "go doc test2json", and "go help
// buildjson" for those of a build, which have an ImportPath and no Package.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // the ImportPath of the build that a package failed for
}

// test names a test: TestA, or TestA/a_case.
type test struct{ pkg, name string }

// root is the test that a subtest is of.
func (t test) root() test {
	name, _, _ := strings.Cut(t.name, "/")
	return test{t.pkg, name}
}

// try is one time that a test ran.
type try struct {
	result string          // pass, fail, skip; died where its process did; "" for one that runs
	said   strings.Builder // by itself
	story  strings.Builder // of a root: by itself and its cases
}

// run is what one file tells.
type run struct {
	order  []test          // as they began
	tries  map[test][]*try // of each, the last one counts
	broken []string        // what packages printed that did not build, or whose process failed or died
	took   map[string]float64
}

func read(from io.Reader) (*run, error) {
	r := &run{tries: make(map[test][]*try), took: make(map[string]float64)}
	said := make(map[string]*strings.Builder) // by packages and builds, beside their tests
	failed := make(map[string]bool)           // packages where a test has, this time
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(bytes.TrimSpace(line)) == 0 {
			// between two runs
		} else if jsonErr := json.Unmarshal(line, &e); jsonErr != nil {
			return nil, fmt.Errorf("%w: %.200s", jsonErr, line)
		}
		where := cmp.Or(e.Package, e.ImportPath)
		switch {
		case e.Test != "":
			r.test(e)
			failed[e.Package] = failed[e.Package] || e.Action == "fail"
		case e.Action == "output" || e.Action == "build-output":
			if said[where] == nil {
				said[where] = new(strings.Builder)
			}
			said[where].WriteString(e.Output)
		case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			r.took[e.Package] += e.Elapsed
			if unended := r.unended(e.Package); e.Action == "fail" && (!failed[e.Package] || unended != "") {
				r.broken = append(r.broken, text(said[e.FailedBuild])+unended+text(said[e.Package]))
			}
			delete(said, where)
			delete(failed, e.Package)
		}
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func text(b *strings.Builder) string {
	if b == nil {
		return ""
	}
	return b.String()
}

// test takes an event of a test.
func (r *run) test(e event) {
	t := test{e.Package, e.Test}
	if e.Action == "run" || r.tries[t] == nil {
		r.begin(t)
	}
	switch last := r.last(t); e.Action {
	case "output":
		last.said.WriteString(e.Output)
		r.last(t.root()).story.WriteString(e.Output)
	case "pass", "fail", "skip":
		last.result = e.Action
	}
}

// begin begins a try. With a root, its cases begin anew: those that are still there.
func (r *run) begin(t test) {
	if r.tries[t] == nil {
		r.order = append(r.order, t)
	}
	r.tries[t] = append(r.tries[t], new(try))
	if t != t.root() {
		return
	}
	r.order = slices.DeleteFunc(r.order, func(o test) bool {
		old := o != t && o.root() == t
		if old {
			delete(r.tries, o)
		}
		return old
	})
}

// unended is what a package's tests had said when their process died: they never end.
func (r *run) unended(pkg string) string {
	var b strings.Builder
	for _, t := range r.order {
		if last := r.last(t); t.pkg == pkg && last.result == "" {
			last.result = "died"
			b.WriteString(last.story.String()) // a case's is in its root's
		}
	}
	return b.String()
}

func (r *run) last(t test) *try { return r.tries[t][len(r.tries[t])-1] }

// failedBefore tells whether a test passed, but not at once.
func (r *run) failedBefore(t test) bool {
	return r.last(t).result == "pass" && slices.ContainsFunc(r.tries[t], func(o *try) bool { return o.result == "fail" })
}

func (r *run) counts() counts {
	n := counts{failed: len(r.broken), without: make(map[string]int)}
	for _, t := range r.order {
		last := r.last(t)
		lacking, left := reasons(last, n.without)
		switch {
		case last.result == "pass":
			n.passed++
			if r.failedBefore(t) && t == t.root() {
				n.company++
			}
		case last.result == "fail":
			n.failed++
		case last.result == "skip" && left:
			n.left++
		case last.result == "skip" && lacking:
			n.notHere++
		case last.result == "skip":
			n.skipped++
		}
	}
	return n
}

// tell prints what is worth reading: of what passed at once, nothing.
func (r *run) tell(w io.Writer) {
	for _, said := range r.broken {
		fmt.Fprintf(w, "\n%s", said)
	}
	for _, t := range r.order {
		last := r.last(t)
		lacking, left := reasons(last, make(map[string]int))
		switch {
		case last.result == "skip" && !lacking && !left:
			io.WriteString(w, last.said.String())
		case t != t.root(): // its root's story has it
		case last.result == "fail":
			r.story(w, "failed", t)
		case r.failedBefore(t):
			r.story(w, "failed in company, passed alone", t)
		}
	}
}

// story prints all tries of a test.
func (r *run) story(w io.Writer, how string, t test) {
	fmt.Fprintf(w, "\n%s: %s %s\n", how, t.pkg, t.name)
	for i, o := range r.tries[t] {
		fmt.Fprintf(w, "try %d: %s\n%s", i+1, o.result, o.story.String())
	}
}

// reasons tells why a test did not do all: the machine lacks something, which is counted in without, or the
// rest is left to the long run.
func reasons(o *try, without map[string]int) (lacking, left bool) {
	lacks := make(map[string]bool)
	for line := range strings.Lines(o.said.String()) {
		line = strings.TrimSpace(line)
		if _, what, found := strings.Cut(line, testprog.NotHere); found {
			lacks[what] = true
		}
		left = left || strings.Contains(line, testprog.LeftToAll)
	}
	for what := range lacks {
		without[what]++
	}
	return len(lacks) > 0, left
}
