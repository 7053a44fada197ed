package kernel_test

import (
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/vm/vmtest"
)

// An instruction of the kernel's that faults is told to its fault-handler, with the trap's number and the registers that it had. One that
// has been dealt with goes on where the handler says, and the kernel is not told; else the kernel's own table mends it. Neither is
// done, so no post-handler runs.
func TestFaultHandlers(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	const work, want = "ktraps faults 3", "21"
	s, k := openWindow(t, v)
	defer s.Close()
	const pageFault = 14
	var own [2]uint64
	nowhere := func(a uint64) bool { return a < 1<<16 }
	for i, deals := range []bool{false, true} {
		dealt := 0
		type counts struct{ pres, posts, faults int }
		seen := make(map[arch.Addr]*counts)
		var ps []*kprobe.Kprobe
		fixups, err := k.Fixups()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fixups {
			// What these functions return is told by registers that are right at the fault.
			if sym, _, ok := k.At(f.Insn); !ok || !strings.HasPrefix(sym.Name, "clear_user_") && !strings.HasPrefix(sym.Name, "copy_user_") && !strings.HasPrefix(sym.Name, "strncpy_from_user") {
				continue
			}
			c := new(counts)
			kp := &kprobe.Kprobe{Addr: f.Insn}
			if s.Plan(kp).Verdict == "refuse" {
				continue
			}
			kp.PreHandler = func(*kprobe.Kprobe, *kprobe.Regs) int { c.pres++; return 0 }
			kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) { c.posts++ }
			kp.FaultHandler = func(p *kprobe.Kprobe, r *kprobe.Regs, trap int) int {
				c.faults++
				if trap != pageFault || r.PC() != f.Insn || uint64(r.SP()) < 1<<63 {
					t.Errorf("trap %d at %v, the stack at %v; want one at %v", trap, r.PC(), r.SP(), f.Insn)
				}
				// Others fault because their memory has not come yet.
				if di, si := r.Get(arch.DI), r.Get(arch.SI); !deals || r.Comm() != "ktraps" || !nowhere(di) && !nowhere(si) {
					return 0
				}
				dealt++
				r.SetPC(f.Fixup)
				if sym, _, _ := k.At(f.Insn); strings.HasPrefix(sym.Name, "copy_user_") {
					r.SetReturnValue(pageFault) // as the kernel tells it there
				}
				return 1
			}
			ps, seen[f.Insn] = append(ps, kp), c
		}
		handler := &kprobe.Kprobe{SymbolName: "fixup_exception", Program: kprobe.CountOnly} // the kernel's own way
		if err := s.RegisterKprobes(append(ps, handler)); err != nil {
			t.Fatal(err)
		}
		if out := strings.TrimSpace(run(t, v, work)); out != want {
			t.Errorf("%s calls are refused, want %s", out, want)
		}
		places, faults := 0, 0
		for at, c := range seen {
			if c.posts+c.faults != c.pres {
				t.Errorf("%v: %d times before it, %d behind it, %d faults", at, c.pres, c.posts, c.faults)
			}
			if faults += c.faults; c.faults > 0 {
				places++
			}
		}
		if places < 2 || faults < 6 {
			t.Errorf("%d faults at %d of %d places", faults, places, len(ps))
		}
		if deals != (dealt > 0) {
			t.Errorf("%d faults were dealt with", dealt)
		}
		t.Logf("dealt with %d: %d faults at %d of %d places, %d that the kernel mended", dealt, faults, places, len(ps), handler.Hits())
		own[i] = handler.Hits()
		if err := s.UnregisterKprobes(append(ps, handler)); err != nil {
			t.Fatal(err)
		}
	}
	if own[1] >= own[0] {
		t.Errorf("the kernel mended %d faults, and %d when others had been dealt with", own[0], own[1])
	}
	sane(t, v)
}
