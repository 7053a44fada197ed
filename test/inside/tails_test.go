package inside

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// tails is functions that end in jumps to the next, so that one return is that of all.
const tails = `
#include <unistd.h>

PROBED long tail5(long n) { usleep(n % 50); return n + 1; }
PROBED long tail4(long n) { BARRIER(); return tail5(n + 1); }
PROBED long tail3(long n) { BARRIER(); return tail4(n + 1); }
PROBED long tail2(long n) { BARRIER(); return tail3(n + 1); }
PROBED long tail1(long n) { BARRIER(); return tail2(n + 1); }

int main(void)
{
	while (next()) {
		long sum = 0;

		for (int i = 0, n = atoi(line); i < n; i++)
			sum += tail1(i);
		printf("result %ld\n", sum);
	}
	return 0;
}
`

var tailNames = []string{"tail1", "tail2", "tail3", "tail4", "tail5"}

// One stack slot has the return addresses of all calls of a chain: each detour's is
// the one that the next returns to.
func TestChainOfTailCallsInside(t *testing.T) {
	path := harness.Compile(t, "tails", tails, "-O2")
	want := testprog.Start(t, path).Round("500")
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	rps := onReturns(t, s, []*kprobe.Program{kprobe.CountOnly}, tailNames...)
	harness.SameRound(t, s, p, want, "500")
	harness.Settle(t, s)
	for _, rp := range rps {
		if rp.Hits() != 500 || rp.Lost() != (kprobe.Lost{}) {
			t.Errorf("%s: %d returns, lost %+v", rp.Kp.SymbolName, rp.Hits(), rp.Lost())
		}
	}
	harness.OK(t, s.UnregisterKretprobes(rps))

	// Those of a chain come and go while it runs.
	round := make(chan []string)
	go func() {
		defer close(round)
		round <- p.Round("500")
	}()
	for i := 0; ; i++ {
		some := onReturns(t, s, []*kprobe.Program{kprobe.CountOnly}, tailNames[i%3:]...)
		harness.OK(t, s.UnregisterKretprobes(some[:1]))
		harness.OK(t, s.UnregisterKretprobes(some[1:]))
		select {
		case got := <-round:
			if !slices.Equal(got, want) {
				t.Errorf("under change: %q, without probes %q", got, want)
			}
			return
		default:
		}
	}
}

// Handlers and programs take turns along a chain, whichever comes first: each return is
// seen by its own, also while they come and go.
func TestChainOfTailCallsMixed(t *testing.T) {
	path := harness.Compile(t, "tails", tails, "-O2")
	n := uint64(500)
	if testing.Short() {
		n = 100
	}
	line := fmt.Sprint(n)
	want := testprog.Start(t, path).Round(line)
	for first := range 2 {
		p := testprog.Start(t, path)
		s := harness.Attach(t, p.Pid, nil)
		rps := func() (rps []*kprobe.Kretprobe) {
			for i, name := range tailNames {
				rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: kprobe.EngineSwap}
				if i%2 == first {
					rp.Program = kprobe.CountOnly
				} else {
					rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }
				}
				rps = append(rps, rp)
			}
			return rps
		}
		all := rps()
		harness.OK(t, s.RegisterKretprobes(all))
		for range 2 { // as traps, some of them, and as jumps
			harness.SameRound(t, s, p, want, line)
			s.WaitOptimized()
		}
		harness.Settle(t, s)
		for _, rp := range all {
			if rp.Hits() != 2*n || rp.NMissed() != 0 || rp.Lost() != (kprobe.Lost{}) {
				t.Errorf("%s: %d returns, %d missed, lost %+v", rp.Kp.SymbolName, rp.Hits(), rp.NMissed(), rp.Lost())
			}
		}
		harness.OK(t, s.UnregisterKretprobes(all))

		changed := 5
		if testing.Short() {
			changed = 2
		}
		round := make(chan []string)
		go func() {
			defer close(round)
			for range changed {
				round <- p.Round(line)
			}
		}()
		rnd := rand.New(rand.NewPCG(1, uint64(first)))
		for rounds := 0; rounds < changed; {
			some := rps()
			rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			harness.OK(t, s.RegisterKretprobes(some))
			if rnd.IntN(2) == 0 {
				s.WaitOptimized()
			}
			part := rnd.IntN(len(some))
			harness.OK(t, s.UnregisterKretprobes(some[:part]))
			harness.OK(t, s.UnregisterKretprobes(some[part:]))
			select {
			case got := <-round:
				rounds++
				if !slices.Equal(got, want) {
					t.Errorf("under change: %q, without probes %q", got, want)
				}
			default:
			}
		}
		harness.Detach(t, s)
		harness.SameLines(t, p.Round(line), want)
	}
}
