package torture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/internal/faults"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// What goes wrong on the controller's side: every system call that attaching, a
// batch, its removal and detaching make is made to fail once, and each time the
// target is as it was before, or as it should be.

// trouble lets the n-th call among those of one kind fail while it is on.
type trouble struct {
	mu   sync.Mutex
	kind func(faults.Call) error // what a call of the kind fails with; nil where it is not of it
	left int
	on   bool
	hit  string // the call that failed, once one has
}

func (f *trouble) inject(c faults.Call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || f.hit != "" {
		return nil
	}
	err := f.kind(c)
	if err == nil {
		return nil
	}
	if f.left--; f.left > 0 {
		return nil
	}
	f.hit = fmt.Sprintf("%s(%#x)", c.Name, c.Request)
	return err
}

func (f *trouble) set(on bool) {
	f.mu.Lock()
	f.on = on
	f.mu.Unlock()
}

// during runs an operation with the trouble on.
func (f *trouble) during(op func() error) error {
	f.set(true)
	defer f.set(false)
	return op()
}

func (f *trouble) happened() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// The course of a session that is put to the test. Whatever fails on the way
// ends it, but Close is always called.
type course struct {
	t    *testing.T
	prog *testprog.Proc
	want string // the program's answer to a round
	open func(pid int) (target.Target, error)
}

const courseHits = 20

func newCourse(t *testing.T) *course {
	c := &course{t: t, prog: testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))}
	c.want = c.prog.Round("%d", courseHits)[0]
	return c
}

// run goes the course and tells the errors of its steps, by step.
func (c *course) run(f *trouble) (errs map[string]error) {
	errs = make(map[string]error)
	step := func(name string, op func() error) bool {
		err := f.during(op)
		if err != nil {
			errs[name] = err
		}
		return err == nil
	}
	var tgt target.Target
	if !step("attach", func() (err error) { tgt, err = c.open(c.prog.Pid); return err }) {
		return errs
	}
	var s *kprobe.Session
	report := func(err error) { errs["reported"] = errors.Join(errs["reported"], err) }
	if !step("open", func() (err error) { s, err = kprobe.Open(tgt, &kprobe.Options{Report: report}); return err }) {
		if !step("let go", tgt.Close) && errors.Is(errs["let go"], os.ErrClosed) {
			delete(errs, "let go")
		}
		return errs
	}
	kps := []*kprobe.Kprobe{
		{SymbolName: "jumper", PreHandler: harness.Pre(func(*kprobe.Regs) {})},
		{SymbolName: "jumper", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}},
		{SymbolName: "puts", PreHandler: harness.Pre(func(*kprobe.Regs) {})},
	}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}}
	printed := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:_IO_2_1_stdout_"}, Len: 4} // its flags
	all := []kprobe.Probe{kps[0], kps[1], kps[2]}
	watches := testprog.Watches.On(c.t)
	if watches {
		all = slices.Insert(all, 1, kprobe.Probe(printed))
	}
	if step("register", func() error { return s.Register(all...) }) &&
		step("register return", func() error { return s.RegisterKretprobe(rp) }) {
		if c.round() {
			if f.happened() == "" && (kps[0].Hits() != courseHits || rp.Hits() != courseHits || watches && printed.Hits() == 0) {
				c.t.Errorf("%d hits and %d returns of %d, %d accesses", kps[0].Hits(), rp.Hits(), courseHits, printed.Hits())
			}
		} else {
			errs["hang"] = errors.New("a round does not end")
		}
		step("unregister return", func() error { return s.UnregisterKretprobe(rp) })
		step("unregister", func() error { return s.Unregister(all...) })
	}
	step("close", s.Close)
	return errs
}

// round is a round under probes; false where it does not end.
func (c *course) round() bool {
	c.prog.Send("%d", courseHits)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.answer()
	}()
	return testprog.Await(c.prog.Pid, func() error {
		select {
		case <-done:
			return nil
		default:
			return errors.New("the round does not end")
		}
	}) == nil
}

func (c *course) answer() {
	var got []string
	for line := c.prog.Line(); line != "done"; line = c.prog.Line() {
		got = append(got, line)
	}
	if len(got) == 0 || got[0] != c.want {
		c.t.Errorf("the program answers %q, want %q", got, c.want)
	}
}

// sweep lets one call of a kind after the other fail, until a course has
// fewer of them. The target is looked at after each. What the controller itself has left is looked at in the end:
// until then it keeps a guardian for the next course.
func (c *course) sweep(kind func(faults.Call) error, f *trouble) {
	t := c.t
	before, err := testprog.Look(c.prog.Pid)
	harness.OK(t, err)
	// A pass takes one call of two, others each time.
	step := 2
	if testing.Short() {
		step = 24
	} else if testprog.Soak(t, 0) > 0 {
		step = 1
	}
	n, failed := 1, 0
	for ; ; n += 1 + rand.IntN(2*step-1) {
		*f = trouble{kind: kind, left: n}
		errs := c.run(f)
		what := fmt.Sprintf("call %d, %s", n, f.hit)
		for step, err := range errs {
			if f.hit == "" {
				t.Errorf("nothing was made to fail, but %s: %v", step, err)
			}
			if msg := err.Error(); step != "reported" && (msg == "" || strings.Contains(msg, "\n")) {
				t.Errorf("%s: the error of %s is not one line: %q", what, step, msg)
			}
			t.Logf("%s: %s: %v", what, step, err)
		}
		if e := errs["hang"]; e != nil {
			t.Errorf("%s: %v", what, e)
		}
		left := before.LeftThere()
		for _, l := range left {
			t.Errorf("%s: %s", what, l)
		}
		if j := journalOf(t, c.prog.Pid); j != "" {
			t.Errorf("%s: left: %s", what, j)
			os.Remove(j)
		}
		if !c.round() {
			t.Fatalf("%s: the target does not work any more", what)
		}
		if f.hit == "" {
			break
		}
		failed++
		if len(left) > 0 {
			c.prog = testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
			before, err = testprog.Look(c.prog.Pid)
			harness.OK(t, err)
		}
	}
	for _, l := range before.Left() {
		t.Error(l)
	}
	if failed == 0 {
		t.Error("nothing of this kind was called")
	}
	t.Logf("%d calls failed, each once", failed)
}

// journalOf finds the journal about a process; one about another that had its
// number before does not count.
func journalOf(t testing.TB, pid int) string {
	t.Helper()
	paths, err := lifeline.Journals(pid)
	harness.OK(t, err)
	for _, path := range paths {
		if j, err := lifeline.Load(path); err == nil && j.Current() {
			return path
		}
	}
	return ""
}

// threadsOf counts this process's threads.
func threadsOf(t testing.TB) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*")
	harness.OK(t, err)
	return len(tasks)
}

func attachTo(pid int) (target.Target, error) { return ptrace.Attach(pid) }

func TestEverySystemCallFailsOnce(t *testing.T) {
	f := new(trouble)
	faults.Inject = f.inject
	defer func() { faults.Inject = nil }()
	requests := func(errno syscall.Errno, names ...string) func(faults.Call) error {
		return func(c faults.Call) error {
			if slices.Contains(names, c.Name) {
				return errno
			}
			return nil
		}
	}
	// What is kept for as long as this process lives is there when the first look is taken.
	*f = trouble{kind: func(faults.Call) error { return nil }}
	undisturbed := newCourse(t)
	undisturbed.open = attachTo
	if errs := undisturbed.run(f); len(errs) != 0 {
		t.Fatal(errs)
	}
	threads := threadsOf(t)
	for _, k := range []struct {
		name string
		fail func(faults.Call) error
	}{
		{"ptrace refused", requests(unix.EPERM, "ptrace")},
		{"ptrace without a thread", requests(unix.ESRCH, "ptrace")},
		{"memory", requests(unix.EIO, "pread", "pwrite")},
		{"no more memory", requests(unix.ENOMEM, "pread", "pwrite")},
		{"files", requests(unix.EMFILE, "open", "read")},
		{"waits", requests(unix.EINTR, "wait4", "waitid")},
		{"guardian", requests(unix.EAGAIN, "rename", "pipe2", "clone")},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := newCourse(t)
			c.open = attachTo
			c.sweep(k.fail, f)
		})
	}
	if now := threadsOf(t); now > threads+8 {
		t.Errorf("%d threads, %d before", now, threads)
	}
}

// A thread is led out of a detour when it is about to get a signal. Where that fails on the way, it
// gets the signal where it is, and is not harmed.
func TestDriveFails(t *testing.T) {
	v := victims["signals"](t)
	busyAt, _ := acceptable(t, v)
	w := harness.StartWork(t, v)
	defer w.Stop()
	var calls, failed atomic.Int64
	var over atomic.Bool
	faults.Inject = func(c faults.Call) error {
		if over.Load() || !strings.Contains(callers(), ").Drive") || calls.Add(1)%17 != 0 {
			return nil
		}
		failed.Add(1)
		switch c.Name {
		case "ptrace":
			return unix.EPERM
		case "wait4", "waitid":
			return unix.EINTR
		}
		return unix.EIO
	}
	defer func() { faults.Inject = nil }()
	s := harness.Attach(t, v.PID, &kprobe.Options{Unlisted: true, Report: func(error) {}})
	order := tortureOrder{Busy: busyAt}
	busy, err := order.busy(s)
	harness.OK(t, err)
	harness.Register(t, s, busy...)
	testprog.Until(t, "calls fail", v.PID, func() bool { return failed.Load() >= 100 || t.Failed() })
	over.Store(true)
	harness.Detach(t, s)
	if err := harness.Healthy(v.PID, w); err != nil {
		t.Errorf("%v; %s", err, outcome(v.Proc))
	}
	if t.Logf("%d of %d calls failed", failed.Load(), calls.Load()); failed.Load() < 100 {
		t.Error("these are too few")
	}
}
