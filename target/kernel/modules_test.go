package kernel_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// A probe on a module waits for it, is armed before the first instruction of the
// module's runs, and is gone with it; so for every load.
func TestModuleComesAndGoes(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM()})
	if err != nil {
		t.Fatal(err)
	}
	var reports []string // by the session's own goroutine; read when it is over
	s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { reports = append(reports, err.Error()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	probes := func() (*kprobe.Kprobe, *kprobe.Kretprobe) {
		return &kprobe.Kprobe{SymbolName: "dummy:dummy_setup"}, &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "dummy:dummy_setup"}}
	}
	kp, rp := probes()
	// At the very places where modules are waited for.
	turns := []*kprobe.Kprobe{{SymbolName: "do_init_module"}, {SymbolName: "free_module"}}
	if err := s.Register(kp, rp, turns[0], turns[1]); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if got := strings.Join(s.Pending(), " "); got != "dummy:dummy_setup dummy:dummy_setup" {
			t.Errorf("pending before the load: %q", got)
		}
		run(t, v, "insmod /dummy.ko && ip link show dummy0")
		if kp.Hits() != 1 || rp.Hits() != 1 {
			t.Errorf("%d hits, %d returns while the module came up", kp.Hits(), rp.Hits())
		}
		list := listText(s)
		if !strings.Contains(list, "  k  dummy_setup+0x0  dummy \n") || !strings.Contains(list, "  r  dummy_setup+0x0  dummy \n") || len(s.Pending()) != 0 {
			t.Errorf("loaded, and the list is\n%s", list)
		}
		run(t, v, "rmmod dummy")
		if list = listText(s); strings.Count(list, "dummy:dummy_setup+0x0    [GONE]\n") != 2 {
			t.Errorf("unloaded, and the list is\n%s", list)
		}
		for i, p := range turns {
			if p.Hits() != uint64(round+1) {
				t.Errorf("%s: %d hits after %d rounds", turns[i].SymbolName, p.Hits(), round+1)
			}
		}
		// A probe that is gone stays gone, as in the kernel: new probes wait for the next module.
		if err := s.Unregister(kp, rp); err != nil {
			t.Fatal(err)
		}
		kp, rp = probes()
		if err := s.Register(kp, rp); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if len(reports) != 4 || !strings.Contains(reports[0], "its code has been unmapped") {
		t.Errorf("reported: %q", reports)
	}
	run(t, v, "insmod /dummy.ko && rmmod dummy")
}

func listText(s *kprobe.Session) string {
	var b strings.Builder
	kprobe.WriteList(&b, s.List())
	return b.String()
}

// A module's functions count without a stop, returns too, as long as it is loaded: to the end of
// its very last function. Our bytes are out of its text when its memory is freed, so the code that
// comes to the same place is not touched.
func TestModuleInside(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s, stops := openCountingTelling(t, v, func(err error) {
		if !strings.Contains(err.Error(), "its code has been unmapped") {
			t.Error(err)
		}
	})
	defer s.Close()
	const parameter = "/sys/module/conform/parameters/round"
	const work = "for w in 'jumper 300' 'fib 9' 'deep 7'; do echo $w >" + parameter + "; cat " + parameter + "; done"
	var where []arch.Addr
	rounds := 3
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		run(t, v, "insmod /conform.ko")
		want := run(t, v, work)
		leave := "cleanup_module" // nothing but the end of it; the program's own name may stand there as well
		probes := []*kprobe.Kprobe{
			{SymbolName: "conform:jumper", Program: kprobe.CountOnly}, {SymbolName: "conform:fib", Program: kprobe.CountOnly},
			{SymbolName: "conform:" + leave, Program: kprobe.CountOnly},
		}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "conform:fib"}, Program: kprobe.CountOnly, MaxActive: 64}
		if err := s.Register(probes[0], probes[1], probes[2], rp); err != nil {
			t.Fatal(err)
		}
		where = append(where, probes[0].Addr)
		// Small functions have traps where two jumps do not fit.
		testprog.Until(t, "text of ours", v.PID(), func() bool {
			s.WaitOptimized()
			for _, p := range append(probes, &rp.Kp) {
				b := make([]byte, 1)
				if err := stops.ReadAt(p.Addr, b); err != nil {
					t.Fatal(err)
				}
				if b[0] != 0xcc && b[0] != 0xe9 {
					return false
				}
			}
			return true
		})
		if !optimizedAny(s) {
			t.Error("no jump stands in the module")
		}
		before := stops.hits.Load()
		if got := run(t, v, work); got != want {
			t.Errorf("with probes %q, without %q", got, want)
		}
		if j, f, r := probes[0].Hits(), probes[1].Hits(), rp.Hits(); j != 300 || f != 109 || r != 109 {
			t.Errorf("round %d: %d calls of jumper, want 300; %d of fib and %d returns, want 109", round, j, f, r)
		}
		if n := stops.hits.Load() - before; n != 0 {
			t.Errorf("round %d: %d stops", round, n)
		}
		run(t, v, "rmmod conform")
		if n := probes[2].Hits(); n != 1 {
			t.Errorf("round %d: the end of the module was reached %d times", round, n)
		}
		if n := stops.hits.Load() - before; n != 0 {
			t.Errorf("round %d: %d stops while it was unloaded", round, n)
		}
		if list := listText(s); strings.Count(list, "[GONE]") != 4 {
			t.Errorf("unloaded, and the list is\n%s", list)
		}
		if err := s.Unregister(probes[0], probes[1], probes[2], rp); err != nil {
			t.Fatal(err)
		}
		// The same place, without probes.
		run(t, v, "insmod /conform.ko")
		if got := run(t, v, work); got != want {
			t.Errorf("after probes %q, before %q", got, want)
		}
		run(t, v, "rmmod conform")
	}
	t.Logf("the module was at %v", where)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	sane(t, v)
}

// optimizedAny tells whether some probe is a jump.
func optimizedAny(s *kprobe.Session) bool {
	for _, e := range s.List() {
		if e.Optimized {
			return true
		}
	}
	return false
}

// A controller that was killed has left its text in a module, which works, and comes out when the
// next one looks; but not where the module has been unloaded since, and another one is in its
// place.
func TestModuleOfOneThatWasKilled(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	const parameter = "/sys/module/conform/parameters/round"
	const work = "echo 'jumper 200' >" + parameter + " && cat " + parameter
	for _, unloaded := range []bool{false, true} {
		run(t, v, "dmesg -c >/dev/null; insmod /conform.ko")
		want := run(t, v, work)
		var at arch.Addr
		function := make([]byte, 8)
		look := func(k *kernel.Target) []byte {
			if err := k.ReadAt(at, function); err != nil {
				t.Error(err)
			}
			return bytes.Clone(function)
		}
		var before []byte
		func() {
			s, w := openWatchful(t, v)
			defer s.Close()
			loc, err := s.Lookup("conform:jumper")
			if err != nil {
				t.Fatal(err)
			}
			at = loc.Addr
			before = look(w.Target)
		}()
		cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), "trace", "-k", v.Stub(), "--ram", v.RAM(), "--window", v.Window(), "--no-summary", "p conform:jumper a=%di")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testprog.Until(t, "text of ours", v.PID(), func() bool {
			b, err := v.Monitor(fmt.Sprintf("x/1xb %#x", uint64(at)))
			if err != nil {
				t.Fatal(err)
			}
			b = strings.TrimSpace(b)
			return strings.HasSuffix(b, "0xe9") || strings.HasSuffix(b, "0xcc")
		})
		// It is written while the machine stands, and a machine whose controller and guardian are
		// killed then stands until the next client. So it has to run before.
		if got := run(t, v, work); got != want {
			t.Errorf("at work: %q, want %q", got, want)
		}
		killBoth(t, cmd)
		cmd.Wait()
		if got := run(t, v, work); got != want {
			t.Errorf("left alone: %q, want %q", got, want)
		}
		if unloaded { // another client that knows of nothing takes the stub's breakpoints out: the module is not noticed
			g, err := gdbremote.Dial(v.Stub(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			run(t, v, "rmmod conform; insmod /dummy.ko")
		}
		k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
		if err != nil {
			t.Fatalf("unloaded %v: %v", unloaded, err)
		}
		if !unloaded && !bytes.Equal(look(k), before) {
			t.Errorf("the module's text is % x, was % x", function, before)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if unloaded {
			run(t, v, "ip link show dummy0 >/dev/null; rmmod dummy")
		} else {
			if got := run(t, v, work); got != want {
				t.Errorf("taken out: %q, want %q", got, want)
			}
			run(t, v, "rmmod conform")
		}
		sane(t, v)
	}
}
