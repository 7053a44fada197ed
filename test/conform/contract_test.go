package conform

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// Whatever takes a pointer answers EINVAL to none.
func TestNilArguments(t *testing.T) {
	_, s := harness.Jumper(t, nil)
	for name, err := range map[string]error{
		"Register":             s.Register(nil),
		"Register *Kprobe":     s.Register((*kprobe.Kprobe)(nil)),
		"RegisterKprobe":       s.RegisterKprobe(nil),
		"RegisterJprobe":       s.RegisterJprobe(nil),
		"RegisterKretprobe":    s.RegisterKretprobe(nil),
		"RegisterWatchpoint":   s.RegisterWatchpoint(nil),
		"RegisterKprobes":      s.RegisterKprobes(nil),
		"batch":                s.RegisterKprobes([]*kprobe.Kprobe{{SymbolName: "jumper"}, nil}),
		"Unregister":           s.Unregister(nil),
		"UnregisterKprobe":     s.UnregisterKprobe(nil),
		"UnregisterJprobe":     s.UnregisterJprobe(nil),
		"UnregisterKretprobe":  s.UnregisterKretprobe(nil),
		"UnregisterWatchpoint": s.UnregisterWatchpoint(nil),
		"EnableKprobe":         s.EnableKprobe(nil),
		"EnableJprobe":         s.EnableJprobe(nil),
		"EnableKretprobe":      s.EnableKretprobe(nil),
		"EnableWatchpoint":     s.EnableWatchpoint(nil),
		"DisableKprobe":        s.DisableKprobe(nil),
		"DisableJprobe":        s.DisableJprobe(nil),
		"DisableKretprobe":     s.DisableKretprobe(nil),
		"DisableWatchpoint":    s.DisableWatchpoint(nil),
		"Plan":                 s.Plan(nil).Err,
		"Plan *Kretprobe":      s.Plan((*kprobe.Kretprobe)(nil)).Err,
		"Load":                 second(s.Load(nil)),
		"Open":                 second(kprobe.Open(nil, nil)),
		"Look":                 second(kprobe.Look(nil, nil)),
		"LoadPooled":           second(s.LoadPooled(nil)),
		"NewPool":              second(kprobe.NewPool(nil)),
		"Snapshot":             s.Snapshot(nil),
		"bpf.Load":             second(bpf.Load(nil)),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A target has one session.
func TestSecondOpen(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	tr, err := ptrace.Attach(p.Pid)
	harness.OK(t, err)
	s, err := kprobe.Open(tr, nil)
	harness.OK(t, err)
	harness.Errno(t, second(kprobe.Open(tr, nil)), syscall.EBUSY)
	harness.OK(t, s.Close())
	harness.Errno(t, second(kprobe.Open(tr, nil)), syscall.ESRCH)
	p.Round("10")
	harness.Ends(t, p)
}

// errors.As finds the errno, and so does a handler that reads where nothing is.
func TestErrno(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "no_such_function"})
	if e := syscall.Errno(0); !errors.As(err, &e) || e != syscall.ENOENT {
		t.Errorf("%v holds the errno %v", err, e)
	}
	const nonCanonical, high, null = 1 << 62, 1<<64 - 4096, 0
	kp := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(func(r *kprobe.Regs) {
		for _, at := range []arch.Addr{null, nonCanonical, high} {
			_, err := r.Word(at)
			harness.Errno(t, err, syscall.EFAULT)
			_, err = r.String(at, 8)
			harness.Errno(t, err, syscall.EFAULT)
			harness.Errno(t, r.ReadMem(at, make([]byte, 8)), syscall.EFAULT)
			harness.Errno(t, r.WriteMem(at, make([]byte, 8)), syscall.EFAULT)
		}
	})}
	harness.Register(t, s, kp)
	harness.Round(t, s, p, "1")
}

// Registers go by the names of definitions, and of assembly.
func TestRegisterNames(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(func(r *kprobe.Regs) {
		r.Set(arch.DI, 0x1_0000_0007)
		for name, want := range map[string]uint64{"di": 0x1_0000_0007, "%di": 0x1_0000_0007, "rdi": 0x1_0000_0007, "edi": 7, "%edi": 7} {
			if v, err := r.Reg(name); err != nil || v != want {
				t.Errorf("%s is %#x, %v", name, v, err)
			}
		}
		_, err := r.Reg("%none")
		harness.Errno(t, err, syscall.EINVAL)
		harness.Errno(t, r.SetReg("none", 0), syscall.EINVAL)
		harness.OK(t, r.SetReg("%edi", 0))
		harness.OK(t, r.SetArg(1, 5))
	})}
	harness.Register(t, s, kp)
	if got := harness.Round(t, s, p, "1"); len(got) == 0 || got[0] != "jumper 1 5" {
		t.Errorf("%q", got)
	}
}

// Who is the target's parent, too, waits for it as for any child of his.
func TestParentWaits(t *testing.T) {
	for _, killed := range []bool{false, true} {
		cmd := exec.Command(testprog.Build(t, "jumpers", "-O2"))
		in, err := cmd.StdinPipe()
		harness.OK(t, err)
		harness.OK(t, cmd.Start())
		s := harness.Attach(t, cmd.Process.Pid, nil)
		kp := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(func(*kprobe.Regs) {})}
		harness.OK(t, s.RegisterKprobe(kp))
		fmt.Fprintln(in, 1000)
		if killed {
			cmd.Process.Kill()
		} else {
			in.Close()
		}
		<-s.Done()
		err = cmd.Wait()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if exit, over := s.Exited(); !over || killed != (status.Signal() == syscall.SIGKILL) || killed != (exit.Signal == 9) || !killed && err != nil {
			t.Errorf("killed %v: the session says %v, cmd.Wait %v", killed, exit, err)
		}
	}
}

// Who waits while he probes takes his own tracer's reports. One who waits already is refused; one who begins later is told
// of an end that was none, and the target goes on.
func TestParentWaitsMeanwhile(t *testing.T) {
	in, to, err := os.Pipe()
	harness.OK(t, err)
	from, out, err := os.Pipe()
	harness.OK(t, err)
	program, err := os.StartProcess(testprog.Build(t, "jumpers", "-O2"), []string{"jumpers"}, &os.ProcAttr{Files: []*os.File{in, out, os.Stderr}})
	harness.OK(t, err)
	in.Close()
	out.Close()
	lines := bufio.NewScanner(from)
	expect := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("no %q: %v", want, lines.Err())
	}
	expect("ready")
	s := harness.Attach(t, program.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(func(*kprobe.Regs) {})}
	harness.OK(t, s.RegisterKprobe(kp))
	waited := make(chan error, 1)
	go func() {
		_, err := program.Wait()
		waited <- err
	}()
	const n = 300
	for range 3 {
		fmt.Fprintln(to, n)
		expect("done")
		harness.OK(t, s.DisableKprobe(kp))
		harness.OK(t, s.EnableKprobe(kp))
	}
	if kp.Hits() == 0 || kp.NMissed() != 0 {
		t.Errorf("%d hits, %d missed", kp.Hits(), kp.NMissed())
	}
	harness.Detach(t, s)
	fmt.Fprintln(to, n)
	expect("done")
	<-waited

	testprog.Until(t, "a wait that is under way is refused", testprog.Here, func() bool {
		asleep := exec.Command("sleep", "1000")
		harness.OK(t, asleep.Start())
		go func() { waited <- asleep.Wait() }()
		testprog.Executed(t, asleep.Process.Pid, "sleep")
		testprog.Blocked(t, "(*Cmd).Wait")
		p, err := ptrace.Attach(asleep.Process.Pid)
		if err == nil {
			p.Close() // the wait had not begun
		}
		asleep.Process.Kill()
		<-waited
		if still, _ := syscall.Wait4(asleep.Process.Pid, nil, syscall.WNOHANG, nil); still == 0 { // that wait ended early
			harness.OK(t, syscall.Kill(asleep.Process.Pid, syscall.SIGKILL))
			syscall.Wait4(asleep.Process.Pid, nil, 0, nil)
		}
		return errors.Is(err, syscall.EBUSY)
	})
	to.Close() // its end of input
	if _, err := syscall.Wait4(program.Pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
}

// A target that has ended is ESRCH, whatever is asked of it and whenever it ended.
func TestEndedIsESRCH(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		p, s := harness.Jumper(t, &kprobe.Options{Report: func(error) {}})
		kp := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(func(*kprobe.Regs) {})}
		harness.OK(t, s.RegisterKprobe(kp))
		harness.OK(t, p.Signal(syscall.SIGKILL))
		if noticed {
			<-s.Done()
		} else {
			for s.ReadMem(kp.Addr, make([]byte, 1)) == nil { // until the memory is given up
			}
		}
		_, black := s.BlackList()
		_, lookup := s.Lookup("main")
		_, load := s.Load(new(bpf.Collection))
		for name, err := range map[string]error{
			"RegisterKprobe":     s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "main"}),
			"RegisterKretprobe":  s.RegisterKretprobe(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "main"}}),
			"RegisterJprobe":     s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "main"}, Entry: func() {}}),
			"RegisterWatchpoint": s.RegisterWatchpoint(&kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "failures"}, Len: 4}),
			"DisableKprobe":      s.DisableKprobe(kp),
			"SetEnabled":         s.SetEnabled(false),
			"Plan":               s.Plan(&kprobe.Kprobe{SymbolName: "main"}).Err,
			"Refresh":            s.Refresh(),
			"ReadMem":            s.ReadMem(kp.Addr, make([]byte, 1)),
			"BlackList":          black,
			"Lookup":             lookup,
			"Load":               load,
		} {
			known := err == nil && !noticed && (name == "BlackList" || name == "Lookup") // without asking the target
			unheard := name == "RegisterWatchpoint" && !testprog.Watches.On(t)           // refused before the target is asked
			if !errors.Is(err, syscall.ESRCH) && !known && !unheard {
				t.Errorf("noticed %v: %s: %v", noticed, name, err)
			}
		}
		harness.OK(t, s.Close())
	}
}

// A panic is told with its stack; once, on standard error, where nobody asked for reports.
func TestPanicsAreTold(t *testing.T) {
	var told *kprobe.HandlerPanic
	mistake := func(*kprobe.Regs) { panic("a mistake") }
	p, s := harness.Jumper(t, &kprobe.Options{Report: func(err error) {
		if !errors.As(err, &told) {
			t.Errorf("reported: %v", err)
		}
	}})
	harness.Register(t, s, &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(mistake)})
	harness.Round(t, s, p, "1")
	if told == nil || told.Value != "a mistake" || !bytes.Contains(told.Stack, []byte("TestPanicsAreTold")) {
		t.Errorf("told %+v", told)
	}
	harness.OK(t, s.Close())

	old := os.Stderr
	r, w, err := os.Pipe()
	harness.OK(t, err)
	os.Stderr = w
	defer func() { os.Stderr = old }()
	tr, err := ptrace.Attach(p.Pid)
	harness.OK(t, err)
	quiet, err := kprobe.Open(tr, nil)
	harness.OK(t, err)
	harness.Register(t, quiet, &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(mistake)})
	harness.Round(t, quiet, p, "3")
	harness.OK(t, quiet.Close())
	w.Close()
	said, err := io.ReadAll(r)
	harness.OK(t, err)
	if n := strings.Count(string(said), "a mistake"); n != 1 || !strings.Contains(string(said), "TestPanicsAreTold") {
		t.Errorf("said %d times: %s", n, said)
	}
}

// A plan of a probe that is registered says so, as registering it again would, and leaves the probe alone.
func TestPlanOfRegistered(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	entered, returned := 0, 0
	jp := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Entry: func(a int64) { entered++ }}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int {
		returned++
		return 0
	}}
	counter := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Program: kprobe.CountOnly}
	kp := &kprobe.Kprobe{SymbolName: "jumper", Program: kprobe.CountOnly}
	all := []kprobe.Probe{jp, rp, counter, kp}
	harness.OK(t, s.Register(all...))
	p.Round("3")
	for _, probe := range all {
		e := s.Plan(probe)
		harness.Errno(t, e.Err, syscall.EINVAL)
		if e.Verdict != kprobe.VerdictRefuse || !strings.Contains(e.Reason, "registered already") {
			t.Errorf("%T: %v", probe, e)
		}
	}
	p.Round("3")
	harness.Settle(t, s)
	if entered != 6 || returned != 6 || rp.Hits() != 6 || counter.Hits() != 6 || kp.Hits() != 6 {
		t.Errorf("handlers saw %d calls and %d returns; counts %d, %d and %d, all 6", entered, returned, rp.Hits(), counter.Hits(), kp.Hits())
	}
	harness.OK(t, s.Unregister(all...))
	harness.Ends(t, p)
}
