package conform

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// reports collects what Options.Report is told.
type reports struct {
	mu   sync.Mutex
	errs []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *reports) take() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := r.errs
	r.errs = nil
	return errs
}

// A probe in a library that is not loaded yet is armed when it is, before its
// constructors run; it is gone when the library goes.
func TestConformLibraryComesAndGoes(t *testing.T) {
	lib := harness.Compile(t, "libctor.so", `
int made;
PROBED int lib_ctor_work(int a) { BARRIER(); return a + 1; }
__attribute__((constructor)) static void construct(void) { made = lib_ctor_work(1); }
__attribute__((destructor)) static void destroy(void) { made = lib_ctor_work(2); }
PROBED int lib_inner(int a) { BARRIER(); return a * 2 + 100; }
int dlib_call(int a) { return lib_inner(a) + 1; }
`, "-shared", "-fPIC")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	var told reports
	s := harness.Attach(t, p.Pid, &kprobe.Options{Report: told.add})
	ctor := &kprobe.Kprobe{SymbolName: "libctor.so:lib_ctor_work"}
	inner := &kprobe.Kprobe{SymbolName: lib + ":lib_inner"}
	ret := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libctor.so:lib_inner"}}
	silent := &kprobe.Kprobe{SymbolName: "libctor.so:lib_inner", Flags: kprobe.FlagDisabled}
	never := &kprobe.Kprobe{SymbolName: "libnever.so:f"}
	harness.Register(t, s, ctor, inner, silent, never)
	harness.OK(t, s.RegisterKretprobe(ret))
	if n := len(s.Pending()); n != 5 || len(s.List()) != 0 || ctor.Addr != 0 || ctor.PlacedAt() != 0 || !ctor.Registered() {
		t.Errorf("%d pending, %d listed, at %v", n, len(s.List()), ctor.Addr)
	}
	harness.OK(t, s.DisableKprobe(inner))
	harness.OK(t, s.EnableKprobe(inner))
	p.Round("open")
	if ctor.Hits() != 1 {
		t.Errorf("the constructor's call was hit %d times", ctor.Hits())
	}
	if got := s.Pending(); !slices.Equal(got, []string{"libnever.so:f"}) {
		t.Errorf("pending: %q", got)
	}
	if got := p.Round("call 20"); got[0] != "called 20 141" || inner.Hits() != 1 {
		t.Errorf("%q, %d hits", got, inner.Hits())
	}
	harness.Settle(t, s)
	if ret.Hits() != 1 || silent.Hits() != 0 {
		t.Errorf("%d returns, %d hits of the disabled one", ret.Hits(), silent.Hits())
	}
	if l := listOf(t, s); strings.Count(l, "libctor.so ") != 4 || strings.Contains(l, "GONE") {
		t.Errorf("list:\n%s", l)
	}
	if errs := told.take(); len(errs) != 0 {
		t.Errorf("reported: %v", errs)
	}

	p.Round("close")
	testprog.Until(t, "all four are gone", p.Pid, func() bool { return strings.Count(listOf(t, s), "[GONE]") == 4 })
	if ctor.Hits() != 2 { // the destructor's
		t.Errorf("%d hits with the destructor", ctor.Hits())
	}
	if l := listOf(t, s); strings.Contains(l, "DISABLED") {
		t.Errorf("a gone probe is shown as disabled:\n%s", l)
	}
	if errs := told.take(); len(errs) != 4 {
		t.Errorf("reported: %v", errs)
	}
	harness.Errno(t, s.EnableKprobe(ctor), syscall.EINVAL)
	harness.OK(t, s.DisableKprobe(inner)) // as the kernel: no error
	// Gone is gone: a new mapping does not bring it back.
	p.Round("open")
	p.Round("call 1")
	if inner.Hits() != 1 || ctor.Hits() != 2 {
		t.Errorf("%d and %d hits after it was gone", inner.Hits(), ctor.Hits())
	}
	harness.OK(t, s.UnregisterKprobes([]*kprobe.Kprobe{ctor, inner, silent, never}))
	harness.OK(t, s.UnregisterKretprobe(ret))
	if l := listOf(t, s); l != "" || len(s.Pending()) != 0 {
		t.Errorf("left: %s, %q", l, s.Pending())
	}
	inner.Flags = 0
	harness.Register(t, s, inner)
	p.Round("call 5")
	if inner.Hits() != 1 {
		t.Errorf("registered again: %d hits", inner.Hits())
	}
	harness.Ends(t, p)
}

// The library is loaded and unloaded many times with probes in it and beside it.
func TestConformLoadCycles(t *testing.T) {
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	want := p.Round("cycle 20")
	s := harness.Attach(t, p.Pid, &kprobe.Options{Report: func(error) {}})
	inside := &kprobe.Kprobe{SymbolName: "dlib.so:dlib_inner"}
	beside := &kprobe.Kprobe{SymbolName: "dl_call"}
	harness.Register(t, s, inside, beside)
	harness.SameRound(t, s, p, want, "cycle 20")
	if inside.Hits() != 1 || beside.Hits() != 20 {
		t.Errorf("%d hits before it was gone, %d beside", inside.Hits(), beside.Hits())
	}
	harness.Ends(t, p)
}

// An indirect function stands for the implementation that the program uses.
func TestConformIndirectFunction(t *testing.T) {
	path := harness.Compile(t, "copies", `
static char a[4000], b[4000];
int main(void)
{
	while (next()) {
		int n = atoi(line);
		for (volatile int i = 0; i < n; i++)
			memcpy(a, b, (size_t)(100 + n + i));
		puts("copied");
	}
	return 0;
}
`, "-fno-builtin")
	p := testprog.Start(t, path)
	p.Round("3") // bound, however lazily
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "libc.so.6:memcpy"}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	p.Round("50")
	if n := kp.Hits(); n < 50 || n > 60 { // the library copies a line for itself now and then
		t.Errorf("%d hits", n)
	}
	// One that nobody here uses cannot be known: it is said so.
	err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "libc.so.6:wcsnlen"})
	if err != nil && (!hasErrno(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "indirect")) {
		t.Error(err)
	}
}

// The target replaces itself: probes by symbol are placed in the new program.
func TestConformExec(t *testing.T) {
	path := harness.Compile(t, "execs", `
#include <pthread.h>
PROBED int work(int a) { BARRIER(); return a + 1; }
static void *sleeps(void *p) { pause(); return p; }
int main(int argc, char **argv)
{
	pthread_t t;
	(void)argc;
	pthread_create(&t, NULL, sleeps, NULL);
	while (next()) {
		if (*line == 'e') {
			char *args[] = {argv[0], "again", NULL};
			fflush(stdout);
			execv("/proc/self/exe", args);
		}
		printf("%d\n", work(1) + work(2));
	}
	return 0;
}
`)
	p := testprog.Start(t, path)
	var told reports
	s := harness.Attach(t, p.Pid, &kprobe.Options{Report: told.add})
	byName := &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
	qualified := &kprobe.Kprobe{SymbolName: "execs:work"}
	byAddr := &kprobe.Kprobe{Addr: arch.Addr(funcNamed(t, p.Pid, path, "work").Addr)}
	ret := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}}
	j := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Entry: func(int32) {}}
	lib := &kprobe.Kprobe{SymbolName: "libc.so.6:puts"}
	byLoc := &kprobe.Kprobe{Loc: s.Symbols().Match("execs", "w*rk")[0]}
	harness.Register(t, s, byName, qualified, byAddr, byLoc, lib)
	harness.OK(t, s.RegisterKretprobe(ret))
	harness.OK(t, s.RegisterJprobe(j))
	for i := range 3 {
		if got := p.Round("work"); got[0] != "5" {
			t.Errorf("program %d: %q", i, got)
		}
		harness.Settle(t, s)
		n := uint64(2 * (i + 1))
		if byName.Hits() != n || qualified.Hits() != n || ret.Hits() != n || j.Kp.Hits() != n || byAddr.Hits() != 2 || byLoc.Hits() != n {
			t.Errorf("program %d: %d, %d, %d, %d, %d hits, want %d; %d by address", i, byName.Hits(), qualified.Hits(), ret.Hits(), j.Kp.Hits(), byLoc.Hits(), n, byAddr.Hits())
		}
		if lib.Hits() == 0 || i > 0 && !strings.Contains(listOf(t, s), "[GONE]") {
			t.Errorf("program %d: %d hits in the library, list\n%s", i, lib.Hits(), listOf(t, s))
		}
		p.Send("exec")
		p.Expect("ready")
	}
	harness.Errno(t, s.EnableKprobe(byAddr), syscall.EINVAL)
	harness.Ends(t, p)
}

// Children are no business of the session: they run as unprobed, and with text
// as their files have it.
func TestConformChildren(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "forks", "-O2"))
	want := p.Round("4")
	s := harness.Attach(t, p.Pid, nil)
	var ps []*kprobe.Kprobe
	for _, name := range []string{"child_work", "by_fork", "by_fork_exec", "by_vfork", "by_vfork_exit", "by_spawn", "by_clone", "by_clone_vm",
		"by_double_fork", "libc.so.6:fork", "libc.so.6:vfork", "libc.so.6:execve", "libc.so.6:_exit"} {
		ps = append(ps, &kprobe.Kprobe{SymbolName: name}, &kprobe.Kprobe{SymbolName: name, PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}})
	}
	harness.Register(t, s, ps...)
	work := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "child_work"}}
	fork := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "by_fork"}}
	harness.OK(t, s.RegisterKretprobes([]*kprobe.Kretprobe{work, fork}))
	harness.SameRound(t, s, p, want, "4")
	if n := ps[2].Hits(); n != 4 || fork.Hits() != 4 { // by_fork in grandparents is the children's own
		t.Errorf("by_fork: %d hits, %d returns", n, fork.Hits())
	}
	if n := work.Hits(); n < 1 || n > 13 || work.NMissed() != 0 {
		// In our own memory it runs once a round, in vfork's and in clone's children.
		t.Errorf("child_work returned %d times, %d missed", n, work.NMissed())
	}
	harness.Ends(t, p)
}

func TestConformChildTextIsClean(t *testing.T) {
	path := harness.Compile(t, "parent", `
#include <sys/wait.h>
PROBED int work(int a) { BARRIER(); return a + 1; }
PROBED long in_child(long depth)
{
	if (depth > 0)
		return in_child(depth - 1) + 1;
	pid_t pid = fork();
	if (pid == 0) {
		while (getppid() != 1 && *line != 'x') {
			if (work(1) != 2)
				_exit(9);
			usleep(1000);
			if (access("/proc/self/cwd/stop", F_OK) == 0)
				break;
		}
		return 100;
	}
	printf("child %d\n", pid);
	fflush(stdout);
	return 0;
}
int main(int argc, char **argv)
{
	(void)argc;
	if (chdir(argv[1]))
		return 1;
	while (next()) {
		pid_t me = getpid();
		long r = in_child(5);
		if (getpid() != me)
			_exit((int)r); // 105: it came back through every frame
		int status;
		wait(&status);
		printf("in_child %ld, child %d\n", r, WEXITSTATUS(status));
	}
	return 0;
}
`, "-fno-optimize-sibling-calls")
	dir := t.TempDir()
	p := testprog.Start(t, path, dir)
	s := harness.Attach(t, p.Pid, nil)
	// Breakpoints, slots and six swapped return addresses are in the memory that
	// the child gets a copy of.
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "in_child"}}
	harness.OK(t, s.RegisterKretprobe(rp))
	work := &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
	harness.Register(t, s, work, &kprobe.Kprobe{SymbolName: "libc.so.6:usleep"}, &kprobe.Kprobe{SymbolName: "libc.so.6:fork"})
	p.Send("go")
	var child int
	if _, err := fmt.Sscanf(p.Expect("child"), "child %d", &child); err != nil {
		t.Fatal(err)
	}
	if diffs, err := testprog.TextDiff(child); err != nil || len(diffs) > 0 {
		t.Errorf("the child's text: %v, %v", diffs, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
	if err != nil || !strings.Contains(string(status), "TracerPid:\t0\n") {
		t.Errorf("the child is traced, or dead: %v", err)
	}
	harness.OK(t, os.WriteFile(dir+"/stop", nil, 0o644))
	if got := p.Expect("in_child"); got != "in_child 5, child 105" {
		t.Error(got)
	}
	harness.Settle(t, s)
	if rp.Hits() != 6 || work.Hits() != 0 {
		t.Errorf("%d returns, %d hits of what only the child called", rp.Hits(), work.Hits())
	}
	harness.Ends(t, p)
}

// Every thread's hits are counted, of threads that come later too.
func TestConformThreads(t *testing.T) {
	for _, concurrent := range []bool{false, true} {
		t.Run(fmt.Sprintf("concurrent=%v", concurrent), func(t *testing.T) {
			n := 1000
			if testing.Short() {
				n = 300
			}
			p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
			want := p.Round("%d", n)
			s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: concurrent})
			var mu sync.Mutex
			tids := make(map[int]bool)
			churner := &kprobe.Kprobe{SymbolName: "churner", PreHandler: harness.Pre(func(regs *kprobe.Regs) {
				mu.Lock()
				defer mu.Unlock()
				tids[regs.Task().TID] = true
			})}
			add := &kprobe.Kprobe{SymbolName: "hammer_add", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
			mul := &kprobe.Kprobe{SymbolName: "hammer_mul"}
			leaf := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_leaf"}}
			harness.Register(t, s, churner, add, mul)
			harness.OK(t, s.RegisterKretprobe(leaf))
			harness.SameRound(t, s, p, want, fmt.Sprint(n))
			if total := uint64(4 * n); add.Hits() != total || mul.Hits() != total || leaf.Hits() != total || leaf.NMissed() != 0 {
				t.Errorf("%d, %d, %d hits of %d, %d missed", add.Hits(), mul.Hits(), leaf.Hits(), total, leaf.NMissed())
			}
			mu.Lock()
			defer mu.Unlock()
			if churner.Hits() != uint64(n/100+1) || len(tids) == 0 || tids[p.Pid] {
				t.Errorf("%d hits in %d new threads", churner.Hits(), len(tids))
			}
			harness.Ends(t, p)
		})
	}
}

// Signals that come at any instruction, slots and handlers included: the
// program's handlers see its own addresses, and results are right.
func TestConformSignals(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "signals", "-O2"))
	const n = 4000
	want := harness.Untimed(p.Round("%d", n))
	s := harness.Attach(t, p.Pid, nil)
	step := &kprobe.Kprobe{SymbolName: "sig_step"}
	posts := uint64(0)
	post := &kprobe.Kprobe{SymbolName: "sig_step", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { posts++ }}
	inner := &kprobe.Kprobe{SymbolName: "sig_inner"}
	ret := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "sig_step"}, MaxActive: 100}
	harness.Register(t, s, step, inner)
	harness.OK(t, s.RegisterKretprobe(ret))
	for i := range 3 {
		got := harness.Untimed(harness.Round(t, s, p, "%d", n))
		if !slices.Equal(got, want) {
			t.Errorf("round %d: %q, want %q", i, got, want)
		}
		if step.Hits() != n*uint64(i+1) || ret.Hits()+ret.NMissed() != step.Hits() || ret.NMissed() != 0 || inner.Hits() == 0 {
			t.Errorf("round %d: %d hits, %d returns, %d missed", i, step.Hits(), ret.Hits(), ret.NMissed())
		}
		if posts != post.Hits() {
			t.Errorf("round %d: %d post-handlers of %d hits", i, posts, post.Hits())
		}
		if i == 0 {
			harness.Register(t, s, post)
		}
	}
	harness.Ends(t, p)
}

// Nobody who sleeps in the kernel notices an attach, a batch or a detach.
func TestConformSleepersSleep(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "sleepers", "-O2"))
	p.Round("wake")
	testprog.AllIn(t, p.Pid, "S") // in their calls again
	for range 3 {
		s := harness.Attach(t, p.Pid, nil)
		woke := &kprobe.Kprobe{SymbolName: "woke"}
		for range 5 {
			harness.Register(t, s, woke)
			harness.OK(t, s.DisableKprobe(woke))
			harness.OK(t, s.EnableKprobe(woke))
			harness.OK(t, s.UnregisterKprobe(woke))
		}
		harness.Register(t, s, woke)
		if got := p.Round("wake"); !slices.Equal(got, []string{"woken 9"}) {
			t.Errorf("%q", got)
		}
		if woke.Hits() != 9 {
			t.Errorf("%d hits", woke.Hits())
		}
		testprog.AllIn(t, p.Pid, "S")
		harness.Detach(t, s)
		if got := p.Round("sleep"); !slices.Equal(got, []string{"asleep 18"}) {
			t.Errorf("%q", got)
		}
	}
	harness.Ends(t, p)
}

// A target that is stopped stays so, whatever is done to its probes, and goes on
// when it is told to.
func TestConformStoppedTarget(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper"}
	harness.Register(t, s, kp)
	state := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		harness.OK(t, err)
		rest := string(b[strings.LastIndexByte(string(b), ')')+2:])
		return rest[:1]
	}
	harness.OK(t, p.Signal(syscall.SIGSTOP))
	testprog.Until(t, "the target stops", p.Pid, func() bool { return strings.Contains("Tt", state()) })
	other := &kprobe.Kprobe{SymbolName: "jumper"}
	harness.Register(t, s, other)
	harness.OK(t, s.DisableKprobe(kp))
	harness.OK(t, s.EnableKprobe(kp))
	p.Send("10")
	harness.Settle(t, s)
	if kp.Hits() != 0 || !strings.Contains("Tt", state()) {
		t.Errorf("a stopped target ran: %d hits, state %s", kp.Hits(), state())
	}
	harness.OK(t, p.Signal(syscall.SIGCONT))
	if line := p.Expect("jumper"); line != fmt.Sprintf("jumper 10 %d", harness.SumOf(10)) {
		t.Error(line)
	}
	p.Expect("done")
	if kp.Hits() != 10 || other.Hits() != 10 {
		t.Errorf("%d and %d hits", kp.Hits(), other.Hits())
	}
	// Let go while stopped, it stays stopped too.
	harness.OK(t, p.Signal(syscall.SIGSTOP))
	testprog.Until(t, "the target stops", p.Pid, func() bool { return strings.Contains("Tt", state()) })
	harness.Detach(t, s)
	testprog.AllIn(t, p.Pid, "T")
	harness.OK(t, p.Signal(syscall.SIGCONT))
	if got := p.Round("5")[0]; got != fmt.Sprintf("jumper 5 %d", harness.SumOf(5)) {
		t.Error(got)
	}
	harness.Ends(t, p)
}

// A thread that blocks SIGTRAP has the kernel take its handler away at each trap,
// and is served like any other; its shortest instructions, too, which might have
// been a signal that somebody sent.
func TestConformBlockedTrapSignal(t *testing.T) {
	path := harness.Compile(t, "blocked", `
#include <signal.h>
PROBED int work(int a) { BARRIER(); return a + 1; }
int main(void)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (next())
		for (int i = 0; i < 3; i++)
			printf("%d\n", work(i));
	return 0;
}
`, "-O0")
	p := testprog.Start(t, path)
	want := p.Round("")
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
	harness.Register(t, s, kp)
	for _, a := range harness.Instructions(t, s, funcNamed(t, p.Pid, path, "work"))[1:] {
		harness.Register(t, s, &kprobe.Kprobe{Addr: a})
	}
	harness.SameRound(t, s, p, want, "")
	if kp.Hits() != 3 {
		t.Errorf("%d hits", kp.Hits())
	}
}

// A probe that waits for an indirect function is armed when its resolver has chosen. Nothing else
// tells of the choice: dlsym keeps the answer to itself, and a library is relocated after debuggers
// have been told of it. It is the same when the library is loaded once more.
func TestConformIndirectFunctionLater(t *testing.T) {
	lib := harness.Compile(t, "libchosen.so", `
static int here(int a) { BARRIER(); return a * 2 + 101; }
static int other(int a) { BARRIER(); return a; }
static int (*choose(void))(int) { return getpid() ? here : other; }
int dlib_call(int a) __attribute__((ifunc("choose")));
`, "-shared", "-fPIC")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "libchosen.so:dlib_call", Patient: true}
	harness.Register(t, s, kp)
	for round := uint64(1); round <= 3; round++ {
		p.Round("open")
		p.Round("call 20")
		p.Round("call 30")
		p.Round("close")
		if n := kp.Hits(); n != 2*round {
			t.Errorf("load %d: %d hits", round, n)
		}
	}
	harness.Ends(t, p)
}
