package inside

import (
	"fmt"
	"runtime"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Calls that are left by longjmp again and again leave room for others, also where one of them has jumped to the other: then
// both have one slot, and those of the time before are over.
func TestCallsLeftInAChain(t *testing.T) {
	testprog.Need(t, "a machine that has return addresses on the stack", runtime.GOARCH == "amd64")
	const n = 50
	for _, flags := range [][]string{{"-O2"}, {"-O2", "-m32"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "leaves", flags...))
			want := p.Round("%d", n)
			s := harness.Attach(t, p.Pid, nil)
			on := func(name string) *kprobe.Kretprobe {
				return &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly}
			}
			first, last, shallow := on("leaves_first"), on("leaves_last"), on("shallow")
			harness.OK(t, s.RegisterKretprobes([]*kprobe.Kretprobe{first, last, shallow}))
			harness.SameRound(t, s, p, want, fmt.Sprint(n))
			harness.Settle(t, s)
			if shallow.Hits() != n || shallow.NMissed() != 0 {
				t.Errorf("%d returns, %d missed; want %d, 0", shallow.Hits(), shallow.NMissed(), n)
			}
			for _, rp := range []*kprobe.Kretprobe{first, last} {
				if rp.Hits() != 0 || rp.NMissed() != 0 || rp.Abandoned() < n-1 {
					t.Errorf("%s: %d returns, %d missed, %d that never returned of %d", rp.Kp.SymbolName, rp.Hits(), rp.NMissed(), rp.Abandoned(), n)
				}
			}
		})
	}
}
