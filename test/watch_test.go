package test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

func watched(t testing.TB, o *kprobe.Options, args ...string) (*testprog.Proc, *kprobe.Session) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "watched", "-O2"), args...)
	return p, attach(t, p.Pid, o)
}

func counts(n int) string { return fmt.Sprintf("counter %d", n) }

// writesTo runs a round and checks what the program says of its counter.
func writesTo(t testing.TB, p *testprog.Proc, want int, line string) {
	t.Helper()
	if got := p.Round("%s", line); !slices.Equal(got, []string{counts(want)}) {
		t.Errorf("%q: the program says %q, want %d", line, got, want)
	}
}

// places counts a watchpoint's hits by the function that made the access.
type places struct {
	mu sync.Mutex
	n  map[string]int
}

func (p *places) handler(s *kprobe.Session) func(*kprobe.Watchpoint, *kprobe.Regs) {
	p.n = make(map[string]int)
	return func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
		loc, _ := s.Symbols().At(uint64(regs.PC()))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.n[loc.Func.Name]++
	}
}

// Every thread that writes is caught, and in the function that does it: those
// that there are, and those that come.
func TestWatchWritersOfManyThreads(t *testing.T) {
	testprog.Watches.Need(t)
	for _, o := range []*kprobe.Options{nil, {Concurrent: true}} {
		const threads, n = 64, 20
		p, s := watched(t, o, fmt.Sprint(threads))
		var seen places
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write, Handler: seen.handler(s)}
		ok(t, s.RegisterWatchpoint(w))
		sum := threads/4*n*(1+2+3+4) + 5*(n/10+1)
		writesTo(t, p, sum, fmt.Sprint(n))
		ok(t, s.UnregisterWatchpoint(w))
		want := map[string]int{"newborn": n/10 + 1}
		for i := range 4 {
			want[fmt.Sprintf("writer%d", i)] = threads / 4 * n
		}
		if fmt.Sprint(seen.n) != fmt.Sprint(want) {
			t.Errorf("writes by function: %v, want %v", seen.n, want)
		}
		if got := w.Hits(); got != threads*n+n/10+1 {
			t.Errorf("%d hits", got)
		}
		writesTo(t, p, 2*sum, fmt.Sprint(n))
		ends(t, p)
	}
}

func TestWatchReadsAndWrites(t *testing.T) {
	testprog.Watches.Need(t)
	p, s := watched(t, nil)
	writes := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	both := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8}
	upper := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter", Offset: 7}, Len: 1}
	other := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "other"}, Len: 4}
	ok(t, s.Register(writes, both, upper, other))
	hits := func(w, b uint64) {
		t.Helper()
		settle(t, s)
		if writes.Hits() != w || both.Hits() != b || upper.Hits() != b || other.Hits() != 0 {
			t.Errorf("hits %d, %d, %d, %d; want %d, %d, %d, 0", writes.Hits(), both.Hits(), upper.Hits(), other.Hits(), w, b, b)
		}
	}
	// Each round prints the counter, which is a read.
	writesTo(t, p, 10, "direct 10")
	hits(10, 11)
	p.Round("reads 20")
	hits(10, 11+20+2)
	// The kernel's own write is not seen by newer kernels, the program's two reads are.
	writesTo(t, p, 11, "kernel")
	settle(t, s)
	kernel := writes.Hits() - 10
	if kernel > 1 {
		t.Errorf("%d writes for one", kernel)
	}
	hits(10+kernel, 33+2+kernel)
	// A child of fork has memory of its own, and is not watched.
	writesTo(t, p, 11, "fork 5")
	hits(10+kernel, 35+1+kernel)
	ok(t, s.Close())
	writesTo(t, p, 16, "direct 5")
	ends(t, p)
}

// A kprobe on the very instruction that accesses: it runs in a slot, once, and what
// the watchpoint's handler sees is the program.
func TestWatchWithKprobes(t *testing.T) {
	testprog.Watches.Need(t)
	const n = 30
	nothing := func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }
	for _, concurrent := range []bool{false, true} {
		for name, post := range map[string]func(*kprobe.Kprobe, *kprobe.Regs, uint64){
			"pre":  nil,
			"post": func(*kprobe.Kprobe, *kprobe.Regs, uint64) {},
		} {
			t.Run(fmt.Sprint(name, concurrent), func(t *testing.T) {
				p, s := watched(t, &kprobe.Options{Concurrent: concurrent})
				var wrong atomic.Value
				at, err := s.Lookup("direct_write")
				ok(t, err)
				size := uint64(0)
				w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
				w.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
					if regs.PC() != arch.Addr(at.Addr+size) {
						wrong.Store(regs.PC())
					}
				}
				size = at.Size - 1 // what is before the ret
				write := &kprobe.Kprobe{SymbolName: "direct_write", PreHandler: nothing, PostHandler: post}
				behind := &kprobe.Kprobe{SymbolName: "direct_write", Offset: size, PreHandler: nothing}
				ok(t, s.Register(write, w))
				writesTo(t, p, n, fmt.Sprint("direct ", n))
				register(t, s, behind)
				writesTo(t, p, 2*n, fmt.Sprint("direct ", n))
				ok(t, s.UnregisterKprobe(write))
				writesTo(t, p, 3*n, fmt.Sprint("direct ", n))
				settle(t, s)
				if w.Hits() != 3*n || write.Hits() != 2*n || behind.Hits() != 2*n || wrong.Load() != nil {
					t.Errorf("%d writes, %d and %d hits, PC %v", w.Hits(), write.Hits(), behind.Hits(), wrong.Load())
				}

				// A repeated instruction fires several times, and is one.
				repeat := &kprobe.Kprobe{SymbolName: "direct_repeat", PreHandler: nothing, PostHandler: post}
				at, err = s.Lookup("direct_repeat")
				ok(t, err)
				in := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "block", Offset: 32}, Len: 8, Access: kprobe.Write}
				in.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
					if pc := uint64(regs.PC()); pc != at.Addr && pc != at.Addr+2 {
						wrong.Store(regs.PC())
					}
				}
				ok(t, s.Register(in))
				p.Round("repeat %d", n)
				bare := in.Hits()
				register(t, s, repeat)
				p.Round("repeat %d", n)
				settle(t, s)
				if bare < n || in.Hits() != 2*bare || repeat.Hits() != n || wrong.Load() != nil {
					t.Errorf("%d writes unprobed, %d in all, %d hits, PC %v", bare, in.Hits(), repeat.Hits(), wrong.Load())
				}
				ends(t, p)
			})
		}
	}
}

// What an instruction does that we emulate, or that a slot does in two steps, is
// one access too: a call stores where it returns to, and the return loads that,
// wherever it leads.
func TestWatchCalls(t *testing.T) {
	testprog.Watches.Need(t)
	const n = 10
	p, s := watched(t, nil)
	var sp arch.Addr
	find := &kprobe.Kprobe{SymbolName: "caller", PreHandler: pre(func(regs *kprobe.Regs) { sp = regs.SP() })}
	register(t, s, find)
	p.Round("calls 1")
	ok(t, s.UnregisterKprobe(find))
	leaf, err := s.Lookup("leaf")
	ok(t, err)
	caller, err := s.Lookup("caller")
	ok(t, err)
	for name, kp := range map[string]*kprobe.Kprobe{
		"alone": nil,
		"pre":   {SymbolName: "caller"},
		"post":  {SymbolName: "caller", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}},
	} {
		calls, returns := 0, 0
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{Addr: sp - 8}, Len: 8}
		w.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
			at := regs.PC()
			if at == arch.Addr(caller.Addr+5) {
				returns++
			}
			if kp != nil && at == kp.Addr {
				at = arch.Addr(leaf.Addr) // half-way in the slot
			}
			if at == arch.Addr(leaf.Addr) {
				calls++
			}
		}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "leaf"}, Engine: kprobe.EngineSwap}
		ok(t, s.RegisterWatchpoint(w))
		if kp != nil {
			ok(t, s.Register(kp, rp))
		}
		p.Round("calls %d", n)
		ok(t, s.UnregisterWatchpoint(w))
		if kp != nil {
			ok(t, s.Unregister(kp, rp))
		}
		if calls != n || returns != n {
			t.Errorf("%s: %d stores and %d loads of a return address, %d calls", name, calls, returns, n)
		}
	}
	ends(t, p)
}

// What a probe's program does is not the program's, what runs under its jump is.
func TestWatchWithPrograms(t *testing.T) {
	testprog.Watches.Need(t)
	const n = 30
	p, s := watched(t, nil)
	counter, err := s.Symbols().Resolve(symbol.Query{Symbol: "counter", Kind: symbol.Data})
	ok(t, err)
	ps := load(t, s, nil, nil, map[string]string{"reads": fmt.Sprintf(`
		r1 = r10
		r1 += -8
		r2 = 8
		r3 = %d ll
		call probe_read_user
		r0 = 0
		exit`, counter[0].Addr)})
	reads, err := ps.Program("reads")
	ok(t, err)
	write := &kprobe.Kprobe{SymbolName: "direct_write", Program: reads}
	repeat := &kprobe.Kprobe{SymbolName: "direct_repeat", Program: reads}
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8}
	in := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "block", Offset: 32}, Len: 8, Access: kprobe.Write}
	var at places
	w.Handler = at.handler(s)
	register(t, s, write, repeat)
	ok(t, s.Register(w, in))
	for _, optimize := range []bool{false, true} {
		ok(t, s.SetOptimization(optimize))
		if optimize {
			s.WaitOptimized()
		}
		p.Round("direct %d", n)
		p.Round("repeat %d", n)
	}
	ok(t, s.Unregister(w, in))
	delete(at.n, "main") // which prints the counter
	if fmt.Sprint(at.n) != fmt.Sprint(map[string]int{"direct_write": 2 * n}) || in.Hits() < 2*n {
		t.Errorf("accesses by function: %v, %d of block", at.n, in.Hits())
	}
	if write.Hits() != 2*n || repeat.Hits() != 2*n {
		t.Errorf("%d and %d hits", write.Hits(), repeat.Hits())
	}
	ends(t, p)
}

func TestWatchRefused(t *testing.T) {
	testprog.Watches.Need(t)
	p, s := watched(t, nil)
	for _, tt := range []struct {
		symbol string
		addr   arch.Addr
		off    uint64
		length int
		access kprobe.Access
		want   syscall.Errno
	}{
		{"counter", 0, 0, 0, kprobe.ReadWrite, syscall.EINVAL},
		{"counter", 0, 0, 3, kprobe.ReadWrite, syscall.EINVAL},
		{"counter", 0, 0, 16, kprobe.ReadWrite, syscall.EINVAL},
		{"counter", 0, 2, 4, kprobe.ReadWrite, syscall.EINVAL},
		{"counter", 0, 0, 8, kprobe.Read, syscall.ENOTSUP},
		{"counter", 0, 0, 8, 9, syscall.EINVAL},
		{"no_such_variable", 0, 0, 8, kprobe.Write, syscall.ENOENT},
		{"writer0", 0, 0, 8, kprobe.Write, syscall.ENOENT}, // a function
		{"", 0, 0, 8, kprobe.Write, syscall.EINVAL},
		{"", 0x10000, 0, 8, kprobe.Write, syscall.EINVAL},
		{"", 0xffff800000000000, 0, 8, kprobe.Write, syscall.EINVAL},
	} {
		w := &kprobe.Watchpoint{
			Kp:  kprobe.Kprobe{SymbolName: tt.symbol, Addr: tt.addr, Offset: tt.off},
			Len: tt.length, Access: tt.access,
		}
		err := s.RegisterWatchpoint(w)
		errno(t, err, tt.want)
		if e := s.Plan(w); e.Verdict != "refuse" {
			t.Errorf("planned: %v, refused: %v", e, err)
		}
	}
	program := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter", Program: kprobe.CountOnly}, Len: 8}
	errno(t, s.RegisterWatchpoint(program), syscall.EINVAL)
	var ws []kprobe.Probe
	for i := range 5 {
		ws = append(ws, &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "block", Offset: uint64(8 * i)}, Len: 8})
	}
	kp := &kprobe.Kprobe{SymbolName: "direct_write"}
	err := s.Register(append(ws, kp)...)
	errno(t, err, syscall.ENOSPC)
	var b *kprobe.BatchError
	if !errors.As(err, &b) || b.Index != 4 {
		t.Errorf("not the fifth: %v", err)
	}
	if l := s.List(); len(l) != 0 {
		t.Errorf("after a refused batch: %v", l)
	}
	ok(t, s.Register(append(ws[:4:4], kp)...))
	errno(t, s.RegisterWatchpoint(ws[0].(*kprobe.Watchpoint)), syscall.EINVAL)
	errno(t, s.Register(ws[4]), syscall.ENOSPC)
	ok(t, s.Unregister(ws[1]))
	ok(t, s.Register(ws[4]))
	p.Round("repeat 1")
	settle(t, s)
	for i, w := range ws {
		if hits := w.(*kprobe.Watchpoint).Hits(); (hits > 0) != (i != 1) {
			t.Errorf("watchpoint %d: %d hits", i, hits)
		}
	}
	ok(t, s.Unregister(append(ws, kp)...))
	ends(t, p)
}

func TestWatchListEnableDisable(t *testing.T) {
	testprog.Watches.Need(t)
	var said reports
	p, s := watched(t, &kprobe.Options{Report: said.add})
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	w.Handler = func(w *kprobe.Watchpoint, regs *kprobe.Regs) {
		errno(t, s.UnregisterWatchpoint(w), syscall.EDEADLK)
		panic("a mistake")
	}
	if e := s.Plan(w); e.Verdict != "watch" || !strings.HasSuffix(e.String(), "watch  debug register  (8 bytes, w)") {
		t.Errorf("planned: %v", e)
	}
	ok(t, s.RegisterWatchpoint(w))
	listed := func(tag string) {
		t.Helper()
		want := fmt.Sprintf("%016x  w  counter+0x0    %s", uint64(w.Kp.Addr), tag)
		if l := s.List(); len(l) != 1 || l[0].String() != want {
			t.Errorf("the list is %v, want %s", l, want)
		}
	}
	n := 0
	write := func(seen int) {
		t.Helper()
		hits := int(w.Hits())
		n += 3
		writesTo(t, p, n, "direct 3")
		settle(t, s)
		if got := int(w.Hits()) - hits; got != seen || w.NMissed() != w.Hits() {
			t.Errorf("%d hits, want %d; %d missed of %d", got, seen, w.NMissed(), w.Hits())
		}
	}
	listed("")
	write(3)
	ok(t, s.DisableWatchpoint(w))
	listed("[DISABLED]")
	write(0)
	ok(t, s.SetEnabled(false))
	ok(t, s.EnableWatchpoint(w))
	write(0)
	ok(t, s.SetEnabled(true))
	listed("")
	write(3)
	ok(t, s.UnregisterWatchpoint(w))
	if w.Kp.Addr != 0 || w.Kp.Registered() || len(s.List()) != 0 {
		t.Errorf("unregistered: %+v, %v", &w.Kp, s.List())
	}
	write(0)
	w.Kp.Flags = kprobe.FlagDisabled
	ok(t, s.RegisterWatchpoint(w))
	listed("[DISABLED]")
	n += 3
	writesTo(t, p, n, "direct 3")
	if w.Hits() != 0 {
		t.Errorf("registered disabled: %d hits", w.Hits())
	}
	if r := said.take(); len(r) != 6 {
		t.Errorf("reported: %v", r)
	}
	ends(t, p)
}

// After an exec a watchpoint by name watches the new program's variable, one by
// address is gone.
func TestWatchExec(t *testing.T) {
	testprog.Watches.Need(t)
	var said reports
	p, s := watched(t, &kprobe.Options{Report: said.add})
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	ok(t, s.RegisterWatchpoint(w))
	byAddr := &kprobe.Watchpoint{Kp: kprobe.Kprobe{Addr: w.Kp.Addr}, Len: 8, Access: kprobe.Write}
	ok(t, s.RegisterWatchpoint(byAddr))
	writesTo(t, p, 3, "direct 3")
	p.Send("exec")
	p.Expect("ready")
	writesTo(t, p, 4, "direct 4")
	settle(t, s)
	if w.Hits() != 7 || byAddr.Hits() != 3 {
		t.Errorf("%d hits by name, %d by address", w.Hits(), byAddr.Hits())
	}
	if l := s.List(); len(l) != 2 || l[0].Gone == l[1].Gone {
		t.Errorf("the list is %v", l)
	}
	ok(t, s.Close())
	if r := said.take(); len(r) != 0 {
		t.Errorf("reported: %v", r)
	}
	writesTo(t, p, 5, "direct 1")
	ends(t, p)
}

// A thread that waits for its vfork child cannot be stopped. It is watched all the
// same, from when it goes on; and so is the child, which runs in its memory.
func TestWatchVfork(t *testing.T) {
	testprog.Watches.Need(t)
	p, s := watched(t, nil)
	other, err := s.Symbols().Resolve(symbol.Query{Symbol: "other", Kind: symbol.Data})
	ok(t, err)
	stuck := func() {
		t.Helper()
		p.Send("vfork")
		testprog.Until(t, "there is a child", p.Pid, func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Pid, p.Pid))
			return err == nil && len(b) > 0
		})
	}
	goOn := func(sum int) {
		t.Helper()
		writeRaw(t, p.Pid, arch.Addr(other[0].Addr), []byte{1})
		if got := p.Expect("counter"); got != counts(sum) {
			t.Errorf("%q, want %d", got, sum)
		}
		p.Expect("done")
		settle(t, s)
	}
	stuck()
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	ok(t, s.RegisterWatchpoint(w))
	goOn(2)
	if w.Hits() != 2 {
		t.Errorf("%d hits, of a child and its parent", w.Hits())
	}
	stuck()
	ok(t, s.UnregisterWatchpoint(w))
	goOn(4)
	if w.Hits() != 2 {
		t.Errorf("unregistered meanwhile: %d hits", w.Hits())
	}
	detach(t, s)
	writesTo(t, p, 7, "direct 3")
	ends(t, p)
}

// Data of a library goes with it, and its watchpoint can be registered again.
func TestWatchLibraryGoes(t *testing.T) {
	testprog.Watches.Need(t)
	var said reports
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	s := attach(t, p.Pid, &kprobe.Options{Report: said.add})
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "dlib.so:dlib_state"}, Len: 4}
	ok(t, s.RegisterWatchpoint(w)) // waits
	p.Round("open")
	p.Round("call 20")
	settle(t, s)
	if l := s.List(); w.Hits() == 0 || len(l) != 1 || l[0].Kind != 'w' || l[0].Gone || l[0].Module == "" {
		t.Errorf("%d hits, the list is %v", w.Hits(), l)
	}
	p.Round("close")
	testprog.Until(t, "it is gone", p.Pid, func() bool { l := s.List(); return len(l) == 1 && l[0].Gone && l[0].Addr != 0 })
	if r := said.take(); len(r) != 1 {
		t.Errorf("reported: %v", r)
	}
	ok(t, s.UnregisterWatchpoint(w))
	if w.Kp.Addr != 0 {
		t.Errorf("its address is %v", w.Kp.Addr)
	}
	p.Round("open")
	ok(t, s.RegisterWatchpoint(w))
	p.Round("call 20")
	settle(t, s)
	if w.Hits() == 0 {
		t.Error("no hits after the library came again")
	}
	ok(t, s.UnregisterWatchpoint(w))
	ends(t, p)
}

// Watchpoints come and go while threads write all the time: none of them is hurt.
func TestWatchUnderLoad(t *testing.T) {
	testprog.Watches.Need(t)
	const threads, n = 8, 3000
	p, s := watched(t, nil, fmt.Sprint(threads))
	p.Send(fmt.Sprint(n))
	until := make(chan string)
	go func() { until <- p.Expect("counter") }()
	for batches := 0; ; batches++ {
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8}
		kp := &kprobe.Kprobe{SymbolName: "writer1"}
		ok(t, s.Register(w, kp))
		ok(t, s.Unregister(kp, w))
		if batches%8 == 7 {
			detach(t, s)
			s = attach(t, p.Pid, nil)
		}
		select {
		case got := <-until:
			if want := counts(threads/4*n*10 + 5*(n/10+1)); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			ends(t, p)
			return
		default:
		}
	}
}

// A controller that dies leaves debug registers set. The target lives, and the
// guardian, or who recovers later, clears them: after that SIGTRAP's action is the
// program's own again, and would kill it at the next access.
func TestWatchKilledController(t *testing.T) {
	testprog.Watches.Need(t)
	for range 10 {
		p := testprog.Start(t, testprog.Build(t, "watched", "-O2"), "8")
		c := controller(t, p.Pid, "watch!counter", "writer1")
		p.Send("300")
		c.Process.Kill()
		c.Wait()
		if got, want := p.Expect("counter"), counts(2*300*10+5*31); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		p.Expect("done")
		restored(t, p.Pid)
		writesTo(t, p, 2*(2*300*10+5*31), "300")
		if catchesTraps(t, p.Pid) {
			t.Error("our handler is still there")
		}
		ends(t, p)
	}
}

func catchesTraps(t testing.TB, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	ok(t, err)
	_, caught, _ := strings.Cut(string(b), "SigCgt:\t")
	var mask uint64
	_, err = fmt.Sscanf(caught, "%x", &mask)
	ok(t, err)
	return mask&(1<<(syscall.SIGTRAP-1)) != 0
}

// churn has a controller place and remove watchpoints until it is killed.
func churn(s *kprobe.Session, data string) error {
	for {
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: data}, Len: 8}
		kp := &kprobe.Kprobe{SymbolName: "writer1"}
		if err := errors.Join(s.Register(w, kp), s.Unregister(kp, w)); err != nil {
			return err
		}
	}
}

// Killed at any moment of a batch, too.
func TestWatchKilledInABatch(t *testing.T) {
	testprog.Watches.Need(t)
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	const n = 2000
	p := testprog.Start(t, testprog.Build(t, "watched", "-O2"), "8")
	for i := range rounds {
		p.Send(fmt.Sprint(n))
		c := controller(t, p.Pid, "churn!counter")
		time.Sleep(time.Duration(i*997) * time.Microsecond)
		c.Process.Kill()
		c.Wait()
		if got, want := p.Expect("counter"), counts((i+1)*(2*n*10+5*(n/10+1))); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		p.Expect("done")
		restored(t, p.Pid)
		if catchesTraps(t, p.Pid) {
			t.Error("our handler is still there")
		}
	}
	ends(t, p)
}
