package life

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// A detour keeps some registers on the program's own stack. Functions of cramped.c are called with little of it left, each with some
// more than the one before.

// crampedPlaces are the functions, "in_signal" apart.
const crampedPlaces = 96

// crampedOrder is what a controller does that is going to be killed.
type crampedOrder struct {
	PID  int
	Kind string
}

const crampedVariable = "KPROBE_TEST_CRAMPED"

// crampedTold is what is told of a place that is left alone.
const crampedTold = "cannot be probed: a thread's stack has no room for a detour there"

// cramped are probes of one kind at all functions: what became of the calls of each, by function.
type cramped struct {
	probes []kprobe.Probe
	of     map[string][]*kprobe.Kprobe
	rps    map[string][]*kprobe.Kretprobe
	events *bpf.Map // of records
}

// crampedKinds are the probes there may be on a function, some of them together.
var crampedKinds = []string{"count", "program", "record", "swap", "exits", "swap programs", "exits programs", "program swap exits"}

const (
	crampedProgram = `
		r6 = *(u64 *)(r1 +112)
		r7 = *(u64 *)(r1 +152)
		call ktime_get_ns
		r0 = 0
		exit`
	crampedRecord = `
		r6 = *(u64 *)(r1 +152)
		*(u64 *)(r10 -8) = r6
		r1 = map events
		r2 = r10
		r2 += -8
		r3 = 8
		r4 = 0
		call ringbuf_output
		r0 = 0
		exit`
)

// crampedProbes makes the probes of a kind. Errors: those of the programs.
func crampedProbes(s *kprobe.Session, kind string) (*cramped, error) {
	c := &cramped{of: map[string][]*kprobe.Kprobe{}, rps: map[string][]*kprobe.Kretprobe{}}
	maps := []*bpf.MapSpec{{Name: "events", Type: bpf.RingBuf, MaxEntries: 1 << 16}}
	col := &bpf.Collection{Maps: maps}
	for name, text := range map[string]string{"program": crampedProgram, "record": crampedRecord, "returned": crampedRecord} {
		kinds := map[string]bpf.Kind{"returned": bpf.Kretprobe}
		p, err := harness.Assembled(name, kinds[name], text, maps...)
		if err != nil {
			return nil, err
		}
		col.Programs = append(col.Programs, p)
	}
	ps, err := s.Load(col)
	if err != nil {
		return nil, err
	}
	programs := map[string]*kprobe.Program{"count": kprobe.CountOnly}
	for _, name := range []string{"program", "record", "returned"} {
		if programs[name], err = ps.Program(name); err != nil {
			return nil, err
		}
	}
	if c.events, err = ps.Map("events"); err != nil {
		return nil, err
	}
	words := strings.Fields(kind)
	for i := range crampedPlaces + 1 {
		f := fmt.Sprintf("cramped_%d", i)
		if i == crampedPlaces {
			f = "cramped_in_signal"
		}
		for _, word := range words {
			at := &kprobe.Kprobe{SymbolName: f}
			switch word {
			case "count", "program", "record":
				at.Program = programs[word]
				c.probes = append(c.probes, at)
				c.of[f] = append(c.of[f], at)
			case "handler":
				at.PreHandler = func(*kprobe.Kprobe, *kprobe.Regs) int {
					fmt.Println("in a handler")
					select {} // until it is killed
				}
				c.probes = append(c.probes, at)
				c.of[f] = append(c.of[f], at)
			case "post":
				at.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
				c.probes = append(c.probes, at)
			case "swap", "exits":
				rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: f}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly}
				if word == "exits" {
					rp.Engine = kprobe.EngineExits
				}
				if len(words) > 1 {
					rp.Program, rp.EntryProgram = programs["returned"], programs["program"]
				}
				c.probes = append(c.probes, rp)
				c.rps[f] = append(c.rps[f], rp)
			}
		}
	}
	return c, s.Register(c.probes...)
}

// calls are the hits of a function's probes, and what they have missed.
func (c *cramped) calls(t *testing.T, f string) (hits, missed uint64) {
	t.Helper()
	first := true
	note := func(h, m uint64) {
		if !first && (h != hits || m != missed) {
			t.Errorf("%s: one probe has %d hits and %d missed, another %d and %d", f, hits, missed, h, m)
		}
		hits, missed, first = h, m, false
	}
	for _, p := range c.of[f] {
		note(p.Hits(), p.NMissed())
	}
	for _, p := range c.rps[f] {
		note(p.Hits(), p.NMissed())
	}
	return hits, missed
}

// gone tells whether a function's probes are.
func (c *cramped) gone(t *testing.T, f string) bool {
	t.Helper()
	n, all := 0, append([]*kprobe.Kprobe(nil), c.of[f]...)
	for _, rp := range c.rps[f] {
		all = append(all, &rp.Kp)
	}
	for _, p := range all {
		if !p.IsEnabled() {
			n++
		}
	}
	if n > 0 && n < len(all) {
		t.Errorf("%s: %d of %d probes are gone", f, n, len(all))
	}
	return n > 0
}

func startCramped(t *testing.T, flags ...string) *testprog.Proc {
	t.Helper()
	return testprog.Start(t, testprog.Build(t, "cramped", append(flags, "-O2")...))
}

func needCramped(t *testing.T) {
	t.Helper()
	testprog.Need(t, "a machine that cramped.c is written for", runtime.GOARCH == "amd64")
}

// Whatever is left of a stack, the program works as without probes. A call that has too little of it is missed, and its place is left
// alone from then on, which is told once; another's call is a hit.
func TestCrampedStacks(t *testing.T) {
	needCramped(t)
	kinds := append(slices.Clone(crampedKinds), "count, by traps", "program, by traps", "program swap, by traps", "program post", "program post, aside", "program swap exits, aside")
	if testing.Short() { // those that are no part of another one
		kinds = []string{"count", "program", "record", "swap", "exits", "program swap exits", "count, by traps", "program swap, by traps", "program post, aside"}
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { testCramped(t, kind) })
	}
}

func TestI386CrampedStacks(t *testing.T) {
	needCramped(t)
	testprog.Programs32.Need(t)
	for _, kind := range crampedKinds {
		t.Run(kind, func(t *testing.T) { testCramped(t, kind, "-m32") })
	}
}

func testCramped(t *testing.T, kind string, flags ...string) {
	p := startCramped(t, flags...)
	var mu sync.Mutex
	told := map[string]int{}
	kind, aside := strings.CutSuffix(kind, ", aside")
	s := harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: aside, Report: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		name, _, _ := strings.Cut(err.Error(), "+")
		told[name]++
		if !strings.Contains(err.Error(), crampedTold) {
			t.Errorf("reported: %v", err)
		}
	}})
	kind, traps := strings.CutSuffix(kind, ", by traps")
	harness.OK(t, s.SetOptimization(!traps))
	c, err := crampedProbes(s, kind)
	harness.OK(t, err)
	s.WaitOptimized()
	if !traps && !strings.Contains(kind, "post") && harness.Optimized(s) < crampedPlaces {
		t.Fatalf("%d jumps", harness.Optimized(s))
	}
	works := func(line string) {
		t.Helper()
		if got := p.Round(line); len(got) != 1 || got[0] != "0 wrong" {
			t.Fatalf("round %q: %q", line, got)
		}
		harness.Settle(t, s)
	}
	works("1")
	missed := 0
	check := func(rounds uint64) {
		t.Helper()
		missed = 0
		for i := range crampedPlaces {
			f := fmt.Sprintf("cramped_%d", i)
			hits, lost := c.calls(t, f)
			gone := c.gone(t, f)
			switch {
			case gone && (hits != 0 || lost != 1), !gone && (hits != rounds || lost != 0):
				t.Errorf("%s: after %d rounds %d hits, %d missed, gone: %v", f, rounds, hits, lost, gone)
			case gone && missed < i:
				t.Errorf("%s has no room, and one that has less had some", f)
			}
			if gone {
				missed++
			}
			mu.Lock()
			if n := told[f]; n > 1 || gone != (n == 1) {
				t.Errorf("%s: gone: %v, told %d times", f, gone, n)
			}
			mu.Unlock()
		}
	}
	check(1)
	works("1")
	check(2)
	t.Logf("%d of %d places had no room", missed, crampedPlaces)
	if missed < 3 || missed > 64 {
		t.Errorf("%d of %d places had no room", missed, crampedPlaces)
	}
	works("signals")
	hits, lost := c.calls(t, "cramped_in_signal")
	t.Logf("in a signal: %d hits, %d missed", hits, lost)
	if hits == 0 || lost != 1 {
		t.Errorf("in a signal: %d hits, %d missed", hits, lost)
	}
	gone := 0
	for _, e := range s.List() {
		if e.Gone {
			gone++
		}
	}
	if words := len(strings.Fields(kind)); gone < missed*max(1, words-1) {
		t.Errorf("the list has %d that are gone, of %d places", gone, missed)
	}
	harness.OK(t, s.Unregister(c.probes...))
	works("1")
	harness.Detach(t, s)
	if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
		t.Errorf("left in the text: %v, %v", diff, err)
	}
	harness.Ends(t, p)
}

// playCramped has probes of a kind, and waits to be killed.
func playCramped(order string) error {
	var o crampedOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	p, err := ptrace.Attach(o.PID)
	if err != nil {
		return err
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		return err
	}
	c, err := crampedProbes(s, o.Kind)
	if err != nil {
		return err
	}
	// A trap that is met when nobody is there takes a signal's frame of the stack (docs/LIMITS.md).
	err = testprog.Await(o.PID, func() error {
		s.WaitOptimized()
		for f, rps := range c.rps {
			for _, rp := range rps {
				if exits, jumps := rp.Exits(); jumps < exits {
					return fmt.Errorf("%s: %d of %d exits are jumps", f, jumps, exits)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	asks := bufio.NewScanner(os.Stdin)
	for said := "armed"; ; said = "settled" {
		if err := s.SetEnabled(s.Enabled()); err != nil { // waits for the thread that takes away what has no room
			return err
		}
		fmt.Println(said)
		if !asks.Scan() {
			return asks.Err()
		}
	}
}

// What has been met once while somebody was there does no harm when nobody is.
func TestCrampedStacksAlone(t *testing.T) {
	needCramped(t)
	testCrampedAlone(t)
}

func TestI386CrampedStacksAlone(t *testing.T) {
	needCramped(t)
	testprog.Programs32.Need(t)
	testCrampedAlone(t, "-m32")
}

func testCrampedAlone(t *testing.T, flags ...string) {
	kinds := crampedKinds
	if testing.Short() {
		kinds = []string{"count", "program swap exits"}
	}
	for _, kind := range kinds {
		for _, alone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", kind, alone), func(t *testing.T) {
				p := startCramped(t, flags...)
				order, err := json.Marshal(crampedOrder{p.Pid, kind})
				harness.OK(t, err)
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), crampedVariable+"="+string(order))
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				harness.OK(t, err)
				in, err := cmd.StdinPipe()
				harness.OK(t, err)
				harness.OK(t, cmd.Start())
				t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
				lines := bufio.NewReader(out)
				says := func(what string) {
					t.Helper()
					if line, err := lines.ReadString('\n'); line != what+"\n" {
						t.Fatalf("the controller said %q (%v)", line, err)
					}
				}
				says("armed")
				works := func(line string) {
					t.Helper()
					if got := p.Round(line); len(got) != 1 || got[0] != "0 wrong" {
						t.Fatalf("round %q: %q", line, got)
					}
				}
				works("1")
				works("signals")
				fmt.Fprintln(in)
				says("settled") // no place is being taken away any more
				if alone {
					harness.OK(t, syscall.Kill(harness.GuardianOf(t, cmd.Process.Pid), syscall.SIGKILL))
				}
				harness.OK(t, cmd.Process.Kill())
				cmd.Wait()
				works("2")
				works("signals")
				if !alone {
					harness.Restored(t, p.Pid)
					harness.Ends(t, p)
					return
				}
				if done, err := ptrace.Recover(p.Pid); err != nil || len(done) != 1 || done[0].Err != nil {
					t.Fatalf("recovery: %v, %v", done, err)
				}
				works("1")
				harness.Ends(t, p)
			})
		}
	}
}

// A controller is killed while its handler serves a thread whose stack has no room for a signal's frame: the thread
// goes on.
func TestCrampedStackWhileItIsServed(t *testing.T) {
	needCramped(t)
	p := startCramped(t)
	order, err := json.Marshal(crampedOrder{p.Pid, "handler"})
	harness.OK(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crampedVariable+"="+string(order))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	harness.OK(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	harness.OK(t, err)
	harness.OK(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewReader(out)
	says := func(what string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); line != what+"\n" {
			t.Fatalf("the controller said %q (%v)", line, err)
		}
	}
	says("armed")
	p.Send("1")
	says("in a handler")
	harness.OK(t, cmd.Process.Kill())
	cmd.Wait()
	if got := p.Expect("0 wrong"); got != "0 wrong" {
		t.Error(got)
	}
	harness.Restored(t, p.Pid)
	harness.Ends(t, p)
}

// Threads find no room while the probes there come and go: their faults are ours, wherever they are when it is looked after them.
func TestCrampedStacksWhileProbesComeAndGo(t *testing.T) {
	needCramped(t)
	for _, kind := range []string{"count", "program swap exits", "program post, aside"} {
		t.Run(kind, func(t *testing.T) {
			kind, aside := strings.CutSuffix(kind, ", aside")
			p := startCramped(t)
			before := harness.RemainsOf(t, p.Pid)
			begin := func() *kprobe.Session {
				return harness.Attach(t, p.Pid, &kprobe.Options{Concurrent: aside, Report: func(err error) {
					if !strings.Contains(err.Error(), crampedTold) {
						t.Errorf("reported: %v", err)
					}
				}})
			}
			s := begin()
			times := 12
			if testing.Short() {
				times = 3 // one of each sort
			}
			p.Round("start")
			for i := range times {
				c, err := crampedProbes(s, kind)
				harness.OK(t, err)
				if i%2 == 0 { // else it is just being found out
					testprog.Until(t, "the place that nothing is left at is gone", p.Pid, func() bool { return !c.of["cramped_0"][0].IsEnabled() })
				}
				if i%3 == 2 { // the session ends in that
					harness.Detach(t, s)
					s = begin()
					continue
				}
				harness.OK(t, s.Unregister(c.probes...))
			}
			if got := p.Round("join")[0]; got != "0 wrong" {
				t.Error(got)
			}
			harness.Detach(t, s)
			before.Check(t)
			harness.Ends(t, p)
		})
	}
}

// What is gone for want of stack is there again in the program that is executed next.
func TestLifeExecAfterCramped(t *testing.T) {
	needCramped(t)
	p := startCramped(t)
	s := harness.Attach(t, p.Pid, &kprobe.Options{Report: func(error) {}})
	const place = "cramped_0"
	kp := &kprobe.Kprobe{SymbolName: place, Program: kprobe.CountOnly}
	harness.Register(t, s, kp)
	for i := range uint64(2) {
		p.Round("3")
		harness.Settle(t, s)
		if kp.Hits() != 0 || kp.NMissed() != i+1 || kp.IsEnabled() {
			t.Errorf("program %d: %d hits, %d missed, at work: %v", i, kp.Hits(), kp.NMissed(), kp.IsEnabled())
		}
		if err := s.EnableKprobe(kp); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("it is enabled: %v", err)
		}
		p.Send("exec")
		p.Expect("ready")
		if !kp.IsEnabled() {
			t.Error("it is gone in the next program, too")
		}
	}
	harness.Ends(t, p)
}
