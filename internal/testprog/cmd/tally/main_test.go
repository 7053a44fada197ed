package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The go command itself is what has to be understood: each case is a package that
// it tests, and, where that failed, tests once more, as gotestsum has it do.
func TestTally(t *testing.T) {
	const head = "package p\nimport (\"testing\"; \"os\")\nvar _ = os.Exit\n"
	const once = "if _, err := os.Stat(\"again\"); err != nil { os.WriteFile(\"again\", nil, 0o644); t.Fatal(\"in company\") }; t.Log(\"alone\")"
	tests := []struct {
		name, source string
		again        string // the test that runs again
		line         string // the last one
		shown        []string
		ok, okInCI   bool
	}{
		{"passes", head + "func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Log(\"quiet\") }) }", "",
			"2 passed, 0 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine", nil, true, true},
		{"fails", head + "func TestA(t *testing.T) { t.Error(\"it broke\") }\nfunc TestB(t *testing.T) {}", "TestA",
			"1 passed, 1 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"failed: p TestA", "it broke", "try 2: fail"}, false, false},
		{"fails once", head + "func TestA(t *testing.T) { " + once + " }\nfunc TestB(t *testing.T) {}", "TestA",
			"2 passed, 0 failed, 0 skipped, 1 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"failed in company, passed alone: p TestA", "try 1: fail", "in company", "try 2: pass", "alone"}, true, true},
		{"a case fails once", head + "func TestA(t *testing.T) { t.Run(\"x y\", func(t *testing.T) {" + once + " }) }", "TestA",
			"2 passed, 0 failed, 0 skipped, 1 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"failed in company, passed alone: p TestA", "in company", "alone"}, true, true},
		{"another test runs again", head + "func TestA(t *testing.T) { " + once + " }\nfunc TestB(t *testing.T) {}", "TestB",
			"1 passed, 1 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"failed: p TestA", "in company"}, false, false},
		{"skips", head + "func TestA(t *testing.T) { t.Skip(\"no such thing\") }\nfunc TestB(t *testing.T) {}", "",
			"1 passed, 0 failed, 1 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"no such thing"}, true, false},
		{"leaves it to the long run", head + "func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Skip(\"left to make test-all: slow\") }) }", "",
			"1 passed, 0 failed, 0 skipped, 0 failed in company, 1 left to test-all, 0 not on this machine", nil, true, true},
		{"is not for this machine", head + "func TestA(t *testing.T) { t.Log(\"not on this machine: wings\"); t.SkipNow() }\n" +
			"func TestB(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Log(\"not on this machine: wings\") }) }", "",
			"2 passed, 0 failed, 0 skipped, 0 failed in company, 0 left to test-all, 1 not on this machine",
			[]string{"not on this machine: wings (2 tests)"}, true, true},
		{"does not compile", head + "func TestA(t *testing.T) { undefined() }", "",
			"0 passed, 1 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"undefined: undefined", "[build failed]"}, false, false},
		{"dies", head + "func TestA(t *testing.T) { t.Log(\"last words\"); os.Exit(3) }", "",
			"0 passed, 1 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"last words", "FAIL\t"}, false, false},
		{"dies after a failure", head + "func TestA(t *testing.T) { t.Error(\"it broke\") }\nfunc TestB(t *testing.T) { t.Log(\"last words\"); os.Exit(3) }", "TestA",
			"0 passed, 2 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"it broke", "last words", "FAIL\t"}, false, false},
		{"panics", head + "func TestA(t *testing.T) { panic(\"at the disco\") }", "",
			"0 passed, 1 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine",
			[]string{"at the disco"}, false, false},
		{"nothing", head + "var _ testing.TB", "",
			"0 passed, 0 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine", nil, false, false},
	}
	for _, tt := range tests {
		if testing.Short() && !slices.Contains([]string{"passes", "a case fails once", "skips", "does not compile", "dies after a failure"}, tt.name) {
			continue // each links a program
		}
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"go.mod": "module p\n", "p_test.go": tt.source} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			run := func(args ...string) string {
				cmd := exec.Command("go", append([]string{"test", "-json", "."}, args...)...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GOFLAGS=-vet=off -ldflags=-w") // quick to link
				printed, _ := cmd.CombinedOutput()                             // that it fails is the tally's to see
				return string(printed)
			}
			printed := run()
			if tt.again != "" {
				printed += run("-run", "^"+tt.again+"$")
			}
			results := filepath.Join(dir, "results")
			if err := os.WriteFile(results, []byte(printed), 0o644); err != nil {
				t.Fatal(err)
			}
			for ci, want := range map[string]bool{"": tt.ok, "true": tt.okInCI} {
				t.Setenv("CI", ci)
				var out strings.Builder
				if err := tally([]string{results}, &out); (err == nil) != want {
					t.Errorf("with CI=%s: %v", ci, err)
				}
				for _, s := range append(tt.shown, "\n"+tt.line+"\n") {
					if !strings.Contains("\n"+out.String(), s) {
						t.Errorf("no %q in\n%s\nof\n%s", s, out.String(), printed)
					}
				}
				if strings.Contains(out.String(), "quiet") {
					t.Errorf("a passing test's output is shown:\n%s", out.String())
				}
			}
		})
	}
}

// Each file is a run of its own: a test that fails in one and passes in the other has failed. The packages that took longest are told,
// the longest first, of all runs together; who took no time is not.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, lines := range map[string]string{
		"full": `{"Action":"pass","Package":"a","Elapsed":2.4}
{"Action":"run","Package":"b","Test":"TestB"}
{"Action":"fail","Package":"b","Test":"TestB","Elapsed":50}
{"Action":"fail","Package":"b","Elapsed":7}
{"Action":"pass","Package":"c","Elapsed":0.2}
`,
		"race": `{"Action":"pass","Package":"a","Elapsed":8}
{"Action":"run","Package":"b","Test":"TestB"}
{"Action":"pass","Package":"b","Test":"TestB","Elapsed":50}
`} {
		files = append(files, filepath.Join(dir, name))
		if err := os.WriteFile(files[len(files)-1], []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := tally(files, &out); err == nil {
		t.Error("a run failed, and the tally does not")
	}
	if want := "slowest: a 10 s, b 7 s\n1 passed, 1 failed, 0 skipped, 0 failed in company, 0 left to test-all, 0 not on this machine\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// What is no result is an error: the run it came from is not known to have passed.
func TestBrokenFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results")
	for _, text := range []string{"ok p 1.0s\n", `{"Action":"pass"`, ""} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := tally([]string{name}, new(strings.Builder)); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	if err := tally([]string{name + ".no"}, new(strings.Builder)); err == nil {
		t.Error("a file that is not there passes")
	}
}
