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

func TestStat(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("1000")[0]
	k := started(t, tool(t, "stat", "-p", fmt.Sprint(p.Pid), "p:in jumpers:jumper", "r:out jumpers:jumper"), p.Pid)
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	row := regexp.MustCompile(`(?m)^ *(in|out)  +jumpers:jumper  +1000  +[0-9.]+  +0$`)
	if out := strings.Join(r.Lines, "\n"); !r.OK() || len(row.FindAllString(out, -1)) != 2 || !strings.Contains(out, "out at jumpers:jumper takes") {
		t.Errorf("%s\n%s", out, r)
	}
	checkUntouched(t, p.Pid)
	refused(t, run(t, "stat", "-p", fmt.Sprint(p.Pid), "w:x w@0x1000"), "only p and r lines")
	refused(t, run(t, "stat", "p jumper"), "no process given")
}

// A program that is started for it is counted from its first instruction on. Its output and status are its own.
func TestStatProgram(t *testing.T) {
	r := run(t, "stat", "p libc.so.6:getenv", "r libc.so.6:malloc", "--", "sh", "-c", "printenv HOME >/dev/null; echo done; exit 7")
	if !slices.Equal(r.Lines, []string{"done"}) || r.Status.ExitStatus() != 7 || !regexp.MustCompile(`libc.so.6:malloc  +[1-9]`).MatchString(r.Stderr) {
		t.Errorf("%s", r)
	}
	refused(t, run(t, "stat", "p libc.so.6:nowhere", "--", "true"), "nowhere")
	refused(t, run(t, "stat", "p libc.so.6:malloc", "-p", "1", "--", "true"), "either -p")
}
