package test

import (
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/testprog"
)

// A probe that only counts begins as a trap and becomes a jump; its count goes on,
// and so does the program.
func TestCountOnly(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := p.Round("200")
	s := attach(t, p.Pid, nil)
	ok(t, s.SetOptimization(false))
	kp := &kprobe.Kprobe{SymbolName: "hammer_mul", Program: kprobe.CountOnly}
	register(t, s, kp)
	s.WaitOptimized()
	at := kp.Addr
	stands := func(when string, first byte, hits uint64) {
		t.Helper()
		sameRound(t, s, p, want, "200")
		if got := rawMem(t, p.Pid, at, 1)[0]; got != first {
			t.Errorf("%s: %#x stands at the probe, want %#x", when, got, first)
		}
		if kp.Hits() != hits || kp.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed; want %d and none", when, kp.Hits(), kp.NMissed(), hits)
		}
		if got := strings.Contains(s.List()[0].String(), "[OPTIMIZED]"); got != (first == 0xe9) {
			t.Errorf("%s: the list has %v", when, s.List())
		}
	}
	stands("not optimized", 0xcc, 800)
	ok(t, s.SetOptimization(true))
	s.WaitOptimized()
	stands("optimized", 0xe9, 1600)
	ok(t, s.SetOptimization(false))
	stands("no more", 0xcc, 2400)
	ok(t, s.SetOptimization(true))
	s.WaitOptimized()

	// A Go handler at the same address needs the trap.
	seen := 0
	other := &kprobe.Kprobe{Addr: at, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { seen++; return 0 }}
	register(t, s, other)
	s.WaitOptimized()
	stands("with a handler", 0xcc, 3200)
	if seen != 800 || other.Hits() != 800 {
		t.Errorf("the handler ran %d times, counted %d", seen, other.Hits())
	}
	ok(t, s.UnregisterKprobe(other))
	s.WaitOptimized()
	stands("without it", 0xe9, 4000)

	ok(t, s.DisableKprobe(kp))
	sameRound(t, s, p, want, "200")
	if kp.Hits() != 4000 {
		t.Errorf("disabled it counts: %d", kp.Hits())
	}
	ok(t, s.EnableKprobe(kp))
	s.WaitOptimized()
	stands("enabled again", 0xe9, 4800)
	ok(t, s.UnregisterKprobe(kp))
	if kp.Hits() != 4800 {
		t.Errorf("unregistered, it has %d hits", kp.Hits())
	}
	sameRound(t, s, p, want, "200")
	ok(t, s.Close())
	if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
		t.Errorf("left in the text: %v, %v", diff, err)
	}
	if got := p.Round("200"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("in the end %q, want %q", got, want)
	}
}

// What a jump cannot serve, or would run over, makes it a trap again for as long as it
// is there (kprobes.txt 1.4.3): nothing is lost meanwhile, and the jump comes back.
func TestUnoptimized(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := p.Round("100")
	s := attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "hammer_add", Program: kprobe.CountOnly}
	register(t, s, kp)
	first, err := s.Lookup("hammer_add")
	ok(t, err)
	at := arch.Addr(first.Addr)
	neighbour := func() uint64 {
		b := make([]byte, 16)
		ok(t, s.ReadMem(at, b))
		insn, err := amd64.New(s.Arch()).Decode(b, at)
		ok(t, err)
		if insn.Len >= 5 {
			t.Fatalf("the first instruction has %d bytes: nothing else is under the jump", insn.Len)
		}
		return uint64(insn.Len)
	}()
	served, calls := uint64(0), uint64(0)
	stands := func(when string, want0 byte) {
		t.Helper()
		s.WaitOptimized()
		if got := rawMem(t, p.Pid, at, 1)[0]; got != want0 {
			t.Errorf("%s: %#x stands at the probe, want %#x", when, got, want0)
		}
		sameRound(t, s, p, want, "100")
		if calls += 400; kp.Hits() != calls || kp.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed; want %d", when, kp.Hits(), kp.NMissed(), calls)
		}
	}
	stands("alone", 0xe9)
	for _, other := range []struct {
		name string
		kprobe.Probe
	}{
		{"a jprobe", &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_add"}, Entry: func(a, b uint64) { served++ }}},
		{"a return probe's handler", &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_add"},
			Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { served++; return 0 }}},
		{"a post-handler", &kprobe.Kprobe{SymbolName: "hammer_add", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { served++ }}},
		{"a neighbour under the jump", &kprobe.Kprobe{SymbolName: "hammer_add", Offset: neighbour,
			PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { served++; return 0 }}},
	} {
		served = 0
		ok(t, s.Register(other.Probe))
		stands("with "+other.name, 0xcc)
		if served != 400 {
			t.Errorf("%s ran %d times", other.name, served)
		}
		ok(t, s.Unregister(other.Probe))
		if other.name != "a neighbour under the jump" {
			stands("without "+other.name, 0xe9)
		}
	}
	ok(t, s.Close())
	if got := p.Round("100"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("in the end %q, want %q", got, want)
	}
}
