package kernel_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
)

// schedstats is a file that switches static keys in functions that run all the time.
const schedstats = "/proc/sys/kernel/sched_schedstats"

// switched are functions around those keys, and functions that run besides in a load of processes
// that wake each other.
var switched = []string{"enqueue_task_fair", "dequeue_task_fair", "try_to_wake_up", "pipe_write", "pipe_read"}

// ownKprobe and ownFtrace have the guest probe ksys_sync itself: the first among the instructions
// that a jump in front of it would move.
var (
	ownKprobe = change{"kprobe", "echo p:x ksys_sync+9 >kprobe_events; echo 1 >events/kprobes/x/enable", "echo 0 >events/kprobes/x/enable; echo >kprobe_events"}
	ownFtrace = change{"ftrace", "echo ksys_sync >set_ftrace_filter; echo function >current_tracer", "echo nop >current_tracer; echo >set_ftrace_filter"}
)

// change is one way in which the guest changes its text, and how that ends.
type change struct{ name, on, off string }

// rewriting boots a guest that can rewrite its text while its CPUs are busy, and has its own probes
// be traps.
func rewriting(t testing.TB) *vm.VM {
	t.Helper()
	v := vmtest.Boot(t, vm.Config{CPUs: 2, Turns: true, Files: vmtest.Files(t)})
	run(t, v, "echo 0 >/proc/sys/debug/kprobes-optimization")
	return v
}

// counts makes probes that count, at every instruction of functions where a trap can be served in
// the guest; sure are pairs of them that run equally often. The text is not rewritten meanwhile.
func counts(t testing.TB, s *kprobe.Session, functions []string) (ps []*kprobe.Kprobe, sure [][2]*kprobe.Kprobe) {
	t.Helper()
	probe := make(map[arch.Addr]*kprobe.Kprobe)
	for _, f := range functions {
		at, pairs := straight(t, s, f)
		for _, a := range at {
			kp := &kprobe.Kprobe{Addr: a, Program: kprobe.CountOnly}
			if e := s.Plan(kp); e.Verdict != kprobe.VerdictRefuse && e.Trap.How == "inside" {
				ps, probe[a] = append(ps, kp), kp
			}
		}
		for _, p := range pairs {
			if a, b := probe[p[0]], probe[p[1]]; a != nil && b != nil {
				sure = append(sure, [2]*kprobe.Kprobe{a, b})
			}
		}
	}
	return ps, sure
}

// alike makes sure that two places were passed equally often. When probes come or go, a CPU may be
// between the two, in a task, and in interrupts that it serves.
func alike(t testing.TB, how string, p [2]*kprobe.Kprobe) {
	t.Helper()
	const between = 2 * 2 * 3 // CPUs, times, levels
	a, b := p[0], p[1]
	if x, y := a.Hits(), b.Hits(); max(x, y)-min(x, y) > between || a.NMissed()+b.NMissed() != 0 {
		t.Errorf("%s: %d hits at %v, %d at %v behind it; %d and %d missed", how, x, a.Addr, y, b.Addr, a.NMissed(), b.NMissed())
	}
}

// While the gate is there, traps that are not ours go the way that they always did: those of
// programs, of the guest's own probes, and of its rewriting of text. And one of ours may come in
// the middle of anything, an NMI too.
func TestTrapsOfOthers(t *testing.T) {
	v := rewriting(t)
	s, w := openWatchful(t, v)
	defer s.Close()
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	ps := trapped(t, s, "ksys_sync")
	ps = append(ps[:1], &kprobe.Kprobe{SymbolName: "ksys_sync", Offset: 5, Program: kprobe.CountOnly},
		&kprobe.Kprobe{SymbolName: "ksys_sync", Program: kprobe.CountOnly}, // where ftrace has a NOP
		&kprobe.Kprobe{SymbolName: "show_regs", Offset: 5, Program: kprobe.CountOnly})
	busy, sure := counts(t, s, switched)
	all := slices.Concat(ps, busy)
	if err := s.RegisterKprobes(all); err != nil {
		t.Fatal(err)
	}
	if n := inText(t, s, w, all); n != len(all) || len(busy) < 500 {
		t.Fatalf("%d of %d are traps", n, len(all))
	}
	if out := run(t, v, "ktraps breaks 100"); strings.TrimSpace(out) != "100" {
		t.Errorf("a program has %s of 100 traps", out)
	}
	times := 40
	if testing.Short() {
		times = 10
	}
	before := w.stops.Load()
	out := run(t, v, fmt.Sprintf("ktraps switch %d %s && cat %[2]s && sync && sync", times, schedstats))
	if strings.Join(strings.Fields(out), " ") != fmt.Sprint(times, " 0") || ps[1].Hits() != 2 || ps[2].Hits() != 2 || w.stops.Load() != before {
		t.Errorf("%s: %d and %d hits, %d stops", out, ps[1].Hits(), ps[2].Hits(), w.stops.Load()-before)
	}
	run(t, v, "for i in 1 2 3 4 5; do for j in 1 2; do dd if=/dev/zero of=/dev/null bs=1 count=10000 2>/dev/null & done; echo l >/proc/sysrq-trigger; wait; done")
	if n := ps[3].Hits(); n < 1 || ps[3].NMissed() != 0 { // a CPU that idles is not shown
		t.Errorf("%d registers of CPUs were shown, %d missed", n, ps[3].NMissed())
	}
	if err := s.UnregisterKprobes(busy); err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, p := range sure {
		alike(t, "switched", p)
		if p[0].Hits() > uint64(times) {
			hit++
		}
	}
	t.Logf("%d traps, %d pairs, %d of them busy", len(all), len(sure), hit)
	if hit < len(sure)/10 {
		t.Errorf("%d of %d pairs were busy", hit, len(sure))
	}

	for _, own := range []change{ownKprobe, ownFtrace} {
		hits := ps[1].Hits()
		run(t, v, "cd "+tracing+"; echo >trace; "+own.on)
		if out := run(t, v, "sync; sync; sync; grep -c ksys_sync "+tracing+"/trace"); strings.TrimSpace(out) != "3" {
			t.Errorf("%s of the guest: %q", own.name, out)
		}
		run(t, v, "cd "+tracing+"; "+own.off)
		if n := ps[1].Hits() - hits; n != 3 {
			t.Errorf("with %s: %d hits", own.name, n)
		}
		inText(t, s, w, ps)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if out := run(t, v, "ktraps breaks 100"); strings.TrimSpace(out) != "100" {
		t.Errorf("in the end a program has %s of 100 traps", out)
	}
	quiet(t, v)
}

// Gates and traps come and go, as do probes of the guest's own, while it rewrites its text and both
// CPUs run through all of that.
func TestGatesComeAndGo(t *testing.T) {
	v := rewriting(t)
	var before []byte
	var ps []*kprobe.Kprobe
	var sure [][2]*kprobe.Kprobe
	func() {
		s, _ := openUnchecked(t, v)
		defer s.Close()
		before = text(t, outside(t, v))
		// While they give way they are stops: with too many in functions that run all the time,
		// little else would be done.
		const every = 24
		_, all := counts(t, s, switched)
		for i := 0; i < len(all); i += every {
			if all[i][0] != all[max(0, i-1)][1] {
				sure, ps = append(sure, all[i]), append(ps, all[i][:]...)
			}
		}
		ps = append(ps, trapped(t, s, "ksys_sync")...)
	}()
	run(t, v, "rm -f /tmp/stop /tmp/over; { while ! test -f /tmp/stop; do ktraps switch 5 "+schedstats+"; done; echo >/tmp/over; } >/dev/null 2>&1 &")
	changes := []change{ownKprobe, ownFtrace, ownKprobe, ownFtrace}
	if testing.Short() {
		changes = changes[:2]
	}
	for i, own := range changes {
		s, w := openUnchecked(t, v)
		if err := s.SetOptimization(i%2 == 1); err != nil {
			t.Fatal(err)
		}
		testprog.Until(t, "text that nobody rewrites", v.PID(), func() bool {
			err := s.RegisterKprobes(ps)
			if err != nil && !errors.Is(err, syscall.EBUSY) {
				t.Fatal(err)
			}
			return err == nil
		})
		hit(t, s, w, ps)
		run(t, v, "cd "+tracing+"; "+own.on+"; sync; "+own.off)
		hit(t, s, w, ps) // they had to give way, and are back
		if i%2 == 0 {    // else all of it goes at once
			if err := s.UnregisterKprobes(ps); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range sure {
			alike(t, own.name, p)
		}
	}
	run(t, v, "touch /tmp/stop; until test -f /tmp/over; do sleep 0.1; done; test -f /tmp/over")
	sameLater(t, v, before)
	quiet(t, v)
}

// hit waits until traps in the text are hit.
func hit(t testing.TB, s *kprobe.Session, w *watchful, ps []*kprobe.Kprobe) {
	t.Helper()
	had := make(map[*kprobe.Kprobe]uint64)
	testprog.Until(t, "traps that are hit", testprog.Here, func() bool {
		s.WaitOptimized()
		n := 0
		for _, p := range ps {
			b := make([]byte, 1)
			if err := w.ReadAt(p.Addr, b); err != nil {
				t.Fatal(err)
			}
			hits, known := p.Hits(), had[p] > 0
			switch {
			case b[0] != w.Arch().Break[0]:
				delete(had, p)
			case !known && hits > 0:
				had[p] = hits
			case known && hits > had[p]:
				n++
			}
		}
		return n > 5
	})
}

// The guest's own probes are the oracle: where ours are traps, in the same work, they count what
// ours count, and ours stop nothing.
func TestTrapsAreTheGuests(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, fileWork)
	s, w := openWatchful(t, v)
	defer s.Close()
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	functions := worked
	if testing.Short() {
		functions = worked[:2]
	}
	probe := make(map[string]*kprobe.Kprobe)
	var defs strings.Builder
	for _, f := range functions {
		ps := trapped(t, s, f.name)
		const most = 24
		for i := range min(most, len(ps)) { // from all over the function
			p := ps[i*len(ps)/min(most, len(ps))]
			name := fmt.Sprintf("t%d", len(probe))
			fmt.Fprintf(&defs, " p:%s %s+%d", name, p.SymbolName, p.Offset)
			probe[name] = p
		}
	}
	run(t, v, "cd "+tracing+"; set --"+defs.String()+"; while [ $# -gt 0 ]; do echo $1 $2; shift 2; done >/tmp/defs; cat /tmp/defs >kprobe_events")
	defer v.Run("cd " + tracing + "; echo 0 >events/kprobes/enable; echo >kprobe_events; echo >trace")
	run(t, v, "cd "+tracing+"; echo 1 >events/kprobes/enable")
	run(t, v, fileWork)
	theirs := make(map[string]uint64)
	for line := range strings.Lines(run(t, v, "cat "+tracing+"/kprobe_profile")) {
		var name string
		var hits, missed uint64
		if _, err := fmt.Sscan(line, &name, &hits, &missed); err != nil || missed != 0 {
			t.Fatalf("%q: %v", line, err)
		}
		theirs[name] = hits
	}
	run(t, v, "cd "+tracing+"; echo 0 >events/kprobes/enable; echo >kprobe_events; echo >trace")

	ps := slices.Collect(maps.Values(probe))
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	if n := inText(t, s, w, ps); n != len(ps) {
		t.Errorf("%d of %d are traps", n, len(ps))
	}
	before := w.stops.Load()
	run(t, v, fileWork)
	if n := w.stops.Load() - before; n != 0 {
		t.Errorf("%d stops", n)
	}
	hit := 0
	for name, p := range probe {
		if want, ok := theirs[name]; !ok || p.Hits() != want || p.NMissed() != 0 {
			t.Errorf("%s+%d: %d hits, %d missed; the guest's own: %d", p.SymbolName, p.Offset, p.Hits(), p.NMissed(), want)
		}
		if p.Hits() > 0 {
			hit++
		}
	}
	t.Logf("%d places, %d of them hit", len(ps), hit)
	if hit < len(functions) {
		t.Errorf("%d of %d places were hit", hit, len(ps))
	}
	quiet(t, v)
}
