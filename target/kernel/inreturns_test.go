package kernel_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	symbols "kprobe/symbol/kernel"
	"kprobe/target"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
	"kprobe/trace"
)

// counting counts the hits for which the machine was stopped.
type counting struct {
	*kernel.Target
	hits atomic.Int64
}

func (c *counting) Wait() (target.Stop, error) {
	st, err := c.Target.Wait()
	if err == nil && st.Kind == target.StopTrap {
		c.hits.Add(1)
	}
	return st, err
}

func openCounting(t testing.TB, v *vm.VM) (*kprobe.Session, *counting) {
	t.Helper()
	return openCountingTelling(t, v, func(err error) { t.Error(err) })
}

func openCountingTelling(t testing.TB, v *vm.VM, report func(error)) (*kprobe.Session, *counting) {
	t.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{Target: k}
	s, err := kprobe.Open(c, &kprobe.Options{Unlisted: true, Report: report})
	if err != nil {
		k.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, c
}

// optimizedProbes waits until all that is listed is a jump.
func optimizedProbes(t testing.TB, s *kprobe.Session) { t.Helper(); optimized(t, s, len(s.List())) }

// sane makes sure that the kernel has no complaints.
func sane(t testing.TB, v *vm.VM) {
	t.Helper()
	if got := run(t, v, "dmesg | grep -iE -A9 'oops|bug:|int3|warning:' || true"); got != "" {
		t.Errorf("the kernel has complaints:\n%s", got)
	}
}

// Jumps at exits count each return on two CPUs at once, and nothing of them stays.
func TestReturnsCount(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	var rps []*kprobe.Kretprobe
	for _, f := range []string{"write_null", "read_zero"} {
		rps = append(rps, &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: f}, Program: kprobe.CountOnly})
	}
	if err := s.RegisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
	optimizedProbes(t, s)
	const times = 30_000
	dd := fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=1 count=%d 2>/tmp/dd", times)
	run(t, v, dd+" & "+dd+"; wait")
	for _, rp := range rps {
		if n, lost := rp.Hits(), rp.Lost(); n != 2*times || lost != (kprobe.Lost{}) {
			t.Errorf("%s: %d returns, lost %+v", rp.Kp.SymbolName, n, lost)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Results of functions, and the arguments that they were called with, are recorded at their returns
// without a stop of the machine. They equal the records of the guest's own probes on their callers
// in the same run: task by task, in order, on two CPUs, where the functions sleep too.
func TestReturnsRecorded(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	callers := map[string]string{"__x64_sys_read": "vfs_read", "__x64_sys_write": "vfs_write", "__x64_sys_pwrite64": "vfs_write",
		"__x64_sys_nanosleep": "do_nanosleep", "__x64_sys_clock_nanosleep": "do_nanosleep"}
	own := "cd " + tracing + "; echo >trace"
	for caller, name := range callers {
		own += fmt.Sprintf("; echo 'r64:%s_%s %s ret=$retval:s64' >>kprobe_events", name, caller, caller)
		if name != "do_nanosleep" {
			own += fmt.Sprintf("; echo 'p:%s_of_%s %s n=+96(%%di):u64' >>kprobe_events", name, caller, caller) // rdx of the system call
		}
	}
	off := "cd " + tracing + "; echo 0 >events/kprobes/enable; echo >kprobe_events; echo >trace"
	defer v.Run(off)
	run(t, v, own+"; echo 'comm == \"kwork\"' >events/kprobes/filter; echo 1 >events/kprobes/enable")

	s, stops := openCounting(t, v)
	var mu sync.Mutex
	ours, asked := make(map[string][]string), make(map[string][]string)
	tr := trace.New(s, func(e *event.Event) {
		if e.Comm == "kwork" {
			mu.Lock()
			defer mu.Unlock()
			task := fmt.Sprint(e.TID)
			line := e.Name
			for _, a := range e.Args {
				if a.Name == "n" {
					asked[task] = append(asked[task], fmt.Sprint(e.Name, " ", a.Bits))
					continue
				}
				line += fmt.Sprint(" ", int64(a.Bits))
			}
			ours[task] = append(ours[task], line)
		}
	})
	tr.Inside = true
	if err := tr.Add("r64:vfs_read vfs_read n=$arg3:u64 ret=$retval:s64", "r64:vfs_write vfs_write n=count ret=$retval:s64", "r64:do_nanosleep do_nanosleep ret=$retval:s32",
		"r64:schedule schedule"); err != nil {
		t.Fatal(err)
	}
	optimizedProbes(t, s)
	before := stops.hits.Load()
	run(t, v, "w() { mkdir -p /tmp/w$1; cd /tmp/w$1; for i in 1 2 3; do kwork 1 >/dev/null; done; }; w 1 & w 2; wait; rm -r /tmp/w1 /tmp/w2")
	if n := stops.hits.Load() - before; n != 0 {
		t.Errorf("the machine was stopped %d times", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	tr.Flush()
	missed := misses(t, run(t, v, "cat "+tracing+"/kprobe_profile"))
	line := regexp.MustCompile(`^\s*\S+-(\d+) .*: (vfs_read|vfs_write|do_nanosleep)_\w+: .* (ret|n)=(-?\d+)$`)
	theirs, called := make(map[string][]string), make(map[string][]string)
	for l := range strings.Lines(pack(t, v, "grep -e ret= -e n= "+tracing+"/trace")) {
		m := line.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			t.Fatalf("a trace line? %q", l)
		}
		if m[3] == "n" {
			called[m[1]] = append(called[m[1]], m[2]+" "+m[4])
			continue
		}
		theirs[m[1]] = append(theirs[m[1]], m[2]+" "+m[4])
	}
	run(t, v, off)
	slept, events := 0, 0
	for task, got := range ours {
		n := len(got)
		got = slices.DeleteFunc(got, func(e string) bool { return strings.HasPrefix(e, "schedule") })
		slept, events = slept+n-len(got), events+len(got)
		if !slices.Equal(got, theirs[task]) {
			t.Errorf("task %s: ours\n%s\nthe guest's\n%s", task, strings.Join(got, "\n"), strings.Join(theirs[task], "\n"))
		}
		if !slices.Equal(asked[task], called[task]) {
			t.Errorf("task %s: ours\n%s\nthe guest's\n%s", task, strings.Join(asked[task], "\n"), strings.Join(called[task], "\n"))
		}
	}
	for task := range theirs {
		if ours[task] == nil {
			t.Errorf("task %s is the guest's only", task)
		}
	}
	if t.Logf("%d events, and %d returns of schedule; the guest's own missed %v", events, slept, missed); events < 50 || slept < 10 {
		t.Error("that is too little")
	}
	for _, c := range tr.Counts() {
		if c.Missed != [event.Causes]uint64{} {
			t.Errorf("%+v", c)
		}
	}
	sane(t, v)
}

// The columns of a row of TestReturnsWhileTheySleep's books.
const (
	bookEntered = iota
	bookSame    // returns to which the private data of their own calls came
	bookOther

	bookColumns
)

// Tasks sleep in a function while its return probes are limited, vetoed, disabled, enabled and
// removed.
func TestReturnsWhileTheySleep(t *testing.T) {
	const function = "pipe_read"
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s, stops := openCounting(t, v)
	maps := []*bpf.MapSpec{{Name: "books", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8 * bookColumns, MaxEntries: 1}}
	c := &bpf.Collection{Maps: maps}
	book := func() string {
		return "*(u32 *)(r10 -4) = 0; r1 = map books; r2 = r10; r2 += -4; call map_lookup_elem; if r0 == 0 goto out; r0 += r8; r1 = *(u64 *)(r0 +0); r1 += 1; *(u64 *)(r0 +0) = r1; out: "
	}
	for name, p := range map[string]struct {
		kind bpf.Kind
		text string
	}{
		"entered":  {bpf.Kprobe, "r9 = r1; call get_current_pid_tgid; r6 = r0; r1 = r9; r2 = 64; call call_data; r7 = *(u64 *)(r0 +56); *(u64 *)(r0 +56) = r6; r8 = 0; " + book() + "r0 = r7; exit"}, // the data is zeros at first
		"returned": {bpf.Kretprobe, "r9 = r1; call get_current_pid_tgid; r6 = r0; r1 = r9; r2 = 64; call call_data; r7 = *(u64 *)(r0 +56); r8 = 8; if r6 == r7 goto same; r8 = 16; same: " + book() + "r0 = 0; exit"},
		"veto":     {bpf.Kprobe, "r0 = 1; exit"},
	} {
		insns, err := bpftest.Assemble(p.text, maps...)
		if err != nil {
			t.Fatal(name, err)
		}
		c.Programs = append(c.Programs, &bpf.Program{Name: name, Kind: p.kind, Insns: insns, Maps: maps})
	}
	ps, err := s.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	program := func(name string) *kprobe.Program {
		p, err := ps.Program(name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, MaxActive: 1, Program: kprobe.CountOnly}
	two := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, MaxActive: 2, Program: kprobe.CountOnly}
	none := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, Program: kprobe.CountOnly, EntryProgram: program("veto")}
	data := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, DataSize: 64, EntryProgram: program("entered"), Program: program("returned")}
	gone := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, Program: kprobe.CountOnly}
	counted := &kprobe.Kprobe{SymbolName: function, Program: kprobe.CountOnly}
	all := []*kprobe.Kretprobe{one, two, none, data, gone}
	big := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, DataSize: 257, Program: program("returned")}
	if err := s.RegisterKretprobe(big); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("more private data than there is room for: %v", err)
	}
	if err := s.Register(counted, one, two, none, data, gone); err != nil {
		t.Fatal(err)
	}
	optimizedProbes(t, s)
	before := stops.hits.Load()
	check := func(when string, entered, ones, twos, datas int) {
		t.Helper()
		for _, c := range []struct {
			name      string
			got, want uint64
		}{
			{"entries", counted.Hits(), uint64(entered)},
			{"returns of one", one.Hits(), uint64(ones)}, {"misses of one", one.NMissed(), 2},
			{"returns of two", two.Hits(), uint64(twos)}, {"misses of two", two.NMissed(), 1},
			{"returns with data", data.Hits(), uint64(datas)}, {"misses with data", data.NMissed(), 0},
			{"vetoed", none.Hits() + none.NMissed(), 0}, {"removed", gone.Hits() + gone.NMissed(), 0},
		} {
			if c.got != c.want {
				t.Errorf("%s: %s: %d, not %d", when, c.name, c.got, c.want)
			}
		}
	}
	for i := range 3 {
		run(t, v, fmt.Sprintf("rm -f /tmp/fifo%[1]d /tmp/got%[1]d; kwork sleep /tmp/fifo%[1]d /tmp/got%[1]d", i))
	}
	// One hit counts the entry first, and then the misses: it may be on its way between the two.
	testprog.Until(t, "three calls", v.PID(), func() bool { return counted.Hits() >= 3 && one.NMissed() >= 2 && two.NMissed() >= 1 })
	wake := func(i int) {
		t.Helper()
		run(t, v, fmt.Sprintf("echo woken >/tmp/fifo%[1]d; i=0; while ! test -s /tmp/got%[1]d && test $i -lt 300; do i=$((i+1)); sleep 0.1; done", i)) // a $(...) would be read from a pipe
		if got := run(t, v, fmt.Sprintf("cat /tmp/got%d", i)); got != "woken\n" {
			t.Errorf("sleeper %d says %q", i, got)
		}
	}
	check("asleep", 3, 0, 0, 0)
	if err := s.UnregisterKretprobe(gone); err != nil {
		t.Error(err)
	}
	optimizedProbes(t, s)
	wake(0) // whom all of them have seen
	check("one awake", 3, 1, 1, 1)
	if err := s.DisableKretprobe(data); err != nil {
		t.Error(err)
	}
	wake(1) // its call was under way: it is reported
	check("two awake", 3, 1, 2, 2)
	if err := s.EnableKretprobe(data); err != nil {
		t.Error(err)
	}
	if n := stops.hits.Load() - before; n != 0 {
		t.Errorf("the machine was stopped for %d hits", n)
	}
	if err := s.UnregisterKretprobes([]*kprobe.Kretprobe{one, two, none}); err != nil {
		t.Error(err)
	}
	wake(2)
	check("all awake", 3, 1, 2, 3)
	books, err := ps.Map("books")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := books.Threads(binary.LittleEndian.AppendUint32(nil, 0))
	var sum [bookColumns]uint64
	for _, row := range rows {
		for i := range sum {
			sum[i] += binary.LittleEndian.Uint64(row[8*i:])
		}
	}
	if want := [bookColumns]uint64{bookEntered: 3, bookSame: 3, bookOther: 0}; err != nil || sum != want {
		t.Errorf("the books say %v, not %v (%v)", sum, want, err)
	}
	for _, rp := range all {
		if rp.Abandoned() != 0 {
			t.Errorf("lost %+v", rp.Lost())
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	sane(t, v)
}

// A task that ends inside of a function gives its instance back, if another task lacks it.
func TestReturnsOfTheDead(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openCounting(t, v)
	defer s.Close()
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "get_signal"}, MaxActive: 2, Program: kprobe.CountOnly}
	entered := &kprobe.Kprobe{SymbolName: "get_signal", Program: kprobe.CountOnly}
	if err := s.Register(entered, rp); err != nil {
		t.Fatal(err)
	}
	optimizedProbes(t, s)
	const killed = 5
	run(t, v, fmt.Sprintf("for i in $(seq %d); do sleep 1000 & kill -9 $!; wait $! 2>/dev/null; done; true", killed))
	if n := rp.NMissed(); n < killed-2 {
		t.Errorf("%d calls missed, of %d that never return", n, killed)
	}
	testprog.UntilNil(t, "calls whose tasks have ended are lost", v.PID(), func() error {
		if l := rp.Lost(); l.Exited < 2 {
			return fmt.Errorf("lost %+v", l)
		}
		return nil
	})
	testprog.Until(t, "calls that are seen again", v.PID(), func() bool { // some may have been killed after instances were first looked for
		hits, missed := rp.Hits(), rp.NMissed()
		run(t, v, "sh -c 'trap : USR1; for i in 1 2 3; do kill -USR1 $$; done'")
		return rp.Hits()-hits >= 3 && rp.NMissed() == missed
	})
	if l := rp.Lost(); entered.Hits() != rp.Hits()+l.NoInstance+rp.Abandoned() {
		t.Errorf("%d entered, %d returned, lost %+v", entered.Hits(), rp.Hits(), l)
	}
}

// A controller that is killed while tasks sleep in functions whose returns it records in the guest:
// they come back, with its jumps and without.
func TestReturnsOfTheKilled(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	memory := outside(t, v)
	before := text(t, memory)
	at := memory.Kernel().Lookup("pipe_read")
	if len(at) != 1 {
		t.Fatal("no pipe_read")
	}
	entry := make([]byte, 5)
	jumps := func() bool { return memory.ReadAt(at[0].Addr, entry) == nil && entry[0] == 0xe9 }
	wakes := []string{"before recovery", "after"}
	if testing.Short() {
		wakes = wakes[:1] // another one sleeps until after it, even then
	}
	for _, wake := range wakes {
		t.Run(wake, func(t *testing.T) {
			cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), "trace", "-k", v.Stub(), "--ram", v.RAM(), "--window", v.Window(), "--no-summary",
				"r:woke pipe_read ret=$retval:s64", "r schedule")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			testprog.Until(t, "a jump", v.PID(), jumps)
			sleeper(t, v)
			run(t, v, "true") // it sleeps by now
			killBoth(t, cmd)
			cmd.Wait()
			if !jumps() {
				t.Errorf("nothing is left of it; it says %s", &stderr)
			}
			if wake == "before recovery" {
				answered(t, v)
				sleeper(t, v)
			}
			k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, k, before)
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			answered(t, v)
		})
	}
}

// Most functions can have their returns served in the guest, and plan says why the others cannot.
func TestReturnsCovered(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	k := s.Target().(*kernel.Target).Kernel()
	sites, err := k.Sites()
	if err != nil {
		t.Fatal(err)
	}
	list, err := k.Blacklist()
	if err != nil {
		t.Fatal(err)
	}
	rnd := testprog.Rand(t)
	rnd.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	const most = 300
	n, served := 0, 0
	others := make(map[arch.Addr]bool) // the beginning of a function may be the kernel's to change for another cause, too
	for _, site := range sites {
		others[site.Addr] = others[site.Addr] || site.Owner != symbols.Ftrace
	}
	for _, site := range sites {
		sym, off, ok := k.At(site.Addr)
		if _, bad := k.Blacklisted(list, site.Addr); bad || !ok || off != 0 || others[site.Addr] || !k.Table().Bounds().Contains(sym.Addr) {
			continue
		}
		if n++; n > most {
			break
		}
		plan := s.Plan(&kprobe.Kretprobe{Kp: kprobe.Kprobe{Addr: sym.Addr}})
		inside := s.Plan(&kprobe.Kretprobe{Kp: kprobe.Kprobe{Addr: sym.Addr}, Program: kprobe.CountOnly})
		switch {
		case plan.Verdict == kprobe.VerdictRefuse || !plan.Jump.Known():
			t.Errorf("%s: %v", sym.Name, plan)
		case !plan.Jump.Can():
			t.Logf("%s: %s", sym.Name, plan.Jump.Why)
		case inside.Verdict == kprobe.VerdictRefuse:
			t.Errorf("%s: %v, but %v", sym.Name, plan, inside)
		default:
			served++
		}
	}
	if t.Logf("%d of %d", served, n-1); served < most*3/4 {
		t.Error("that is too few")
	}
}
