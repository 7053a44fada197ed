package life

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"kprobe"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// A process whose control group is frozen, as that of a container which is paused, can make no calls for us: probes are
// refused, in words, and a session that is closed ends. Nothing hangs, and what has to wait is done when the group is let
// go.
func TestLifeInAFrozenGroup(t *testing.T) {
	testprog.Long(t, "it waits until the product gives up")
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	group := testprog.NewFreezer(t, p.Pid)
	round := func() {
		t.Helper()
		if got := p.Round("3"); len(got) == 0 || got[0] != "jumper 3 5" {
			t.Errorf("it says %q", got)
		}
	}
	open := func() (*kprobe.Session, *kprobe.Kprobe, error) {
		tgt, err := ptrace.Attach(p.Pid)
		harness.OK(t, err)
		s, err := kprobe.Open(tgt, nil)
		harness.OK(t, err)
		kp := &kprobe.Kprobe{SymbolName: "jumper", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
		return s, kp, s.RegisterKprobe(kp)
	}
	round()
	before, err := testprog.Look(p.Pid)
	harness.OK(t, err)

	group.Freeze(t)
	s, _, err := open()
	t.Log(err)
	if !errors.Is(err, target.ErrNotNow) {
		t.Errorf("a probe in a frozen process: %v", err)
	}
	harness.OK(t, s.Close())
	group.Thaw(t)
	round()
	for _, l := range before.LeftThere() {
		t.Error(l)
	}

	s, kp, err := open()
	harness.OK(t, err)
	round()
	if kp.Hits() == 0 {
		t.Error("no hits")
	}
	group.Freeze(t)
	err = s.Close()
	t.Log(err)
	if !errors.Is(err, target.ErrNotNow) {
		t.Errorf("closed in a frozen process: %v", err)
	}
	group.Thaw(t)
	testprog.Until(t, "the guardian gives the program its action back", p.Pid, func() bool { return caught(t, p.Pid) == "0000000000000000" })
	round()
	if left, err := testprog.TextDiff(p.Pid); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	harness.Ends(t, p)
}

// caught are the signals that a process has handlers for.
func caught(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	harness.OK(t, err)
	set, err := proc.Field(b, "SigCgt")
	harness.OK(t, err)
	return set
}
