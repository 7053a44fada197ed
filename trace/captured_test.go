package trace_test

import (
	"slices"
	"sync"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// Definitions are captured inside, by programs of this machine: registers, memory that one leads to, a condition, the
// thread; and returns, where the machine's programs see them, else by handlers.
func TestCapturedInside(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := p.Round("200")
	s := attach(t, p.Pid, nil)
	var mu sync.Mutex
	counts, wrong, last := map[string]int{}, 0, map[int]uint64{}
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		counts[e.Name]++
		switch e.Name {
		case "add": // the second argument counts, in each thread
			if n, seen := last[e.TID]; seen && e.Args[0].Bits != n+1 || e.PID != p.Pid || e.Args[1].Bits == 0 {
				wrong++
			}
			last[e.TID] = e.Args[0].Bits
		case "few":
			if e.Args[0].Bits >= 50 {
				wrong++
			}
		case "call": // what it was called with is known when it returns
			if e.Args[1].Bits != e.Args[0].Bits*2862933555777941757+3037000493 {
				wrong++
			}
		}
	})
	tr.Inside = true
	ok(t, tr.Add("p:add hammer_add i=$arg2:u32 sp=%sp", "p:few hammer_add i=$arg2:u32 if i < 50", "p:word hammer_add word=+0(%sp):u64", "r:back hammer_mul out=$retval",
		"r:call hammer_mul in=$arg1:u64 out=$retval:u64 if $arg1 != 3"))
	s.WaitOptimized()
	for _, e := range s.List() {
		if !e.Optimized {
			t.Errorf("%v: it does not run inside", e)
		}
	}
	if got := p.Round("200"); !slices.Equal(got, want) {
		t.Errorf("probed, a round gives %q, want %q", got, want)
	}
	ok(t, tr.Close())
	mu.Lock()
	defer mu.Unlock()
	if counts["add"] != 800 || counts["few"] != 200 || counts["word"] != 800 || counts["back"] != 800 || counts["call"] != 800 || wrong != 0 || len(last) != 4 {
		t.Errorf("events: %v of %d threads, %d of them wrong", counts, len(last), wrong)
	}
}
