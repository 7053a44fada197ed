package main

import (
	"os"
	"regexp"
	"slices"
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
		// The second function is in none of these programs but may be in one to come: that is said, once before and once after.
		r := run(t, "trace", "-f", "p:q "+inLibc(t, "setlocale"), "p:never libnever.so:never", "--", shell, "-c", script)
		seen := commands(r)
		if r.Status.ExitStatus() != 5 || len(seen["date"]) != 1 || len(seen["ls"]) != 1 {
			t.Errorf("%s: %v, exit status %d\n%s", shell, seen, r.Status.ExitStatus(), r.Stderr)
		}
		if hits, _ := summaryRow(t, r.Stderr, "q"); hits != uint64(len(r.Lines)) || count(strings.Split(r.Stderr, "\n"), "kprobe:") != 2 || count(strings.Split(r.Stderr, "\n"), "kprobe: libnever.so:never ") != 2 {
			t.Errorf("%s: %d events\n%s", shell, len(r.Lines), r.Stderr)
		}
		if testing.Short() && shell == "bash" {
			continue // nothing is followed of any
		}
		r = run(t, "trace", "p:q "+inLibc(t, "setlocale"), "--", shell, "-c", script)
		if seen := commands(r); r.Status.ExitStatus() != 5 || len(seen["date"])+len(seen["ls"]) != 0 {
			t.Errorf("%s, not followed: %v", shell, seen)
		}
	}
}

// What traces programs itself goes on as without us: its child is let go, or it is, with a sentence.
func TestFollowTracers(t *testing.T) {
	for name, argv := range map[string][]string{
		"strace": {"strace", "-f", "-o", "/dev/null", "sh", "-c", "echo traced; exit 5"},
		"gdb":    {"gdb", "-nx", "-batch", "-ex", "set startup-with-shell off", "-ex", "run", "-ex", "quit 5", "--args", "echo", "traced"},
	} {
		r := run(t, append([]string{"trace", "-f", "--no-summary", "-o", os.DevNull, "p " + inLibc(t, "ptrace"), "--"}, argv...)...)
		if r.Status.ExitStatus() != 5 || !slices.Contains(r.Lines, "traced") || !strings.Contains(r.Stderr, "shall be traced by another") {
			t.Errorf("%s: exit status %d\n%s\n%s", name, r.Status.ExitStatus(), strings.Join(r.Lines, "\n"), r.Stderr)
		}
	}
}
