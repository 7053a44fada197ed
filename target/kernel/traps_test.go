package kernel_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// watchful counts the stops at breakpoints.
type watchful struct {
	*kernel.Target
	stops atomic.Int64
}

func (w *watchful) Wait() (target.Stop, error) {
	st, err := w.Target.Wait()
	if err == nil && st.Kind == target.StopTrap {
		w.stops.Add(1)
	}
	return st, err
}

// openWatchful is openWindow with a count of stops.
func openWatchful(t testing.TB, v *vm.VM) (*kprobe.Session, *watchful) {
	t.Helper()
	s, w := openUnchecked(t, v)
	before := text(t, outside(t, v))
	t.Cleanup(func() {
		s.Close()
		sameLater(t, v, before)
	})
	return s, w
}

// openUnchecked is openWatchful without the comparison of the text at the end: for a guest whose
// text is not in its last state yet.
func openUnchecked(t testing.TB, v *vm.VM) (*kprobe.Session, *watchful) {
	t.Helper()
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
	t.Cleanup(func() { s.Close() })
	return s, w
}

// sameLater is sameText when no session is there. Where the last one had to leave something, since
// a task was in it, the next takes that out.
func sameLater(t testing.TB, v *vm.VM, before []byte) {
	t.Helper()
	if bytes.Equal(text(t, outside(t, v)), before) {
		return
	}
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM()})
	if err != nil {
		t.Error(err)
		return
	}
	sameText(t, k, before)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// inText waits until all probes but those that cannot are traps or jumps in the kernel's text. It
// answers how many are traps.
func inText(t testing.TB, s *kprobe.Session, w *watchful, ps []*kprobe.Kprobe) (traps int) {
	t.Helper()
	jumps := make(map[arch.Addr]bool)
	testprog.Until(t, "traps in the text", testprog.Here, func() bool {
		s.WaitOptimized()
		for _, e := range s.List() {
			jumps[e.Addr] = e.Optimized
		}
		traps = 0
		for _, p := range ps {
			b := make([]byte, 1)
			if err := w.ReadAt(p.Addr, b); err != nil {
				t.Fatal(err)
			}
			switch {
			case jumps[p.Addr]:
			case b[0] == w.Arch().Break[0]:
				traps++
			default:
				return false
			}
		}
		return true
	})
	return traps
}

// straight are the pairs of a function's instructions of which the second runs exactly as often as
// the first: it comes next, and nothing else leads there.
func straight(t testing.TB, s *kprobe.Session, name string) (at []arch.Addr, pairs [][2]arch.Addr) {
	t.Helper()
	loc, err := s.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	start, end := loc.Addr, loc.End()
	code := make([]byte, loc.Size)
	if err := s.ReadMem(start, code); err != nil {
		t.Fatal(err)
	}
	led := make(map[arch.Addr]bool)
	var last arch.Addr
	for a := start; a < end; {
		in, err := amd64.New(s.Arch()).Decode(code[a-start:], a)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		at = append(at, a)
		if last != 0 {
			pairs = append(pairs, [2]arch.Addr{last, a})
		}
		led[in.Target] = true
		if last = a; in.Flow != isa.Next {
			last = 0
		}
		a += arch.Addr(in.Len)
	}
	var sure [][2]arch.Addr
	for _, p := range pairs {
		if !led[p[1]] {
			sure = append(sure, p)
		}
	}
	return at, sure
}

// Every instruction of real functions counts, where it can, by a trap that is served in the guest,
// with no stop, and then by jumps and traps side by side. None is missed and none is counted twice.
func TestTraps(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	want := run(t, v, fileWork)
	s, w := openWatchful(t, v)
	defer s.Close()
	functions := worked
	if testing.Short() {
		functions = worked[:4]
	}
	var ps []*kprobe.Kprobe
	probe := make(map[arch.Addr]*kprobe.Kprobe)
	var pairs [][2]arch.Addr
	var calls []uint64
	var entries []arch.Addr
	for _, f := range functions {
		at, sure := straight(t, s, f.name)
		pairs = append(pairs, sure...)
		calls, entries = append(calls, f.calls), append(entries, at[0])
		for _, a := range at {
			kp := &kprobe.Kprobe{Addr: a, Program: kprobe.CountOnly}
			if e := s.Plan(kp); e.Verdict != kprobe.VerdictRefuse && e.Trap.How == "inside" {
				ps = append(ps, kp)
				probe[a] = kp
			}
		}
	}
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	check := func(how string, times uint64) {
		t.Helper()
		before := w.stops.Load()
		if got := run(t, v, fileWork); got != want {
			t.Errorf("%s: the work came out as\n%s\nwithout probes\n%s", how, got, want)
		}
		if n := w.stops.Load() - before; n != 0 {
			t.Errorf("%s: %d stops", how, n)
		}
		hit := 0
		for _, p := range ps {
			if p.NMissed() != 0 {
				t.Errorf("%s: %v has missed %d", how, p.Addr, p.NMissed())
			}
			if p.Hits() > 0 {
				hit++
			}
		}
		for i, e := range entries {
			if n := probe[e].Hits(); n != times*calls[i] {
				t.Errorf("%s: %s was called %d times, %d hits", how, functions[i].name, times*calls[i], n)
			}
		}
		for _, p := range pairs {
			if a, b := probe[p[0]], probe[p[1]]; a != nil && b != nil && a.Hits() != b.Hits() {
				t.Errorf("%s: %d hits at %v, %d at %v behind it", how, a.Hits(), p[0], b.Hits(), p[1])
			}
		}
		if hit < 30*len(functions) {
			t.Errorf("%s: %d of %d instructions were executed", how, hit, len(ps))
		}
	}
	if n := inText(t, s, w, ps); n != len(ps) {
		t.Errorf("%d of %d are traps", n, len(ps))
	}
	check("traps", 1)
	if err := s.SetOptimization(true); err != nil {
		t.Fatal(err)
	}
	n := inText(t, s, w, ps)
	t.Logf("%d instructions, %d of them traps when there are jumps", len(ps), n)
	if n < len(ps)/4 || n > 3*len(ps)/4 {
		t.Errorf("%d of %d are traps", n, len(ps))
	}
	check("both", 2)
	quiet(t, v)
}

// The text changes all the time while two CPUs come there: a breakpoint of the stub's, a trap, a
// jump, by turns, with and without a handler of ours. Each pass counts once.
func TestTrapsComeAndGo(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, w := openWatchful(t, v)
	defer s.Close()
	var ps []*kprobe.Kprobe
	for _, off := range []uint64{0, 5, 8} {
		ps = append(ps, &kprobe.Kprobe{SymbolName: "write_null", Offset: off, Program: kprobe.CountOnly})
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	inText(t, s, w, ps)
	run(t, v, "rm -f /tmp/stop /tmp/n*; for i in 1 2; do { n=0; while ! test -f /tmp/stop; do "+
		"dd if=/dev/zero of=/dev/null bs=1 count=1000 2>/tmp/dd$i; n=$((n+1)); done; echo $n >/tmp/n$i.new; mv /tmp/n$i.new /tmp/n$i; } >/dev/null 2>&1 & done")
	changes := 12
	if testing.Short() {
		changes = 4
	}
	for i := range changes {
		h := &kprobe.Kprobe{SymbolName: "write_null", Offset: 5, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		if i%3 == 2 {
			if err := s.RegisterKprobe(h); err != nil {
				t.Fatal(err)
			}
			testprog.Until(t, "a hit of the handler", v.PID(), func() bool { return h.Hits() > 0 })
			if err := s.UnregisterKprobe(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetOptimization(i%2 == 1); err != nil {
			t.Fatal(err)
		}
		inText(t, s, w, ps)
	}
	run(t, v, "touch /tmp/stop; until test -f /tmp/n1 -a -f /tmp/n2; do sleep 0.1; done")
	var n1, n2 uint64
	if _, err := fmt.Sscan(run(t, v, "cat /tmp/n1 /tmp/n2; rm /tmp/n1 /tmp/n2 /tmp/stop /tmp/dd1 /tmp/dd2"), &n1, &n2); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d stops in %d passes", w.stops.Load(), 1000*(n1+n2))
	for _, p := range ps {
		if p.Hits() != 1000*(n1+n2) || p.NMissed() != 0 {
			t.Errorf("%s+%d: %d hits, %d missed, in %d passes", p.SymbolName, p.Offset, p.Hits(), p.NMissed(), 1000*(n1+n2))
		}
	}
	quiet(t, v)
}

// trapped are the places of a function where a trap can be served in the guest: with optimization
// off, one will be.
func trapped(t testing.TB, s *kprobe.Session, name string) (ps []*kprobe.Kprobe) {
	t.Helper()
	return places(t, s, name, func(e kprobe.PlanEntry) bool { return e.Trap.How == "inside" })
}

// unjumpable are the places of a function that can be no jump. Not every function has one.
func unjumpable(t testing.TB, s *kprobe.Session, name string) (ps []*kprobe.Kprobe) {
	t.Helper()
	return places(t, s, name, func(e kprobe.PlanEntry) bool {
		return e.Trap.How == "inside" && e.Jump.Why != ""
	})
}

// places are counting probes at the instructions of a function whose plans are wanted: at least
// one.
func places(t testing.TB, s *kprobe.Session, name string, wanted func(kprobe.PlanEntry) bool) (ps []*kprobe.Kprobe) {
	t.Helper()
	at, _ := straight(t, s, name)
	var planned []string
	for _, a := range at {
		kp := &kprobe.Kprobe{SymbolName: name, Offset: uint64(a - at[0]), Program: kprobe.CountOnly}
		e := s.Plan(kp)
		if wanted(e) {
			ps = append(ps, kp)
		}
		planned = append(planned, fmt.Sprintf("+%d: %s, jump %s, trap %s", kp.Offset, e.Verdict, e.Jump, e.Trap))
	}
	if len(ps) == 0 {
		t.Fatalf("%s has no place that is wanted:\n%s", name, strings.Join(planned, "\n"))
	}
	return ps
}

// A controller that is killed leaves traps that work, and the next one takes them out while CPUs
// are on their way through them.
func TestTrapsOfOneThatWasKilled(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	var defs []string
	var sites []arch.Addr
	var before []byte
	var trap byte
	func() {
		s, w := openUnchecked(t, v) // it only plans
		defer s.Close()
		before, trap = text(t, outside(t, v)), w.Arch().Break[0]
		for i, p := range unjumpable(t, s, "vfs_write") {
			defs = append(defs, fmt.Sprintf("p:t%d vfs_write+%d count=%%dx", i, p.Offset))
			sites = append(sites, s.Plan(p).Addr)
		}
	}()
	times := 3
	if testing.Short() {
		times = 1
	}
	for range times {
		args := append([]string{"trace", "-k", v.Stub(), "--ram", v.RAM(), "--window", v.Window(), "--no-summary"}, defs...)
		cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := make(chan struct{})
		go func() {
			lines := bufio.NewScanner(out)
			if lines.Scan() {
				close(seen)
			}
			io.Copy(io.Discard, out)
		}()
		run(t, v, "rm -f /tmp/stop; for i in 1 2; do { while ! test -f /tmp/stop; do dd if=/dev/zero of=/dev/null bs=1 count=1000 2>/tmp/dd$i; done; touch /tmp/done$i; } >/dev/null 2>&1 & done")
		testprog.Receive(t, "a traced line of "+cmd.String(), v.PID(), seen)
		// Of a breakpoint of the stub's the machine would stand at the next hit. Memory does not
		// show those.
		testprog.Until(t, "traps in the text", v.PID(), func() bool {
			for _, at := range sites {
				b, err := v.Monitor(fmt.Sprintf("x/1xb %#x", uint64(at)))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasSuffix(strings.TrimSpace(b), fmt.Sprintf("%#x", trap)) {
					return false
				}
			}
			return true
		})
		killBoth(t, cmd)
		cmd.Wait()
		run(t, v, "dd if=/dev/zero of=/dev/null bs=1 count=1000 2>/tmp/dd")
		k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
		if err != nil {
			t.Fatal(err)
		}
		sameText(t, k, before)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		run(t, v, "touch /tmp/stop; until test -f /tmp/done1 -a -f /tmp/done2; do sleep 0.1; done; rm /tmp/done1 /tmp/done2 /tmp/stop")
		quiet(t, v)
	}
}
