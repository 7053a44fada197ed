package main

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

func TestTraceWatchesData(t *testing.T) {
	testprog.Watches.Need(t)
	p := testprog.Start(t, testprog.Build(t, "watched", "-O2"))
	pid := fmt.Sprint(p.Pid)
	const def = "w:ev w@counter:4 val=@counter:u32"
	if r := run(t, "plan", "-p", pid, def); !r.OK() || len(r.Lines) != 1 || !regexp.MustCompile(`^watched:counter  0x[0-9a-f]+  watch  debug register  \(4 bytes, w\)$`).MatchString(r.Lines[0]) {
		t.Errorf("%s", r)
	}
	k := started(t, tool(t, "trace", "-p", pid, def), p.Pid)
	if r := run(t, "list", "-p", pid); !r.OK() || len(r.Lines) != 1 || !strings.Contains(r.Lines[0], "  w  counter+0x0  ") {
		t.Errorf("%s", r)
	}
	if got := p.Round("direct 5")[0]; got != "counter 5" {
		t.Errorf("%q", got)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	for i := range 5 {
		if count(r.Lines, fmt.Sprintf(": ev: (direct_write+0x9/0xa) val=%d", i+1)) != 1 {
			t.Errorf("%s", r)
		}
	}
	if hits, _ := summaryRow(t, r.Stderr, "ev"); hits != 5 {
		t.Errorf("%s", r.Stderr)
	}
	checkUntouched(t, p.Pid)
	refused(t, run(t, "trace", "-p", pid, "w counter"), "BAD_ACCESS_FMT")
	if got := p.Round("direct 5")[0]; got != "counter 10" {
		t.Errorf("%q", got)
	}
}

// With kprobe and its guardian dead, the target lives with its debug registers set;
// recover clears them.
func TestRecoverClearsDebugRegisters(t *testing.T) {
	testprog.Watches.Need(t)
	p := testprog.Start(t, testprog.Build(t, "watched", "-O2"), "8")
	ownJournals(t)
	pid := fmt.Sprint(p.Pid)
	k := testprog.StartCmd(t, tool(t, "trace", "-p", pid, "-o", "/dev/null", "w @counter:8", "p writer1"))
	awaitProbes(t, p.Pid)
	if err := syscall.Kill(guardianOf(t, k.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Send("500")
	k.Signal(syscall.SIGKILL)
	k.Wait()
	const sum = 2*500*10 + 5*51
	if got := p.Expect("counter"); got != fmt.Sprint("counter ", sum) {
		t.Errorf("with nobody left: %q", got)
	}
	p.Expect("done")
	if got := p.Round("unowned"); len(got) != 1 {
		t.Errorf("an access that is reported as a breakpoint: %q", got)
	}
	if r := run(t, "recover"); !r.OK() || len(r.Lines) != 2 || !strings.HasPrefix(r.Lines[1], fmt.Sprintf("process %s: restored", pid)) {
		t.Errorf("recover: %s", r)
	}
	checkUntouched(t, p.Pid)
	// SIGTRAP's action is the program's own again: it would not survive an access now.
	if got := p.Round("500")[0]; got != fmt.Sprint("counter ", 2*sum) {
		t.Errorf("recovered: %q", got)
	}
}
