package kernel_test

import (
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/vm/vmtest"
)

// moduleText is the file of a guest that has the address of conform's code. The list of all symbols takes a second to read.
const moduleText = "/sys/module/conform/sections/.text"

// A probe on a module that is unloaded is gone, though it was never unregistered: code that comes
// to the same place runs as if nothing had been there. A stub keeps a breakpoint by its address,
// whatever is there.
func TestModuleComesAgain(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	const parameter = "/sys/module/conform/parameters/round"
	const work = "for w in 'jumper 30' 'fib 5'; do echo $w >" + parameter + "; cat " + parameter + "; done"
	const where = "cat " + moduleText
	for _, program := range []*kprobe.Program{nil, kprobe.CountOnly} { // a breakpoint of the stub's, and text of ours
		s, _ := openCountingTelling(t, v, func(err error) {
			if !strings.Contains(err.Error(), "its code has been unmapped") {
				t.Error(err)
			}
		})
		defer s.Close()
		run(t, v, "insmod /conform.ko")
		p := &kprobe.Kprobe{SymbolName: "conform:jumper", Program: program}
		r := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "conform:fib"}, Program: program, MaxActive: 64}
		if err := s.Register(p, r); err != nil {
			t.Fatal(err)
		}
		s.WaitOptimized()
		at, want := run(t, v, where), run(t, v, work)
		hits := func() [2]uint64 { return [2]uint64{p.Hits(), r.Hits()} }
		counted := hits()
		if counted != [2]uint64{30, 15} {
			t.Errorf("%d calls and returns, want 30 and 15", counted)
		}
		run(t, v, "rmmod conform; insmod /conform.ko")
		if again := run(t, v, where); again != at {
			t.Logf("it was at %s and came again at %s: this round tells nothing", at, again)
		}
		if got := run(t, v, work); got != want {
			t.Errorf("after it came again %q, before %q", got, want)
		}
		if hits() != counted || strings.Count(listText(s), "[GONE]") != 2 {
			t.Errorf("%d calls and returns, %d before it came again; the list is\n%s", hits(), counted, listText(s))
		}
		run(t, v, "rmmod conform")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		sane(t, v)
	}
}
