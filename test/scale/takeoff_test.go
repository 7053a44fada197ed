package scale_test

import (
	"runtime"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
)

// To take probes off costs the same for each, however many there are: a copy of the list for each would show in the memory that is
// asked for.
func TestTakeOffIsLinear(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2", "-pthread"))
	s := attach(t, p.Pid, nil)
	all := s.Symbols().Match("libc.so.6", "*")
	asked := func(n int) (each uint64) {
		var ps []kprobe.Probe
		for i := 0; len(ps) < n; i++ {
			ps = append(ps, &kprobe.Kretprobe{
				Kp:     kprobe.Kprobe{Addr: all[i].Addr, Optional: true},
				Engine: kprobe.EngineExits, Program: kprobe.CountOnly,
			})
		}
		if err := s.Register(ps...); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := s.Unregister(ps...); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	asked(200) // what is asked for once
	few, many := asked(200), asked(1600)
	t.Logf("%d bytes for each of 200, %d for each of 1600", few, many)
	if many > 4*few {
		t.Errorf("%d bytes for each of 200, %d for each of 1600", few, many)
	}
}
