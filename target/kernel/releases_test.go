package kernel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// releases are Debian's kernels of five years: a soak tries them all, else it is stable's, which
// stays in the archive for years.
func releases() []string {
	if os.Getenv("SOAK") == "" {
		return []string{"6.12"}
	}
	return []string{"5.10", "6.1", "6.12", "6.12-amd64", "6.12-rt-amd64", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.3"}
}

// In each kernel probes are stops, traps in the guest and jumps, and returns are seen, in one
// session after another; nothing stays, and the kernel has no complaints.
func TestReleases(t *testing.T) {
	testprog.Long(t, "it fetches kernels beside the gate's own")
	for _, version := range releases() {
		t.Run(version, func(t *testing.T) {
			v := vmtest.Boot(t, vm.Config{Kernel: version, CPUs: 2, Turns: true, Files: map[string]string{
				"/bin/kwork": testprog.Build(t, "kwork", "-O2", "-static"), "/dummy.ko": dummyOf(t, version)}})
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

// dummyOf is a module of a kernel, as insmod takes it.
func dummyOf(t *testing.T, version string) string {
	t.Helper()
	k, err := vm.Fetch("amd64", version)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, lib := range []string{"lib", "usr/lib"} {
		more, err := filepath.Glob(filepath.Join(k.Dir, lib, "modules/*/kernel/drivers/net/dummy.ko*"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	if len(files) == 0 {
		t.Fatalf("no dummy.ko in %s", k.Dir)
	}
	if !strings.HasSuffix(files[0], ".xz") {
		return files[0]
	}
	out := filepath.Join(t.TempDir(), "dummy.ko")
	b, err := exec.Command("xz", "-dc", files[0]).Output()
	if err == nil {
		err = os.WriteFile(out, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inModule counts a module's function by a jump, until the module goes.
func inModule(t *testing.T, s *kprobe.Session, v *vm.VM, w *watchful) {
	t.Helper()
	run(t, v, "insmod /dummy.ko")
	p := &kprobe.Kprobe{SymbolName: "dummy:dummy_setup", Program: kprobe.CountOnly}
	if err := s.Register(p); err != nil {
		t.Fatal(err)
	}
	if e := s.Plan(&kprobe.Kprobe{SymbolName: p.SymbolName, Program: kprobe.CountOnly}); e.Jump.How != "alone" && e.Jump.How != "moved" {
		t.Fatalf("no jump in a module: %+v", e)
	}
	testprog.Until(t, "a jump in a module", v.PID(), func() bool {
		s.WaitOptimized()
		b := make([]byte, 1)
		return w.ReadAt(p.Addr, b) == nil && b[0] == 0xe9
	})
	stops := w.stops.Load()
	run(t, v, "for i in 1 2 3; do ip link add dummy7 type dummy && ip link del dummy7; done")
	if n := w.stops.Load() - stops; p.Hits() != 3 || n != 0 {
		t.Errorf("%d calls in a module, of 3; %d stops", p.Hits(), n)
	}
	run(t, v, "rmmod dummy")
	if list := listText(s); strings.Count(list, "dummy:dummy_setup+0x0    [GONE]") != 1 {
		t.Errorf("unloaded, and the list is\n%s", list)
	}
	if err := s.Unregister(p); err != nil {
		t.Error(err)
	}
}

// mayFail compares the functions that the kernel allows to fail with its own file; without such a
// list it has no such file.
func mayFail(t *testing.T, v *vm.VM, k *kernel.Target) {
	t.Helper()
	own := strings.Fields(run(t, v, "sed 's/[+ \t].*//' /sys/kernel/debug/error_injection/list 2>/dev/null || true"))
	list, err := k.Kernel().Injectable()
	if (err != nil) != (len(own) == 0) || len(own) != len(list) {
		t.Fatalf("%d functions in the kernel's own file, %d in its memory, %v", len(own), len(list), err)
	}
	var names []string
	for _, r := range list {
		if s, off, ok := k.Kernel().At(r.Start); !ok || off != 0 || r.End != s.Addr+arch.Addr(s.Size) {
			t.Errorf("%v is no function", r)
		}
		for _, s := range k.Kernel().Table().Match("*") {
			if s.Addr == r.Start {
				names = append(names, s.Name)
			}
		}
	}
	for _, name := range own {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in memory", name)
		}
	}
	t.Logf("%d functions may be made to fail", len(list))
}

// threeWays has one session with probes of each kind, and looks at its traces in the guest.
func threeWays(t *testing.T, v *vm.VM) {
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		t.Fatal(err)
	}
	w := &watchful{Target: k}
	s, err := kprobe.Open(w, &kprobe.Options{Unlisted: true, Report: func(err error) {
		if !strings.Contains(err.Error(), "its code has been unmapped") {
			t.Error(err)
		}
	}})
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
		if e := s.Plan(p); e.Verdict != kprobe.VerdictRefuse && e.Trap.How == "inside" {
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
	for _, p := range pairs { // the task that prints may be between the two
		testprog.Until(t, p[0].Addr.String()+" and what is behind it were executed equally often", v.PID(), func() bool { return p[0].Hits() == p[1].Hits() })
	}
	switchesEvents(t, v, k)
	inModule(t, s, v, w)
	mayFail(t, v, k)
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
