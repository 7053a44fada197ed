package realworld

import (
	"slices"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/symbol"
)

// Programs that nobody wrote to be probed, with probes wherever they will go.
// What is held in every one of these tests: the program's answers are those it
// gives alone, and after the session nothing tells that there ever was one.

// accounted checks that every call under return probes has its outcome. The
// program waits for its next input, so all but a few calls are over; only the
// functions that leaves names end in another way than by returning.
func accounted(t testing.TB, rps []*kprobe.Kretprobe, funcs []symbol.Symbol, leaves ...string) {
	t.Helper()
	name := make(map[arch.Addr]symbol.Symbol)
	for _, fn := range funcs {
		name[arch.Addr(fn.Addr)] = fn
	}
	var calls, returns, abandoned, under uint64
	for _, rp := range rps {
		fn := name[rp.Kp.Addr]
		c, r, a := rp.Kp.Hits(), rp.Hits(), rp.Abandoned()
		if n := rp.NMissed(); n != 0 {
			t.Errorf("%s: %d returns missed", fn.Label(), n)
		}
		if a > 0 && !slices.Contains(leaves, fn.Name) {
			t.Errorf("%s: %d of %d calls never returned", fn.Label(), a, c)
		}
		if c < r+a {
			t.Errorf("%s: %d calls, but %d returns and %d calls that never returned", fn.Label(), c, r, a)
			continue
		}
		calls, returns, abandoned, under = calls+c, returns+r, abandoned+a, under+c-r-a
	}
	t.Logf("%d calls, %d returns; %d never return, %d are under way", calls, returns, abandoned, under)
	if calls == 0 || under > 20 {
		t.Errorf("of %d calls %d have no outcome", calls, under)
	}
}
