package inside

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// mixed calls functions in every way that a return probe has to tell apart, on several
// threads, and knows what they must answer.
const mixed = `
#include <pthread.h>
#include <setjmp.h>
#include <execinfo.h>
PROBED long work(long a, long b) { BARRIER(); return a + b; }
PROBED long ends(long a) { BARRIER(); return a * 3; }
PROBED long tail(long a) { BARRIER(); return ends(a + 1); }
PROBED long deep(long n) { BARRIER(); long r = n ? deep(n - 1) + 1 : 0; BARRIER(); return r; }
static __thread jmp_buf out;
PROBED long jumps(long n) { BARRIER(); if (n) { long r = jumps(n - 1); BARRIER(); return r; } longjmp(out, 1); }
PROBED long walks(long a) { void *at[8]; int n = backtrace(at, 8); BARRIER(); return n > 2 ? a + 5 : -1; }
static long rounds;
static int with;
static void check(long got, long want) { if (got != want) abort(); }
static void *run(void *arg)
{
	for (long i = 0; i < rounds; i++) {
		check(work(i, 7), i + 7);
		if (with & 1) {
			check(tail(i), 3 * i + 3);
			check(deep(i % 9), i % 9);
		}
		if (with & 2) {
			if (!setjmp(out))
				jumps(i % 4);
			check(work(i, 9), i + 9);
		}
		if (with & 4 && i % 16 == 0)
			check(walks(i), i + 5);
	}
	return arg;
}
int main(void)
{
	while (next()) {
		pthread_t t[16];
		int n;
		if (sscanf(line, "%d %ld %d", &n, &rounds, &with) != 3)
			return 1;
		for (int i = 0; i < n; i++)
			pthread_create(&t[i], 0, run, 0);
		for (int i = 0; i < n; i++)
			pthread_join(t[i], 0);
	}
	return 0;
}
`

// kept is a return probe that keeps account of itself.
type kept struct {
	kprobe.Kretprobe
	entered, returned, foreign atomic.Int64
}

// newKept makes one with handlers, or with programs that count; text is where all callers are.
func newKept(name string, engine kprobe.Engine, most int, program bool, text arch.Addr) *kept {
	k := &kept{Kretprobe: kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: engine, MaxActive: most}}
	if program {
		k.Program = kprobe.CountOnly
		return k
	}
	theirs := func(a arch.Addr) bool { return a-text < 1<<20 }
	k.EntryHandler = func(ri *kprobe.KretprobeInstance, _ *kprobe.Regs) int {
		k.entered.Add(1)
		if !theirs(ri.RetAddr) {
			k.foreign.Add(1)
		}
		return 0
	}
	k.Handler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		k.returned.Add(1)
		if !theirs(ri.RetAddr) || regs.PC() != ri.RetAddr {
			k.foreign.Add(1)
		}
		return 0
	}
	return k
}

// whole holds a probe that was unregistered to an account of every call.
func (k *kept) whole(t *testing.T, what string) {
	t.Helper()
	lost := k.Lost()
	if k.Program == nil && (uint64(k.entered.Load()) != k.Hits()+k.Abandoned()+lost.Unregistered || uint64(k.returned.Load()) != k.Hits()) {
		t.Errorf("%s: %d entered, %d returned (%d told), %d missed, lost %+v", what, k.entered.Load(), k.returned.Load(), k.Hits(), k.NMissed(), lost)
	}
	if n := k.foreign.Load(); n > 0 {
		t.Errorf("%s: %d times a return address or the PC was none of the program's", what, n)
	}
}

func startMixed(t *testing.T) (*testprog.Proc, arch.Addr) {
	path := harness.Compile(t, "mixed", mixed)
	p := testprog.Start(t, path)
	p.Round("1 1 0")
	ms, err := testprog.Mappings(p.Pid)
	harness.OK(t, err)
	for _, m := range ms {
		if m.Path == path {
			return p, arch.Addr(m.Start)
		}
	}
	t.Fatal("no text")
	return nil, 0
}

// Two return probes on one function, of whatever engines, in whatever order and with
// however few instances, each sees every call: it is reported, or missed.
func TestReturnsOfTwoProbes(t *testing.T) {
	kinds := []struct {
		name    string
		engine  kprobe.Engine
		program bool
	}{
		{"swap", kprobe.EngineSwap, false}, {"exits", kprobe.EngineExits, false},
		{"swap program", kprobe.EngineSwap, true}, {"exits program", kprobe.EngineExits, true},
	}
	const threads = 6
	rounds := uint64(400)
	if testing.Short() {
		rounds = 20
	}
	for i, first := range kinds {
		for j, second := range kinds {
			maxima := []int{2, 100}
			if testing.Short() {
				maxima = maxima[(i+j)%2:][:1]
			}
			for _, most := range maxima {
				name := fmt.Sprintf("%s then %s, %d", first.name, second.name, most)
				t.Run(name, func(t *testing.T) {
					p, text := startMixed(t)
					s := harness.Attach(t, p.Pid, nil)
					a := newKept("work", first.engine, most, first.program, text)
					b := newKept("work", second.engine, most, second.program, text)
					harness.OK(t, s.RegisterKretprobe(&a.Kretprobe))
					harness.OK(t, s.RegisterKretprobe(&b.Kretprobe))
					harness.Round(t, s, p, "%d %d 0", threads, rounds)
					harness.OK(t, s.Unregister(&a.Kretprobe, &b.Kretprobe))
					for i, k := range []*kept{a, b} {
						what := []string{first.name, second.name}[i]
						k.whole(t, what)
						if k.Hits()+k.NMissed() != threads*rounds || most == 100 && k.NMissed() > 0 {
							t.Errorf("%s: %d returned, %d missed, lost %+v, of %d", what, k.Hits(), k.NMissed(), k.Lost(), threads*rounds)
						}
					}
					harness.Ends(t, p)
				})
			}
		}
	}
}

// Each of two programs on one function has as many calls at a time as it asks for.
func TestReturnsOfTwoProgramsWithMaximaOfTheirOwn(t *testing.T) {
	p, text := startMixed(t)
	s := harness.Attach(t, p.Pid, nil)
	few, many := newKept("deep", kprobe.EngineAuto, 1, true, text), newKept("deep", kprobe.EngineAuto, 100, true, text)
	harness.OK(t, s.Register(&few.Kretprobe, &many.Kretprobe))
	const rounds = 90
	harness.Round(t, s, p, "1 %d 1", rounds)
	harness.OK(t, s.Unregister(&few.Kretprobe, &many.Kretprobe))
	calls := uint64(rounds / 9 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9))
	if few.Hits() != rounds || few.NMissed() != calls-rounds || many.Hits() != calls || many.NMissed() != 0 {
		t.Errorf("one has %d returns and %d missed of %d at depth 0, the other %d and %d of %d", few.Hits(), few.NMissed(), rounds, many.Hits(), many.NMissed(), calls)
	}
	harness.Errno(t, s.Register(newKept("deep", kprobe.EngineSwap, 1, true, text), newKept("deep", kprobe.EngineSwap, 2, true, text)), syscall.ENOTSUP)
	harness.Ends(t, p)
}

// Probes of every kind come, go, and are switched at random beside calls of every kind:
// no call is lost, none comes back to an address that nobody knows.
func TestReturnsAtRandom(t *testing.T) {
	for _, concurrent := range []bool{false, true} {
		t.Run(fmt.Sprintf("concurrent=%v", concurrent), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(testprog.Soak(t, 0))))
			p, text := startMixed(t)
			s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: concurrent, Report: func(err error) { t.Errorf("reported: %v", err) }})
			rounds := 1500
			if testing.Short() {
				rounds = 300
			}
			if concurrent {
				rounds /= 10 // a hit costs much more
			}
			names := []string{"work", "ends", "tail", "deep", "jumps", "walks"}
			var live []*kept
			random := func() *kept {
				engine := []kprobe.Engine{kprobe.EngineAuto, kprobe.EngineSwap, kprobe.EngineExits}[r.IntN(3)]
				name := names[r.IntN(len(names))]
				return newKept(name, engine, []int{1, 2, 5, 100}[r.IntN(4)], r.IntN(3) == 0, text)
			}
			turns := 4
			if testing.Short() {
				turns = 2
			}
			for range turns {
				p.Send("6 %d 7", rounds)
				for range 60 {
					switch n := len(live); {
					case n < 2 || n < 9 && r.IntN(2) == 0:
						k := random()
						harness.OK(t, s.RegisterKretprobe(&k.Kretprobe))
						live = append(live, k)
					case r.IntN(3) == 0:
						harness.OK(t, s.DisableKretprobe(&live[r.IntN(n)].Kretprobe))
					case r.IntN(3) == 0:
						harness.OK(t, s.EnableKretprobe(&live[r.IntN(n)].Kretprobe))
					default:
						i := r.IntN(n)
						k := live[i]
						live = append(live[:i], live[i+1:]...)
						harness.OK(t, s.UnregisterKretprobe(&k.Kretprobe))
						k.whole(t, fmt.Sprintf("%s, engine %d", k.Kp.SymbolName, k.Engine))
						if n := k.Abandoned(); n > 0 && k.Kp.SymbolName != "jumps" {
							t.Errorf("%s, engine %d, program %v, at most %d: %d calls were given up, and all return: %+v, %d returned", k.Kp.SymbolName, k.Engine, k.Program != nil, k.MaxActive, n, k.Lost(), k.Hits())
						}
					}
				}
				p.Expect("done")
			}
			for _, k := range live {
				harness.OK(t, s.UnregisterKretprobe(&k.Kretprobe))
				k.whole(t, k.Kp.SymbolName)
			}
			harness.Ends(t, p)
		})
	}
}

// A return probe that is switched off and on, alone or with all others, while handlers of its run aside loses the calls whose
// returns nobody could see as such: none is taken for one that never returned.
func TestReturnsSwitchedBesideHandlers(t *testing.T) {
	for _, engine := range []kprobe.Engine{kprobe.EngineSwap, kprobe.EngineExits} {
		t.Run(fmt.Sprintf("engine=%d", engine), func(t *testing.T) {
			p, text := startMixed(t)
			s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: true, Report: func(err error) { t.Errorf("reported: %v", err) }})
			k := newKept("work", engine, 100, false, text)
			harness.OK(t, s.RegisterKretprobe(&k.Kretprobe))
			p.Send("6 400 0")
			for i := range 60 {
				if i%2 == 0 {
					harness.OK(t, s.DisableKretprobe(&k.Kretprobe))
					harness.OK(t, s.EnableKretprobe(&k.Kretprobe))
				} else {
					harness.OK(t, s.SetEnabled(false))
					harness.OK(t, s.SetEnabled(true))
				}
			}
			p.Expect("done")
			harness.OK(t, s.UnregisterKretprobe(&k.Kretprobe))
			k.whole(t, "work")
			if n := k.Abandoned(); n > 0 {
				t.Errorf("%d calls were given up, and all return: %+v, %d returned", n, k.Lost(), k.Hits())
			}
			harness.Ends(t, p)
		})
	}
}
