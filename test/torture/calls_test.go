package torture

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/faults"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// death is the system call before which a controller kills itself: the n-th that
// it makes, or that a function of it makes. With a pause its target goes on
// meanwhile, unserved, until every thread of it has run into something.
type death struct {
	Call  int
	Pause time.Duration
	In    string // the function; "" is any
	Stops int    // the process that is stopped before
}

// meet arranges for it, and counts the controller's system calls.
func (d death) meet() (calls *atomic.Int64) {
	calls = new(atomic.Int64)
	faults.Inject = func(c faults.Call) error {
		if d.In != "" && !strings.Contains(callers(), d.In) {
			return nil
		}
		if calls.Add(1) == int64(d.Call) {
			fmt.Printf("dies before %s(%#x) in%s\n", c.Name, c.Request, callers())
			time.Sleep(d.Pause)
			if d.Stops != 0 {
				syscall.Kill(d.Stops, syscall.SIGSTOP)
			}
			syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	return calls
}

// stack are return addresses.
type stack [40]uintptr

// namesOf are the names on stacks that were seen, by stack: a controller makes thousands of calls by
// a few hundred ways, and to name one costs more than the call.
var namesOf sync.Map

// callers names the functions of this project that led here.
func callers() string {
	var s stack
	n := runtime.Callers(4, s[:])
	names, ok := namesOf.Load(s)
	if !ok {
		names, _ = namesOf.LoadOrStore(s, s.names(n))
	}
	return names.(string)
}

func (s *stack) names(n int) (names string) {
	for fs := runtime.CallersFrames(s[:n]); ; {
		f, more := fs.Next()
		if strings.HasPrefix(f.Function, "kprobe") {
			names += fmt.Sprintf(" %s:%d", path.Base(f.Function), f.Line)
		}
		if !more {
			return names
		}
	}
}

// once is a session with everything that a session does, each twice.
func (o *tortureOrder) once() error {
	calls := o.Death.meet()
	p, err := ptrace.Attach(o.PID)
	if err != nil {
		return err
	}
	options := &kprobe.Options{Report: func(err error) { fmt.Println("reported:", err) }}
	if o.Follow {
		options.Follow = func(child *kprobe.Session) {
			entries, returns := o.probes()
			if err := armAll(child, entries, returns); err != nil && !errors.Is(err, syscall.ESRCH) {
				fmt.Println("child:", err)
			}
			go func() { <-child.Done(); child.Close() }()
		}
	}
	s, err := kprobe.Open(p, options)
	if err != nil {
		return err
	}
	entries, returns := o.probes()
	busy, err := o.busy(s)
	if err != nil {
		return err
	}
	entries = append(entries, busy...)
	hits := func() (n uint64) {
		for _, p := range entries {
			n += p.Hits()
		}
		return n
	}
	for range 2 {
		if err := armAll(s, entries, returns); err != nil {
			return err
		}
		before := hits()
		err := testprog.Await(o.PID, func() error {
			if n := hits() - before; n < uint64(o.Hits) {
				return fmt.Errorf("%d hits of %d", n, o.Hits)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := disarmAll(s, entries, returns); err != nil {
			return err
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println("calls", calls.Load())
	return nil
}

// busy are the probes with a program that takes a while.
func (o *tortureOrder) busy(s *kprobe.Session) (busy []*kprobe.Kprobe, err error) {
	if len(o.Busy) == 0 {
		return nil, nil
	}
	takesTime, err := harness.Assembled("busy", 0, harness.BusyText)
	if err != nil {
		return nil, err
	}
	ps, err := s.Load(&bpf.Collection{Programs: []*bpf.Program{takesTime}})
	if err != nil {
		return nil, err
	}
	program, err := ps.Program("busy")
	for _, addr := range o.Busy {
		busy = append(busy, &kprobe.Kprobe{Addr: addr, Program: program})
	}
	return busy, err
}

// recover is a recovery.
func (o *tortureOrder) recover() error {
	calls := o.Death.meet()
	done, err := ptrace.Recover(o.PID)
	if err == nil && (len(done) != 1 || done[0].Err != nil) {
		err = fmt.Errorf("recovered %v", done)
	}
	fmt.Println("calls", calls.Load())
	return err
}

// A controller dies before each system call that it makes, a controller for each,
// on a program at work: the program is not harmed, and it is restored. The usual
// run takes a sample, a soak every call.
func TestSoakKilledAtEveryCall(t *testing.T) {
	for _, name := range []string{"rets", "throws", "threads", "forks"} {
		for _, pause := range []time.Duration{0, 2 * time.Millisecond} {
			if testing.Short() && pause > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s, %v later", name, pause), func(t *testing.T) {
				v := victims[name](t)
				order := tortureOrder{PID: v.PID, Hits: 20, Death: death{Pause: pause}}
				order.Entries, order.Returns = acceptable(t, v)
				everyCall(t, v, order, stride(397, 5994))
			})
		}
	}
	// A child is cleaned, sent into its loop, and taken over.
	for in, step := range map[string]int{"(*child)": stride(199, 1994), "fetch": stride(61, 397), "(*Session).follow": stride(97, 397)} {
		t.Run("forks, followed, within "+in, func(t *testing.T) {
			v := victims["forks"](t)
			order := tortureOrder{PID: v.PID, Hits: 20, Follow: true, Death: death{In: in}}
			order.Entries, order.Returns = acceptable(t, v)
			everyCall(t, v, order, step)
		})
	}
	// A thread has made a call in the target's name, and is on its way back.
	t.Run("rets, within a call", func(t *testing.T) {
		v := victims["rets"](t)
		order := tortureOrder{PID: v.PID, Hits: 20, Death: death{In: "stopAgain"}}
		order.Entries, order.Returns = acceptable(t, v)
		everyCall(t, v, order, stride(5, 46))
	})
	// It is on its way to a call, and stopped there: when it goes on, after all has been restored, it must not make that.
	t.Run("rets, stopped", func(t *testing.T) {
		v := victims["rets"](t)
		order := tortureOrder{PID: v.PID, Hits: 20, Death: death{In: "(*call).next", Stops: v.PID}}
		order.Entries, order.Returns = acceptable(t, v)
		everyCall(t, v, order, stride(3, 74))
	})
	// It has been led out of a detour, is reported for the last step, and is on its way to a call.
	t.Run("rets, led out", func(t *testing.T) {
		v := victims["rets"](t)
		order := tortureOrder{PID: v.PID, Hits: 20, Death: death{In: "(*Within[...]).Leave"}}
		order.Entries, order.Returns = acceptable(t, v)
		everyCall(t, v, order, stride(1, 23))
	})
	// The process has a descriptor of ours for a moment, of memory in common.
	t.Run("rets, within shared", func(t *testing.T) {
		v := victims["rets"](t)
		order := tortureOrder{PID: v.PID, Hits: 20, Death: death{In: "shared"}}
		order.Entries, order.Returns = acceptable(t, v)
		everyCall(t, v, order, stride(7, 34))
	})
	// The thread that makes the calls is about to get a signal, nearly each time, and looks at all that it is told.
	for in, step := range map[string]int{"(*call)": stride(29, 194), "seizeAll": 1, "takeAway": stride(29, 194), "detachAll": 1, "": stride(29, 6994)} {
		t.Run("siginfo, within "+in, func(t *testing.T) {
			v := victims["siginfo"](t)
			order := tortureOrder{PID: v.PID, Hits: 20, Death: death{In: in}}
			order.Entries, order.Returns = acceptable(t, v)
			everyCall(t, v, order, step)
		})
	}
	// A thread that is about to get a signal is led out of a detour, and its program.
	t.Run("signals, led on", func(t *testing.T) {
		v := victims["signals"](t)
		order := tortureOrder{PID: v.PID, Hits: 20000, Death: death{In: "Drive"}}
		order.Busy, _ = acceptable(t, v)
		everyCall(t, v, order, stride(31, 1194))
	})
}

// A thread that sleeps in a call makes one in the target's name, and the controller dies in that: it sleeps on.
func TestSoakKilledWithinCallsOfSleepers(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "sleepers", "-O2"))
	p.Round("wake")
	s := harness.Attach(t, p.Pid, nil)
	woke, err := s.Lookup("woke")
	harness.OK(t, err)
	harness.Detach(t, s)
	order := tortureOrder{PID: p.Pid, Entries: []arch.Addr{woke.Addr}, Death: death{In: "(*call)"}}
	step := stride(7, 23)
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(last, outcome(p))
		}
	})
	for call := 1; ; call += step {
		testprog.AllIn(t, p.Pid, "S") // in their calls again
		order.Death.Call = call
		c := startTortured(t, &order)
		said := c.complaints()
		c.Wait()
		last = fmt.Sprintf("call %d, %q", call, said)
		testprog.Restored(t, p.Pid, lifeline.Journals)
		if got := p.Round("sleep"); !slices.Equal(got, []string{"asleep 18"}) {
			t.Fatalf("%q", got)
		}
		if got := p.Round("wake"); !slices.Equal(got, []string{"woken 9"}) {
			t.Fatalf("%q", got)
		}
		if wasLast(t, call, step, said) {
			break
		}
	}
	harness.Ends(t, p)
}

func everyCall(t *testing.T, v harness.Victim, order tortureOrder, step int) {
	w := harness.StartWork(t, v)
	defer w.Stop()
	for call := 1; ; call += step {
		order.Death.Call = call
		c := startTortured(t, &order)
		said := c.complaints()
		c.Wait()
		if order.Death.Stops != 0 {
			testprog.Restored(t, v.PID, lifeline.Journals)
			syscall.Kill(v.PID, syscall.SIGCONT)
		}
		if err := harness.Healthy(v.PID, w); err != nil {
			t.Fatalf("call %d, %q: %v; %s", call, said, err, outcome(v.Proc))
		}
		if wasLast(t, call, step, said) {
			return
		}
	}
}

// stride is the distance from one call that a controller dies before to the next.
func stride(usual, short int) int {
	switch {
	case os.Getenv("SOAK") != "":
		return 1
	case testing.Short():
		return short
	}
	return usual
}

// wasLast tells whether a controller did not die any more, by what it said.
func wasLast(t *testing.T, call, step int, said []string) bool {
	t.Helper()
	if len(said) > 0 && strings.HasPrefix(said[len(said)-1], "dies") {
		return false
	}
	_, total, over := strings.Cut(strings.Join(said, "\n"), "calls ")
	if n, err := strconv.Atoi(total); !over || err != nil || n >= call {
		t.Fatalf("call %d: it said %q", call, said)
	}
	t.Logf("killed before every %d. of %s calls", step, total)
	return true
}

// So does who recovers what a dead controller left: the program works on, and the
// next one recovers it.
func TestSoakRecoveryKilledAtEveryCall(t *testing.T) {
	for _, name := range []string{"rets", "threads", "forks"} {
		t.Run(name, func(t *testing.T) {
			step := stride(37, 298)
			v := victims[name](t)
			order := tortureOrder{PID: v.PID, Hold: true}
			order.Entries, order.Returns = acceptable(t, v)
			w := harness.StartWork(t, v)
			defer w.Stop()
			for call := 1; ; call += step {
				abandon(t, &order)
				c := startTortured(t, &tortureOrder{PID: v.PID, Recover: true, Death: death{Call: call}})
				said := c.complaints()
				c.Wait()
				last := wasLast(t, call, step, said)
				if !last {
					done, err := ptrace.Recover(v.PID)
					if err != nil || len(done) != 1 || done[0].Err != nil && !errors.Is(done[0].Err, ptrace.ErrNothing) {
						t.Fatalf("call %d, %q: recovery: %v, %v\n%s", call, said, done, err, testprog.States(v.PID))
					}
				}
				if err := harness.Healthy(v.PID, w); err != nil {
					t.Fatalf("call %d, %q: %v; %s", call, said, err, outcome(v.Proc))
				}
				if last {
					return
				}
			}
		})
	}
}

// outcome tells how a program that is not well has ended, if it has.
func outcome(p *testprog.Proc) string {
	p.CloseStdin()
	err := testprog.AwaitFor(2*time.Second, p.Pid, func() error {
		if p.Signal(0) == nil {
			return errors.New("it has not ended")
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("it has ended: %#x", p.Wait())
}

const valuesProgram = `
#include <signal.h>
static volatile long next_value = 1, wrong;
static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig; (void)context;
	if (info->si_value.sival_int != next_value && !wrong)
		wrong = next_value;
	next_value++;
}
__attribute__((noinline)) long spin(long n) { __asm__ volatile("" ::: "memory"); return n + 1; }
int main(void)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGRTMIN, &sa, NULL);
	while (next()) {
		long end = atol(line);
		for (long sum = 0; next_value <= end; )
			sum = spin(sum);
		printf("%ld values, wrong: %ld\n", next_value - 1, wrong);
	}
	return 0;
}
`

// Signals that come while their thread is in a program wait until it is led out. They are in order
// then, and tell what they told.
func TestSignalsWaitInOrder(t *testing.T) {
	p := testprog.Start(t, harness.Compile(t, "values", valuesProgram))
	s := harness.Attach(t, p.Pid, nil)
	at, err := s.Lookup("spin")
	harness.OK(t, err)
	order := tortureOrder{Busy: []arch.Addr{at.Addr}}
	busy, err := order.busy(s)
	harness.OK(t, err)
	harness.Register(t, s, busy...)
	s.WaitOptimized()
	const n, burst = 3000, 6
	p.Send("%d", n)
	for value := int32(1); value <= n; value++ {
		info := struct {
			signo, errno, code, _ int32
			pid, uid              int32
			value                 int64
			_                     [96]byte
		}{code: -1, pid: int32(os.Getpid()), value: int64(value)} // SI_QUEUE
		const firstRealTime = 34 // libc has two for itself
		if _, _, e := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(p.Pid), firstRealTime, uintptr(unsafe.Pointer(&info))); e != 0 {
			t.Fatal(e)
		}
		if value%burst == 0 {
			time.Sleep(200 * time.Microsecond)
		}
	}
	if got, want := p.Line(), fmt.Sprintf("%d values, wrong: 0", n); got != want {
		t.Errorf("the program says %q, not %q", got, want)
	}
	p.Expect("done")
	harness.Detach(t, s)
	harness.Ends(t, p)
}
