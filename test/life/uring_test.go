package life

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// The kernel's threads that do a program's input are in its list of threads. They are let alone: they cannot be stopped
// without harm to the request that they are at, and run no program.
func TestLifeWithThreadsOfTheKernels(t *testing.T) {
	path := testprog.Build(t, "uring", "-O2")
	if said, err := exec.Command(path).Output(); string(said) != "ready\n" {
		t.Skipf("%sio_uring: the program says %q, %v", testprog.NotHere, said, err)
	}
	p := testprog.Start(t, path)
	workers := func() (n int) {
		tids, err := proc.Process(p.Pid).Threads()
		harness.OK(t, err)
		for _, tid := range tids {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", p.Pid, tid))
			if strings.HasPrefix(string(name), "iou-") {
				n++
			}
		}
		return n
	}
	testprog.Until(t, "a thread looks for requests, and one is at the read", p.Pid, func() bool { return workers() >= 2 })
	before, err := testprog.Look(p.Pid)
	harness.OK(t, err)
	for range 3 {
		tgt, err := ptrace.Attach(p.Pid)
		harness.OK(t, err)
		s, err := kprobe.Open(tgt, nil)
		harness.OK(t, err)
		kp := &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}}
		harness.OK(t, s.RegisterKprobe(kp))
		harness.OK(t, s.RegisterKretprobe(rp))
		if got := p.Round("1"); len(got) != 1 || got[0] != "sum 14850" {
			t.Errorf("it says %q", got)
		}
		harness.Settle(t, s)
		if kp.Hits() != 100 || rp.Hits() != 100 {
			t.Errorf("%d hits, %d returns", kp.Hits(), rp.Hits())
		}
		harness.OK(t, s.Close())
	}
	for _, l := range before.LeftThere() {
		t.Error(l)
	}
	if got := p.Round("end"); len(got) != 1 || got[0] != "read 1" {
		t.Errorf("it says %q", got)
	}
}
