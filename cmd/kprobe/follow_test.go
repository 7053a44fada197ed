package main

import (
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// trace -f follows what a shell starts, by fork or vfork, and what that executes.
func TestFollow(t *testing.T) {
	const script = "date +%s >/dev/null; (ls / >/dev/null; exit 3); exit 5"
	event := regexp.MustCompile(`^ *(\S+)-(\d+) .* q: `)
	commands := func(r testprog.Result) map[string]map[string]bool {
		seen := make(map[string]map[string]bool)
		for _, l := range r.Lines {
			m := event.FindStringSubmatch(l)
			if m == nil {
				t.Errorf("no event: %q", l)
				continue
			}
			if seen[m[1]] == nil {
				seen[m[1]] = make(map[string]bool)
			}
			seen[m[1]][m[2]] = true
		}
		return seen
	}
	for _, shell := range []string{"sh", "bash"} {
		// The second function is in none of these programs but may be in one to come.
		r := run(t, "trace", "-f", "p:q libc.so.6:setlocale", "p:never libnever.so:never", "--", shell, "-c", script)
		seen := commands(r)
		if r.Status.ExitStatus() != 5 || len(seen["date"]) != 1 || len(seen["ls"]) != 1 {
			t.Errorf("%s: %v, exit status %d\n%s", shell, seen, r.Status.ExitStatus(), r.Stderr)
		}
		if hits, _ := summaryRow(t, r.Stderr, "q"); hits != uint64(len(r.Lines)) || strings.Contains(r.Stderr, "kprobe:") {
			t.Errorf("%s: %d events\n%s", shell, len(r.Lines), r.Stderr)
		}
		r = run(t, "trace", "p:q libc.so.6:setlocale", "--", shell, "-c", script)
		if seen := commands(r); r.Status.ExitStatus() != 5 || len(seen["date"])+len(seen["ls"]) != 0 {
			t.Errorf("%s, not followed: %v", shell, seen)
		}
	}
}
