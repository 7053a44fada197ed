package kernel_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/vm/vmtest"
)

// Jumps over several instructions, behind functions' entries that are run through on two CPUs all
// the time: they count what jumps at the entries count, the guest's work comes out as ever, and its
// text is as before.
func TestCountMoved(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, k := openWindow(t, v)
	var entries, behind []*kprobe.Kprobe
	for _, name := range []string{"vfs_read", "vfs_write", "ksys_read", "ksys_write", "do_sys_openat2", "pipe_read", "pipe_write",
		"do_wait", "vfs_statx", "do_nanosleep", "hrtimer_nanosleep", "kernel_clone", "mmput", "filp_close"} {
		at, ok := k.Table().Addr(name)
		if !ok {
			t.Fatal("no " + name)
		}
		p := &kprobe.Kprobe{Addr: at + 5, Program: kprobe.CountOnly}
		plan := s.Plan(p)
		t.Log(plan)
		if plan.Jump.How == "moved" {
			entries, behind = append(entries, &kprobe.Kprobe{Addr: at, Program: kprobe.CountOnly}), append(behind, p)
		}
	}
	if len(behind) < 5 {
		t.Fatalf("%d functions can have a jump behind their entry", len(behind))
	}
	times := 5000
	if testing.Short() {
		times = 1000
	}
	work := fmt.Sprintf("for i in 1 2; do dd if=/dev/zero of=/tmp/y$1 bs=4k count=200 2>/dev/null; cat /tmp/y$1 | md5sum; dd if=/dev/zero bs=1 count=%d 2>/dev/null | wc -c; sleep 0.1; done; rm /tmp/y$1", times)
	busy := func() {
		t.Helper()
		out := run(t, v, "w() { "+work+"; }; w 1 >/tmp/1 & w 2; wait; cat /tmp/1; rm /tmp/1")
		if sum, _, _ := strings.Cut(out, " "); strings.Count(out, sum) != 4 || strings.Count(out, fmt.Sprintln(times)) != 4 {
			t.Errorf("the guest's work came out as\n%s", out)
		}
	}
	if err := s.RegisterKprobes(append(entries[:len(entries):len(entries)], behind...)); err != nil {
		t.Fatal(err)
	}
	optimized(t, s, 2*len(behind))
	busy()
	var hits uint64
	for i, p := range behind {
		// A CPU may have been between the two when they were armed, and may be now.
		e, n := entries[i].Hits(), p.Hits()
		if most := uint64(2 * 2); e+most < n || n+most < e || p.NMissed() != 0 {
			t.Errorf("%s: %d hits at the entry, %d behind, %d missed", s.Plan(p).Place, e, n, p.NMissed())
		}
		hits += n
	}
	t.Logf("%d hits of %d jumps", hits, len(behind))
	if hits < 4*uint64(times) {
		t.Errorf("%d hits", hits)
	}
	// One by one they go and come again, at any moment of the work.
	done := make(chan error)
	go func() {
		for _, p := range behind[:3] {
			if err := s.DisableKprobe(p); err != nil {
				done <- err
				return
			}
			if err := s.EnableKprobe(p); err != nil {
				done <- err
				return
			}
			s.WaitOptimized()
		}
		done <- nil
	}()
	busy()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if out := run(t, v, "dmesg | grep -c -e BUG -e 'WARNING: CPU' -e Oops || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("the kernel complains: %s", run(t, v, "dmesg | tail -40"))
	}
}
