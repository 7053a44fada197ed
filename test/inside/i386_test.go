package inside

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// What runs inside i386 programs.

// The tests of programs and jumps once more, on the same programs built for i386.
func TestI386Inside(t *testing.T) {
	harness.I386(t, 16, "Test(CountOnly|Unoptimized|NeighboursInside|ProgramsInside|SignalsUnderJumps|InsideExitsInC|PrivateDataIsThere|PostHandlersOfProgramsUnderSignals|"+
		"PostHandlerOfOverride|ChainOfTailCalls.*|BacktraceThroughSwappedFrames|ExitsByCondition|ExitsTellWhyCallsAreLost|ExitsSwitched|ExitsChangeResults)", "", "")
}

// Every function of the program and of its libc at once, by jumps: results are the same,
// counts right, threads that come and go told apart, and nothing is left.
func TestI386EverythingByJumps(t *testing.T) {
	for _, prog := range []struct {
		name  string
		flags []string
		libc  bool
		work  string
		calls map[string]uint64 // in a round
	}{
		{"threads", []string{"-O2"}, true, "100", map[string]uint64{"hammer_add": 400, "hammer_mul": 400, "hammer_leaf": 400, "churner": 2}},
		{"threads", []string{"-O0", "-static", "-no-pie"}, false, "100", map[string]uint64{"hammer_add": 400, "churner": 2}},
		{"signals", []string{"-O2"}, true, "100", nil},
		{"rets", []string{"-O0"}, true, "20", map[string]uint64{"ret_deep": 20 * 1001}},
	} {
		p := testprog.Start(t, testprog.Build(t, prog.name, append(prog.flags, "-m32")...))
		work := prog.work
		want := p.Round(work)
		before := harness.RemainsOf(t, p.Pid)
		s := harness.Attach(t, p.Pid, nil)
		files := []string{harness.ProgramOf(t, p.Pid)}
		if prog.libc {
			files = append(files, harness.MappedFile(t, p.Pid, "libc.so.6"))
		}
		ps := harness.CountEverything(t, s, files...)
		harness.SameRound(t, s, p, want, work)
		for name, calls := range prog.calls {
			kp := harness.ProbeOf(t, s, ps, name)
			if kp.Hits() != calls || kp.NMissed() != 0 {
				t.Errorf("%s: %d hits, %d missed, want %d", name, kp.Hits(), kp.NMissed(), calls)
			}
		}
		n, hits := harness.Reached(ps)
		t.Logf("%s %q: %d of %d were reached, %d hits", prog.name, prog.flags, n, len(ps), hits)
		harness.Detach(t, s)
		before.Check(t)
		if diff, err := testprog.TextDiff(p.Pid); err != nil || len(diff) > 0 {
			t.Errorf("left in the text: %v, %v", diff, err)
		}
		if got := p.Round(work); !slices.Equal(harness.Untimed(got), harness.Untimed(want)) {
			t.Errorf("in the end %q, want %q", got, want)
		}
	}
}

// A controller that is killed with jumps armed leaves a program that works, and whose text
// is as it was.
func TestI386KilledControllerWithJumps(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2", "-m32"))
	want := p.Round("20")
	for range 3 {
		c := harness.Controller(t, p.Pid, "count!ret_fib", "count!ret_deep", "count!ret_even", "count!ret_nested")
		p.Send("20")
		c.Process.Kill()
		c.Wait()
		var got []string
		for line := p.Line(); line != "done"; line = p.Line() {
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("results differ: %q, without probes %q", got, want)
		}
		harness.Restored(t, p.Pid)
	}
}

// A program is of the machine that it was compiled for: while the target executes one of the other
// it waits, and its maps, which lie elsewhere there, are left alone.
func TestI386ExecWithPrograms(t *testing.T) {
	testprog.Programs32.Need(t)
	const source = `
PROBED int work(int a) { BARRIER(); return a + 1; }
int main(void)
{
	while (next()) {
		if (line[0] == '/')
			execl(line, line, NULL);
		printf("%d\n", work(7));
	}
	return 0;
}
`
	wide, narrow := harness.Compile(t, "wide", source), harness.Compile(t, "narrow", source, "-m32")
	p := testprog.Start(t, wide)
	s := harness.Attach(t, p.Pid, nil)
	counts := &bpf.MapSpec{Name: "counts", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}
	const count = `
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
	var maps []*bpf.Map
	counting := func() {
		ps := harness.Load(t, s, []*bpf.MapSpec{counts}, nil, map[string]string{"count": count})
		program, err := ps.Program("count")
		harness.OK(t, err)
		harness.Register(t, s, &kprobe.Kprobe{SymbolName: "work", Program: program})
		m, err := ps.Map("counts")
		harness.OK(t, err)
		maps = append(maps, m)
	}
	executes := func(path string, want ...uint64) {
		t.Helper()
		if path != "" {
			p.Send("%s", path)
			p.Expect("ready")
		}
		for range 3 {
			if got := harness.Round(t, s, p, "")[0]; got != "8" {
				t.Errorf("the program says %s", got)
			}
			s.WaitOptimized()
		}
		for i, n := range want {
			v, err := maps[i].Lookup(make([]byte, 4))
			harness.OK(t, err)
			if got := binary.LittleEndian.Uint64(v); got != n {
				t.Errorf("program %d has counted %d, want %d", i, got, n)
			}
		}
	}
	counting()
	executes("", 3)
	executes(narrow, 3)
	counting()
	executes("", 3, 3)
	executes(wide, 6, 3)
	executes(narrow, 6, 6)
	harness.OK(t, s.Close())
	if got := p.Round("")[0]; got != "8" {
		t.Errorf("in the end the program says %s", got)
	}
}
