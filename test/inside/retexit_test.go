package inside

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
	"kprobe/trace"
)

// functionsOf lists the functions of a program whose names begin so.
func functionsOf(t testing.TB, path string, prefixes ...string) []string {
	t.Helper()
	var names []string
	for _, f := range harness.OpenELF(t, path).Funcs() {
		if f.Size > 0 && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.Name, p) }) &&
			!strings.Contains(f.Name, ".cold") && !strings.HasSuffix(f.Name, "@plt") {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// counted is a return probe that keeps its own books.
type counted struct {
	kprobe.Kretprobe
	entries, returns, tails tally
	sum                     tally // of the results
}

// tally is counted on one thread and read on another.
type tally struct{ v atomic.Int64 }

func (t *tally) add(n int) { t.v.Add(int64(n)) }
func (t *tally) n() int    { return int(t.v.Load()) }

func newCounted(t testing.TB, name string, engine kprobe.Engine) *counted {
	c := &counted{Kretprobe: kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: engine, MaxActive: 1 << 16, DataSize: 8}}
	c.EntryHandler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		c.entries.add(1)
		if sp := uint64(regs.SP()); ri.Data[0] != 0 {
			t.Errorf("%s: private data of an earlier call at %#x", name, sp)
		}
		ri.Data[0] = 1
		return 0
	}
	c.Handler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		if regs.PC() != ri.RetAddr || ri.Data[0] != 1 {
			t.Errorf("%s: the PC is %v, the return address %v, private data %v", name, regs.PC(), ri.RetAddr, ri.Data)
		}
		c.returns.add(1)
		if ri.Tail {
			c.tails.add(1)
		} else {
			c.sum.add(int(regs.ReturnValue()))
		}
		return 0
	}
	return c
}

// counts is what both engines must agree on.
func (c *counted) counts() string {
	return fmt.Sprintf("%d entries, %d returns, %d missed", c.entries.n(), c.returns.n(), c.NMissed())
}

// balanced holds every call to one fate.
func (c *counted) balanced(t testing.TB) {
	t.Helper()
	if c.entries.n() != c.returns.n()+int(c.Abandoned()) || c.NMissed() != 0 || int(c.Hits()) != c.returns.n() {
		t.Errorf("%s: %s (%d told), lost %+v", c.Kp.SymbolName, c.counts(), c.Hits(), c.Lost())
	}
}

func watchReturns(t testing.TB, s *kprobe.Session, engine kprobe.Engine, names []string) []*counted {
	t.Helper()
	var cs []*counted
	var rps []*kprobe.Kretprobe
	for _, name := range names {
		c := newCounted(t, name, engine)
		cs = append(cs, c)
		rps = append(rps, &c.Kretprobe)
	}
	if err := s.RegisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
	return cs
}

func stopWatching(t testing.TB, s *kprobe.Session, cs []*counted) {
	t.Helper()
	var rps []*kprobe.Kretprobe
	for _, c := range cs {
		rps = append(rps, &c.Kretprobe)
	}
	if err := s.UnregisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
}

// In C both engines are right, and tell the same.
func TestExitsAgreeWithSwap(t *testing.T) {
	path := testprog.Build(t, "rets", "-O2")
	p := testprog.Start(t, path)
	want := p.Round("3")
	s := harness.Attach(t, p.Pid, nil)
	names := functionsOf(t, path, "ret_")
	var told [2][]*counted
	for i, engine := range []kprobe.Engine{kprobe.EngineSwap, kprobe.EngineExits} {
		cs := watchReturns(t, s, engine, names)
		for _, e := range s.List() {
			if e.Kind != 'r' {
				t.Errorf("the list shows %v", e)
			}
		}
		if n := len(s.List()); n != len(names) {
			t.Errorf("%d lines for %d probes", n, len(names))
		}
		if got := p.Round("3"); !slices.Equal(got, want) {
			t.Errorf("engine %d: %q, unprobed %q", engine, got, want)
		}
		stopWatching(t, s, cs)
		told[i] = cs
	}
	for i, swap := range told[0] {
		exits := told[1][i]
		if swap.counts() != exits.counts() || exits.entries.n() == 0 || exits.tails.n() == 0 && swap.sum.n() != exits.sum.n() {
			t.Errorf("%s: swap %s, results %d; exits %s, %d of them tail jumps, results %d, lost %+v", names[i],
				swap.counts(), swap.sum.n(), exits.counts(), exits.tails.n(), exits.sum.n(), exits.Lost())
		}
	}
}

// Exceptions go through probed frames as if nothing were there.
func TestExitsAndExceptions(t *testing.T) {
	for _, opt := range []string{"-O0", "-O2"} {
		t.Run(opt, func(t *testing.T) {
			path := testprog.Build(t, "throws", opt)
			p := testprog.Start(t, path)
			want := p.Round("30")
			s := harness.Attach(t, p.Pid, nil)
			cs := watchReturns(t, s, kprobe.EngineAuto, functionsOf(t, path, "throw_"))
			if got := p.Round("30"); !slices.Equal(got, want) {
				t.Errorf("%q, unprobed %q", got, want)
			}
			stopWatching(t, s, cs)
			for _, c := range cs {
				c.balanced(t)
				switch name := c.Kp.SymbolName; name {
				case "throw_leaf", "throw_mid", "throw_rethrow":
					// 20 of 30 throw, and both of the thread's.
					if c.entries.n() != 32 || c.Lost().Unwound != 22 {
						t.Errorf("%s: %s, lost %+v", name, c.counts(), c.Lost())
					}
				case "throw_top":
					if c.entries.n() != 32 || c.returns.n() != 32 {
						t.Errorf("%s: %s", name, c.counts())
					}
				}
			}
		})
	}
}

// Rust's panics are the same to a frame.
func TestExitsAndRustPanics(t *testing.T) {
	_, err := exec.LookPath("rustc")
	testprog.Need(t, "rustc", err == nil)
	const src = `
use std::io::BufRead;
#[no_mangle] #[inline(never)] pub fn rust_leaf(n: u64) -> u64 { if n % 3 == 0 { panic!("three") } n * 7 }
#[no_mangle] #[inline(never)] pub fn rust_mid(n: u64) -> u64 { let v = vec![n; 4]; rust_leaf(n) + v[n as usize % 4] }
#[no_mangle] #[inline(never)] pub fn rust_top(n: u64) -> u64 { std::panic::catch_unwind(|| rust_mid(n)).unwrap_or(1) }
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let n: u64 = line.unwrap().parse().unwrap();
        println!("sum {}\ndone", (0..n).map(rust_top).sum::<u64>());
    }
}`
	path := filepath.Join(t.TempDir(), "rusty")
	testprog.CompileText(t, path, []string{"rustc", "-O", "-C", "debuginfo=1"}, "main.rs", src)
	p := testprog.Start(t, path)
	want := p.Round("30")
	s := harness.Attach(t, p.Pid, nil)
	cs := watchReturns(t, s, kprobe.EngineAuto, []string{"rust_leaf", "rust_mid", "rust_top"})
	if got := p.Round("30"); !slices.Equal(got, want) {
		t.Errorf("%q, unprobed %q", got, want)
	}
	stopWatching(t, s, cs)
	for i, thrown := range []uint64{10, 10, 0} {
		cs[i].balanced(t)
		if cs[i].entries.n() != 30 || cs[i].Lost().Unwound != thrown {
			t.Errorf("%s: %s, lost %+v", cs[i].Kp.SymbolName, cs[i].counts(), cs[i].Lost())
		}
	}
}

// Stacks that grow under their frames, panics, goroutines on many threads.
func TestExitsInGo(t *testing.T) {
	path := testprog.Build(t, "goprog")
	p := testprog.Start(t, path)
	want := p.Round("200")
	s := harness.Attach(t, p.Pid, nil)
	cs := watchReturns(t, s, kprobe.EngineAuto, functionsOf(t, path, "main.go", "main.round"))
	if got := p.Round("200"); !slices.Equal(got, want) {
		t.Errorf("%q, unprobed %q", got, want)
	}
	stopWatching(t, s, cs)
	for _, c := range cs {
		c.balanced(t)
		t.Logf("%s: %s, lost %+v", c.Kp.SymbolName, c.counts(), c.Lost())
	}
}

// A million returns of a program that moves, unwinds and drops its stacks.
func TestExitsInGoStorm(t *testing.T) {
	least, n := 300_000, 400
	if testing.Short() {
		least, n = 20_000, 100 // with a collection in each round
	}
	goStorm(t, least, n)
}

// TestSoakGoStorm is ten million of them.
func TestSoakGoStorm(t *testing.T) {
	least, n := 10_000_000, 400
	if testprog.Soak(t, 0) == 0 {
		least, n = 10_000, 20
	}
	goStorm(t, least, n)
}

// goStorm goes on until so many calls have returned, in rounds of n: a round is waited for a minute, on any machine.
func goStorm(t *testing.T, least, n int) {
	path := testprog.Build(t, "gostorm")
	p := testprog.Start(t, path)
	want := p.Round("%d", n)
	s := harness.Attach(t, p.Pid, nil)
	cs := watchReturns(t, s, kprobe.EngineAuto, functionsOf(t, path, "main.storm", "main.(*", "main.main.func"))
	total := 0
	for total < least {
		if got := p.Round("%d", n); !slices.Equal(got, want) {
			t.Fatalf("%q, unprobed %q", got, want)
		}
		total = 0
		for _, c := range cs {
			total += c.returns.n()
		}
	}
	stopWatching(t, s, cs)
	for _, c := range cs {
		c.balanced(t)
		if name := c.Kp.SymbolName; name == "main.stormExit" && (c.returns.n() > 0 || c.Lost().Unwound > 0) || name == "main.stormPanic" && c.Lost().Goexit > 0 {
			t.Errorf("%s: %s, lost %+v", name, c.counts(), c.Lost())
		}
	}
}

// The standard library's own tests pass with a probe on the entry and on the
// return of every function of the package under test.
func TestExitsInGoStandardLibrary(t *testing.T) {
	for i, tt := range []struct{ pkg, run string }{
		{"sort", "Find|Search|Strings|Reverse|Stable$"},
		{"strings", "Builder|Cut|Fields|Trim|Repeat|Replace|Title"},
		{"encoding/json", "Compact|Valid|HTMLEscape|Tag|Omit|StringOption|EncodeString|Decoder$|Encoder$|RawMessage|UnmarshalSyntax|SliceOfCustomByte|Embedded"},
	} {
		if testing.Short() {
			if i < 2 {
				continue
			}
			tt.run = "Tag|Omit|StringOption|RawMessage|UnmarshalSyntax|Embedded"
		}
		t.Run(tt.pkg, func(t *testing.T) { standardTests(t, tt.pkg, tt.run) })
	}
}

// TestSoakGoStandardLibrary runs all tests of more packages.
func TestSoakGoStandardLibrary(t *testing.T) {
	packages, run := []string{"sort", "strings", "sync", "encoding/json", "net/http", "runtime"}, ""
	if testprog.Soak(t, 0) == 0 {
		packages, run = []string{"sync"}, "Once|Cond"
	}
	if testing.Short() {
		run = "Once"
	}
	for _, pkg := range packages {
		t.Run(pkg, func(t *testing.T) { standardTests(t, pkg, run) })
	}
}

// standardTests runs a package's tests under return probes on all its functions.
func standardTests(t *testing.T, pkg, run string) {
	st := startStandard(t, pkg, run)
	s := st.s
	var cs []*counted
	var rps []*kprobe.Kretprobe
	refused := map[string]int{}
	for _, f := range st.funcs {
		es, err := trace.Plan(s, fmt.Sprintf("r %#x", f.Addr))
		if err != nil {
			t.Fatal(err)
		}
		if es[0].Verdict == kprobe.VerdictRefuse {
			refused[es[0].Reason]++
			continue
		}
		c := newCounted(t, "", kprobe.EngineAuto)
		c.Kp.Addr = arch.Addr(f.Addr)
		cs, rps = append(cs, c), append(rps, &c.Kretprobe)
	}
	if err := s.RegisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
	stopped := s.LastStop()
	s.Continue()
	st.pass()
	var entries, returns int
	var lost kprobe.Lost
	for _, c := range cs {
		l := c.Lost()
		entries, returns = entries+c.entries.n(), returns+c.returns.n()
		lost.Unwound, lost.Goexit, lost.NoInstance = lost.Unwound+l.Unwound, lost.Goexit+l.Goexit, lost.NoInstance+l.NoInstance
		if l.Longjmp+l.Exited > 0 || l.NoInstance > 0 {
			t.Errorf("%v: %s, lost %+v", c.Kp.Addr, c.counts(), l)
		}
	}
	t.Logf("%d probes (stopped for %v), %d entries, %d returns, lost %+v, %d under way at the end; refused: %v",
		len(rps), stopped, entries, returns, lost, entries-returns-int(lost.Unwound+lost.Goexit), refused)
	if returns < 1000 {
		t.Errorf("only %d returns", returns)
	}
}

// Why calls do not return, each by its name.
func TestExitsTellWhyCallsAreLost(t *testing.T) {
	path := testprog.Build(t, "rets", "-O2")
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	cs := watchReturns(t, s, kprobe.EngineExits, []string{"ret_never", "ret_exits", "ret_fib", "ret_jumped"})
	p.Round("3")
	for i, want := range []kprobe.Lost{{Longjmp: 3 * 11}, {Exited: 3 * 6}, {}, {}} {
		c := cs[i]
		if c.Lost() != want || c.entries.n() == 0 || c.entries.n() != c.returns.n()+int(c.Abandoned()) {
			t.Errorf("%s: %s, lost %+v, want %+v", c.Kp.SymbolName, c.counts(), c.Lost(), want)
		}
	}
	stopWatching(t, s, cs)

	// Too few instances: the deeper calls of each descent are missed, and counted.
	few := newCounted(t, "ret_deep", kprobe.EngineExits)
	few.MaxActive = 10
	if err := s.RegisterKretprobe(&few.Kretprobe); err != nil {
		t.Fatal(err)
	}
	p.Round("2")
	if want := (kprobe.Lost{NoInstance: 2 * 991}); few.Lost() != want || few.returns.n() != 20 {
		t.Errorf("%s, lost %+v, want %+v", few.counts(), few.Lost(), want)
	}
}

// Switched off, a probe costs nothing and tells nothing; switched on it is whole.
func TestExitsSwitched(t *testing.T) {
	path := testprog.Build(t, "rets", "-O2")
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	c := newCounted(t, "ret_fib", kprobe.EngineExits)
	round := func(what string, want int) {
		t.Helper()
		entries, returns := c.entries.n(), c.returns.n()
		p.Round("1")
		if c.entries.n()-entries != want || c.returns.n()-returns != want {
			t.Errorf("%s: %d entries, %d returns, want %d", what, c.entries.n()-entries, c.returns.n()-returns, want)
		}
	}
	if err := s.RegisterKretprobe(&c.Kretprobe); err != nil {
		t.Fatal(err)
	}
	p.Round("1")
	all := c.returns.n()
	round("on", all)
	if err := s.DisableKretprobe(&c.Kretprobe); err != nil {
		t.Fatal(err)
	}
	if diffs, err := testprog.TextDiff(p.Pid); err != nil || slices.ContainsFunc(diffs, func(d string) bool { return strings.Contains(d, path) }) {
		t.Errorf("a disabled probe's exits are still in the text: %v, %v", diffs, err)
	}
	round("disabled", 0)
	if err := s.EnableKretprobe(&c.Kretprobe); err != nil {
		t.Fatal(err)
	}
	round("enabled", all)
	for _, on := range []bool{false, true} {
		if err := s.SetEnabled(on); err != nil {
			t.Fatal(err)
		}
		round(fmt.Sprint("global switch ", on), map[bool]int{true: all}[on])
	}
	// One probe more on the same exits, and one on one of them.
	other := newCounted(t, "ret_fib", kprobe.EngineExits)
	if err := s.RegisterKretprobe(&other.Kretprobe); err != nil {
		t.Fatal(err)
	}
	round("beside another", all)
	if other.returns.n() != all {
		t.Errorf("the other: %s", other.counts())
	}
	if err := s.UnregisterKretprobe(&c.Kretprobe); err != nil {
		t.Fatal(err)
	}
	p.Round("1")
	if other.returns.n() != 2*all {
		t.Errorf("the other, alone: %s", other.counts())
	}
}

// What a handler sets as the result is what the caller gets; the PC is not its to move.
func TestExitsChangeResults(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	s := harness.Attach(t, p.Pid, nil)
	want := p.Round("10")
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Engine: kprobe.EngineExits}
	rp.Handler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		regs.SetReturnValue(regs.ReturnValue() + 1)
		regs.SetPC(0)
		return 1
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	if got := p.Round("10"); got[0] == want[0] {
		t.Errorf("%q with results changed, %q as they are", got, want)
	}
	if err := s.UnregisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	if got := p.Round("10"); got[0] != want[0] {
		t.Errorf("%q, want %q", got, want)
	}
}

// The plan says which engine and why.
func TestPlanNamesReturnEngine(t *testing.T) {
	for _, tt := range []struct{ prog, fn, verdict, want string }{
		{"rets", "ret_fib", "", "trap, return address swapped (nothing unwinds"},
		{"rets", "libc.so.6:dlsym", "", "exits probed (it looks at its return address"},
		{"rets", "libc.so.6:vfork", "refuse", "it returns more than once"},
		{"throws", "throw_top", "", "exits probed (exceptions may unwind through it"},
		{"gostorm", "main.stormGrow", "", "exits probed (Go code"},
		{"gostorm", "runtime.mcall", "refuse", "it leaves the goroutine's stack"},
	} {
		flags := []string{"-O2"}
		if tt.prog == "gostorm" {
			flags = nil
		}
		s := harness.Attach(t, testprog.Start(t, testprog.Build(t, tt.prog, flags...)).Pid, nil)
		es, err := trace.Plan(s, "r "+tt.fn)
		if err != nil || len(es) != 1 || !strings.Contains(es[0].String(), tt.want) || (es[0].Verdict == kprobe.VerdictRefuse) != (tt.verdict == "refuse") {
			t.Errorf("%s: %v, %v; want %q", tt.fn, es, err, tt.want)
		}
	}
}

// Handlers of many goroutines at a time.
func TestExitsConcurrent(t *testing.T) {
	path := testprog.Build(t, "gostorm")
	p := testprog.Start(t, path)
	round := "100"
	if testing.Short() {
		round = "40"
	}
	want := p.Round(round)
	s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: true})
	var entries, returns atomic.Int64
	var rps []*kprobe.Kretprobe
	for _, name := range functionsOf(t, path, "main.storm") {
		rps = append(rps, &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, MaxActive: 1 << 16,
			EntryHandler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { entries.Add(1); return 0 },
			Handler: func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
				returns.Add(1)
				if ri.Task.Goroutine == 0 || ri.Task.Goroutine != regs.Task().Goroutine {
					t.Errorf("called by goroutine %d, returned in %d", ri.Task.Goroutine, regs.Task().Goroutine)
				}
				return 0
			}})
	}
	if err := s.RegisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
	if got := p.Round(round); !slices.Equal(got, want) {
		t.Errorf("%q, unprobed %q", got, want)
	}
	if err := s.UnregisterKretprobes(rps); err != nil {
		t.Fatal(err)
	}
	lost := int64(0)
	for _, rp := range rps {
		lost += int64(rp.Abandoned())
	}
	if entries.Load() != returns.Load()+lost || lost == 0 {
		t.Errorf("%d entries, %d returns, %d lost", entries.Load(), returns.Load(), lost)
	}
}
