package kernel_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/vm/vmtest"
	"kprobe/trace"
)

// Where the kernel mends a fault by the instruction's address, that must fault nowhere else: such a
// place can be counted, by a stop, and no program runs there. One that repeats is one hit, however
// often it is stepped.
func TestMendedFaults(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	if out := run(t, v, "ktraps faults 3"); strings.TrimSpace(out) != "21" {
		t.Fatalf("without probes %s are refused", out)
	}
	s, k := openWindow(t, v)
	defer s.Close()
	fixups, err := k.Fixups()
	if err != nil {
		t.Fatal(err)
	}
	var ps []*kprobe.Kprobe
	var zeros *kprobe.Kprobe
	for _, f := range fixups {
		sym, _, ok := k.At(f.Insn)
		kp := &kprobe.Kprobe{Addr: f.Insn, Program: kprobe.CountOnly}
		switch {
		case !ok:
			continue
		case strings.HasPrefix(sym.Name, "clear_user_"):
			zeros = kp
		case testing.Short() && strings.HasPrefix(sym.Name, "copy_user_"):
			continue // functions that every call of the guest's runs, with a stop each
		case sym.Name != "read_zero" && !strings.HasPrefix(sym.Name, "copy_user_") && !strings.HasPrefix(sym.Name, "strncpy_from_user"):
			continue
		}
		if e := s.Plan(kp); e.Verdict != kprobe.VerdictRefuse {
			ps = append(ps, kp)
			if e.Jump.Why == "" || e.Trap.Why != "a fault there is mended by its address" {
				t.Errorf("%v", e)
			}
		}
	}
	if len(ps) < 5 || zeros == nil {
		t.Fatalf("only %d places", len(ps))
	}
	// An event of one is made by a handler.
	var events atomic.Int64
	tr := trace.New(s, func(*event.Event) { events.Add(1) })
	tr.Inside = true
	sym, off, _ := k.At(zeros.Addr)
	if err := tr.Add(fmt.Sprintf("p:zeros %s+%d left=%%cx", sym.Name, off)); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	if out := run(t, v, "ktraps faults 3"); strings.TrimSpace(out) != "21" {
		t.Errorf("%s are refused", out)
	}
	tr.Flush()
	hit := 0
	for _, p := range ps {
		if p.NMissed() != 0 {
			t.Errorf("%v has missed %d", p.Addr, p.NMissed())
		}
		if p.Hits() > 0 {
			hit++
		}
	}
	t.Logf("%d of %d places were hit, the one that writes zeros %d times", hit, len(ps), zeros.Hits())
	if n := zeros.Hits(); hit < 3 || n < 3 || n > 300 || uint64(events.Load()) != n {
		t.Errorf("%d of %d places were hit; zeros %d times, with %d events", hit, len(ps), n, events.Load())
	}
	if err := s.UnregisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // the event's probe, where each program that starts comes
		t.Error(err)
	}
	quiet(t, v)
}
