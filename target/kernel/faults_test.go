package kernel_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/vm/vmtest"
)

// An instruction of the kernel's that faults is told to its fault-handler, with the trap's number
// and the registers that it had. One that has been dealt with goes on where the handler says, and
// the kernel is not told; else the kernel's own table mends it. Neither is done, so no post-handler
// runs.
func TestFaultHandlers(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	const work, want = "ktraps faults 3", "21"
	s, k := openWindow(t, v)
	defer s.Close()
	const pageFault = 14
	var own [2]uint64
	nowhere := func(a uint64) bool { return a < 1<<16 }
	rounds := []bool{false, true}
	if testing.Short() {
		rounds = rounds[1:] // faults of others are not dealt with, even then
	}
	for i, deals := range rounds {
		dealt := 0
		type counts struct{ pres, posts, faults int }
		seen := make(map[arch.Addr]*counts)
		var ps []*kprobe.Kprobe
		fixups, err := k.Fixups()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fixups {
			// The results of these functions depend on registers that are right at the fault.
			sym, _, ok := k.At(f.Insn)
			if !ok || !strings.HasPrefix(sym.Name, "clear_user_") && !strings.HasPrefix(sym.Name, "copy_user_") && !strings.HasPrefix(sym.Name, "strncpy_from_user") {
				continue
			}
			// The guest's shell comes to the first for each letter that it reads, to the second for some
			// thousand bytes when it is told of a child's end. The others are of each sort.
			if testing.Short() && (strings.HasPrefix(sym.Name, "copy_user_short_string") || strings.HasPrefix(sym.Name, "clear_user_")) {
				continue
			}
			c := new(counts)
			kp := &kprobe.Kprobe{Addr: f.Insn}
			if s.Plan(kp).Verdict == kprobe.VerdictRefuse {
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
	if len(rounds) == 2 && own[1] >= own[0] {
		t.Errorf("the kernel mended %d faults, and %d when others had been dealt with", own[0], own[1])
	}
	sane(t, v)
}

// On arm64, too: the number is the class of the exception. The kernel learns of a fault only the
// handler's result, here that nothing was written.
func TestFaultHandlersOfARM64(t *testing.T) {
	v := vmtest.Shared(t, "arm64")
	s := open(t, v, v.RAM())
	const dataAbort = 0x25 // in the kernel itself
	loc, err := s.Lookup("__arch_clear_user")
	if err != nil {
		t.Fatal(err)
	}
	for _, deals := range []bool{true, false} {
		pres, posts, faults, size := 0, 0, 0, 4300
		asked := uint64(0)
		if deals {
			size = 300_000 // in memory that has not come yet, to be sure; no more than the beginning is written
		}
		ps := []*kprobe.Kprobe{{SymbolName: loc.Func.Name, PreHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs) int {
			if r.Comm() == "dd" {
				asked = r.Get(arch.ARM64.Args[1])
			}
			return 0
		}}}
		for at := loc.Start(); at < loc.End(); at += 4 {
			kp := &kprobe.Kprobe{Addr: at}
			if s.Plan(kp).Verdict != kprobe.VerdictStep {
				continue
			}
			kp.PreHandler = func(*kprobe.Kprobe, *kprobe.Regs) int { pres++; return 0 }
			kp.PostHandler = func(_ *kprobe.Kprobe, r *kprobe.Regs, _ uint64) {
				if posts++; r.PC() != at+4 {
					t.Errorf("behind the instruction at %v: %v", at, r.PC())
				}
			}
			kp.FaultHandler = func(_ *kprobe.Kprobe, r *kprobe.Regs, trap int) int {
				if faults++; trap != dataAbort || r.PC() != at {
					t.Errorf("trap %#x at %v, want %#x at %v", trap, r.PC(), dataAbort, at)
				}
				if !deals || r.Comm() != "dd" {
					return 0 // it only brings the memory
				}
				r.SetReturnValue(asked) // so many bytes are left
				r.SetPC(arch.ARM64.Link(r.Raw()))
				return 1
			}
			ps = append(ps, kp)
		}
		if err := s.RegisterKprobes(ps); err != nil {
			t.Fatal(err)
		}
		// The buffer is in memory of its own, of which only the first page has come: malloc has written its size there. In
		// the heap all may have come.
		out := run(t, v, fmt.Sprintf("MALLOC_MMAP_THRESHOLD_=1024 dd if=/dev/zero of=/dev/null bs=%d count=1 2>&1 || true", size))
		if strings.Contains(out, "Bad address") != deals {
			t.Errorf("dealt with %v: dd says %q", deals, out)
		}
		if err := s.UnregisterKprobes(ps); err != nil {
			t.Fatal(err)
		}
		if faults == 0 || posts+faults != pres {
			t.Errorf("dealt with %v: %d times before an instruction, %d behind it, %d faults", deals, pres, posts, faults)
		}
		t.Logf("dealt with %v: %d, %d, %d", deals, pres, posts, faults)
	}
	if got := run(t, v, "dmesg | grep -iE 'oops|bug:|warning:|unable to handle' || true"); got != "" {
		t.Errorf("the kernel has complaints:\n%s", got)
	}
}
