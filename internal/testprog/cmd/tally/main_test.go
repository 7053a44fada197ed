package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The go command itself is what has to be understood: each case is a package that
// it tests.
func TestTally(t *testing.T) {
	const head = "package p\nimport (\"testing\"; \"os\")\nvar _ = os.Exit\n"
	tests := []struct {
		name, source string
		want         counts
		shown        []string
		ok, okInCI   bool
	}{
		{"passes", head + "func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Log(\"quiet\") }) }",
			counts{2, 0, 0, 0}, []string{"ok  \t"}, true, true},
		{"fails", head + "func TestA(t *testing.T) { t.Error(\"it broke\") }\nfunc TestB(t *testing.T) {}",
			counts{1, 1, 0, 0}, []string{"it broke", "FAIL\t"}, false, false},
		{"skips", head + "func TestA(t *testing.T) { t.Skip(\"no such thing\") }\nfunc TestB(t *testing.T) {}",
			counts{1, 0, 1, 0}, []string{"no such thing", "ok  \t"}, true, false},
		{"is not for this machine", head + "func TestA(t *testing.T) { t.Log(\"not on this machine: wings\"); t.SkipNow() }\n" +
			"func TestB(t *testing.T) { t.Log(\"not on this machine: wings\") }",
			counts{1, 0, 0, 1}, []string{"not on this machine: wings (2 tests)", "1 passed, 0 failed, 0 skipped, 1 not on this machine"}, true, true},
		{"does not compile", head + "func TestA(t *testing.T) { undefined() }",
			counts{0, 1, 0, 0}, []string{"undefined: undefined", "[build failed]"}, false, false},
		{"dies", head + "func TestA(t *testing.T) { t.Log(\"last words\"); os.Exit(3) }",
			counts{0, 1, 0, 0}, []string{"last words", "FAIL\t"}, false, false},
		{"panics", head + "func TestA(t *testing.T) { panic(\"at the disco\") }",
			counts{0, 1, 0, 0}, []string{"at the disco"}, false, false},
		{"nothing", head + "var _ testing.TB", counts{}, []string{"no tests to run"}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"go.mod": "module p\n", "p_test.go": tt.source} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("go", "test", "-json", ".")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOFLAGS=-vet=off")
			printed, _ := cmd.CombinedOutput() // that it fails is the tally's to see
			var out strings.Builder
			got, err := tally(strings.NewReader(string(printed)), &out)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("counted %+v, want %+v, in\n%s", got, tt.want, printed)
			}
			for _, s := range tt.shown {
				if !strings.Contains(out.String(), s) {
					t.Errorf("no %q in\n%s", s, out.String())
				}
			}
			if strings.Contains(out.String(), "quiet") {
				t.Errorf("a passing test's output is shown:\n%s", out.String())
			}
			if err := verdict(got, false); (err == nil) != tt.ok {
				t.Errorf("verdict %v", err)
			}
			if err := verdict(got, true); (err == nil) != tt.okInCI {
				t.Errorf("verdict in CI %v", err)
			}
		})
	}
}

// The packages that took longest are told, the longest first; who took no time is not.
func TestSlowest(t *testing.T) {
	lines := `{"Action":"pass","Package":"a","Elapsed":2.4}
{"Action":"pass","Package":"b","Test":"TestB","Elapsed":50}
{"Action":"pass","Package":"b","Elapsed":7}
{"Action":"pass","Package":"c","Elapsed":0.2}
{"Action":"fail","Package":"a","Elapsed":8}
`
	var out strings.Builder
	if _, err := tally(strings.NewReader(lines), &out); err != nil {
		t.Fatal(err)
	}
	if want := "slowest: a 10 s, b 7 s\n1 passed, 1 failed, 0 skipped, 0 not on this machine\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
