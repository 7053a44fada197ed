package inside

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/testprog"
	"kprobe/internal/text"
	"kprobe/test/harness"
)

// A probe that only counts begins as a trap and becomes a jump; its count goes on,
// and so does the program.
func TestCountOnly(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testCountOnly(t, "-O2") })
	if runtime.GOARCH == "arm64" { // with landing pads, which nobody asks for: its libraries have none
		t.Run("pads", func(t *testing.T) { testCountOnly(t, "-O2", "-mbranch-protection=standard") })
		t.Run("guarded", func(t *testing.T) { testCountOnly(t, harness.PaddedFlags...) })
	}
}

func testCountOnly(t *testing.T, flags ...string) {
	p := testprog.Start(t, testprog.Build(t, "threads", flags...), "4")
	line, calls := "200", uint64(800)
	if testing.Short() {
		line, calls = "20", 80
	}
	before := p.Round(line)
	s := harness.Attach(t, p.Pid, nil)
	harness.OK(t, s.SetOptimization(false))
	kp := &kprobe.Kprobe{SymbolName: "hammer_mul", Program: kprobe.CountOnly}
	harness.Register(t, s, kp)
	s.WaitOptimized()
	at := kp.Addr
	stands := func(when string, want text.Kind, hits uint64) {
		t.Helper()
		harness.SameRound(t, s, p, before, line)
		if got := standsAt(t, p.Pid, at); got != want {
			t.Errorf("%s: of kind %d is what stands at the probe, want %d", when, got, want)
		}
		if kp.Hits() != hits || kp.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed; want %d and none", when, kp.Hits(), kp.NMissed(), hits)
		}
		if got := strings.Contains(s.List()[0].String(), "[OPTIMIZED]"); got != (want == text.Jump) {
			t.Errorf("%s: the list has %v", when, s.List())
		}
	}
	stands("not optimized", text.Trap, calls)
	harness.OK(t, s.SetOptimization(true))
	s.WaitOptimized()
	stands("optimized", text.Jump, 2*calls)
	harness.OK(t, s.SetOptimization(false))
	stands("no more", text.Trap, 3*calls)
	harness.OK(t, s.SetOptimization(true))
	s.WaitOptimized()

	// A Go handler at the same address needs the trap.
	seen, behind := uint64(0), uint64(0)
	other := &kprobe.Kprobe{Addr: at, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { seen++; return 0 },
		PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { behind++ }}
	harness.Register(t, s, other)
	s.WaitOptimized()
	stands("with a handler", text.Trap, 4*calls)
	if seen != calls || behind != calls || other.Hits() != calls {
		t.Errorf("the handlers ran %d and %d times, counted %d", seen, behind, other.Hits())
	}
	harness.OK(t, s.UnregisterKprobe(other))
	s.WaitOptimized()
	stands("without it", text.Jump, 5*calls)

	harness.OK(t, s.DisableKprobe(kp))
	harness.SameRound(t, s, p, before, line)
	if kp.Hits() != 5*calls {
		t.Errorf("disabled it counts: %d", kp.Hits())
	}
	harness.OK(t, s.EnableKprobe(kp))
	s.WaitOptimized()
	stands("enabled again", text.Jump, 6*calls)
	harness.OK(t, s.UnregisterKprobe(kp))
	if kp.Hits() != 6*calls {
		t.Errorf("unregistered, it has %d hits", kp.Hits())
	}
	harness.SameRound(t, s, p, before, line)
	harness.OK(t, s.Close())
	if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
		t.Errorf("left in the text: %v, %v", diff, err)
	}
	if got := p.Round(line); strings.Join(got, "\n") != strings.Join(before, "\n") {
		t.Errorf("in the end %q, want %q", got, before)
	}
}

// standsAt tells what stands at an address of a program of this machine.
func standsAt(t *testing.T, pid int, at arch.Addr) text.Kind {
	t.Helper()
	b := harness.RawMem(t, pid, at, 8)
	trap, jump := arch.AMD64.Break, b[0] == 0xe9
	if runtime.GOARCH == "arm64" {
		branch := b
		if bytes.HasPrefix(b, []byte{0x5f, 0x24, 0x03, 0xd5}) { // bti c
			branch = b[4:]
		}
		trap, jump = arch.ARM64.Break, branch[3]>>2 == 5 // b
	}
	switch {
	case jump:
		return text.Jump
	case bytes.HasPrefix(b, trap):
		return text.Trap
	}
	return text.Own
}

// Signals come at any instruction of a detour that counts: their handlers see the program's own code only,
// and nothing is counted twice, or not at all.
func TestSignalsWhileCounting(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testSignalsWhileCounting(t, "-O2") })
	if runtime.GOARCH == "arm64" {
		t.Run("guarded", func(t *testing.T) { testSignalsWhileCounting(t, harness.PaddedFlags...) })
	}
}

func testSignalsWhileCounting(t *testing.T, flags ...string) {
	p := testprog.Start(t, testprog.Build(t, "signals", flags...))
	line, calls := "200000", uint64(200000)
	if testing.Short() {
		line, calls = "60000", 60000
	}
	want := p.Round(line)
	s := harness.Attach(t, p.Pid, nil)
	step := &kprobe.Kprobe{SymbolName: "sig_step", Program: kprobe.CountOnly}
	inner := &kprobe.Kprobe{SymbolName: "sig_inner", Program: kprobe.CountOnly}
	harness.Register(t, s, step, inner)
	s.WaitOptimized()
	if got := standsAt(t, p.Pid, step.Addr); got != text.Jump {
		t.Errorf("of kind %d is what stands at the probe, want a jump: %v", got, s.List())
	}
	got := p.Round(line) // it fails where a handler has seen what it should not
	if !slices.Equal(got[:2], want[:2]) {
		t.Errorf("%q, want %q", got, want)
	}
	var usr1, prof, alrm uint64
	fmt.Sscanf(got[1], "usr1 %d", &usr1)
	fmt.Sscanf(got[2], "timers %d %d", &prof, &alrm)
	if step.Hits() != calls || step.NMissed() != 0 {
		t.Errorf("sig_step: %d hits, %d missed; want %d", step.Hits(), step.NMissed(), calls)
	}
	if want := 2 * (usr1 + prof + alrm); inner.Hits() != want {
		t.Errorf("sig_inner: %d hits, want %d", inner.Hits(), want)
	}
	t.Logf("%d signals", usr1+prof+alrm)
}

// What a jump cannot serve, or would run over, makes it a trap again for as long as it
// is there (kprobes.txt 1.4.3): nothing is lost meanwhile, and the jump comes back.
func TestUnoptimized(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	want := p.Round("100")
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "hammer_add", Program: kprobe.CountOnly}
	harness.Register(t, s, kp)
	first, err := s.Lookup("hammer_add")
	harness.OK(t, err)
	at := first.Addr
	neighbour := func() uint64 {
		b := make([]byte, 16)
		harness.OK(t, s.ReadMem(at, b))
		insn, err := amd64.New(s.Arch()).Decode(b, at)
		harness.OK(t, err)
		if insn.Len >= 5 {
			t.Fatalf("the first instruction has %d bytes: nothing else is under the jump", insn.Len)
		}
		return uint64(insn.Len)
	}()
	served, calls := uint64(0), uint64(0)
	stands := func(when string, want0 byte) {
		t.Helper()
		s.WaitOptimized()
		if got := harness.RawMem(t, p.Pid, at, 1)[0]; got != want0 {
			t.Errorf("%s: %#x stands at the probe, want %#x", when, got, want0)
		}
		harness.SameRound(t, s, p, want, "100")
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
		harness.OK(t, s.Register(other.Probe))
		stands("with "+other.name, 0xcc)
		if served != 400 {
			t.Errorf("%s ran %d times", other.name, served)
		}
		harness.OK(t, s.Unregister(other.Probe))
		if other.name != "a neighbour under the jump" {
			stands("without "+other.name, 0xe9)
		}
	}
	harness.OK(t, s.Close())
	if got := p.Round("100"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("in the end %q, want %q", got, want)
	}
}
