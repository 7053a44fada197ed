package conform

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// busy has threads in one function all the time, until its input ends.
const busy = `
#include <pthread.h>
volatile long counter;
PROBED long work(long a, long b) { counter = a; BARRIER(); return a + b; }
static void *run(void *arg)
{
	for (long i = 0;; i++)
		if (work(i, 7) != i + 7)
			abort();
	return arg;
}
int main(void)
{
	while (next()) {
		pthread_t t;
		for (int i = atoi(line); i > 0; i--)
			pthread_create(&t, 0, run, 0);
	}
	return 0;
}
`

func startBusy(t *testing.T, threads int) *testprog.Proc {
	p := testprog.Start(t, harness.Compile(t, "busy", busy))
	p.Round("%d", threads)
	return p
}

// guarded is what handlers tell of themselves.
type guarded struct{ begun, running, late atomic.Int64 }

// handle is what each handler does: take a little while, and look whether its
// probe is still registered.
func (w *guarded) handle(gone *atomic.Bool) {
	w.begun.Add(1)
	w.running.Add(1)
	for range 100 {
		if gone.Load() {
			w.late.Add(1)
		}
		runtime.Gosched()
	}
	w.running.Add(-1)
}

// When Unregister has returned, no handler runs and none begins (kprobes.txt 4.4).
func TestConformNothingRunsAfterUnregister(t *testing.T) {
	kinds := map[string]func(h func()) kprobe.Probe{
		"pre": func(h func()) kprobe.Probe {
			return &kprobe.Kprobe{SymbolName: "work", PreHandler: harness.Pre(func(*kprobe.Regs) { h() })}
		},
		"post": func(h func()) kprobe.Probe {
			return &kprobe.Kprobe{SymbolName: "work", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { h() }}
		},
		"fault": func(h func()) kprobe.Probe {
			return &kprobe.Kprobe{SymbolName: "work", PreHandler: harness.Pre(func(*kprobe.Regs) { panic("meant") }),
				FaultHandler: func(*kprobe.Kprobe, *kprobe.Regs, int) int { h(); return 1 }}
		},
		"jprobe": func(h func()) kprobe.Probe {
			return &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Entry: func(int64) { h() }}
		},
		"watch": func(h func()) kprobe.Probe {
			return &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 8, Handler: func(*kprobe.Watchpoint, *kprobe.Regs) { h() }}
		},
	}
	if !testprog.Watches.On(t) {
		delete(kinds, "watch")
	}
	for name, engine := range map[string]kprobe.Engine{"swap": kprobe.EngineSwap, "exits": kprobe.EngineExits} {
		kinds[name] = func(h func()) kprobe.Probe {
			return &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Engine: engine,
				EntryHandler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { h(); return 0 },
				Handler:      func(*kprobe.KretprobeInstance, *kprobe.Regs) int { h(); return 0 }}
		}
	}
	times := 6
	if testing.Short() {
		times = 2
	}
	for _, concurrent := range []bool{false, true} {
		t.Run(fmt.Sprintf("concurrent=%v", concurrent), func(t *testing.T) {
			p := startBusy(t, 4)
			s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: concurrent})
			for kind, make := range kinds {
				for range times {
					var w guarded
					var gone atomic.Bool
					probe := make(func() { w.handle(&gone) })
					harness.OK(t, s.Register(probe))
					testprog.Until(t, kind+" has run eight times", p.Pid, func() bool { return w.begun.Load() >= 8 })
					harness.OK(t, s.Unregister(probe))
					running := w.running.Load()
					gone.Store(true)
					harness.Settle(t, s) // what was under way has come to an end
					if running != 0 || w.late.Load() != 0 {
						t.Errorf("%s: %d handlers ran when Unregister returned, %d times one ran later", kind, running, w.late.Load())
						break
					}
				}
			}
		})
	}
}

// Nor does a program run then, and no call comes back to one: what it has written is the end of it.
func TestConformNoProgramRunsAfterUnregister(t *testing.T) {
	p := startBusy(t, 8)
	s := harness.Attach(t, p.Pid, nil)
	counts := &bpf.MapSpec{Name: "counts", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}
	ps := harness.Load(t, s, []*bpf.MapSpec{counts}, map[string]bpf.Kind{"returned": bpf.Kretprobe}, map[string]string{"entered": countCalls, "returned": countCalls})
	entered, err := ps.Program("entered")
	harness.OK(t, err)
	returned, err := ps.Program("returned")
	harness.OK(t, err)
	m, err := ps.Map("counts")
	harness.OK(t, err)
	counted := func() (n uint64) {
		for _, v := range m.All() {
			n += binary.LittleEndian.Uint64(v[0])
		}
		return n
	}
	ret := func(engine kprobe.Engine) kprobe.Probe {
		return &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Engine: engine, Program: returned}
	}
	for range 5 {
		for name, probe := range map[string]kprobe.Probe{
			"kprobe": &kprobe.Kprobe{SymbolName: "work", Program: entered},
			"swap":   ret(kprobe.EngineSwap), "exits": ret(kprobe.EngineExits),
		} {
			before := counted()
			harness.OK(t, s.Register(probe))
			testprog.Until(t, name+" has run a thousand times", p.Pid, func() bool { return counted() >= before+1000 })
			harness.OK(t, s.Unregister(probe))
			n := counted()
			testprog.Ran(t, p.Pid, 10*time.Millisecond) // threads that were in the middle of something go on
			if later := counted(); later != n {
				t.Errorf("%s: it had run %d times when Unregister returned, and %d later", name, n, later)
			}
		}
	}
}

// countCalls is a program that counts how often it runs.
const countCalls = `
	*(u32 *)(r10 -4) = 0
	r2 = r10
	r2 += -4
	r1 = map counts
	call map_lookup_elem
	if r0 == 0 goto out
	r1 = 1
	lock fetch_add *(u64 *)(r0 +0), r1
out:	r0 = 0
	exit`

// A probe is what it was until the last of its handlers has ended.
func TestConformProbeStaysWhileItsHandlerRuns(t *testing.T) {
	p := startBusy(t, 1)
	s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	in, out := make(chan bool), make(chan bool)
	var once sync.Once
	kp := &kprobe.Kprobe{SymbolName: "work"}
	kp.PreHandler = func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
		once.Do(func() {
			close(in)
			<-out
			if p.Addr != regs.PC() || !p.Registered() {
				t.Errorf("a handler of the probe at %v finds it at %v, registered: %v", regs.PC(), p.Addr, p.Registered())
			}
		})
		return 0
	}
	harness.Register(t, s, kp)
	<-in
	at := kp.Addr
	gone := make(chan error)
	go func() { gone <- s.UnregisterKprobe(kp) }()
	testprog.Until(t, "the trap is taken out", p.Pid, func() bool { return harness.RawMem(t, p.Pid, at, 1)[0] != arch.AMD64.Break[0] })
	testprog.Blocked(t, "UnregisterKprobe")
	close(out)
	harness.OK(t, <-gone)
	if kp.Addr != 0 || kp.PlacedAt() != 0 || kp.Registered() {
		t.Errorf("afterwards it is at %v and %v", kp.Addr, kp.PlacedAt())
	}
}

// A session has nothing to do with another one's probe.
func TestConformUnregisterOfAnothersProbe(t *testing.T) {
	one, two := startBusy(t, 0), startBusy(t, 0)
	s, other := harness.Attach(t, one.Pid, nil), harness.Attach(t, two.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "work", PreHandler: harness.Pre(func(*kprobe.Regs) {})}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}}
	harness.OK(t, s.Register(kp, rp))
	at := kp.Addr
	harness.Errno(t, other.UnregisterKprobe(kp), syscall.EINVAL)
	harness.Errno(t, other.UnregisterKretprobe(rp), syscall.EINVAL)
	if at == 0 || kp.Addr != at || kp.PlacedAt() != at || rp.Kp.Addr != at || rp.Kp.PlacedAt() != at || !kp.Registered() || !rp.Kp.Registered() {
		t.Errorf("they were at %v, and are at %v and %v", at, kp.Addr, rp.Kp.Addr)
	}
	harness.OK(t, s.Unregister(kp, rp))
	stray := &kprobe.Kprobe{Addr: at}
	harness.Errno(t, s.UnregisterKprobe(stray), syscall.EINVAL)
	if stray.Addr != 0 {
		t.Errorf("a probe that is registered nowhere keeps %v", stray.Addr)
	}
}

// Of goroutines that register one probe at once, one has it, and has all of it.
func TestConformOneProbeRegisteredTwiceAtOnce(t *testing.T) {
	p := startBusy(t, 1)
	s := harness.Attach(t, p.Pid, nil)
	for range 30 {
		var hits atomic.Int64
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}}
		rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { hits.Add(1); return 0 }
		var won atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				switch err := s.RegisterKretprobe(rp); {
				case err == nil:
					won.Add(1)
				case !hasErrno(err, syscall.EINVAL):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d have it", won.Load())
		}
		testprog.Until(t, "it was hit", p.Pid, func() bool { return hits.Load() != 0 })
		harness.OK(t, s.UnregisterKretprobe(rp))
	}
}

// An entry handler that panics leaves its call unwatched, and gives its instance back.
func TestConformEntryHandlerPanics(t *testing.T) {
	for name, engine := range map[string]kprobe.Engine{"swap": kprobe.EngineSwap, "exits": kprobe.EngineExits} {
		t.Run(name, func(t *testing.T) {
			p := testprog.Start(t, harness.Compile(t, "calls", `
PROBED long work(long a) { BARRIER(); return a + 1; }
int main(void)
{
	while (next())
		for (long i = 0; i < 20; i++)
			if (work(i) != i + 1)
				abort();
	return 0;
}
`))
			s := harness.Attach(t, p.Pid, &kprobe.Options{Report: func(error) {}})
			entries, faults, returned := 0, 0, 0
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Engine: engine, MaxActive: 3}
			rp.EntryHandler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int {
				if entries++; entries <= 12 {
					faults++
					panic("meant")
				}
				return 0
			}
			rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { returned++; return 0 }
			harness.OK(t, s.RegisterKretprobe(rp))
			harness.Round(t, s, p, "")
			if entries != 20 || faults != 12 || returned != 8 || rp.Hits() != 8 || rp.NMissed() != 12 {
				t.Errorf("%d entered, %d of them panicked, %d returned (%d told), %d missed", entries, faults, returned, rp.Hits(), rp.NMissed())
			}
			harness.Ends(t, p)
		})
	}
}

// Calls that were left by longjmp are over when the probe goes, and in a count.
func TestConformEndedCallsAreCounted(t *testing.T) {
	for name, engine := range map[string]kprobe.Engine{"swap": kprobe.EngineSwap, "exits": kprobe.EngineExits} {
		t.Run(name, func(t *testing.T) {
			p := testprog.Start(t, harness.Compile(t, "jumps", `
#include <setjmp.h>
static jmp_buf out;
PROBED long work(long a) { if (a < 50) work(a + 1); longjmp(out, 1); return a; }
int main(void)
{
	while (next())
		for (volatile int i = 0; i < 3; i++)
			if (!setjmp(out))
				work(0);
	return 0;
}
`, "-O1"))
			s := harness.Attach(t, p.Pid, nil)
			entries := 0
			rp := counting("work", 1000, &entries)
			rp.Engine = engine
			harness.OK(t, s.RegisterKretprobe(rp))
			harness.Round(t, s, p, "")
			harness.OK(t, s.UnregisterKretprobe(rp))
			if entries != 153 || rp.Hits() != 0 || rp.NMissed() != 0 || rp.Abandoned()+rp.Lost().Unregistered != 153 || rp.Abandoned() < 100 {
				t.Errorf("%d entered, %d returned, %d missed, lost %+v", entries, rp.Hits(), rp.NMissed(), rp.Lost())
			}
			harness.Ends(t, p)
		})
	}
}
