package conform

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
	"kprobe/test/harness"
)

func watched(t testing.TB, o *kprobe.Options, args ...string) (*testprog.Proc, *kprobe.Session) {
	t.Helper()
	p := testprog.Start(t, testprog.Build(t, "watched", "-O2"), args...)
	return p, harness.Attach(t, p.Pid, o)
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
		loc, _ := s.Symbols().At(regs.PC())
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
		harness.OK(t, s.RegisterWatchpoint(w))
		sum := threads/4*n*(1+2+3+4) + 5*(n/10+1)
		writesTo(t, p, sum, fmt.Sprint(n))
		harness.OK(t, s.UnregisterWatchpoint(w))
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
		harness.Ends(t, p)
	}
}

func TestWatchReadsAndWrites(t *testing.T) {
	testprog.Watches.Need(t)
	p, s := watched(t, nil)
	writes := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	both := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8}
	upper := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter", Offset: 7}, Len: 1}
	other := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "other"}, Len: 4}
	harness.OK(t, s.Register(writes, both, upper, other))
	hits := func(w, b uint64) {
		t.Helper()
		harness.Settle(t, s)
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
	harness.Settle(t, s)
	kernel := writes.Hits() - 10
	if kernel > 1 {
		t.Errorf("%d writes for one", kernel)
	}
	hits(10+kernel, 33+2+kernel)
	// A child of fork has memory of its own, and is not watched.
	writesTo(t, p, 11, "fork 5")
	hits(10+kernel, 35+1+kernel)
	harness.OK(t, s.Close())
	writesTo(t, p, 16, "direct 5")
	harness.Ends(t, p)
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
				harness.OK(t, err)
				size := uint64(0)
				w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
				w.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
					if regs.PC() != at.Addr+arch.Addr(size) {
						wrong.Store(regs.PC())
					}
				}
				size = at.Size - 1 // what is before the ret
				write := &kprobe.Kprobe{SymbolName: "direct_write", PreHandler: nothing, PostHandler: post}
				behind := &kprobe.Kprobe{SymbolName: "direct_write", Offset: size, PreHandler: nothing}
				harness.OK(t, s.Register(write, w))
				writesTo(t, p, n, fmt.Sprint("direct ", n))
				harness.Register(t, s, behind)
				writesTo(t, p, 2*n, fmt.Sprint("direct ", n))
				harness.OK(t, s.UnregisterKprobe(write))
				writesTo(t, p, 3*n, fmt.Sprint("direct ", n))
				harness.Settle(t, s)
				if w.Hits() != 3*n || write.Hits() != 2*n || behind.Hits() != 2*n || wrong.Load() != nil {
					t.Errorf("%d writes, %d and %d hits, PC %v", w.Hits(), write.Hits(), behind.Hits(), wrong.Load())
				}

				// A repeated instruction fires several times, and is one.
				repeat := &kprobe.Kprobe{SymbolName: "direct_repeat", PreHandler: nothing, PostHandler: post}
				at, err = s.Lookup("direct_repeat")
				harness.OK(t, err)
				in := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "block", Offset: 32}, Len: 8, Access: kprobe.Write}
				in.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
					if pc := regs.PC(); pc != at.Addr && pc != at.Addr+2 {
						wrong.Store(regs.PC())
					}
				}
				harness.OK(t, s.Register(in))
				p.Round("repeat %d", n)
				bare := in.Hits()
				harness.Register(t, s, repeat)
				p.Round("repeat %d", n)
				harness.Settle(t, s)
				if bare < n || in.Hits() != 2*bare || repeat.Hits() != n || wrong.Load() != nil {
					t.Errorf("%d writes unprobed, %d in all, %d hits, PC %v", bare, in.Hits(), repeat.Hits(), wrong.Load())
				}
				harness.Ends(t, p)
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
	find := &kprobe.Kprobe{SymbolName: "caller", PreHandler: harness.Pre(func(regs *kprobe.Regs) { sp = regs.SP() })}
	harness.Register(t, s, find)
	p.Round("calls 1")
	harness.OK(t, s.UnregisterKprobe(find))
	leaf, err := s.Lookup("leaf")
	harness.OK(t, err)
	caller, err := s.Lookup("caller")
	harness.OK(t, err)
	for name, kp := range map[string]*kprobe.Kprobe{
		"alone": nil,
		"pre":   {SymbolName: "caller"},
		"post":  {SymbolName: "caller", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}},
	} {
		calls, returns := 0, 0
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{Addr: sp - 8}, Len: 8}
		w.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) {
			at := regs.PC()
			if at == caller.Addr+5 {
				returns++
			}
			if kp != nil && at == kp.Addr {
				at = leaf.Addr // half-way in the slot
			}
			if at == leaf.Addr {
				calls++
			}
		}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "leaf"}, Engine: kprobe.EngineSwap}
		harness.OK(t, s.RegisterWatchpoint(w))
		if kp != nil {
			harness.OK(t, s.Register(kp, rp))
		}
		p.Round("calls %d", n)
		harness.OK(t, s.UnregisterWatchpoint(w))
		if kp != nil {
			harness.OK(t, s.Unregister(kp, rp))
		}
		if calls != n || returns != n {
			t.Errorf("%s: %d stores and %d loads of a return address, %d calls", name, calls, returns, n)
		}
	}
	harness.Ends(t, p)
}

// What a probe's program does is not the program's, what runs under its jump is.
func TestWatchWithPrograms(t *testing.T) {
	testprog.Watches.Need(t)
	const n = 30
	p, s := watched(t, nil)
	counter, err := s.Symbols().Resolve(symbol.Query{Symbol: "counter", Kind: symbol.Data})
	harness.OK(t, err)
	ps := harness.Load(t, s, nil, nil, map[string]string{"reads": fmt.Sprintf(`
		r1 = r10
		r1 += -8
		r2 = 8
		r3 = %d ll
		call probe_read_user
		r0 = 0
		exit`, counter[0].Addr)})
	reads, err := ps.Program("reads")
	harness.OK(t, err)
	write := &kprobe.Kprobe{SymbolName: "direct_write", Program: reads}
	repeat := &kprobe.Kprobe{SymbolName: "direct_repeat", Program: reads}
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8}
	in := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "block", Offset: 32}, Len: 8, Access: kprobe.Write}
	var at places
	w.Handler = at.handler(s)
	harness.Register(t, s, write, repeat)
	harness.OK(t, s.Register(w, in))
	for _, optimize := range []bool{false, true} {
		harness.OK(t, s.SetOptimization(optimize))
		if optimize {
			s.WaitOptimized()
		}
		p.Round("direct %d", n)
		p.Round("repeat %d", n)
	}
	harness.OK(t, s.Unregister(w, in))
	delete(at.n, "main") // which prints the counter
	if fmt.Sprint(at.n) != fmt.Sprint(map[string]int{"direct_write": 2 * n}) || in.Hits() < 2*n {
		t.Errorf("accesses by function: %v, %d of block", at.n, in.Hits())
	}
	if write.Hits() != 2*n || repeat.Hits() != 2*n {
		t.Errorf("%d and %d hits", write.Hits(), repeat.Hits())
	}
	harness.Ends(t, p)
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
		harness.Errno(t, err, tt.want)
		if e := s.Plan(w); e.Verdict != kprobe.VerdictRefuse {
			t.Errorf("planned: %v, refused: %v", e, err)
		}
	}
	program := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter", Program: kprobe.CountOnly}, Len: 8}
	harness.Errno(t, s.RegisterWatchpoint(program), syscall.EINVAL)
	var ws []kprobe.Probe
	for i := range 5 {
		ws = append(ws, &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "block", Offset: uint64(8 * i)}, Len: 8})
	}
	kp := &kprobe.Kprobe{SymbolName: "direct_write"}
	err := s.Register(append(ws, kp)...)
	harness.Errno(t, err, syscall.ENOSPC)
	var b *kprobe.BatchError
	if !errors.As(err, &b) || b.Index != 4 {
		t.Errorf("not the fifth: %v", err)
	}
	if l := s.List(); len(l) != 0 {
		t.Errorf("after a refused batch: %v", l)
	}
	harness.OK(t, s.Register(append(ws[:4:4], kp)...))
	harness.Errno(t, s.RegisterWatchpoint(ws[0].(*kprobe.Watchpoint)), syscall.EINVAL)
	harness.Errno(t, s.Register(ws[4]), syscall.ENOSPC)
	harness.OK(t, s.Unregister(ws[1]))
	harness.OK(t, s.Register(ws[4]))
	p.Round("repeat 1")
	harness.Settle(t, s)
	for i, w := range ws {
		if hits := w.(*kprobe.Watchpoint).Hits(); (hits > 0) != (i != 1) {
			t.Errorf("watchpoint %d: %d hits", i, hits)
		}
	}
	harness.OK(t, s.Unregister(append(ws, kp)...))
	harness.Ends(t, p)
}

func TestWatchListEnableDisable(t *testing.T) {
	testprog.Watches.Need(t)
	var said reports
	p, s := watched(t, &kprobe.Options{Report: said.add})
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	w.Handler = func(w *kprobe.Watchpoint, regs *kprobe.Regs) {
		harness.Errno(t, s.UnregisterWatchpoint(w), syscall.EDEADLK)
		panic("a mistake")
	}
	if e := s.Plan(w); e.Verdict != kprobe.VerdictWatch || !strings.HasSuffix(e.String(), "watch  debug register  (8 bytes, w)") {
		t.Errorf("planned: %v", e)
	}
	harness.OK(t, s.RegisterWatchpoint(w))
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
		harness.Settle(t, s)
		if got := int(w.Hits()) - hits; got != seen || w.NMissed() != w.Hits() {
			t.Errorf("%d hits, want %d; %d missed of %d", got, seen, w.NMissed(), w.Hits())
		}
	}
	listed("")
	write(3)
	harness.OK(t, s.DisableWatchpoint(w))
	listed("[DISABLED]")
	write(0)
	harness.OK(t, s.SetEnabled(false))
	harness.OK(t, s.EnableWatchpoint(w))
	write(0)
	harness.OK(t, s.SetEnabled(true))
	listed("")
	write(3)
	harness.OK(t, s.UnregisterWatchpoint(w))
	if w.Kp.Addr != 0 || w.Kp.Registered() || len(s.List()) != 0 {
		t.Errorf("unregistered: %+v, %v", &w.Kp, s.List())
	}
	write(0)
	w.Kp.Flags = kprobe.FlagDisabled
	harness.OK(t, s.RegisterWatchpoint(w))
	listed("[DISABLED]")
	n += 3
	writesTo(t, p, n, "direct 3")
	if w.Hits() != 0 {
		t.Errorf("registered disabled: %d hits", w.Hits())
	}
	if r := said.take(); len(r) != 6 {
		t.Errorf("reported: %v", r)
	}
	harness.Ends(t, p)
}

// After an exec a watchpoint by name watches the new program's variable, one by
// address is gone.
func TestWatchExec(t *testing.T) {
	testprog.Watches.Need(t)
	var said reports
	p, s := watched(t, &kprobe.Options{Report: said.add})
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	harness.OK(t, s.RegisterWatchpoint(w))
	byAddr := &kprobe.Watchpoint{Kp: kprobe.Kprobe{Addr: w.Kp.Addr}, Len: 8, Access: kprobe.Write}
	harness.OK(t, s.RegisterWatchpoint(byAddr))
	writesTo(t, p, 3, "direct 3")
	p.Send("exec")
	p.Expect("ready")
	writesTo(t, p, 4, "direct 4")
	harness.Settle(t, s)
	if w.Hits() != 7 || byAddr.Hits() != 3 {
		t.Errorf("%d hits by name, %d by address", w.Hits(), byAddr.Hits())
	}
	if l := s.List(); len(l) != 2 || l[0].Gone == l[1].Gone {
		t.Errorf("the list is %v", l)
	}
	harness.OK(t, s.Close())
	if r := said.take(); len(r) != 0 {
		t.Errorf("reported: %v", r)
	}
	writesTo(t, p, 5, "direct 1")
	harness.Ends(t, p)
}

// A thread that waits for its vfork child cannot be stopped. It is watched all the
// same, from when it goes on; and so is the child, which runs in its memory.
func TestWatchVfork(t *testing.T) {
	testprog.Watches.Need(t)
	p, s := watched(t, nil)
	other, err := s.Symbols().Resolve(symbol.Query{Symbol: "other", Kind: symbol.Data})
	harness.OK(t, err)
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
		writeRaw(t, p.Pid, other[0].Addr, []byte{1})
		if got := p.Expect("counter"); got != counts(sum) {
			t.Errorf("%q, want %d", got, sum)
		}
		p.Expect("done")
		harness.Settle(t, s)
	}
	stuck()
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Access: kprobe.Write}
	harness.OK(t, s.RegisterWatchpoint(w))
	goOn(2)
	if w.Hits() != 2 {
		t.Errorf("%d hits, of a child and its parent", w.Hits())
	}
	stuck()
	harness.OK(t, s.UnregisterWatchpoint(w))
	goOn(4)
	if w.Hits() != 2 {
		t.Errorf("unregistered meanwhile: %d hits", w.Hits())
	}
	harness.Detach(t, s)
	writesTo(t, p, 7, "direct 3")
	harness.Ends(t, p)
}

// Data of a library goes with it, and its watchpoint can be registered again.
func TestWatchLibraryGoes(t *testing.T) {
	testprog.Watches.Need(t)
	var said reports
	lib := testprog.Build(t, "dlib", "-shared", "-fPIC", "-O2")
	p := testprog.Start(t, testprog.Build(t, "dl", "-O2"), lib)
	s := harness.Attach(t, p.Pid, &kprobe.Options{Report: said.add})
	w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "dlib.so:dlib_state"}, Len: 4}
	harness.OK(t, s.RegisterWatchpoint(w)) // waits
	p.Round("open")
	p.Round("call 20")
	harness.Settle(t, s)
	if l := s.List(); w.Hits() == 0 || len(l) != 1 || l[0].Kind != 'w' || l[0].Gone || l[0].Module == "" {
		t.Errorf("%d hits, the list is %v", w.Hits(), l)
	}
	p.Round("close")
	testprog.Until(t, "it is gone", p.Pid, func() bool { l := s.List(); return len(l) == 1 && l[0].Gone && l[0].Addr != 0 })
	if r := said.take(); len(r) != 1 {
		t.Errorf("reported: %v", r)
	}
	harness.OK(t, s.UnregisterWatchpoint(w))
	if w.Kp.Addr != 0 {
		t.Errorf("its address is %v", w.Kp.Addr)
	}
	p.Round("open")
	harness.OK(t, s.RegisterWatchpoint(w))
	p.Round("call 20")
	harness.Settle(t, s)
	if w.Hits() == 0 {
		t.Error("no hits after the library came again")
	}
	harness.OK(t, s.UnregisterWatchpoint(w))
	harness.Ends(t, p)
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
		harness.OK(t, s.Register(w, kp))
		harness.OK(t, s.Unregister(kp, w))
		if batches%8 == 7 {
			harness.Detach(t, s)
			s = harness.Attach(t, p.Pid, nil)
		}
		select {
		case got := <-until:
			if want := counts(threads/4*n*10 + 5*(n/10+1)); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			harness.Ends(t, p)
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
		c := harness.Controller(t, p.Pid, "watch!counter", "writer1")
		p.Send("300")
		c.Process.Kill()
		c.Wait()
		if got, want := p.Expect("counter"), counts(2*300*10+5*31); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		p.Expect("done")
		harness.Restored(t, p.Pid)
		writesTo(t, p, 2*(2*300*10+5*31), "300")
		if catchesTraps(t, p.Pid) {
			t.Error("our handler is still there")
		}
		harness.Ends(t, p)
	}
}

func catchesTraps(t testing.TB, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	harness.OK(t, err)
	_, caught, _ := strings.Cut(string(b), "SigCgt:\t")
	var mask uint64
	_, err = fmt.Sscanf(caught, "%x", &mask)
	harness.OK(t, err)
	return mask&(1<<(syscall.SIGTRAP-1)) != 0
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
		c := harness.Controller(t, p.Pid, "churn!counter")
		time.Sleep(time.Duration(i*997) * time.Microsecond)
		c.Process.Kill()
		c.Wait()
		if got, want := p.Expect("counter"), counts((i+1)*(2*n*10+5*(n/10+1))); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		p.Expect("done")
		harness.Restored(t, p.Pid)
		if catchesTraps(t, p.Pid) {
			t.Error("our handler is still there")
		}
	}
	harness.Ends(t, p)
}
