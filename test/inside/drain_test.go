package inside

import (
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
	"kprobe/trace"
)

// A probe is taken off, and its memory given back, beside threads that are in code of ours nearly always: in programs
// of other probes, and in the routine that asks the kernel for their ids.
func TestUnregisterBesideBusyThreads(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "twins", "-O2"))
	p.Send("pair")
	p.Expect("child")
	s := harness.Attach(t, p.Pid, nil) // a report is an error
	events := 0
	tr := trace.New(s, func(*event.Event) { events++ })
	tr.Inside = true
	if err := tr.Add("p:work work %di $comm", "r:outer outer $retval $comm"); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	for range 10 {
		kp := &kprobe.Kprobe{SymbolName: "main", Program: kprobe.CountOnly}
		harness.Register(t, s, kp)
		s.WaitOptimized()
		if err := s.Unregister(kp); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if events == 0 {
		t.Error("no event")
	}
	harness.Detach(t, s)
	p.Send("part")
	p.Expect("twins 0 300")
}
