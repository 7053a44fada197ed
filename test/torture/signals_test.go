package torture

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// stormWait are the distances from storm_wait of the instructions of its loop, by
// the labels that it has there.
func stormWait(t testing.TB, p *testprog.Proc) (offsets []uint64) {
	t.Helper()
	file, err := elf.Open(harness.ProgramOf(t, p.Pid))
	harness.OK(t, err)
	defer file.Close()
	symbols, err := file.Symbols() // labels are no functions: package symbol leaves them out
	harness.OK(t, err)
	at := make(map[string]uint64)
	for _, sym := range symbols {
		at[sym.Name] = sym.Value
	}
	for i := 1; i <= 5; i++ {
		offsets = append(offsets, at[fmt.Sprintf("storm_wait_%d", i)]-at["storm_wait"])
	}
	return offsets
}

// Threads that are interrupted everywhere, in detours and in what was displaced, by
// handlers that look at where they came from, change it, or never go back, on two
// stacks; while others fork, spawn and load libraries: all that under jumps, on the
// program's functions and on all of libc's. The program sees nothing of it; no hit is
// lost, none is counted twice.
func TestSoakSignalsUnderJumps(t *testing.T) {
	threads, n, usual := 64, 2000, 5*time.Second
	if testing.Short() {
		threads, n, usual = 16, 1000, 0
	}
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "storm", "-O2"), lib, fmt.Sprint(threads))
	p.Patience = 5 * time.Minute
	line := fmt.Sprint(n)
	want := harness.Untimed(p.Round(line))
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.Load(t, s, nil, nil, map[string]string{"busy": harness.BusyText, "faulty": harness.FaultyText})
	busy, err := ps.Program("busy")
	harness.OK(t, err)
	faulty, err := ps.Program("faulty")
	harness.OK(t, err)
	libc := harness.RegisterEntries(t, s, harness.CountingProbes(harness.Entries(t, p.Pid, harness.MappedFile(t, p.Pid, "libc.so.6"))))

	step := &kprobe.Kprobe{SymbolName: "storm_step", Program: busy}
	stepped := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "storm_step"}, Program: kprobe.CountOnly, MaxActive: 4}
	deep := &kprobe.Kprobe{SymbolName: "storm_deep", Program: kprobe.CountOnly}
	left := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "storm_deep"}, Program: kprobe.CountOnly, MaxActive: 8}
	spin := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "storm_spin"}, Program: kprobe.CountOnly}
	inner := &kprobe.Kprobe{SymbolName: "storm_inner", Program: kprobe.CountOnly}
	handler := &kprobe.Kprobe{SymbolName: "storm_handler", Program: faulty}
	entered := &kprobe.Kprobe{SymbolName: "storm_wait", Program: kprobe.CountOnly}
	harness.OK(t, s.Register(step, stepped, deep, left, spin, inner, handler, entered))
	offsets := stormWait(t, p)
	rnd := rand.New(rand.NewPCG(3, 3))
	rounds := 0
	for round := range testprog.Rounds(t, usual, len(offsets)) {
		rounds++
		// The loop at which handlers look, in another place each time.
		program := kprobe.CountOnly
		if round%2 == 1 {
			program = busy
		}
		at := &kprobe.Kprobe{SymbolName: "storm_wait", Offset: offsets[round%len(offsets)], Program: program}
		harness.Register(t, s, at)
		if rnd.IntN(4) > 0 {
			s.WaitOptimized()
		}
		if got := harness.Untimed(p.Round(line)); !slices.Equal(got, want) {
			harness.SameLines(t, got, want)
		}
		if at.Hits()+at.NMissed() == 0 {
			t.Errorf("round %d: %v was not hit", round, at.Addr)
		}
		harness.OK(t, s.UnregisterKprobe(at))
		total := uint64(threads * n * (round + 1))
		for _, c := range []struct {
			name      string
			got, want uint64
		}{
			{"storm_step", step.Hits() + step.NMissed(), total},
			{"storm_step's returns", stepped.Hits() + stepped.NMissed(), total},
			{"storm_deep", deep.Hits() + deep.NMissed(), total / 1000 * 4},
			{"storm_deep's returns", left.Hits(), 0},
			{"storm_wait", entered.Hits() + entered.NMissed(), total / 1000},
		} {
			if c.got != c.want {
				t.Errorf("round %d: %s: %d, want %d", round, c.name, c.got, c.want)
			}
		}
		if t.Failed() {
			break
		}
	}
	reach, hits := harness.Reached(libc)
	t.Logf("%d rounds; %d signals, %d hits of %d of libc's functions; missed: %d of storm_step, %d of its returns, %d of storm_deep's",
		rounds, handler.Hits()+handler.NMissed(), hits, reach, step.NMissed(), stepped.NMissed(), left.NMissed())
	harness.Detach(t, s)
	if got := harness.Untimed(p.Round(line)); !slices.Equal(got, want) {
		t.Errorf("afterwards %q, want %q", got, want)
	}
	harness.Ends(t, p)
}
