package conform

import (
	"errors"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Close does not wait for all of a registration to be planned: it is given up at the next place, and what was planned is gone.
func TestCloseGivesUpPlanning(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("10")[0]
	before, err := testprog.Look(p.Pid)
	harness.OK(t, err)
	s := harness.Attach(t, p.Pid, nil)
	closed := make(chan error, 1)
	met := 0
	// Two of a kind that cannot share their calls with the first: the batch asks each, one after the other.
	batch := []kprobe.Probe{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly, MaxActive: 4}}
	for range 2 {
		other := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly, MaxActive: 8}
		other.Kp.Otherwise = func(error) {
			if met++; met == 1 {
				go func() { closed <- s.Close() }()
				testprog.Blocked(t, "(*Session).Close")
			}
			other.Program = nil
			other.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }
		}
		batch = append(batch, other)
	}
	if err := s.Register(batch...); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a registration that somebody closes the session under: %v", err)
	}
	if met != 1 {
		t.Errorf("%d probes were planned after that", met-1)
	}
	harness.OK(t, testprog.Receive(t, "the session's end", testprog.Here, closed))
	if got := p.Round("10")[0]; got != want {
		t.Errorf("it says %q, and before it said %q", got, want)
	}
	if left := before.LeftThere(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
