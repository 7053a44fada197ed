package vmtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/vm"
)

// Suite is a package's tests, built for another machine, and run there.
type Suite struct {
	Package string   // its import path
	Run     string   // which tests: a pattern of -test.run; "" for all
	Short   bool     // with -test.short
	Env     []string // NAME=VALUE

	// Except are tests, or cases of tests (TEST/CASE), that mean nothing there, each with the reason.
	Except map[string]string

	// Long is how long all of it may take: five minutes, if it says nothing.
	Long time.Duration
}

// Verdict is how one test of a suite ended.
type Verdict struct {
	Suite, Test string
	Result      string // PASS, FAIL, SKIP; or EXCEPT
	Why         string // of SKIP and EXCEPT
	Subtests    int
	Seconds     string
}

// RunIn boots one guest of a machine and runs suites in it natively, one after the other. Each
// test there is a subtest here, which fails with what the test has said. It answers
// them all, for a table.
//
// What a suite needs in the guest is in c.Files: it is a bare kernel with a busybox.
func RunIn(t *testing.T, c vm.Config, suites ...Suite) []Verdict {
	t.Helper()
	files := make(map[string]string, len(c.Files)+len(suites))
	for there, here := range c.Files {
		files[there] = here
	}
	for i, s := range suites {
		files[place(i)] = BuildTests(t, c.Machine, s.Package)
	}
	c.Files = files
	v := Boot(t, c)
	var all []Verdict
	for i, s := range suites {
		t.Run(filepath.Base(s.Package), func(t *testing.T) { all = append(all, runSuite(t, v, place(i), s)...) })
	}
	return all
}

func place(i int) string { return fmt.Sprintf("/suites/%d/tests", i) }

// BuildTests builds the tests of a package as a static program for a machine of Linux.
func BuildTests(t testing.TB, machine, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "tests")
	cmd := exec.Command("go", "test", "-c", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+machine, "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s for %s: %v\n%s", cmd, machine, err, msg)
	}
	return out
}

func runSuite(t *testing.T, v *vm.VM, binary string, s Suite) []Verdict {
	long := s.Long
	if long == 0 {
		long = 5 * time.Minute
	}
	command := "cd " + filepath.Dir(binary) + " && " + strings.Join(s.Env, " ") + " exec ./tests -test.v -test.count=1 -test.timeout=" + long.String()
	if s.Short {
		command += " -test.short"
	}
	if s.Run != "" {
		command += " -test.run='" + s.Run + "'"
	}
	if len(s.Except) > 0 {
		var names []string
		for name := range s.Except {
			names = append(names, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
		}
		slices.Sort(names)
		command += " -test.skip='" + strings.Join(names, "|") + "'"
	}
	log := new(verdicts)
	log.suite = filepath.Base(s.Package)
	_, err := v.RunFor(command, long+time.Minute, func(line string) {
		if testing.Verbose() {
			os.Stderr.WriteString(line) // as it comes: a test that hangs says where
		}
		log.line(line)
	})
	var status *vm.Status
	if err != nil && !errors.As(err, &status) {
		t.Error(err)
	}
	for name, why := range s.Except {
		log.done = append(log.done, outcome{Verdict: Verdict{Suite: log.suite, Test: name, Result: "EXCEPT", Why: why}})
	}
	if log.name != "" { // it never ended
		log.end("FAIL", "?")
	}
	failed := false
	var all []Verdict
	for _, o := range log.done {
		all = append(all, o.Verdict)
		t.Run(o.Test, func(t *testing.T) {
			switch o.Result {
			case "FAIL":
				failed = true
				t.Error("\n" + o.said)
			case "SKIP", "EXCEPT":
				t.Log("not in the guest: " + o.Why)
			}
		})
	}
	if len(log.done) == len(s.Except) {
		t.Errorf("no test ran:\n%s", log.rest.String())
	} else if status != nil && !failed {
		t.Errorf("the tests ended with status %d:\n%s", status.Code, log.rest.String())
	}
	return all
}

// verdicts reads what a test binary prints with -test.v.
type verdicts struct {
	suite string
	done  []outcome

	name     string // of the test that runs
	subtests int
	said     strings.Builder
	rest     strings.Builder // what no test said
}

type outcome struct {
	Verdict
	said string
}

var verdictLine = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)

func (v *verdicts) line(line string) {
	if name, ok := strings.CutPrefix(line, "=== RUN   "); ok {
		name = strings.TrimSpace(name)
		if !strings.Contains(name, "/") {
			if v.name != "" { // one that runs beside, or has died without a word
				v.end("FAIL", "?")
			}
			v.name = name
		} else {
			v.subtests++
		}
		return
	}
	if v.name == "" {
		v.rest.WriteString(line)
		return
	}
	v.said.WriteString(line)
	if m := verdictLine.FindStringSubmatch(line); m != nil && m[1] == "" {
		v.end(m[2], m[4])
	}
}

func (v *verdicts) end(result, seconds string) {
	o := outcome{Verdict{Suite: v.suite, Test: v.name, Result: result, Subtests: v.subtests, Seconds: seconds}, v.said.String()}
	if result == "SKIP" {
		for line := range strings.Lines(o.said) {
			if _, why, ok := strings.Cut(line, ".go:"); ok {
				_, o.Why, _ = strings.Cut(strings.TrimSpace(why), ": ")
			}
		}
	}
	v.done = append(v.done, o)
	v.name, v.subtests = "", 0
	v.said.Reset()
}

// Table prints verdicts: a line for each suite, then those of its tests that did not pass.
func Table(vs []Verdict) string {
	var b strings.Builder
	var suites []string
	for _, v := range vs {
		if !slices.Contains(suites, v.Suite) {
			suites = append(suites, v.Suite)
		}
	}
	fmt.Fprintf(&b, "%-14s %7s %7s %15s\n", "suite", "passed", "failed", "not applicable")
	for _, s := range suites {
		n := map[string]int{}
		for _, v := range vs {
			if v.Suite == s {
				n[v.Result] += 1
			}
		}
		fmt.Fprintf(&b, "%-14s %7d %7d %15d\n", s, n["PASS"], n["FAIL"], n["SKIP"]+n["EXCEPT"])
	}
	for _, v := range vs {
		if v.Result != "PASS" {
			fmt.Fprintf(&b, "%s %s %s: %s\n", v.Suite, v.Result, v.Test, v.Why)
		}
	}
	return b.String()
}
