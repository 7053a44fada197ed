package main

import (
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

func TestPlanJumps(t *testing.T) {
	a, b := testprog.Build(t, "threads", "-O2"), testprog.Build(t, "goprog")
	r := run(t, "plan", "--jumps", a, b)
	if !r.OK() || r.Stderr != "" {
		t.Fatalf("%v", r)
	}
	text := strings.Join(r.Lines, "\n")
	for _, want := range []string{
		regexp.QuoteMeta(a) + ` at 0x555555554000\n`,
		regexp.QuoteMeta(b) + ` at 0x400000\n`,
		`\nwhole +\d+ +\d+\.\d\d % +\d+ +\d+\.\d\d %\nbehind +0 .*\nguarded +\d+ `,
		`\nall +\d+ +100\.00 % +\d+ +100\.00 %\nmemory for all entries: \d+ bytes each`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, args := range [][]string{{}, {"nosuchfile"}, {"jumps.go"}, {a, "nosuchfile"}} {
		r := run(t, append([]string{"plan", "--jumps"}, args...)...)
		if r.OK() || strings.Count(r.Stderr, "\n") != 1 || !strings.HasPrefix(r.Stderr, "kprobe: ") {
			t.Errorf("%q: %v", args, r)
		}
	}
	if r := run(t, "plan", "--jumps", testprog.Build(t, "threads", "-m32")); r.OK() || !strings.Contains(r.Stderr, "not told for 386") {
		t.Errorf("%v", r)
	}
}
