// Tally reads what "go test -json" prints, shows what "go test" would have shown,
// with the reason of every skip, and ends with the packages that took longest and one line of counts:
//
//	slowest: PACKAGE SECONDS, ...
//	not on this machine: FACULTY: REASON (N tests)
//	N passed, N failed, N skipped, N not on this machine
//
// Subtests count as tests. It fails where a test, a package or a build failed,
// and, where CI is set, where a test was skipped: there, nothing may be missing that can be had.
// What the machine itself cannot do is told apart (testprog.Faculty), of tests that it ended and
// of those that went on with less.
package main

import (
	"bufio"
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

// event is a line of go test -json: see "go doc test2json", and "go help
// buildjson" for those of a build, which have an ImportPath and no Package.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

type counts struct{ passed, failed, skipped, notHere int }

func main() {
	n, err := tally(os.Stdin, os.Stdout)
	if err == nil {
		err = verdict(n, os.Getenv("CI") != "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
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

// tally copies what is worth seeing from r to w, and counts.
func tally(r io.Reader, w io.Writer) (n counts, err error) {
	out := bufio.NewWriter(w)
	defer out.Flush()
	pending := map[string]*strings.Builder{} // output of tests without a result yet
	failedIn := map[string]bool{}            // packages where a test said so itself
	took := map[string]float64{}
	without := map[string]int{} // what the machine lacks, and how many tests said so
	lines := bufio.NewReader(r)
	for {
		line, readErr := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line) // the go command's own words
			} else {
				count(e, &n, out, pending, failedIn, without)
				if e.Test == "" {
					took[e.Package] += e.Elapsed // of both runs, where there are two
				}
			}
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			return n, readErr
		}
	}
	if slow := slowest(took); slow != "" {
		fmt.Fprintln(out, "slowest:", slow)
	}
	for _, what := range slices.Sorted(maps.Keys(without)) {
		fmt.Fprintf(out, "%s%s (%d tests)\n", testprog.NotHere, what, without[what])
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped, %d not on this machine\n", n.passed, n.failed, n.skipped, n.notHere)
	return n, nil
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

func count(e event, n *counts, out *bufio.Writer, pending map[string]*strings.Builder, failedIn map[string]bool, without map[string]int) {
	key := e.Package + " " + e.Test
	if e.Test == "" {
		switch e.Action {
		case "output":
			// PASS is in the line of the package that follows.
			if e.Output != "PASS\n" {
				out.WriteString(e.Output)
			}
		case "build-output":
			out.WriteString(e.Output)
		case "fail":
			// The package fails with its tests; alone, it did not build, or died.
			if !failedIn[e.Package] {
				n.failed++
			}
			// What a test had said when the process ended is why.
			for key, text := range pending {
				if strings.HasPrefix(key, e.Package+" ") {
					out.WriteString(text.String())
				}
			}
			out.Flush()
		}
		if e.Action == "pass" || e.Action == "fail" {
			out.Flush() // a run is watched while it goes on
		}
		return
	}
	ended := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
	lacking := ended && lacks(pending[key], without)
	switch e.Action {
	case "output":
		if pending[key] == nil {
			pending[key] = new(strings.Builder)
		}
		pending[key].WriteString(e.Output)
		return
	case "pass":
		n.passed++
	case "fail":
		n.failed++
		failedIn[e.Package] = true
	case "skip":
		if lacking {
			n.notHere++
			delete(pending, key) // the end tells it once
			return
		}
		n.skipped++
	default:
		return // run, pause, cont
	}
	if text := pending[key]; text != nil && e.Action != "pass" {
		out.WriteString(text.String())
	}
	delete(pending, key)
}

// lacks tells whether a test said that the machine lacks something, and counts it for what it is.
func lacks(text *strings.Builder, without map[string]int) bool {
	if text == nil {
		return false
	}
	said := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		if _, what, found := strings.Cut(strings.TrimSpace(line), testprog.NotHere); found {
			said[what] = true
		}
	}
	for what := range said {
		without[what]++
	}
	return len(said) > 0
}
