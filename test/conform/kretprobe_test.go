package conform

import (
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// rets runs rets.c: every way a function comes back, or does not. Without
// optimization its calls can be counted; with -O2 some are jumps.
func rets(t *testing.T, optimize string) (*testprog.Proc, *kprobe.Session, []string) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "rets", optimize))
	want := p.Round("2")
	return p, harness.Attach(t, p.Pid, nil), want
}

func counting(name string, maxActive int, entries *int) *kprobe.Kretprobe {
	return &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, MaxActive: maxActive,
		EntryHandler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { *entries++; return 0 }}
}

// Every function of rets.c at once: recursion, mutual recursion, tail calls,
// coroutines, signal handlers on their own stack, all return; longjmp and the
// end of a thread do not.
func TestConformReturnsOfEveryKind(t *testing.T) {
	p, s, want := rets(t, "-O2")
	returning := []string{"ret_fib", "ret_ackermann", "ret_odd", "ret_even", "ret_deep", "ret_tail_end", "ret_tail_mid", "ret_tail",
		"ret_float", "ret_double", "ret_long_double", "ret_int128", "ret_bool", "ret_void", "ret_two", "ret_nine", "ret_jumped",
		"ret_thread", "ret_signalled", "ret_yield", "ret_nested", "ret_coroutine", "ret_callback"}
	abandoned := map[string]int{"ret_never": 11, "ret_exits": 6, "ret_handler": 1} // in a round of count 1
	entries := make([]int, len(returning)+len(abandoned))
	var rps []*kprobe.Kretprobe
	add := func(name string) {
		rp := counting(name, 4096, &entries[len(rps)])
		rp.Handler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
			if regs.PC() != ri.RetAddr || ri.Rp != rp || ri.Entry != rp.Kp.Addr || ri.Task.PID != p.Pid {
				t.Errorf("%s: PC %v, instance %+v", name, regs.PC(), ri)
			}
			return 1 // is ignored
		}
		rps = append(rps, rp)
	}
	for _, name := range returning {
		add(name)
	}
	for name := range abandoned {
		add(name)
	}
	harness.OK(t, s.RegisterKretprobes(rps))
	const rounds = 3
	for range rounds {
		harness.SameRound(t, s, p, want, "2")
	}
	for i, rp := range rps {
		name := rp.Kp.SymbolName
		lost := uint64(abandoned[name] * 2 * rounds)
		if entries[i] == 0 || rp.NMissed() != 0 || rp.Hits() != uint64(entries[i])-lost {
			t.Errorf("%s: %d entered, %d returned, %d missed; %d never return", name, entries[i], rp.Hits(), rp.NMissed(), lost)
		}
		// One that has not returned is known to be over when its stack is used anew.
		if n := rp.Abandoned(); n > lost || lost > 0 && n < lost*(2*rounds-1)/(2*rounds) {
			t.Errorf("%s: %d abandoned of %d", name, n, lost)
		}
	}
	harness.OK(t, s.UnregisterKretprobes(rps))
	harness.SameRound(t, s, p, want, "2")
	harness.Ends(t, p)
}

// Calls that never return give their instances back.
func TestConformMaxActiveRecovers(t *testing.T) {
	p, s, want := rets(t, "-O0")
	var never, exits int
	n, e := counting("ret_never", 11, &never), counting("ret_exits", 6, &exits)
	harness.OK(t, s.RegisterKretprobes([]*kprobe.Kretprobe{n, e}))
	for range 5 {
		harness.SameRound(t, s, p, want, "2")
	}
	if never != 110 || exits != 60 || n.NMissed() != 0 || e.NMissed() != 0 || n.Hits()+e.Hits() != 0 {
		t.Errorf("longjmp: %d entered, %d missed; thread exit: %d entered, %d missed; %d and %d returned",
			never, n.NMissed(), exits, e.NMissed(), n.Hits(), e.Hits())
	}
	if n.Abandoned() < 99 || e.Abandoned() < 54 {
		t.Errorf("%d and %d abandoned", n.Abandoned(), e.Abandoned())
	}
}

// Two coroutines with stacks in one mapping, each inside the probed function:
// which of the calls is still alive, nobody can tell from outside. Both
// return, whatever is thought of them.
func TestConformCoroutinesWithOneInstance(t *testing.T) {
	path := harness.Compile(t, "coroutines", `
#include <ucontext.h>
static ucontext_t home, co[2];
static char stacks[2][1 << 16] __attribute__((aligned(16)));
PROBED long yields(long me)
{
	swapcontext(&co[me], &home);
	return me + 10;
}
static long results[2];
static void run(int me) { results[me] = yields(me); }
int main(void)
{
	while (next()) {
		for (int i = 0; i < 2; i++) {
			getcontext(&co[i]);
			co[i].uc_stack.ss_sp = stacks[i];
			co[i].uc_stack.ss_size = sizeof stacks[i];
			co[i].uc_link = &home;
			makecontext(&co[i], (void (*)(void))run, 1, i);
			swapcontext(&home, &co[i]);
		}
		for (int i = 0; i < 2; i++)
			swapcontext(&home, &co[i]);
		printf("%ld %ld\n", results[0], results[1]);
	}
	return 0;
}
`)
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	entries := 0
	rp := counting("yields", 1, &entries)
	harness.OK(t, s.RegisterKretprobe(rp))
	for range 3 {
		harness.SameRound(t, s, p, []string{"10 11"}, "")
	}
	if total := rp.Hits() + rp.NMissed() + rp.Abandoned(); total != 6 {
		t.Errorf("%d returned, %d missed, %d abandoned, of 6", rp.Hits(), rp.NMissed(), rp.Abandoned())
	}
	harness.Ends(t, p)
}

// Where a swapped return address could break the program, there is no return
// probe, and a reason.
func TestConformReturnRefused(t *testing.T) {
	_, s, _ := rets(t, "-O0")
	for _, c := range []struct {
		kp    *kprobe.Kretprobe
		errno syscall.Errno
	}{
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:_setjmp"}}, syscall.ENOTSUP},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:__sigsetjmp"}}, syscall.ENOTSUP},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:vfork"}}, syscall.ENOTSUP},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:dlsym"}, Engine: kprobe.EngineSwap}, syscall.ENOTSUP},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:swapcontext"}}, syscall.ENOTSUP},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:getcontext"}}, syscall.ENOTSUP},
		{&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:backtrace"}, Engine: kprobe.EngineSwap}, syscall.ENOTSUP},
	} {
		err := s.RegisterKretprobe(c.kp)
		if !hasErrno(err, c.errno) {
			t.Errorf("%+v: %v, not %v", c.kp, err, c.errno)
		}
	}

	for prog, fns := range map[string][]string{
		"throws": {"throw_leaf", "throw_mid", "throw_top"}, "goprog": {"main.goLeaf", "main.goGrow"},
	} {
		t.Run(prog, func(t *testing.T) {
			flags := []string{"-O2"}
			if prog == "goprog" {
				flags = nil
			}
			p := testprog.Start(t, testprog.Build(t, prog, flags...))
			want := p.Round("40")
			s := harness.Attach(t, p.Pid, nil)
			for _, fn := range fns {
				harness.Errno(t, s.RegisterKretprobe(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: fn}, Engine: kprobe.EngineSwap}), syscall.ENOTSUP)
				kp := &kprobe.Kprobe{SymbolName: fn, PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}}
				harness.Register(t, s, kp) // a kprobe is fine
				harness.SameRound(t, s, p, want, "40")
				if kp.Hits() == 0 {
					t.Errorf("%s was not hit", fn)
				}
			}
			harness.Ends(t, p)
		})
	}
}

// Threads inside the function all the time, while the probe comes and goes.
func TestConformReturnsComeAndGo(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"))
	want := p.Round("1000")
	s := harness.Attach(t, p.Pid, nil)
	enough := make(chan struct{})
	var rounds sync.WaitGroup
	rounds.Go(func() {
		for over := false; !over; {
			if got := p.Round("1000"); got[0]+got[1] != want[0]+want[1] {
				t.Errorf("%q, want %q", got, want)
				return
			}
			select {
			case <-enough:
				over = true
			default:
			}
		}
	})
	var rp kprobe.Kretprobe
	for i := range 20 {
		rp.Kp.SymbolName, rp.MaxActive = "hammer_add", 1+i%5
		harness.OK(t, s.RegisterKretprobe(&rp))
		testprog.Until(t, "a return", p.Pid, func() bool { return rp.Hits() > 0 })
		harness.OK(t, s.UnregisterKretprobe(&rp))
	}
	close(enough)
	rounds.Wait()
	harness.Ends(t, p)
}

// A function that reads its return address is told the program's own: by the stack pointer, and by the frame pointer.
func TestConformReturnOfWhoReadsItsCaller(t *testing.T) {
	for _, flags := range [][]string{nil, {"-fno-omit-frame-pointer"}} {
		path := harness.Compile(t, "reads", `
int main(void);
PROBED int reads_caller(int a)
{
	char b[40];
	char *from = __builtin_return_address(0);
	snprintf(b, sizeof b, "%d", a);
	return from > (char *)main && from < (char *)main + 4096 ? atoi(b) : -1;
}
int main(void) { while (next()) printf("%d\n", reads_caller(atoi(line))); return 0; }
`, flags...)
		p := testprog.Start(t, path)
		s := harness.Attach(t, p.Pid, nil)
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "reads_caller"}}
		harness.OK(t, s.RegisterKretprobe(rp))
		if got := p.Round("20"); len(got) != 1 || got[0] != "20" || rp.Hits() != 1 {
			t.Errorf("%q: %q, %d hits", flags, got, rp.Hits())
		}
		harness.Ends(t, p)
	}
}
