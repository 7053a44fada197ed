package kernel_test

import (
	"strings"
	"testing"

	"kprobe"
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
		// What is gone stays gone, as in the kernel: new probes wait for the next.
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
