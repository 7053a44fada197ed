package kernel_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
)

// quiet makes sure that the kernel has nothing to complain about.
func quiet(t testing.TB, v *vm.VM) {
	t.Helper()
	if out := run(t, v, "dmesg | grep -c -e BUG -e 'WARNING: CPU' -e Oops -e 'int3:' || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("the kernel complains: %s", run(t, v, "dmesg | tail -40"))
	}
}

// A probe of the guest's own comes among the instructions that ours has a copy of: it is not passed
// by.
func TestGuestsProbeBehind(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	defer s.Close()
	kp := &kprobe.Kprobe{SymbolName: "ksys_sync", Offset: 5, Program: kprobe.CountOnly}
	if e := s.Plan(kp); e.Jump.How != "moved" || len(e.Bytes) != 4 {
		t.Fatalf("%v", e)
	}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	optimized(t, s, 1)
	const tracing = "cd /sys/kernel/tracing; "
	run(t, v, "echo 0 >/proc/sys/debug/kprobes-optimization") // optimized probes are put back some time later only
	defer v.Run("echo 1 >/proc/sys/debug/kprobes-optimization")
	off := tracing + "echo 0 >events/kprobes/x/enable; echo >kprobe_events"
	defer v.Run(off)
	run(t, v, tracing+"echo >trace; echo p:x ksys_sync+9 >kprobe_events; echo 1 >events/kprobes/x/enable")
	for i, wait := range []time.Duration{0, 2 * time.Second} { // at once, and when a jump has been tried again
		time.Sleep(wait)
		out := run(t, v, "sync; sync; sync; grep -c ksys_sync /sys/kernel/tracing/trace || true")
		if want := 3 * (i + 1); strings.TrimSpace(out) != fmt.Sprint(want) || kp.Hits() != uint64(want) || kp.NMissed() != 0 {
			t.Errorf("of %d calls the guest's own has seen %s, ours %d, missed %d", want, out, kp.Hits(), kp.NMissed())
		}
	}
	run(t, v, off)
	optimized(t, s, 1)
	run(t, v, "sync")
	if kp.Hits() != 7 {
		t.Errorf("%d hits of 7", kp.Hits())
	}
	quiet(t, v)
}

// The text changes all the time while two CPUs come there: a breakpoint of the stub's and a jump,
// by turns, with and without a handler of ours. Each pass counts once.
func TestJumpsComeAndGo(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	defer s.Close()
	ps := counters(t, s, "write_null", "read_zero")
	run(t, v, "rm -f /tmp/stop /tmp/n*; for i in 1 2; do { n=0; while ! test -f /tmp/stop; do "+
		"dd if=/dev/zero of=/dev/null bs=1 count=1000 2>/tmp/dd$i; n=$((n+1)); done; echo $n >/tmp/n$i.new; mv /tmp/n$i.new /tmp/n$i; } >/dev/null 2>&1 & done")
	changes := 9
	if testing.Short() {
		changes = 3
	}
	for i := range changes {
		var err error
		switch i % 3 {
		case 0:
			if err = s.SetOptimization(false); err == nil {
				err = s.SetOptimization(true)
			}
		case 1:
			h := &kprobe.Kprobe{SymbolName: "write_null", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
			if err = s.RegisterKprobe(h); err == nil {
				testprog.Until(t, "a hit of the handler", v.PID(), func() bool { return h.Hits() > 0 })
				err = s.UnregisterKprobe(h)
			}
		case 2:
			more := &kprobe.Kprobe{SymbolName: "write_null", Offset: 5, Program: kprobe.CountOnly}
			if err = s.RegisterKprobe(more); err == nil {
				err = s.UnregisterKprobe(more)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		optimized(t, s, len(ps))
	}
	run(t, v, "touch /tmp/stop; until test -f /tmp/n1 -a -f /tmp/n2; do sleep 0.1; done")
	var n1, n2 uint64
	if _, err := fmt.Sscan(run(t, v, "cat /tmp/n1 /tmp/n2; rm /tmp/n1 /tmp/n2 /tmp/stop /tmp/dd1 /tmp/dd2"), &n1, &n2); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		if p.Hits() != 1000*(n1+n2) || p.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed, in %d passes", p.SymbolName, p.Hits(), p.NMissed(), 1000*(n1+n2))
		}
	}
	quiet(t, v)
}
