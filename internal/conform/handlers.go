package conform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
)

// Any of the handlers may be missing.
func handlersAreOptional(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	const calls = 6
	for mask := range 8 {
		var pres, posts, faults uint64
		kp := &kprobe.Kprobe{SymbolName: "jumper"}
		if mask&1 != 0 {
			kp.PreHandler = pre(func(*kprobe.Regs) { pres++ })
		}
		if mask&2 != 0 {
			kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) { posts++ }
		}
		if mask&4 != 0 {
			kp.FaultHandler = func(*kprobe.Kprobe, *kprobe.Regs, int) int { faults++; return 0 }
		}
		register(t, s, kp)
		if got := v.sum(t, s, calls); got != sumOf(calls) {
			t.Errorf("handlers %03b: result %d, want %d", mask, got, sumOf(calls))
		}
		if kp.Hits() != calls || pres != calls*uint64(mask&1) || posts != calls*uint64(mask>>1&1) || faults != 0 || kp.NMissed() != 0 {
			t.Errorf("handlers %03b: %d hits, %d pre, %d post, %d fault, %d missed", mask, kp.Hits(), pres, posts, faults, kp.NMissed())
		}
		ok(t, s.UnregisterKprobe(kp))
	}
}

// A result other than 0: no instruction, no post-handler, no further handler,
// and the PC as the handler left it. Here the function is skipped.
func preHandlerMovesThePC(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	var older, posts int
	last := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(*kprobe.Regs) { older++ }),
		PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { posts++ }}
	skip := &kprobe.Kprobe{SymbolName: "jumper", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { posts++ }}
	skip.PreHandler = func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
		b, _ := regs.Arg(1)
		if b%2 == 0 {
			return 0
		}
		if err := leave(s, regs); err != nil {
			t.Error(err)
		}
		regs.SetReturnValue(1000)
		return 1
	}
	register(t, s, last, skip)
	if got := v.sum(t, s, 10); got != 1000 {
		t.Errorf("the result is %d, not what the handler returned", got)
	}
	if skip.Hits() != 10 || last.Hits() != 5 || older != 5 || posts != 10 {
		t.Errorf("%d and %d hits, %d older pre-handlers, %d post-handlers; want 10, 5, 5, 10",
			skip.Hits(), last.Hits(), older, posts)
	}
	ok(t, s.UnregisterKprobe(skip))
	if got := v.sum(t, s, 10); got != sumOf(10) {
		t.Errorf("result %d afterwards, want %d", got, sumOf(10))
	}
}

func registersAreTheThreads(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	// As an argument before, and as a result after.
	a := s.Arch()
	first := a.Args[0]
	before := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(regs *kprobe.Regs) { regs.Set(first, 100) })}
	register(t, s, before)
	if got := v.sum(t, s, 4); got != 303 {
		t.Errorf("with argument 100: %d, want 303", got)
	}
	ok(t, s.UnregisterKprobe(before))
	at, _ := where(t, s, "jumper")
	last := returnOf(t, s, at)
	ret := at[last]
	after := &kprobe.Kprobe{Addr: at[last-1], PostHandler: func(_ *kprobe.Kprobe, regs *kprobe.Regs, _ uint64) {
		if regs.PC() != ret {
			t.Errorf("PC %v after, want %v", regs.PC(), ret)
		}
		regs.SetReturnValue(regs.ReturnValue() + 1)
	}}
	register(t, s, after)
	if got := v.sum(t, s, 2); got != 5 { // (0*3+0+1)*3 + 1 + 1
		t.Errorf("with one added: %d, want 5", got)
	}
	ok(t, s.UnregisterKprobe(after))
	// Of the ret, post-handlers run where it leads to.
	var from, to arch.Addr
	call := &kprobe.Kprobe{Addr: at[0], PreHandler: pre(func(regs *kprobe.Regs) {
		ret, err := returnAddress(s, regs)
		if err != nil {
			t.Error(err)
		}
		from = arch.Addr(ret)
	})}
	r := &kprobe.Kprobe{Addr: ret, PostHandler: func(_ *kprobe.Kprobe, regs *kprobe.Regs, _ uint64) { to = regs.PC() }}
	register(t, s, call, r)
	if got := v.sum(t, s, 3); got != sumOf(3) {
		t.Errorf("result %d, want %d", got, sumOf(3))
	}
	if to != from || to == 0 {
		t.Errorf("after the return PC is %v, the caller's %v", to, from)
	}
	ok(t, s.UnregisterKprobes([]*kprobe.Kprobe{call, r}))
	var err error
	register(t, s, &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(regs *kprobe.Regs) {
		kernels, gdbs := "di", "rdi"
		switch a {
		case arch.ARM64:
			kernels, gdbs = "x0", "x0"
		case arch.RISCV64:
			kernels, gdbs = "a0", "x10"
		case arch.S390X:
			kernels, gdbs = "r2", "r2"
		case arch.PPC64LE, arch.PPC:
			kernels, gdbs = "gpr3", "r3"
		case arch.MIPS64LE, arch.MIPSLE:
			kernels, gdbs = "a0", "r4"
		}
		di, _ := regs.Reg(kernels)
		rdi, _ := regs.Reg(gdbs)
		if di != rdi || di != regs.Get(first) || regs.Flags() == 0 && a == arch.AMD64 {
			t.Errorf("%s %#x, %s %#x, flags %#x", kernels, di, gdbs, rdi, regs.Flags())
		}
		_, err = regs.Reg("%nonsense")
	})})
	v.sum(t, s, 1)
	errno(t, err, syscall.EINVAL)
}

// What a handler writes is what the function finds.
func memoryChanges(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	change := func(to func(string) string) *kprobe.Kprobe {
		return &kprobe.Kprobe{SymbolName: "args_string", PreHandler: pre(func(regs *kprobe.Regs) {
			a, err := regs.Arg(0)
			if err != nil {
				t.Error(err)
			}
			text, err := regs.String(arch.Addr(a), 100)
			if err != nil {
				t.Error(err)
			}
			if err := regs.WriteMem(arch.Addr(a), []byte(to(text))); err != nil {
				t.Error(err)
			}
			if err := regs.WriteMem(v.Nowhere, []byte{1}); err == nil {
				t.Error("a write to nowhere succeeded")
			}
		})}
	}
	for _, c := range []struct {
		to   func(string) string
		want string
	}{{strings.ToUpper, "args_string HELLO, WORLD"}, {strings.ToLower, "args_string hello, world"}} {
		kp := change(c.to)
		register(t, s, kp)
		if got := v.play(t, s, "args"); !slices.Contains(got, c.want) {
			t.Errorf("no %q in %q", c.want, got)
		}
		ok(t, s.UnregisterKprobe(kp))
	}
}

// As the kernel does it: the newest first, a jprobe last.
func orderAtOneAddress(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	var order []string
	note := func(name string) *kprobe.Kprobe {
		return &kprobe.Kprobe{SymbolName: "jumper",
			PreHandler:  pre(func(*kprobe.Regs) { order = append(order, name) }),
			PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { order = append(order, "post "+name) }}
	}
	a, b, c := note("a"), note("b"), note("c")
	j := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Entry: func(a, b uint64) { order = append(order, "j") }}
	register(t, s, a)
	ok(t, s.RegisterJprobe(j))
	register(t, s, b, c)
	run := func(want ...string) {
		t.Helper()
		order = nil
		v.sum(t, s, 1)
		if !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	}
	run("c", "b", "a", "j", "post c", "post b", "post a")
	ok(t, s.DisableKprobe(b))
	run("c", "a", "j", "post c", "post a")
	ok(t, s.DisableJprobe(j))
	run("c", "a", "post c", "post a")
	ok(t, s.EnableKprobe(b))
	ok(t, s.EnableJprobe(j))
	run("c", "b", "a", "j", "post c", "post b", "post a")
	ok(t, s.UnregisterKprobe(c))
	ok(t, s.UnregisterKprobe(a))
	register(t, s, a) // it is the newest now
	run("a", "b", "j", "post a", "post b")
	ok(t, s.UnregisterJprobe(j))
	run("a", "b", "post a", "post b")
}

// A handler that panics: its fault-handler is asked, the victim goes on.
func panickingHandler(t *testing.T, v *Victim) {
	var reports atomic.Int64
	s := v.Attach(t, &kprobe.Options{Report: func(err error) {
		if !strings.Contains(err.Error(), "panicked") {
			t.Errorf("reported: %v", err)
		}
		reports.Add(1)
	}})
	var null *int
	zero := 0
	for _, c := range []struct {
		name   string
		panic  func()
		trapnr int
	}{
		{"nil pointer", func() { *null = 1 }, 14},
		{"division", func() { _ = 1 / zero }, 0},
		{"index", func() { _ = []int{1}[zero+1] }, 5},
		{"of its own", func() { panic("mine") }, 3},
	} {
		for _, handled := range []int{0, 1} {
			for _, post := range []bool{false, true} {
				name := fmt.Sprintf("%s, result %d, post %v", c.name, handled, post)
				reports.Store(0)
				var traps []int
				kp := &kprobe.Kprobe{SymbolName: "jumper"}
				if post {
					kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) { c.panic() }
				} else {
					kp.PreHandler = pre(func(*kprobe.Regs) { c.panic() })
				}
				kp.FaultHandler = func(_ *kprobe.Kprobe, _ *kprobe.Regs, trapnr int) int {
					traps = append(traps, trapnr)
					return handled
				}
				register(t, s, kp)
				if got := v.sum(t, s, 3); got != sumOf(3) {
					t.Errorf("%s: result %d, want %d", name, got, sumOf(3))
				}
				if want := []int{c.trapnr, c.trapnr, c.trapnr}; !slices.Equal(traps, want) {
					t.Errorf("%s: traps %v, want %v", name, traps, want)
				}
				if n := reports.Load(); n != int64(3*(1-handled)) {
					t.Errorf("%s: %d reports", name, n)
				}
				if kp.NMissed() != 3 {
					t.Errorf("%s: %d missed", name, kp.NMissed())
				}
				ok(t, s.UnregisterKprobe(kp))
			}
		}
	}
	// Nobody to ask, and one who panics himself.
	reports.Store(0)
	worst := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(*kprobe.Regs) { panic(1) }),
		FaultHandler: func(*kprobe.Kprobe, *kprobe.Regs, int) int { panic(2) }}
	register(t, s, &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(*kprobe.Regs) { panic(0) })}, worst)
	if got := v.sum(t, s, 2); got != sumOf(2) || reports.Load() != 4 {
		t.Errorf("result %d, %d reports", got, reports.Load())
	}
}

// Handlers must not call what would deadlock. Here it is told.
func noRegistrationFromHandlers(t *testing.T, v *Victim) {
	for _, concurrent := range []bool{false, true} {
		t.Run(fmt.Sprintf("concurrent=%v", concurrent), func(t *testing.T) {
			s := v.Attach(t, &kprobe.Options{Concurrent: concurrent})
			var errs []error
			kp := &kprobe.Kprobe{SymbolName: "jumper"}
			other := &kprobe.Kprobe{SymbolName: "fib"}
			kp.PreHandler = pre(func(*kprobe.Regs) {
				errs = []error{
					s.RegisterKprobe(other), s.UnregisterKprobe(kp), s.EnableKprobe(kp), s.DisableKprobe(kp),
					s.SetEnabled(false), s.Close(),
					s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "fib"}, Entry: func() {}}),
					s.RegisterKretprobe(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}}),
				}
			})
			register(t, s, kp)
			if got := v.sum(t, s, 1); got != sumOf(1) {
				t.Errorf("result %d", got)
			}
			if len(errs) != 8 {
				t.Errorf("the handler got %d answers", len(errs))
			}
			for i, err := range errs {
				if !errors.Is(err, syscall.EDEADLK) {
					t.Errorf("call %d: %v", i, err)
				}
			}
			if !kp.Registered() || other.Registered() || kp.Hits() != 1 {
				t.Errorf("registered %v, %v; %d hits", kp.Registered(), other.Registered(), kp.Hits())
			}
			ok(t, s.Close()) // for the next
		})
	}
}

// By default they run one after another, on one thread.
func handlersRunOneAfterAnother(t *testing.T, v *Victim) {
	want := v.Start(t, "hammer 20")()
	s := v.Attach(t, nil)
	var inside, overlaps atomic.Int64
	kp := &kprobe.Kprobe{SymbolName: "hammer_leaf", PreHandler: pre(func(*kprobe.Regs) {
		if inside.Add(1) != 1 {
			overlaps.Add(1)
		}
		time.Sleep(20 * time.Microsecond)
		inside.Add(-1)
	})}
	register(t, s, kp)
	v.same(t, s, want, "hammer 20")
	if overlaps.Load() != 0 || kp.Hits() != 40 || kp.NMissed() != 0 {
		t.Errorf("%d overlaps in %d hits, %d missed", overlaps.Load(), kp.Hits(), kp.NMissed())
	}
}

// When Unregister has returned, no handler of the probe runs, and the thread
// that a late one held up goes on. Close the same.
func unregisterWaitsForHandlers(t *testing.T, v *Victim) {
	for _, end := range []string{"unregister", "close"} {
		t.Run(end, func(t *testing.T) {
			s := v.Attach(t, &kprobe.Options{Concurrent: true})
			entered, leave := make(chan bool, 1), make(chan bool)
			var running, ran atomic.Int64
			kp := &kprobe.Kprobe{SymbolName: "jumper", PreHandler: pre(func(*kprobe.Regs) {
				running.Add(1)
				if ran.Add(1) == 1 {
					entered <- true
					<-leave
				}
				running.Add(-1)
			})}
			register(t, s, kp)
			wait := v.Start(t, "jumper 12")
			<-entered
			ended := make(chan error, 1)
			go func() {
				if end == "close" {
					ended <- s.Close()
				} else {
					ended <- s.UnregisterKprobe(kp)
				}
			}()
			testprog.Blocked(t, map[string]string{"close": "(*Session).Close", "unregister": "(*Session).UnregisterKprobe"}[end])
			close(leave)
			ok(t, <-ended)
			if running.Load() != 0 {
				t.Error("a handler runs after its probe was unregistered")
			}
			n := ran.Load()
			if said := wait(); !slices.Equal(said, []string{fmt.Sprintf("jumper 12 %d", sumOf(12))}) {
				t.Errorf("%q, want %d", said, sumOf(12))
			}
			if ran.Load() != n {
				t.Errorf("%d handlers ran afterwards", ran.Load()-n)
			}
			if end == "unregister" {
				ok(t, s.Close())
			}
		})
	}
}
