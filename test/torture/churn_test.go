package torture

import (
	"math/rand/v2"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Probes come and go at 100 Hz on the functions that 64 threads are running.
func TestSoakChurn(t *testing.T) {
	v := victims["threads"](t)
	var order tortureOrder
	order.Entries, order.Returns = acceptable(t, v)
	s := harness.Attach(t, v.PID, nil)
	entries, returns := order.probes()
	var all []kprobe.Probe
	for _, p := range entries {
		all = append(all, p)
	}
	for _, p := range returns {
		all = append(all, p)
	}
	w := harness.StartWork(t, v)
	defer w.Stop()
	rnd := rand.New(rand.NewPCG(1, 1))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	usual := 20 * time.Second
	if testing.Short() {
		usual = 2 * time.Second
	}
	batches, late, longest := 0, 0, time.Duration(0)
	var hits uint64
	for range testprog.Rounds(t, usual, 1) {
		batches++
		select {
		case err := <-w.Fail:
			t.Fatalf("batch %d: %v", batches, err)
		case <-tick.C:
		}
		start := time.Now()
		half := some(rnd, all)
		if err := s.Register(half...); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, s.LastStop())
		time.Sleep(rand.N(5 * time.Millisecond))
		for _, p := range half {
			if kp, ok := p.(*kprobe.Kprobe); ok {
				hits += kp.Hits()
			}
		}
		if err := s.Unregister(half...); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, s.LastStop())
		if time.Since(start) > 10*time.Millisecond {
			late++
		}
	}
	harness.OK(t, w.GoesOn(v.PID, 1))
	w.Stop()
	if hits == 0 {
		t.Error("no hits")
	}
	t.Logf("%d times up and down, %d of them in more than 10 ms; longest stop %v; %d hits, %d times work",
		batches, late, longest, hits, w.Done.Load())
}
