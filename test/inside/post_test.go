package inside

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// seesText is a program that writes down the instruction pointer and a register.
const seesText = `
	r6 = *(u64 *)(r1 +128)   # rip
	*(u64 *)(r10 -8) = r6
	r6 = *(u64 *)(r1 +112)   # rdi
	*(u64 *)(r10 -16) = r6
	r1 = map seen
	r2 = r10
	r2 += -16
	r3 = 16
	r4 = 0
	call ringbuf_output
	r0 = 0
	exit`

// A post-handler needs its stop, whatever instruction it is behind; a program at the same
// one, and one that only counts, have run by then (kprobes.txt 5: the point is unoptimized).
func TestPostHandlersOfPrograms(t *testing.T) { testPostHandlersOfPrograms(t, nil) }

func TestPostHandlersOfProgramsAside(t *testing.T) {
	testPostHandlersOfPrograms(t, &kprobe.Options{Concurrent: true})
}

func testPostHandlersOfPrograms(t *testing.T, options *kprobe.Options) {
	t.Helper()
	path := testprog.Build(t, "insns", "-O2", "-fcf-protection=full")
	p := testprog.Start(t, path)
	want := p.Round("1")
	s := harness.Attach(t, p.Pid, options)
	ps := harness.Load(t, s, []*bpf.MapSpec{{Name: "seen", Type: bpf.RingBuf, MaxEntries: 1 << 22}}, nil, map[string]string{"sees": seesText})
	sees, err := ps.Program("sees")
	harness.OK(t, err)
	var programs, posts []*kprobe.Kprobe
	// What handlers aside do is the same behind each sort of instruction: every fourth function does for that.
	few, funcs := testing.Short() && options != nil, 0
	wanted := func(name string) bool {
		if !harness.IsProbedFunc(name) {
			return false
		}
		funcs++
		return !few || funcs%4 == 1
	}
	for i, kp := range harness.EveryInstruction(t, s, harness.FuncsOf(t, p.Pid, path), wanted, false) {
		inside := &kprobe.Kprobe{Addr: kp.Addr, Program: sees}
		if i%2 == 0 {
			inside.Program = kprobe.CountOnly
		}
		programs = append(programs, inside)
	}
	programs = harness.RegisterAll(t, s, programs)
	s.WaitOptimized()
	before := harness.Optimized(s)
	var behind atomic.Uint64
	for i, kp := range programs {
		post := &kprobe.Kprobe{Addr: kp.Addr, PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { behind.Add(1) }}
		if i%3 > 0 {
			posts = append(posts, post)
		}
	}
	harness.OK(t, s.RegisterKprobes(posts))
	if got := p.Round("1"); !slices.Equal(got, want) {
		t.Errorf("results differ:\n%s\nwithout probes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	hits := make(map[string]uint64)
	total := uint64(0)
	for _, kp := range programs {
		hits[kp.Addr.String()] = kp.Hits()
		if kp.Program == sees {
			total += kp.Hits()
		}
		if kp.NMissed() != 0 {
			t.Errorf("%v: the program has missed %d hits", kp.Addr, kp.NMissed())
		}
	}
	reached, ran := 0, uint64(0)
	for _, kp := range posts {
		ran += kp.Hits()
		if kp.Hits() != hits[kp.Addr.String()] {
			t.Errorf("%v: %d hits with the post-handler, %d of the program", kp.Addr, kp.Hits(), hits[kp.Addr.String()])
		}
		if kp.Hits() > 0 {
			reached++
		}
	}
	if behind.Load() != ran {
		t.Errorf("%d post-handlers ran of %d hits", behind.Load(), ran)
	}
	if reached < len(posts)*9/10 {
		t.Errorf("only %d of %d instructions with both were executed", reached, len(posts))
	}
	records, err := ps.Map("seen")
	harness.OK(t, err)
	ring, err := bpf.NewReader(records)
	harness.OK(t, err)
	for {
		_, more, err := ring.Read()
		harness.OK(t, err)
		if !more {
			break
		}
		total--
	}
	if total != 0 {
		t.Errorf("%d hits more than records", int64(total))
	}
	if now := harness.Optimized(s); now > before/2 {
		t.Errorf("%d of %d points are still optimized", now, before)
	}
	harness.OK(t, s.UnregisterKprobes(posts))
	s.WaitOptimized()
	if now := harness.Optimized(s); now != before {
		t.Errorf("%d points are optimized without post-handlers again, %d were before", now, before)
	}
	if got := p.Round("1"); !slices.Equal(got, want) {
		t.Errorf("results differ afterwards:\n%s", strings.Join(got, "\n"))
	}
	harness.Detach(t, s)
}

// A program that replaces the function leaves nothing for a post-handler to be behind.
func TestPostHandlerOfOverride(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	second := "r6 = *(u64 *)(r1 +104)   # rsi"
	if s.Arch() == arch.I386 {
		second = `
		r7 = r1
		r3 = *(u64 *)(r1 +152)   # esp
		r3 += 8
		r1 = r10
		r1 += -8
		r2 = 4
		call probe_read_user
		r6 = *(u32 *)(r10 -8)
		r1 = r7`
	}
	ps := harness.Load(t, s, nil, nil, map[string]string{"skip": second + `
		r6 &= 1
		if r6 == 0 goto out
		r2 = 1000
		call override_return
	out:
		r0 = 0
		exit`})
	skip, err := ps.Program("skip")
	harness.OK(t, err)
	// Behind the entry the stack is not the caller's any more.
	behind := uint64(0)
	for range 2 { // the first may be a landing pad
		behind += uint64(len(s.Plan(&kprobe.Kprobe{SymbolName: "jumper", Offset: behind}).Bytes))
	}
	if err := s.Register(&kprobe.Kprobe{SymbolName: "jumper", Offset: behind, Program: skip}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("behind the entry: %v", err)
	}
	later := &kprobe.Kprobe{SymbolName: "jumper", Offset: behind, Program: kprobe.CountOnly}
	later.Flags = kprobe.FlagDisabled
	harness.OK(t, s.Register(later))
	if err := s.UpdateProgram(later, skip); !errors.Is(err, syscall.EINVAL) || later.Program != kprobe.CountOnly {
		t.Errorf("given to a disabled probe behind the entry: %v", err)
	}
	harness.OK(t, s.Unregister(later))
	posts := 0
	program := &kprobe.Kprobe{SymbolName: "jumper", Program: skip}
	post := &kprobe.Kprobe{SymbolName: "jumper", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { posts++ }}
	returns := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Program: kprobe.CountOnly}
	harness.OK(t, s.Register(program, post))
	for _, with := range []bool{false, true} {
		if posts = 0; with {
			harness.OK(t, s.Register(returns))
		}
		if got := harness.Round(t, s, p, "10")[0]; got != "jumper 10 1000" {
			t.Errorf("%q, which is not what the program returned", got)
		}
		if posts != 5 {
			t.Errorf("%d post-handlers ran, want 5 of 10", posts)
		}
	}
	if program.Hits() != 20 || post.Hits() != 20 || returns.Hits() != 5 {
		t.Errorf("%d and %d hits, %d returns; want 20, 20, 5", program.Hits(), post.Hits(), returns.Hits())
	}
	harness.OK(t, s.UnregisterKprobe(program))
	if got := harness.Round(t, s, p, "10")[0]; got != fmt.Sprintf("jumper 10 %d", harness.SumOf(10)) {
		t.Errorf("afterwards: %q", got)
	}
	harness.Detach(t, s)
}

// Signals come while a thread is led through a detour, and to its slot: each call is served
// once, by both.
func TestPostHandlersOfProgramsUnderSignals(t *testing.T) {
	n := uint64(1000)
	if testing.Short() {
		n = 200 // a timer's signal comes at each call
	}
	line := fmt.Sprint(n)
	p := testprog.Start(t, testprog.Build(t, "signals", "-O2"))
	want := p.Round(line)[:2]
	s := harness.Attach(t, p.Pid, nil)
	ps := harness.Load(t, s, nil, nil, map[string]string{"busy": harness.BusyText})
	busy, err := ps.Program("busy")
	harness.OK(t, err)
	posts := uint64(0)
	step := &kprobe.Kprobe{SymbolName: "sig_step", Program: busy}
	post := &kprobe.Kprobe{SymbolName: "sig_step", PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { posts++ }}
	handler := &kprobe.Kprobe{SymbolName: "sig_handler", Program: kprobe.CountOnly}
	harness.OK(t, s.Register(step, handler, post))
	for i := range uint64(2) {
		if got := harness.Round(t, s, p, line)[:2]; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if total := n * (i + 1); step.Hits() != total || step.NMissed() != 0 || post.Hits() != total || posts != total {
			t.Errorf("round %d: %d hits, %d missed, %d and %d with the post-handler; want %d",
				i, step.Hits(), step.NMissed(), post.Hits(), posts, total)
		}
		if handler.Hits() < max(1, n/1000)*(i+1) {
			t.Errorf("round %d: %d signals in all", i, handler.Hits())
		}
	}
	harness.Detach(t, s)
	harness.Ends(t, p)
}
