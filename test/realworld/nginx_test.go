package realworld

import (
	"slices"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

func TestNginxUnderProbesOnAllOfLibc(t *testing.T) {
	n := harness.StartNginx(t)
	want := n.Work(t)
	if again := n.Work(t); !slices.Equal(again, want) {
		harness.SameLines(t, again, want)
		t.Fatal("two rounds differ")
	}
	pid := n.Worker(t)
	before := harness.RemainsOf(t, pid)
	s := harness.Attach(t, pid, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, harness.Entries(t, pid, harness.MappedFile(t, pid, "libc.so.6"))))
	for range 3 {
		harness.SameLines(t, n.Work(t), want)
	}
	reach, hits := harness.Reached(ps)
	t.Logf("%d of them were reached, %d hits", reach, hits)
	if reach < 40 {
		t.Errorf("only %d functions were reached", reach)
	}
	harness.Detach(t, s)
	before.Check(t)
	harness.SameLines(t, n.Work(t), want)
	if n.Worker(t) != pid {
		t.Error("the worker was replaced")
	}
}

// The worker's own functions and return probes on those of libc; then a
// reload: the probed worker ends by itself, and the master starts another.
func TestNginxReloadsUnderProbes(t *testing.T) {
	n := harness.StartNginx(t)
	want := n.Work(t)
	pid := n.Worker(t)
	s := harness.Attach(t, pid, nil)
	ps := harness.RegisterEntries(t, s, harness.EntryProbes(t, harness.Entries(t, pid, harness.ProgramOf(t, pid))))
	libc := harness.Entries(t, pid, harness.MappedFile(t, pid, "libc.so.6"))
	rps := harness.RegisterReturns(t, s, harness.ReturnProbes(t, libc))
	harness.SameLines(t, n.Work(t), want)
	reach, hits := harness.Reached(ps)
	t.Logf("%d of the server's %d functions were reached, %d hits", reach, len(ps), hits)
	if reach < 200 {
		t.Errorf("only %d functions were reached", reach)
	}
	accounted(t, rps, libc)

	// The master is under probes too: the worker that it forks is born clean.
	m := harness.Attach(t, n.Pid, nil)
	mps := harness.RegisterEntries(t, m, harness.EntryProbes(t, harness.Entries(t, n.Pid, harness.MappedFile(t, n.Pid, "libc.so.6"))))
	n.Client.CloseIdleConnections()
	if err := n.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testprog.Receive(t, "the worker ends", n.Pid, s.Done())
	if exit, over := s.Exited(); !over || exit.Code != 0 || exit.Signal != 0 {
		t.Errorf("the worker ended with %+v, %v", exit, over)
	}
	harness.SameLines(t, n.Work(t), want)
	harness.RemainsOf(t, n.Worker(t)).Check(t)
	if reach, hits = harness.Reached(mps); reach < 20 {
		t.Errorf("the master's reload reached %d functions, %d hits", reach, hits)
	}
}
