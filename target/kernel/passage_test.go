package kernel_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/vm/vmtest"
)

// Beside a call of ftrace's at the same entry, be it for the guest's own probes or its tracer,
// programs miss no call and no return, on two CPUs at once, and the guest's own miss none either.
// The probes are there first: the call comes in the place of what their detour knows.
func TestCallOfFtraceAtTheSameEntry(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s, stops := openCounting(t, v)
	p := &kprobe.Kprobe{SymbolName: "read_zero", Program: kprobe.CountOnly}
	r := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "read_zero"}, Program: kprobe.CountOnly, MaxActive: 8}
	if err := s.Register(p, r); err != nil {
		t.Fatal(err)
	}
	times := 20
	if testing.Short() {
		times = 3 // most of them stop, and QEMU forgets all that it has translated at each
	}
	work := fmt.Sprintf("for i in 1 2; do dd if=/dev/zero of=/dev/null bs=1 count=%d 2>/dev/null & done; wait", times)
	calls := uint64(0)
	pass := func(when string) {
		t.Helper()
		run(t, v, work)
		calls += 2 * uint64(times)
		if p.Hits() != calls || r.Hits() != calls || p.NMissed() != 0 || r.Lost() != (kprobe.Lost{}) {
			t.Errorf("%s: %d calls, %d returns, want %d of both; %d and %+v missed", when, p.Hits(), r.Hits(), calls, p.NMissed(), r.Lost())
		}
	}
	const own = "cat kprobe_profile | while read name hit missed; do echo $hit $missed; done"
	for _, c := range []struct{ change, seen string }{
		{"kprobe", "p:x read_zero"}, {"kretprobe", "r:x read_zero"}, {"tracer", ""},
	} {
		on, off := "echo '"+c.seen+"' >kprobe_events; echo 1 >events/kprobes/x/enable", "echo 0 >events/kprobes/x/enable; echo >kprobe_events"
		if c.seen == "" {
			on, off = "echo read_zero >set_ftrace_filter; echo function >current_tracer", "echo nop >current_tracer; echo >set_ftrace_filter; echo >trace"
		}
		optimizedProbes(t, s)
		run(t, v, "cd "+tracing+"; "+on)
		pass(c.change)
		seen := run(t, v, "cd "+tracing+"; "+own)
		if c.seen == "" {
			seen = run(t, v, "cd "+tracing+"; grep -c ': read_zero <' trace; echo 0")
		}
		run(t, v, "cd "+tracing+"; "+off)
		if got := strings.Join(strings.Fields(seen), " "); got != fmt.Sprint(2*times, " 0") {
			t.Errorf("%s: the guest's own has seen and missed %s of %d calls", c.change, got, 2*times)
		}
		pass("after the " + c.change)
	}
	optimizedProbes(t, s)
	before := stops.hits.Load()
	pass("in the end")
	if n := stops.hits.Load() - before; n != 0 {
		t.Errorf("%d stops where nobody else is", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	run(t, v, work)
	sane(t, v)
}
