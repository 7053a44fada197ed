package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

func TestPlanTouchesNothing(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	pid := fmt.Sprint(p.Pid)
	r := run(t, "plan", "-p", pid, "p jumper", "r jumper", "p jumpers:jum*")
	line := regexp.MustCompile(`^jumpers:jumper  0x[0-9a-f]+  [0-9a-f]{2}( [0-9a-f]{2})*  (copy|emulate)  trap`)
	if !r.OK() || len(r.Lines) != 3 || r.Stderr != "" {
		t.Errorf("%s", r)
	}
	for _, l := range r.Lines {
		if !line.MatchString(l) {
			t.Errorf("%q", l)
		}
	}
	r = run(t, "plan", "-p", pid, "p jumper", "p jumper+1", "r libc:_setjmp")
	refused(t, r, "2 of 3 places")
	if len(r.Lines) != 3 || count(r.Lines, "refuse  (") != 2 || count(r.Lines, "not the start of an instruction") != 1 {
		t.Errorf("%q", r.Lines)
	}
	r = run(t, "plan", "-p", pid, "p nosuchlib.so:f")
	if !r.OK() || count(r.Lines, "pending") != 1 {
		t.Errorf("%s", r)
	}
	refused(t, run(t, "plan", "-p", pid, "p jumper %zz"), "BAD_REG_NAME")
	checkUntouched(t, p.Pid)
}

func TestBlacklist(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	r := run(t, "blacklist", "-p", fmt.Sprint(p.Pid))
	line := regexp.MustCompile(`^0x([0-9a-f]{16})-0x[0-9a-f]{16}\t([^\t]+)\t[^\t]+$`)
	var last string
	for _, l := range r.Lines {
		m := line.FindStringSubmatch(l)
		if m == nil || m[1] < last {
			t.Fatalf("%q after %q", l, last)
		}
		last = m[1]
		// What is listed is refused.
		refused(t, run(t, "plan", "-p", fmt.Sprint(p.Pid), "p 0x"+m[1]), "1 of 1 places")
	}
	if !r.OK() || count(r.Lines, "\t[vdso]\t") != 1 || count(r.Lines, "\t__restore_rt\t") == 0 {
		t.Errorf("%s", r)
	}
	checkUntouched(t, p.Pid)
}

func TestDoctor(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	pid := fmt.Sprint(p.Pid)
	r := run(t, "doctor", "-p", pid)
	if !r.OK() || count(r.Lines, "ok  ") != len(r.Lines) || len(r.Lines) < 5 || r.Stderr != "" {
		t.Errorf("%s", r)
	}
	r = run(t, "doctor", "-p", "4194305")
	refused(t, r, "no process 4194305")
	if len(r.Lines) != 1 || count(r.Lines, "NO  process ") != 1 {
		t.Errorf("%q", r.Lines)
	}
	k := started(t, tool(t, "trace", "-p", pid, "p jumper"), p.Pid)
	r = run(t, "doctor", "-p", pid)
	refused(t, r, "(kprobe) traces it already")
	if count(r.Lines, "NO  tracer ") != 1 {
		t.Errorf("%q", r.Lines)
	}
	// Two tracers of one process there cannot be.
	refused(t, run(t, "trace", "-p", pid, "p:two jumper"), "(kprobe) traces it already")
	k.Signal(syscall.SIGINT)
	k.Result()
	checkUntouched(t, p.Pid)
	// None: what this system has, and each machine.
	r = run(t, "doctor")
	if !r.OK() || count(r.Lines, "ok  system ") != 1 {
		t.Errorf("%s", r)
	}
	for part, cells := range map[string][]string{
		"targets can have":                                  {"amd64", "386", "arm64", "riscv64", "s390x", "ppc64le"},
		"probes with handlers, at stops":                    {"yes", "yes", "yes", "yes", "yes", "yes"},
		"live processes, which outlive a killed controller": {"yes", "yes", "yes", "yes", "yes", "yes", "-"},
		"jprobes on Go functions":                           {"yes", "-", "yes", "yes", "-"},
		"programs in the target, compiled":                  {"yes", "yes", "yes"},
	} {
		row := slices.IndexFunc(r.Lines, func(line string) bool { return strings.HasPrefix(line, part) })
		if row < 0 {
			t.Errorf("no row for %s in %s", part, r)
		} else if got := strings.Fields(r.Lines[row][len(part):]); !slices.Equal(got[:len(cells)], cells) {
			t.Errorf("%s: %q, want %q first", part, got, cells)
		}
	}
	// Several: one that can be probed and one that cannot.
	r = run(t, "doctor", "-p", pid, "4194305")
	refused(t, r, "4194305")
	if count(r.Lines, "# process ") != 2 {
		t.Errorf("%q", r.Lines)
	}
}
