package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
			if bytes.Contains(line, []byte(".journal\x00")) {
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
	if r := run(t, "recover"); !r.OK() || len(r.Lines) != 1 || r.Lines[0] != fmt.Sprintf("process %s: restored", pid) {
		t.Errorf("recover: %s", r)
	}
	checkUntouched(t, p.Pid)
	if got := p.Round("100")[0]; got != want {
		t.Errorf("recovered, the program's result is %q and not %q", got, want)
	}
	if r := run(t, "recover"); !r.OK() || len(r.Lines) != 0 {
		t.Errorf("once more: %s", r)
	}
	refused(t, run(t, "recover", "x"), `"x"`)
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
