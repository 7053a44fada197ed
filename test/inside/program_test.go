package inside

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Programs see the arguments, count by them in a hash, and record them; by trap and
// by jump alike.
func TestProgramsInside(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := p.Round("200")
	s := harness.Attach(t, p.Pid, nil)
	maps := []*bpf.MapSpec{
		{Name: "by_low", Type: bpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 64},
		{Name: "calls", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		{Name: "events", Type: bpf.RingBuf, MaxEntries: 1 << 20},
	}
	ps := harness.Load(t, s, maps, map[string]bpf.Kind{"returned": bpf.Kretprobe}, map[string]string{
		"count": `
			r6 = *(u64 *)(ARG1)
			r6 &= 3
			*(u64 *)(r10 -8) = r6
			r1 = map by_low
			r2 = r10
			r2 += -8
			call map_lookup_elem
			if r0 != 0 goto there
			*(u64 *)(r10 -16) = 0
			r1 = map by_low
			r2 = r10
			r2 += -8
			r3 = r10
			r3 += -16
			r4 = 1
			call map_update_elem
			r1 = map by_low
			r2 = r10
			r2 += -8
			call map_lookup_elem
			if r0 == 0 goto over
		there:
			r1 = 1
			lock fetch_add *(u64 *)(r0 +0), r1
		over:
			r0 = 0
			exit`,
		"returned": `
			r6 = *(u64 *)(RESULT)
			call ktime_get_ns
			*(u64 *)(r10 -16) = r0
			*(u64 *)(r10 -8) = r6
			call get_current_pid_tgid
			*(u64 *)(r10 -24) = r0
			r1 = map events
			r2 = r10
			r2 += -24
			r3 = 24
			r4 = 0
			call ringbuf_output
			r0 = 0
			exit`,
	})
	count, err := ps.Program("count")
	harness.OK(t, err)
	returned, err := ps.Program("returned")
	harness.OK(t, err)
	kp := &kprobe.Kprobe{SymbolName: "hammer_mul", Program: count}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_add"}, Program: returned}
	harness.OK(t, s.Register(kp, rp))
	events, err := ps.Map("events")
	harness.OK(t, err)
	ring, err := bpf.NewReader(events)
	harness.OK(t, err)
	low, err := ps.Map("by_low")
	harness.OK(t, err)
	for round := uint64(1); round <= 4; round++ {
		harness.SameRound(t, s, p, want, "200")
		if kp.Hits() != 800*round || rp.Hits() != 800*round || kp.NMissed()+rp.NMissed() != 0 {
			t.Errorf("round %d: %d hits, %d returns, missed %d and %d", round, kp.Hits(), rp.Hits(), kp.NMissed(), rp.NMissed())
		}
		sum := uint64(0)
		for _, v := range low.All() {
			sum += binary.LittleEndian.Uint64(v[0])
		}
		if sum != 800*round { // who finds a key to be missing makes it only if nobody else has (BPF_NOEXIST)
			t.Errorf("round %d: %d counted in the hash", round, sum)
		}
		n, tids := 0, make(map[uint32]bool)
		var last uint64
		for {
			rec, more, err := ring.Read()
			harness.OK(t, err)
			if !more {
				break
			}
			n++
			tgidTid := binary.LittleEndian.Uint64(rec.Data)
			if int(tgidTid>>32) != p.Pid {
				t.Fatalf("a record of process %d", tgidTid>>32)
			}
			tids[uint32(tgidTid)] = true
			last = max(last, binary.LittleEndian.Uint64(rec.Data[8:]))
		}
		if n != 800 || len(tids) != 4 {
			t.Errorf("round %d: %d records of %d threads", round, n, len(tids))
		}
		s.WaitOptimized()
	}
	if n := harness.Optimized(s); n != 2 {
		t.Errorf("%d of 2 are optimized: %v", n, s.List())
	}
	harness.OK(t, s.Close())
	if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
		t.Errorf("left in the text: %v, %v", diff, err)
	}
}

// Signals come while the program's thread is in detours and programs: its handlers
// see it in its own code, nothing is counted twice and nothing lost.
func TestSignalsUnderJumps(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testSignalsUnderJumps(t, "-O2") })
	if runtime.GOARCH == "arm64" { // the jumps are behind landing pads
		t.Run("guarded", func(t *testing.T) { testSignalsUnderJumps(t, harness.PaddedFlags...) })
	}
}

func testSignalsUnderJumps(t *testing.T, flags ...string) {
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	n := 60000
	if runtime.GOARCH == "arm64" {
		n = 400 // in a guest, where a trap and a signal take milliseconds each, and a timer's signal comes at each
	}
	line := fmt.Sprint(n)
	p := testprog.Start(t, testprog.Build(t, "signals", flags...))
	want := p.Round(line)[:2] // how often timers come is another matter
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.Load(t, s, nil, nil, map[string]string{"busy": harness.BusyText, "faulty": harness.FaultyText})
	busy, err := ps.Program("busy")
	harness.OK(t, err)
	faulty, err := ps.Program("faulty")
	harness.OK(t, err)
	step := &kprobe.Kprobe{SymbolName: "sig_step", Program: busy}
	inner := &kprobe.Kprobe{SymbolName: "sig_inner", Program: kprobe.CountOnly}
	handler := &kprobe.Kprobe{SymbolName: "sig_handler", Program: faulty}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "sig_step"}, Program: kprobe.CountOnly}
	probes := []kprobe.Probe{step, inner, handler, rp}
	harness.OK(t, s.Register(probes...))
	for i := range rounds {
		if i == 1 {
			s.WaitOptimized()
			if got := harness.Optimized(s); got != len(probes) {
				t.Errorf("%d of %d are optimized: %v", got, len(probes), s.List())
			}
		}
		handled, interrupted := handler.Hits()+handler.NMissed(), inner.Hits()
		if got := p.Round(line)[:2]; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		handled, interrupted = handler.Hits()+handler.NMissed()-handled, inner.Hits()-interrupted
		if total := uint64(n * (i + 1)); step.Hits()+step.NMissed() != total || rp.Hits()+rp.NMissed() != total {
			t.Errorf("round %d: sig_step has %d hits, %d missed; %d returns, %d missed; want %d",
				i, step.Hits(), step.NMissed(), rp.Hits(), rp.NMissed(), total)
		}
		if interrupted != 2*handled || handled < uint64(n/1000) {
			t.Errorf("round %d: the handler ran %d times, and called sig_inner %d times", i, handled, interrupted)
		}
		t.Logf("round %d: %d signals; missed %d of sig_step, %d of its returns", i, handled, step.NMissed(), rp.NMissed())
	}
	harness.Detach(t, s)
	if got := p.Round(line)[:2]; !slices.Equal(got, want) {
		t.Errorf("afterwards %q, want %q", got, want)
	}
	harness.Ends(t, p)
}
