package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// guardianOf finds the child of a kprobe that is its guardian.
func guardianOf(t *testing.T, kprobe int) int {
	t.Helper()
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", kprobe))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for _, f := range bytes.Fields(pids) {
			line, _ := os.ReadFile("/proc/" + string(f) + "/cmdline")
			if bytes.HasPrefix(line, []byte("kprobe-guardian\x00")) {
				pid, _ := strconv.Atoi(string(f))
				return pid
			}
		}
	}
	t.Fatalf("kprobe %d has no guardian", kprobe)
	return 0
}

// ownJournals gives the test a place of its own for journals: others' are not its
// business.
func ownJournals(t *testing.T) (tmp string) {
	t.Helper()
	tool(t) // built where such things are
	tmp = t.TempDir()
	t.Setenv("TMPDIR", tmp)
	return tmp
}

func TestRecover(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	ownJournals(t)
	pid := fmt.Sprint(p.Pid)
	want := p.Round("100")[0]
	k := testprog.StartCmd(t, tool(t, "trace", "-p", pid, "p jumper", "r jumper"))
	awaitProbes(t, p.Pid)
	if r := run(t, "recover", pid); !r.OK() || len(r.Lines) != 1 || !strings.Contains(r.Lines[0], "nothing to recover") {
		t.Errorf("while kprobe lives: %s", r)
	}
	probed := fmt.Sprintf("process %s (jumpers): is probed by kprobe %d, or in the care of its guardian", pid, k.Pid)
	for _, args := range [][]string{{"recover"}, {"recover", "--list"}} {
		if r := run(t, args...); !r.OK() || len(r.Lines) != 1 || r.Lines[0] != probed {
			t.Errorf("%v while kprobe lives: %s", args, r)
		}
	}
	if err := syscall.Kill(guardianOf(t, k.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k.Signal(syscall.SIGKILL)
	k.Wait()
	if got := p.Round("100")[0]; got != want {
		t.Errorf("with nobody left, the program's result is %q and not %q", got, want)
	}
	if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) == 0 {
		t.Errorf("there is nothing to recover: %v, %v", diffs, err)
	}
	// Others' work at the same time is none of its business.
	other := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	busy := testprog.StartCmd(t, tool(t, "trace", "-p", fmt.Sprint(other.Pid), "p jumper"))
	awaitProbes(t, other.Pid)
	lists := []string{
		fmt.Sprintf("process %s (jumpers): was left by kprobe %d, which is dead", pid, k.Pid),
		fmt.Sprintf("process %d (jumpers): is probed by kprobe %d, or in the care of its guardian", other.Pid, busy.Pid),
	}
	r := run(t, "recover", "--list")
	slices.Sort(r.Lines)
	slices.Sort(lists)
	if !r.OK() || !slices.Equal(r.Lines, lists) {
		t.Errorf("recover --list: %s\nwant %q", r, lists)
	}
	if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) == 0 {
		t.Errorf("a list has restored something: %v, %v", diffs, err)
	}
	r = run(t, "recover")
	if n := len(r.Lines); !r.OK() || n != 3 || r.Lines[2] != fmt.Sprintf("process %s: restored", pid) {
		t.Errorf("recover: %s", r)
	}
	if diffs, err := testprog.TextDiff(other.Pid); err != nil || len(diffs) == 0 {
		t.Errorf("it has taken out what a living kprobe probes: %v, %v", diffs, err)
	}
	busy.Signal(syscall.SIGINT)
	busy.Result()
	checkUntouched(t, p.Pid)
	if got := p.Round("100")[0]; got != want {
		t.Errorf("recovered, the program's result is %q and not %q", got, want)
	}
	if r := run(t, "recover"); !r.OK() || len(r.Lines) != 0 {
		t.Errorf("once more: %s", r)
	}
	refused(t, run(t, "recover", "x"), `"x"`)
	refused(t, run(t, "recover", "--list", "1"), "without a PID")
}

func TestRecoverFindsGarbage(t *testing.T) {
	dir := filepath.Join(ownJournals(t), fmt.Sprintf("kprobe-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "1.2.journal"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, run(t, "recover"), "1.2.journal")
	refused(t, run(t, "recover", "1"), "1.2.journal")
	if r := run(t, "recover", "3"); !r.OK() {
		t.Errorf("a journal of another process: %s", r)
	}
}

// What programs in a process had in common with a kprobe that is dead is not left there: by the guardian, and by recover where that is dead, too.
func TestMemoryIsGivenBack(t *testing.T) {
	for _, dead := range []string{"the controller", "the guardian, too"} {
		p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
		ownJournals(t)
		want := p.Round("100")[0]
		k := testprog.StartCmd(t, tool(t, "stat", "-p", fmt.Sprint(p.Pid), "p jumper", "r jumper"))
		awaitProbes(t, p.Pid)
		p.Round("100")
		shared := func() int {
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Pid))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Count(string(maps), "/memfd:kprobe-")
		}
		testprog.Until(t, "there is memory in common", k.Pid, func() bool { return shared() > 0 })
		if dead != "the controller" {
			if err := syscall.Kill(guardianOf(t, k.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		k.Signal(syscall.SIGKILL)
		k.Wait()
		if dead != "the controller" {
			if r := run(t, "recover", "--list"); !r.OK() || shared() == 0 {
				t.Errorf("a list has given something back: %s", r)
			}
			if r := run(t, "recover", fmt.Sprint(p.Pid)); !r.OK() || len(r.Lines) != 1 || !strings.HasSuffix(r.Lines[0], ": restored") {
				t.Errorf("recover: %s", r)
			}
		}
		testprog.Until(t, dead+" is dead: no memory stays in the process", p.Pid, func() bool { return shared() == 0 })
		if got := p.Round("100")[0]; got != want {
			t.Errorf("afterwards the program's result is %q and not %q", got, want)
		}
		checkUntouched(t, p.Pid)
	}
}
