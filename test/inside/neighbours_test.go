package inside

import (
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A detour runs the instructions under its jump. A probe on one of them is not passed over,
// whichever of both comes first, and when it goes the jump comes back.
func TestNeighboursInside(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
	want := p.Round("3")
	s := harness.Attach(t, p.Pid, nil)
	const at, behind = 0, 4 // ret_void: endbr64 or an instruction of 4 bytes, then ret
	probe := func(off uint64, program bool) *kprobe.Kprobe {
		kp := &kprobe.Kprobe{SymbolName: "ret_void", Offset: off, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		if program {
			kp.PreHandler, kp.Program = nil, kprobe.CountOnly
		}
		return kp
	}
	check := func(what string, optimized int, ps ...*kprobe.Kprobe) {
		t.Helper()
		s.WaitOptimized()
		before := make([]uint64, len(ps))
		for i, kp := range ps {
			before[i] = kp.Hits()
		}
		harness.SameRound(t, s, p, want, "3")
		for i, kp := range ps {
			if n := kp.Hits() - before[i]; n != 3 {
				t.Errorf("%s: %d hits at +%d, want 3", what, n, kp.Offset)
			}
		}
		if n := optimizedReturns(s); n != optimized {
			t.Errorf("%s: %d are optimized, want %d: %v", what, n, optimized, s.List())
		}
	}
	for _, program := range []bool{false, true} {
		first, second := probe(at, true), probe(behind, program)
		last := 0 // a ret has a jump where nothing of it is in the way
		harness.Register(t, s, first)
		check("alone", 1, first)
		harness.Register(t, s, second)
		if s.WaitOptimized(); program {
			last = optimizedReturns(s)
		}
		check("with a neighbour", last, first, second)
		harness.OK(t, s.UnregisterKprobe(second))
		check("alone again", 1, first)
		harness.OK(t, s.UnregisterKprobe(first))
		harness.OK(t, s.RegisterKprobes([]*kprobe.Kprobe{first, second}))
		check("together", last, first, second)
		harness.OK(t, s.UnregisterKprobes([]*kprobe.Kprobe{first, second}))
	}
}
