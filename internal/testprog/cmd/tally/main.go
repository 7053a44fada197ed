// Tally reads what "go test -json" prints, shows what "go test" would have shown,
// with the reason of every skip, and ends with one line of counts:
//
//	N passed, N failed, N skipped
//
// Subtests count as tests. It fails where a test, a package or a build failed,
// and, where CI is set, where a test was skipped: there, nothing may be missing.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is a line of go test -json: see "go doc test2json", and "go help
// buildjson" for those of a build, which have an ImportPath and no Package.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type counts struct{ passed, failed, skipped int }

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
	case n.passed == 0:
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
	lines := bufio.NewReader(r)
	for {
		line, readErr := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line) // the go command's own words
			} else {
				count(e, &n, out, pending, failedIn)
			}
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			return n, readErr
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", n.passed, n.failed, n.skipped)
	return n, nil
}

func count(e event, n *counts, out *bufio.Writer, pending map[string]*strings.Builder, failedIn map[string]bool) {
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
		n.skipped++
	default:
		return // run, pause, cont
	}
	if text := pending[key]; text != nil && e.Action != "pass" {
		out.WriteString(text.String())
	}
	delete(pending, key)
}
