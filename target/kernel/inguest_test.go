package kernel_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	symbols "kprobe/symbol/kernel"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
	"kprobe/trace"
)

// openWindow opens a session that can have code in the shared guest. When it is
// closed, nothing of the kernel's text may be different from before.
func openWindow(t testing.TB, v *vm.VM) (*kprobe.Session, *symbols.Kernel) {
	t.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Error(err) }})
	if err != nil {
		k.Close()
		t.Fatal(err)
	}
	before := text(t, outside(t, v))
	t.Cleanup(func() {
		s.Close()
		sameLater(t, v, before)
	})
	return s, k.Kernel()
}

// readable is a kernel whose memory can be read: a target, or one that is looked at from outside.
type readable interface {
	arch.Reader
	Kernel() *symbols.Kernel
}

// text is all that we may have changed of a kernel: its code, and the page tables around.
func text(t testing.TB, k readable) []byte {
	t.Helper()
	all := make([]byte, 0, 20<<20)
	for _, r := range [][2]string{{"_stext", "_etext"}, {"level2_kernel_pgt", "level2_fixmap_pgt"}} {
		start, ok1 := k.Kernel().Table().Addr(r[0])
		end, ok2 := k.Kernel().Table().Addr(r[1])
		if !ok1 || !ok2 || end <= start {
			t.Fatalf("no %v", r)
		}
		n := len(all)
		all = slices.Grow(all, int(end-start))[:n+int(end-start)]
		if err := k.ReadAt(start, all[n:]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// sameText makes sure that the text is as before, but for places that the kernel itself switches
// over: jump labels and static calls, at any time.
func sameText(t testing.TB, k readable, before []byte) {
	t.Helper()
	now := text(t, k)
	if bytes.Equal(now, before) {
		return
	}
	start, _ := k.Kernel().Table().Addr("_stext")
	for i := range now {
		at := start + arch.Addr(i)
		if now[i] != before[i] && !switchedByItself(t, k, at) {
			sym, off, _ := k.Kernel().At(at)
			to := min(i+16, len(now))
			t.Errorf("the kernel's text, or its page tables, are not what they were: first at %v (%s+%d), % x, before % x", at, sym.Name, off, now[i:to], before[i:to])
			return
		}
	}
}

// switchedByItself tells whether the kernel itself has a switch at an address.
func switchedByItself(t testing.TB, k readable, at arch.Addr) bool {
	t.Helper()
	sites, err := k.Kernel().Foreign(at, at+1)
	if err != nil {
		t.Error(err)
	}
	return slices.ContainsFunc(sites, func(s symbols.Site) bool { return s.Owner == symbols.JumpLabel || s.Owner == symbols.StaticCall })
}

// counters registers probes that only count, and waits for their jumps.
func counters(t testing.TB, s *kprobe.Session, functions ...string) []*kprobe.Kprobe {
	t.Helper()
	var ps []*kprobe.Kprobe
	for _, f := range functions {
		ps = append(ps, &kprobe.Kprobe{SymbolName: f, Program: kprobe.CountOnly})
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	optimized(t, s, len(ps))
	return ps
}

// optimized waits until so many probes are jumps. A jump that tasks are in the way of, or the
// kernel itself, is tried again, so it takes its time.
func optimized(t testing.TB, s *kprobe.Session, want int) {
	t.Helper()
	testprog.UntilNil(t, "probes are jumps", testprog.Here, func() error {
		s.WaitOptimized()
		n := 0
		for _, e := range s.List() {
			if e.Optimized {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d of %d are", n, want)
		}
		return nil
	})
}

// Jumps in the guest count each pass on two CPUs at once, and nothing of them stays.
func TestCount(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	ps := counters(t, s, "write_null", "read_zero")
	const times = 100_000
	dd := fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=1 count=%d 2>/tmp/dd", times)
	run(t, v, dd+" & "+dd+"; wait")
	for _, p := range ps {
		if n, missed := p.Hits(), p.NMissed(); n != 2*times || missed != 0 {
			t.Errorf("%s: %d hits, %d missed", p.SymbolName, n, missed)
		}
	}
	// One of them with a handler at the same place is a stop again, and counts on.
	handled := 0
	h := &kprobe.Kprobe{SymbolName: "write_null", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { handled++; return 0 }}
	if err := s.RegisterKprobe(h); err != nil {
		t.Fatal(err)
	}
	run(t, v, "dd if=/dev/zero of=/dev/null bs=1 count=3 2>/tmp/dd")
	if err := s.UnregisterKprobe(h); err != nil {
		t.Fatal(err)
	}
	if n := ps[0].Hits(); n != 2*times+3 || handled != 3 {
		t.Errorf("%d hits, %d handled", n, handled)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	run(t, v, "dd if=/dev/zero of=/dev/null bs=1 count=3 2>/tmp/dd; rm /tmp/dd")
	if n := ps[0].Hits(); n != 2*times+3 {
		t.Errorf("%d hits after Close", n)
	}
}

// The guest's own ftrace and kprobes come to where our jumps are: they find the
// kernel's own bytes, we go on as a stop, and jump again when they have left.
func TestGuestTraces(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	ps := counters(t, s, "ksys_sync", "write_null")
	defer s.Close()
	const tracing = "cd /sys/kernel/tracing; "
	for _, own := range []struct{ name, on, off string }{
		{"ftrace", "echo ksys_sync >set_ftrace_filter; echo function >current_tracer", "echo nop >current_tracer; echo >set_ftrace_filter"},
		{"kprobe", "echo p:x ksys_sync >kprobe_events; echo 1 >events/kprobes/x/enable", "echo 0 >events/kprobes/x/enable; echo >kprobe_events"},
	} {
		before := ps[0].Hits()
		off := tracing + own.off
		defer v.Run(off)
		run(t, v, tracing+"echo >trace; "+own.on)
		out := run(t, v, "sync; sync; sync; grep -c ksys_sync /sys/kernel/tracing/trace")
		if strings.TrimSpace(out) != "3" {
			t.Errorf("%s of the guest: %q", own.name, out)
		}
		if n := ps[0].Hits() - before; n != 3 {
			t.Errorf("with %s: %d hits", own.name, n)
		}
		run(t, v, off)
		optimized(t, s, 2)
		run(t, v, "sync")
		if n := ps[0].Hits() - before; n != 4 {
			t.Errorf("after %s: %d hits", own.name, n)
		}
	}
	if out := run(t, v, "dmesg | grep -c -i -e ftrace.*bug -e 'WARNING: CPU' || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("the kernel complains: %s", run(t, v, "dmesg | tail -40"))
	}
}

// A thousand functions' entries at once, while the guest works on two CPUs.
func TestCountThousand(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 200
	}
	v := vmtest.Shared(t, "amd64")
	s, k := openWindow(t, v)
	sites, err := k.Sites()
	if err != nil {
		t.Fatal(err)
	}
	list, err := k.Blacklist()
	if err != nil {
		t.Fatal(err)
	}
	bounds := k.Table().Bounds()
	rnd := rand.New(rand.NewPCG(1, 2))
	rnd.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	var ps []*kprobe.Kprobe
	for _, site := range sites {
		sym, off, ok := k.At(site.Addr)
		if _, bad := k.Blacklisted(list, site.Addr); bad || !ok || off != 0 || site.Owner != symbols.Ftrace || !bounds.Contains(sym.Addr) {
			continue
		}
		if ps = append(ps, &kprobe.Kprobe{Addr: sym.Addr, Program: kprobe.CountOnly}); len(ps) == n {
			break
		}
	}
	began := time.Now()
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	optimized(t, s, n)
	t.Logf("%d jumps after %v, the last stop took %v", n, time.Since(began), s.LastStop())
	const work = "for i in 1 2 3; do dd if=/dev/zero of=/tmp/x$1 bs=4k count=200 2>/dev/null; cat /tmp/x$1 | md5sum; ls /proc/sys/kernel | wc -l >/dev/null; sleep 0.1; done; rm /tmp/x$1"
	out := run(t, v, "w() { "+work+"; }; w 1 >/tmp/1 & w 2; wait; cat /tmp/1")
	if lines := strings.Fields(out); len(lines) != 12 || strings.Count(out, lines[0]) != 6 {
		t.Errorf("the guest's work came out as\n%s", out)
	}
	var hits uint64
	hit := 0
	for _, p := range ps {
		if h := p.Hits(); h > 0 {
			hits += h
			hit++
		}
	}
	t.Logf("%d hits of %d probes", hits, hit)
	if hit < n/50 {
		t.Errorf("%d of %d probes were hit", hit, n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if out := run(t, v, "dmesg | grep -c -e BUG -e 'WARNING: CPU' -e Oops || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("the kernel complains: %s", run(t, v, "dmesg | tail -40"))
	}
}

// Events that are recorded in the guest equal those of the guest's own tracer for the same calls:
// task, CPU, time and registers. Those of a stop fit in between.
func TestTraceInside(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	defer s.Close()
	const events = "cd /sys/kernel/tracing; "
	_, clock, _ := strings.Cut(run(t, v, events+"cat trace_clock"), "[")
	clock, _, _ = strings.Cut(clock, "]") // the other clocks are this one, mended where it is not to be trusted
	off := events + "echo 0 >events/kprobes/x/enable; echo >kprobe_events; echo >trace; echo " + clock + " >trace_clock"
	defer v.Run(off)
	run(t, v, events+"echo 'p:x vfs_write buf=%si:x64 count=%dx:u64' >kprobe_events; echo local >trace_clock; echo >trace; echo 1 >events/kprobes/x/enable")
	var got, opened []*event.Event
	tr := trace.New(s, func(e *event.Event) {
		if e.Comm != "dd" {
			return
		}
		own := *e // which the tracer uses again
		own.Args = slices.Clone(e.Args)
		if e.Name == "w" {
			got = append(got, &own)
		} else {
			opened = append(opened, &own)
		}
	})
	tr.Inside = true
	if err := tr.Add("p:w write_null buf=%si:x64 count=%dx:u64", "r:o do_sys_openat2 fd=$retval stack"); err != nil {
		t.Fatal(err)
	}
	optimized(t, s, 1)
	const n = 100
	run(t, v, fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=7 count=%d 2>/tmp/dd", n))
	tr.Flush()
	out := run(t, v, "grep dd- /sys/kernel/tracing/trace; rm /tmp/dd")
	run(t, v, off)
	line := regexp.MustCompile(`(?m)^ *(\S+)-(\d+) +\[(\d+)\] \S+ +([\d.]+): x: \(vfs_write\+0x0/0x\w+\) buf=(0x\w+) count=7$`)
	own := line.FindAllStringSubmatch(out, -1)
	if len(own) != n || len(got) != n || len(opened) < 2 {
		t.Fatalf("the guest has %d events, we have %d, and %d of files\n%s", len(own), len(got), len(opened), out)
	}
	last := 0.0
	for i, m := range own {
		e := got[i]
		if want := fmt.Sprintf("%s-%s [%s] buf=%s count=7", m[1], m[2], m[3], m[5]); want != fmt.Sprintf("%s-%d [%03d] buf=%#x count=%d", e.Comm, e.TID, e.CPU, e.Args[0].Bits, e.Args[1].Bits) {
			t.Fatalf("event %d: %+v, the guest's %s", i, e, want)
		}
		// The guest prints microseconds, and writes to the file after that to the device.
		at, err := strconv.ParseFloat(m[4], 64)
		now := e.Time.Seconds()
		if err != nil || now < at-1e-6 || last > at+1e-6 {
			t.Errorf("event %d at %.9f, the guest's own at %s; the one before at %.9f", i, now, m[4], last)
		}
		last = now
	}
	for _, e := range opened {
		if e.Time > got[0].Time {
			t.Errorf("a file was opened at %v, after the first write at %v", e.Time, got[0].Time)
		}
	}
}
