package vmtest

import (
	"strings"
	"testing"

	"kprobe/internal/vm"
)

func TestMain(m *testing.M) { Main(m) }

// What a test binary prints becomes verdicts: also of one that dies in the middle.
func TestVerdicts(t *testing.T) {
	v := &verdicts{suite: "s"}
	for line := range strings.Lines(`starting
=== RUN   TestA
    a_test.go:7: a word
--- PASS: TestA (0.10s)
=== RUN   TestB
=== RUN   TestB/one
=== RUN   TestB/two
    b_test.go:9: wrong
--- FAIL: TestB (1.25s)
    --- PASS: TestB/one (0.00s)
    --- FAIL: TestB/two (0.00s)
=== RUN   TestC
    c_test.go:3: needs a moon
--- SKIP: TestC (0.00s)
=== RUN   TestD
panic: gone
`) {
		v.line(line)
	}
	if v.name != "TestD" {
		t.Errorf("%q never ended, want TestD", v.name)
	}
	v.end("FAIL", "?")
	want := []Verdict{
		{Suite: "s", Test: "TestA", Result: "PASS", Seconds: "0.10"},
		{Suite: "s", Test: "TestB", Result: "FAIL", Subtests: 2, Seconds: "1.25"},
		{Suite: "s", Test: "TestC", Result: "SKIP", Why: "needs a moon", Seconds: "0.00"},
		{Suite: "s", Test: "TestD", Result: "FAIL", Seconds: "?"},
	}
	for i, o := range v.done {
		if i >= len(want) || o.Verdict != want[i] {
			t.Errorf("verdict %d: %+v", i, o.Verdict)
		}
	}
	if len(v.done) != len(want) || !strings.Contains(v.done[1].said, "wrong") || !strings.Contains(v.done[3].said, "gone") {
		t.Errorf("%+v", v.done)
	}
	if rest := v.rest.String(); !strings.HasPrefix(rest, "starting\n") {
		t.Errorf("what no test said: %q", rest)
	}
}

// A package's tests run on another machine's own kernel: those of internal/mem need nothing there.
func TestRunIn(t *testing.T) {
	vs := RunIn(t, vm.Config{Machine: "arm64", Memory: 1024}, Suite{Package: "kprobe/internal/mem"})
	n := 0
	for _, v := range vs {
		if v.Result == "PASS" {
			n++
		}
	}
	if n == 0 {
		t.Errorf("no test passed:\n%s", Table(vs))
	}
}
