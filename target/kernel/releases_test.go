package kernel_test

import (
	"os"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// releases are Debian's kernels of five years: a soak tries them all, else it is stable's, which stays in the
// archive for years.
func releases() []string {
	if os.Getenv("SOAK") == "" {
		return []string{"6.12"}
	}
	return []string{"5.10", "6.1", "6.12", "6.12-amd64", "6.12-rt-amd64", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.3"}
}

// In each kernel probes are stops, traps in the guest and jumps, and returns are seen, in one session after
// another; nothing stays, and the kernel has no complaints.
func TestReleases(t *testing.T) {
	for _, version := range releases() {
		t.Run(version, func(t *testing.T) {
			v := vmtest.Boot(t, vm.Config{Kernel: version, CPUs: 2, Turns: true, Files: map[string]string{
				"/bin/kwork": testprog.Build(t, "kwork", "-O2", "-static")}})
			t.Log(v.Kernel.Release)
			run(t, v, "dmesg -c >/dev/null")
			sessions := 3
			if testing.Short() {
				sessions = 2
			}
			for range sessions {
				threeWays(t, v)
				if t.Failed() {
					break
				}
			}
			sane(t, v)
		})
	}
}

// threeWays has one session with probes of each kind, and looks at what it leaves.
func threeWays(t *testing.T, v *vm.VM) {
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		t.Fatal(err)
	}
	w := &watchful{Target: k}
	s, err := kprobe.Open(w, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Error(err) }})
	if err != nil {
		k.Close()
		t.Fatal(err)
	}
	defer s.Close()
	before := text(t, k)

	handled := 0
	stop := &kprobe.Kprobe{SymbolName: "ksys_sync", PreHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs) int {
		if r.Comm() == "sync" {
			handled++
		}
		return 0
	}}
	jump := &kprobe.Kprobe{SymbolName: "write_null", Program: kprobe.CountOnly}
	back := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "write_null"}, Program: kprobe.CountOnly}
	var all []*kprobe.Kprobe
	var pairs [][2]*kprobe.Kprobe
	at, sure := straight(t, s, "vfs_write")
	inside := make(map[arch.Addr]*kprobe.Kprobe)
	for _, a := range at {
		p := &kprobe.Kprobe{Addr: a, Program: kprobe.CountOnly}
		if e := s.Plan(p); e.Verdict != "refuse" && e.Trap == "inside" {
			inside[a] = p
			all = append(all, p)
		} else if a == at[0] {
			t.Fatalf("%+v", e)
		}
	}
	for _, p := range sure {
		if a, b := inside[p[0]], inside[p[1]]; a != nil && b != nil {
			pairs = append(pairs, [2]*kprobe.Kprobe{a, b})
		}
	}
	all = append(all, jump)
	if err := s.RegisterKprobe(stop); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKretprobe(back); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobes(all); err != nil {
		t.Fatal(err)
	}
	traps := inText(t, s, w, all)
	if traps == 0 || traps == len(all) {
		t.Errorf("%d of %d are traps", traps, len(all))
	}
	stops := w.stops.Load()
	run(t, v, "dd if=/dev/zero of=/dev/null bs=1 count=10000 2>/tmp/dd & dd if=/dev/zero of=/dev/null bs=1 count=10000 2>/tmp/dd2; wait")
	if n := w.stops.Load() - stops; n != 0 {
		t.Errorf("%d stops", n)
	}
	run(t, v, "sync; sync")
	if handled != 2 {
		t.Errorf("%d calls were handled at a stop, of 2", handled)
	}
	if jump.Hits() != 20000 || back.Hits() != 20000 {
		t.Errorf("%d calls and %d returns, of 20000", jump.Hits(), back.Hits())
	}
	if n := inside[at[0]].Hits(); n < 20000 {
		t.Errorf("%d calls of vfs_write", n)
	}
	for _, p := range pairs { // who prints may be between the two
		until(t, p[0].Addr.String()+" and what is behind it were executed equally often", func() bool { return p[0].Hits() == p[1].Hits() })
	}
	for _, e := range s.List() {
		if e.Addr == jump.Addr && !e.Optimized {
			t.Errorf("write_null is no jump: %+v", e)
		}
	}
	t.Logf("%d probes, %d of them traps", len(all), traps)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	sameLater(t, v, before)
	if out := run(t, v, "echo well"); strings.TrimSpace(out) != "well" {
		t.Errorf("the guest says %q", out)
	}
}
