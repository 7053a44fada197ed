package inside

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// countsText counts its runs, in a value of each thread's own, and reads the stack's top and a place that is not there.
const countsText = `
	r3 = *(u64 *)(STACK)
	r1 = r10
	r1 += -16
	r2 = 8
	call probe_read_user
	r1 = r10
	r1 += -16
	r2 = 8
	r3 = 4096
	call probe_read_user
	*(u32 *)(r10 -4) = 0
	r1 = map runs
	r2 = r10
	r2 += -4
	call map_lookup_elem
	if r0 == 0 goto out
	r1 = *(u64 *)(r0 +0)
	r1 += 1
	*(u64 *)(r0 +0) = r1
out:	r0 = 0
	exit`

func runsSpec() *bpf.MapSpec {
	return &bpf.MapSpec{Name: "runs", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}
}

// runCounter loads the program, and answers how often it has run.
func runCounter(t *testing.T, s *kprobe.Session) (*kprobe.Program, func() (runs uint64)) {
	t.Helper()
	ps := harness.Load(t, s, []*bpf.MapSpec{runsSpec()}, nil, map[string]string{"counts": countsText})
	counts, err := ps.Program("counts")
	harness.OK(t, err)
	m, err := ps.Map("runs")
	harness.OK(t, err)
	return counts, func() (runs uint64) {
		values, err := m.Threads(make([]byte, 4))
		harness.OK(t, err)
		for _, v := range values {
			runs += binary.LittleEndian.Uint64(v)
		}
		return runs
	}
}

// A program at each instruction of all functions that four threads run: by traps and by jumps, and beside
// post-handlers, which need the stop, the functions compute what they compute, and no hit is lost.
func TestProgramsAtEveryInstruction(t *testing.T) {
	path := testprog.Build(t, "threads", "-O2")
	p := testprog.Start(t, path, "4")
	const many, few = 50, 2 // calls in a round: to a post-handler a thread is led in steps
	unprobed := map[int][]string{many: p.Round(fmt.Sprint(many)), few: p.Round(fmt.Sprint(few))}
	s := harness.Attach(t, p.Pid, nil)
	harness.OK(t, s.SetOptimization(false))
	counts, runs := runCounter(t, s)
	var programs []*kprobe.Kprobe
	hammer := func(name string) bool { return strings.HasPrefix(name, "hammer_") }
	for _, kp := range harness.EveryInstruction(t, s, harness.FuncsOf(t, p.Pid, path), hammer, false) {
		programs = append(programs, &kprobe.Kprobe{Addr: kp.Addr, Program: counts})
	}
	programs = harness.RegisterAll(t, s, programs)
	before := uint64(0)
	round := func(when string, n int) {
		t.Helper()
		harness.SameRound(t, s, p, unprobed[n], fmt.Sprint(n))
		hits, missed := uint64(0), uint64(0)
		for _, kp := range programs {
			hits += kp.Hits()
			missed += kp.NMissed()
		}
		if ran := runs(); ran != hits || missed != 0 || hits < before+8*uint64(n) {
			t.Errorf("%s: %d hits, %d missed, %d before; the program has run %d times", when, hits, missed, before, ran)
		}
		before = hits
	}
	round("traps", many)
	harness.OK(t, s.SetOptimization(true))
	s.WaitOptimized()
	if harness.Optimized(s) == 0 {
		t.Errorf("none of %d is a jump", len(programs))
	}
	round("jumps", many)
	var posts []*kprobe.Kprobe
	after := 0
	for i := 0; i < len(programs); i += 7 {
		posts = append(posts, &kprobe.Kprobe{Addr: programs[i].Addr, PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) { after++ }})
	}
	harness.OK(t, s.RegisterKprobes(posts))
	round("post-handlers", few)
	harness.OK(t, s.UnregisterKprobes(posts))
	if after < 8 {
		t.Errorf("post-handlers ran %d times", after)
	}
	s.WaitOptimized()
	round("jumps again", many)
	harness.Detach(t, s)
	if got := p.Round(fmt.Sprint(many)); !slices.Equal(got, unprobed[many]) {
		t.Errorf("afterwards %q, want %q", got, unprobed[many])
	}
}

// Programs in Go functions, on stacks that move and that have little room, while the runtime interrupts its threads.
// On arm64 they are refused.
func TestProgramsInGo(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	p := testprog.Start(t, testprog.Build(t, "goprog"))
	want := p.Round("2000")
	s := harness.Attach(t, p.Pid, nil)
	if runtime.GOARCH == "arm64" {
		_, err := s.Load(&bpf.Collection{})
		harness.Errno(t, err, syscall.ENOTSUP)
		leaf := &kprobe.Kprobe{SymbolName: "main.goLeaf", Program: kprobe.CountOnly}
		harness.Register(t, s, leaf)
		s.WaitOptimized()
		harness.SameLines(t, p.Round("2000"), want)
		if leaf.Hits() != 4*2000 || harness.Optimized(s) != 1 {
			t.Errorf("%d hits, of %v", leaf.Hits(), s.List())
		}
		return
	}
	counts, runs := runCounter(t, s)
	leaf := &kprobe.Kprobe{SymbolName: "main.goLeaf", Program: counts}
	grow := &kprobe.Kprobe{SymbolName: "main.goGrow", Program: counts}
	harness.Register(t, s, leaf, grow)
	s.WaitOptimized()
	harness.SameLines(t, p.Round("2000"), want)
	if n := runs(); leaf.Hits()+leaf.NMissed() != 4*2000 || grow.Hits() < 101+102+103+104 || n != leaf.Hits()+grow.Hits() || leaf.NMissed() > 100 {
		t.Errorf("%d hits, %d missed, and %d hits, %d missed; the program has run %d times", leaf.Hits(), leaf.NMissed(), grow.Hits(), grow.NMissed(), n)
	}
	if harness.Optimized(s) == 0 {
		t.Errorf("none is a jump: %v", s.List())
	}
	harness.Detach(t, s)
	harness.SameLines(t, p.Round("2000"), want)
}
