package sacred_test

import (
	"fmt"
	"os"
	"testing"

	"kprobe"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
)

// Two processes with one memory and one thread pointer each have their own calls: where we come and find them
// so, and where they have come to be so while no thread was known by its pointer.
func TestTwins(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			path := testprog.Build(t, "twins", b.flags...)
			t.Run("found", func(t *testing.T) {
				p := testprog.Start(t, path)
				p.Send("pair")
				p.Expect("child")
				twins(t, p, nil)
			})
			t.Run("unseen", func(t *testing.T) {
				p := testprog.Start(t, path)
				twins(t, p, func(s *kprobe.Session) {
					p.Round("stranger")
					look(t, s)
					p.Send("pair")
					p.Expect("child")
					testprog.Until(t, "the thread without a pointer to end", p.Pid, func() bool {
						tasks, err := os.ReadDir(proc.Process(p.Pid).File("task"))
						return err == nil && len(tasks) == 1
					})
					look(t, s)
				})
			})
		})
	}
}

// twins probes a program whose two processes run then, or do so by begin. It waits for calls, and for their
// end. Each call since begin is to be counted, where there is one.
func twins(t *testing.T, p *testprog.Proc, begin func(*kprobe.Session)) {
	var rp *kprobe.Kretprobe
	leave := probed(t, p, placing(func(t *testing.T, s *kprobe.Session) {
		rp = &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "outer"}, Program: kprobe.CountOnly}
		in := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Program: kprobe.CountOnly}
		if err := s.Register(rp, in); err != nil {
			t.Fatal(err)
		}
		s.WaitOptimized()
		if begin != nil {
			begin(s)
		}
	}))
	enough := rp.Hits() + 200_000
	if testing.Short() {
		enough = rp.Hits() + 40_000
	}
	testprog.Until(t, "calls of both", p.Pid, func() bool { return rp.Hits() > enough })
	p.Send("part")
	p.Expect("twins 0 300")
	var calls uint64
	if _, err := fmt.Sscanf(p.Line(), "calls %d", &calls); err != nil {
		t.Fatal(err)
	}
	if begin != nil && (rp.Hits() != calls || rp.NMissed() != 0) {
		t.Errorf("of %d calls %d were counted, and %d missed", calls, rp.Hits(), rp.NMissed())
	}
	p.Expect("done")
	p.Expect("done")
	leave()
	p.CloseStdin()
	if r := p.Result(); !r.OK() {
		t.Errorf("it ended with %v", r.Status)
	}
}

// look has the session ask once more which threads can be known by their pointers.
func look(t *testing.T, s *kprobe.Session) {
	if err := s.Register(&kprobe.Kprobe{SymbolName: "main", Program: kprobe.CountOnly}); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
}
