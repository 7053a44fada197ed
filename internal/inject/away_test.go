package inject_test

import (
	"kprobe/internal/inject"
	"kprobe/internal/segment"
	"testing"
)

// How run_coroutines (testdata/host_coroutines.c) goes about it.
const (
	carved = 1 << iota
	moved
	dropped
)

// Calls under way on several stacks, in any order: each that returns is seen, at once and by whatever thread, and each that
// does not is counted as lost when its place is used again.
func TestCoroutines(t *testing.T) {
	for _, own := range []bool{true, false} { // all memory may be the thread's own stack, or none is known to be
		for how := range uint64(8) {
			h := startHost(t, testLayout)
			thread := segment.Thread{Key: h.key(0), TID: h.pid}
			if own {
				thread.StackHigh = hostMachine.UserEnd
			}
			h.seg.Assign(thread)
			h.arm(h.detour("f_call", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{ID: probe, Max: 1 << 20, Missed: 7, Hits: 8}}))
			h.arm(h.detour("f_lea", inject.Detour{Hits: 13, Missed: 4, Return: &inject.Return{ID: other, Max: 1 << 20, Missed: 7, Hits: 15}}))
			sum, _ := h.call("run_coroutines", 0, 1, how, 3)
			begun, returned := sum>>32, sum&(1<<32-1)
			h.expectCounter(3, begun)
			h.expectCounter(8, returned)
			h.expectCounter(7, 0)
			var alive uint64
			for _, c := range h.seg.Calls() {
				if c.Probe == other {
					t.Errorf("own %v, how %d: %+v", own, how, c)
				} else if !c.Left {
					alive++
				}
			}
			lost, _ := h.seg.Counter(probe + segment.LostUnwound)
			if lost+alive != begun-returned || how&dropped == 0 && begun != returned {
				t.Errorf("own %v, how %d: %d calls lost and %d alive of %d, of which %d returned", own, how, lost, alive, begun, returned)
			}
		}
	}
}
