package kernel_test

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	kernelsymbols "kprobe/symbol/kernel"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// switchesEvents has the kernel switch a trace event on and off itself, while it has work and while
// it has none, as its own files show.
func switchesEvents(t *testing.T, v *vm.VM, k *kernel.Target) {
	t.Helper()
	all, at, err := k.Kernel().Events()
	if err != nil || len(all) < 300 || at.File == at.Entry {
		t.Errorf("%d trace events, %+v, %v", len(all), at, err)
	}
	const system, name = "sched", "sched_process_fork"
	find := func() (e kernelsymbols.Event) {
		all, _, err := k.Kernel().Events()
		i := slices.IndexFunc(all, func(e kernelsymbols.Event) bool { return e.System == system && e.Name == name })
		if err != nil || i < 0 {
			t.Fatalf("no event %s:%s, %v", system, name, err)
		}
		return all[i]
	}
	ctx := testprog.Context(t, "events are switched", v.PID())
	times := 3
	if testing.Short() {
		times = 1
	}
	for range times {
		for _, on := range []bool{true, false} {
			if err := k.SetEvent(ctx, system, name, on); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{true: "1", false: "0"}[on]
			if got := strings.TrimSpace(run(t, v, "cat "+tracing+"/events/"+system+"/"+name+"/enable")); got != want || find().On != on || find().Record != "trace_event_raw_sched_process_fork" {
				t.Errorf("switched to %v, the guest says %s, and we %+v", on, got, find())
			}
			run(t, v, "echo >"+tracing+"/trace; /bin/true; /bin/true")
			if n := strings.Count(run(t, v, "cat "+tracing+"/trace"), name+":"); (n > 0) != on {
				t.Errorf("switched to %v, the guest has %d records", on, n)
			}
		}
	}
	if err := k.SetEvent(ctx, system, "no_such_event", true); err == nil || !strings.Contains(err.Error(), "answers -22") {
		t.Errorf("an event that is none: %v", err)
	}
}

// Its own session, in the shared guest.
func TestSetEvent(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s := openInside(t, v)
	k := s.Target().(*kernel.Target)
	p := &kprobe.Kprobe{SymbolName: "ksys_sync", Program: kprobe.CountOnly}
	if err := s.RegisterKprobe(p); err != nil {
		t.Fatal(err)
	}
	// The kernel is asked at a function's entry, where the engine may have a breakpoint already.
	var hits atomic.Int64
	stops := &kprobe.Kprobe{SymbolName: "__x64_sys_openat", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { hits.Add(1); return 0 }}
	if err := s.RegisterKprobe(stops); err != nil {
		t.Fatal(err)
	}
	switchesEvents(t, v, k)
	before := hits.Load()
	run(t, v, "cat /proc/version")
	if n := hits.Load() - before; n == 0 {
		t.Error("a probe where the kernel was asked is not hit any more")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	sane(t, v)
}

// The trace events that a script has switched on do not stay on when its controller is killed: its
// guardian has the kernel switch them off, or, where that is killed too, the next controller does.
func TestEventsOfAKilledController(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	command := testprog.Command(t, "kprobe/cmd/kprobe")
	enabled := func() string {
		return strings.TrimSpace(run(t, v, "cat "+tracing+"/events/sched/sched_switch/enable "+tracing+"/events/sched/sched_wakeup/enable"))
	}
	rounds := []bool{true, false}
	if testing.Short() {
		rounds = rounds[:1]
	}
	for _, both := range rounds {
		cmd := exec.Command(command, "script", "-q", "-k", v.Stub(), "--ram", v.RAM(), "--window", v.Window(), "-e",
			"tracepoint:sched:sched_switch, tracepoint:sched:sched_wakeup { @ = count(); } interval:ms:50 { printf(\"at work\\n\"); }")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "at work\n" {
			t.Errorf("it says %q, %v, %s", line, err, &said)
		}
		if got := enabled(); got != "1\n1" {
			t.Errorf("at work the events are %q", got)
		}
		if both {
			killBoth(t, cmd)
		} else {
			cmd.Process.Signal(syscall.SIGKILL)
		}
		cmd.Wait() // for the guardian as well, which has its standard error
		if both {
			k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
		if got := enabled(); got != "0\n0" {
			t.Errorf("both killed %v: afterwards the events are %q", both, got)
		}
	}
}
