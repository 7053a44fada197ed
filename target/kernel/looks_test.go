package kernel_test

import (
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/isatest"
	"kprobe/internal/machine"
	"kprobe/internal/vm/vmtest"
)

// Each place of a kernel is looked at once until it is a trap that is led to its detour: a probe's,
// a return probe's entry and each of its exits, and the place of the gate, which is asked for first
// in whether there can be one.
func TestEachPlaceIsAnalysedOnce(t *testing.T) {
	m, err := machine.Of(arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	own, counting := m.ISA, isatest.New(m.ISA)
	m.ISA = counting
	defer func() { m.ISA = own }()
	s, w := openWatchful(t, vmtest.Shared(t, "amd64"))
	defer s.Close()
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	kp := &kprobe.Kprobe{SymbolName: "write_null", Program: kprobe.CountOnly}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "read_zero"}, Program: kprobe.CountOnly}
	counting.Analyses()
	if err := s.Register(kp, rp); err != nil {
		t.Fatal(err)
	}
	inText(t, s, w, []*kprobe.Kprobe{kp, &rp.Kp})
	gate, err := w.TrapHandler()
	if err != nil {
		t.Fatal(err)
	}
	got := counting.Analyses()
	for at, n := range got {
		if n > 1 {
			t.Errorf("%v is analysed %d times", at, n)
		}
	}
	exits, _ := rp.Exits()
	if want := 3 + exits; len(got) != want || exits == 0 {
		t.Errorf("%d places are analysed, want %d: two functions, %d exits, the gate", len(got), want, exits)
	}
	for what, at := range map[string]arch.Addr{"the probe": kp.Addr, "the return probe": rp.Kp.Addr, "the gate": gate} {
		if got[at] != 1 {
			t.Errorf("%s is analysed %d times", what, got[at])
		}
	}
}
