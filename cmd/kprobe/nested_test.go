package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// nested is a program with calls in each other, and on several stacks: its path, and the name of its file.
func nested(t *testing.T) (path, name string) {
	path = testprog.Build(t, "nested", "-O1", "-g", "-fcf-protection=none")
	return path, filepath.Base(path)
}

// onStacks are ways to run it, and how many calls of which function return then.
var onStacks = []struct {
	how, n, function string
	calls            int
}{
	{"deep", "3000", "deep", 3000},
	{"apart", "6", "step", 180},
	{"carved", "6", "step", 180},
}

// Every return is seen of a recursion, and of calls in coroutines, whose stacks may be parts of another one; and by default, by every
// command.
func TestReturnsOnStacks(t *testing.T) {
	path, name := nested(t)
	for _, c := range onStacks {
		program := []string{"--", path, c.how, c.n}
		definition := "r " + name + ":" + c.function
		r := run(t, append([]string{"trace", definition}, program...)...)
		events := 0
		for _, l := range r.Lines {
			if strings.Contains(l, " <- "+c.function+")") {
				events++
			}
		}
		if events != c.calls || !r.OK() || strings.Contains(r.Stderr, "no instance") {
			t.Errorf("trace, %s: %d events of %d: %s", c.how, events, c.calls, r.Stderr)
		}
		if !testing.Short() || c.how == "carved" { // these tell of all stacks what trace does
			r = run(t, append([]string{"stat", definition}, program...)...)
			if row := regexp.MustCompile(`:` + c.function + ` +(\d+) +[\d.]+ +(\d+)`).FindStringSubmatch(r.String()); row == nil || row[1] != strconv.Itoa(c.calls) || row[2] != "0" {
				t.Errorf("stat, %s: %v", c.how, r)
			}
			r = run(t, "script", "-e", fmt.Sprintf("uretprobe:%s:%s { @n = count(); }", path, c.function), "-c", strings.Join(program[1:], " "))
			if !r.OK() || !strings.Contains(r.String(), fmt.Sprintf("@n: %d", c.calls)) || strings.Contains(r.Stderr, "Missed") {
				t.Errorf("script, %s: %v", c.how, r)
			}
		}
		r = run(t, append([]string{"graph", "--depth", "100", name + ":" + c.function, name + ":turn"}, program...)...)
		if c.how == "carved" { // the first ones are drawn before graph knows that there are several stacks
			if !r.OK() || !strings.Contains(r.Stderr, "returned although") || strings.Contains(r.Stderr, "did not return,") {
				t.Errorf("graph, %s: %s", c.how, r.Stderr)
			}
		} else if !r.OK() || strings.Contains(r.String(), "did not return") || strings.Contains(r.Stderr, "missed") || c.how == "apart" && strings.Count(r.String(), c.function+"(") != c.calls {
			t.Errorf("graph, %s: %s", c.how, r.Stderr)
		}
		if c.how == "deep" {
			program[3] = "100" // each is two stops
			c.calls = 100
		}
		r = run(t, append([]string{"trace", "--stops", "-o", filepath.Join(t.TempDir(), "events"), definition}, program...)...)
		if !r.OK() || !strings.Contains(r.Stderr, fmt.Sprintf("  %d  ", c.calls)) || strings.Contains(r.Stderr, "no instance") {
			t.Errorf("trace --stops, %s: %s", c.how, r.Stderr)
		}
	}
}

// What is missed is told by every command, and in JSON.
func TestMissedIsTold(t *testing.T) {
	path, name := nested(t)
	r := run(t, "trace", "-o", filepath.Join(t.TempDir(), "events"), "r20 "+name+":deep", "--", path, "deep", "100")
	if !strings.Contains(r.Stderr, "no instance") || !regexp.MustCompile(`:deep +20 +[\d.]+ +80\n`).MatchString(r.Stderr) {
		t.Errorf("trace, 20 calls at once: %s", r.Stderr)
	}
	calls := 90000 // more than there is room for
	if testing.Short() {
		calls = 70000
	}
	program := fmt.Sprintf("%s deep %d", path, calls)
	text := fmt.Sprintf("uretprobe:%s:deep { @n = count(); }", path)
	counted := func(out, before string) (n int) {
		at := strings.Index(out, before)
		if at >= 0 {
			fmt.Sscanf(out[at+len(before):], "%d", &n)
		}
		return n
	}
	r = run(t, "script", "-e", text, "-c", program)
	seen, missed := counted(r.String(), "@n: "), counted(r.Stderr, "Missed ")
	if seen+missed != calls || missed == 0 {
		t.Errorf("a script tells of %d calls and %d missed: %v", seen, missed, r)
	}
	r = run(t, "script", "-f", "json", "-e", text, "-c", program)
	seen, missed = counted(r.String(), `"@n": `), counted(r.String(), `{"type": "lost_events", "count": `)
	if seen+missed != calls || missed == 0 {
		t.Errorf("a script in JSON tells of %d calls and %d missed: %v", seen, missed, r)
	}
	r = run(t, "graph", "--depth", "3", name+":deep", "--", path, "deep", strconv.Itoa(calls))
	if !strings.Contains(r.Stderr, "did not return, or their returns were missed") {
		t.Errorf("graph tells: %s", r.Stderr)
	}
	r = run(t, "stat", "r "+name+":deep", "--", path, "deep", strconv.Itoa(calls))
	if row := regexp.MustCompile(`:deep +(\d+) +[\d.]+ +(\d+)`).FindStringSubmatch(r.String()); row == nil || row[2] == "0" || atoi(row[1])+atoi(row[2]) != calls {
		t.Errorf("stat tells %q: %v", row, r)
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }
