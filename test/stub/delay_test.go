package stub

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
)

// Behind each jump of MIPS there is an instruction that cannot be probed, and nowhere else; a return
// cannot be noticed, for the same reason.
func TestDelaySlots(t *testing.T) {
	for _, m := range subjects {
		if m.arch != arch.MIPS64LE && m.arch != arch.MIPSLE {
			continue
		}
		t.Run(m.arch.Name, func(t *testing.T) {
			_, s := m.attach(t, m.program(t, "conform"), nil)
			loc, err := s.Lookup("fib")
			if err != nil {
				t.Fatal(err)
			}
			slots, delayed := 0, false
			for pc := loc.Start(); pc < loc.End(); pc += 4 {
				kp := &kprobe.Kprobe{Addr: pc}
				err := s.RegisterKprobe(kp)
				if delayed {
					slots++
					if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "delay slot") {
						t.Errorf("%v, in a delay slot: %v", pc, err)
					}
					delayed = false
					continue
				}
				if err != nil {
					t.Errorf("%v: %v", pc, err)
					continue
				}
				w := m.arch.Order.Uint32(s.Plan(&kprobe.Kprobe{Addr: pc}).Bytes)
				op := w >> 26
				delayed = op >= 1 && op <= 7 || op >= 0x14 && op <= 0x17 || op == 0 && w&0x3e == 8
			}
			if slots < 4 {
				t.Errorf("%d delay slots", slots)
			}
			err = s.RegisterKretprobe(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}})
			if err == nil || !strings.Contains(err.Error(), "delay slot") {
				t.Errorf("a return probe: %v", err)
			}
		})
	}
}
