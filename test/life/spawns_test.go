package life

import (
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Children that share the target's memory until they execute another program map nothing there, as a rule. Their target is
// not searched for libraries each time.
func TestChildrenThatMapNothing(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "spawns", "-O2"))
	want := p.Round("100")
	var mapped atomic.Int64
	s := harness.Attach(t, p.Pid, &kprobe.Options{Mapped: func(*kprobe.Session) { mapped.Add(1) }})
	spawn := &kprobe.Kprobe{SymbolName: "libc.so.6:posix_spawn", Program: kprobe.CountOnly}
	harness.Register(t, s, spawn)
	harness.SameLines(t, p.Round("100"), want)
	harness.Detach(t, s)
	if spawn.Hits() != 100 || mapped.Load() > 2 {
		t.Errorf("%d children; the libraries have changed %d times", spawn.Hits(), mapped.Load())
	}
}
