package inside

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// insideReturns are return probes whose work is done in the target, and which keep their
// own books there: how often a function was entered, how often it returned, with what.
type insideReturns struct {
	rps   []*kprobe.Kretprobe
	books *bpf.Map
	sums  bool // the results are the same in each round
}

// What is in a row of the books.
const (
	bookEntries = iota
	bookReturns
	bookResults // their sum
	bookFunc    // where the function is, as the return's program has it

	bookColumns
)

func watchInside(t testing.TB, s *kprobe.Session, engine kprobe.Engine, names []string) *insideReturns {
	t.Helper()
	maps := []*bpf.MapSpec{{Name: "books", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8 * bookColumns, MaxEntries: uint32(len(names))}}
	row := `
		r6 = r1
		call get_attach_cookie
		*(u32 *)(r10 -4) = r0
		r1 = map books
		r2 = r10
		r2 += -4
		call map_lookup_elem
		if r0 == 0 goto out
`
	ps := harness.Load(t, s, maps, map[string]bpf.Kind{"returned": bpf.Kretprobe}, map[string]string{
		"entered": row + `
			r1 = *(u64 *)(r0 +0)
			r1 += 1
			*(u64 *)(r0 +0) = r1
		out:
			r0 = 0
			exit`,
		"returned": row + `
			r1 = *(u64 *)(r0 +8)
			r1 += 1
			*(u64 *)(r0 +8) = r1
			r7 = r0
			r1 = r6
			r1 = *(u64 *)(RESULT)
			r2 = *(u64 *)(r7 +16)
			r2 += r1
			*(u64 *)(r7 +16) = r2
			r1 = r6
			call get_func_ip
			*(u64 *)(r7 +24) = r0
		out:
			r0 = 0
			exit`,
	})
	enter, err := ps.Program("entered")
	harness.OK(t, err)
	leave, err := ps.Program("returned")
	harness.OK(t, err)
	books, err := ps.Map("books")
	harness.OK(t, err)
	in := &insideReturns{books: books}
	for i, name := range names {
		in.rps = append(in.rps, &kprobe.Kretprobe{
			Kp: kprobe.Kprobe{SymbolName: name, Cookie: uint64(i)}, Engine: engine, MaxActive: 1 << 16, EntryProgram: enter, Program: leave,
		})
	}
	if err := s.RegisterKretprobes(in.rps); err != nil {
		t.Fatal(err)
	}
	return in
}

// row reads the books of the i-th function.
func (in *insideReturns) row(t testing.TB, i int) (row [bookColumns]uint64) {
	t.Helper()
	threads, err := in.books.Threads(binary.LittleEndian.AppendUint32(nil, uint32(i)))
	harness.OK(t, err)
	for _, v := range threads {
		for c := range row[:bookFunc] {
			row[c] += binary.LittleEndian.Uint64(v[8*c:])
		}
		row[bookFunc] = max(row[bookFunc], binary.LittleEndian.Uint64(v[8*bookFunc:]))
	}
	return row
}

// agree compares the books with what handlers in the controller counted for the same rounds.
func (in *insideReturns) agree(t testing.TB, s *kprobe.Session, cs []*counted) {
	t.Helper()
	for i, rp := range in.rps {
		row, c := in.row(t, i), cs[i]
		inside, outside := rp.Lost(), c.Lost()
		if rp.NMissed() != 0 || rp.Hits() != row[bookReturns] {
			t.Errorf("%s: %d hits, %d missed, in the books %d", rp.Kp.SymbolName, rp.Hits(), rp.NMissed(), row[bookReturns])
		}
		if int(row[bookEntries]) != c.entries.n() || int(row[bookReturns]) != c.returns.n() || inside != outside {
			t.Errorf("%s: inside %d entries, %d returns, lost %+v; outside %d, %d, %+v", rp.Kp.SymbolName,
				row[bookEntries], row[bookReturns], inside, c.entries.n(), c.returns.n(), outside)
		}
		if loc, err := s.Lookup(rp.Kp.SymbolName); err != nil || row[bookReturns] > 0 && arch.Addr(row[bookFunc]) != loc.Addr {
			t.Errorf("%s: the program at its return finds it at %#x, and it is at %+v (%v)", rp.Kp.SymbolName, row[bookFunc], loc, err)
		}
		if in.sums && c.tails.n() == 0 && int(row[bookResults]) != c.sum.n() {
			t.Errorf("%s: the results sum up to %d inside, %d outside", rp.Kp.SymbolName, int(row[bookResults]), c.sum.n())
		}
	}
}

// optimizedReturns is how many of the probes' entries are jumps.
func optimizedReturns(s *kprobe.Session) (n int) {
	for _, l := range s.List() {
		if l.Optimized {
			n++
		}
	}
	return n
}

// The same rounds of a program, its returns watched from outside and inside the target, by
// traps and by jumps: the counts are the same, and the program's answers.
func testInsideAgrees(t *testing.T, path, round string, engine kprobe.Engine, names []string, sums bool) {
	p := testprog.Start(t, path)
	want := p.Round(round)
	s := harness.Attach(t, p.Pid, nil)
	cs := watchReturns(t, s, engine, names)
	harness.SameRound(t, s, p, want, round)
	stopWatching(t, s, cs)
	for _, jumps := range []bool{false, true} {
		harness.OK(t, s.SetOptimization(jumps))
		in := watchInside(t, s, engine, names)
		in.sums = sums
		s.WaitOptimized()
		if n := optimizedReturns(s); jumps != (n > 0) {
			t.Errorf("%d of %d probes are optimized", n, len(names))
		}
		harness.SameRound(t, s, p, want, round)
		harness.OK(t, s.UnregisterKretprobes(in.rps))
		in.agree(t, s, cs)
	}
	harness.SameRound(t, s, p, want, round)
	harness.OK(t, s.Close())
	if got := p.Round(round); !slices.Equal(got, want) {
		t.Errorf("in the end %q, want %q", got, want)
	}
}

// Exceptions end calls that are watched inside.
func TestInsideExitsAndExceptions(t *testing.T) {
	path := testprog.Build(t, "throws", "-O2")
	testInsideAgrees(t, path, "30", kprobe.EngineAuto, functionsOf(t, path, "throw_"), true)
}

// C functions whose exits are probed on request: tail jumps, longjmp, loops to the entry.
func TestInsideExitsInC(t *testing.T) {
	path := testprog.Build(t, "rets", "-O2")
	round := "3"
	if testing.Short() {
		round = "1"
	}
	testInsideAgrees(t, path, round, kprobe.EngineExits, insideNames(t, path, "ret_"), true)
}

// Stacks that grow under their frames, panics, Goexit, goroutines on many threads.
func TestInsideExitsInGo(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	path := testprog.Build(t, "gostorm")
	testInsideAgrees(t, path, "200", kprobe.EngineAuto, insideNames(t, path, "main.storm"), false) // some results are addresses
}

// insideNames are those of functions with such a prefix that can have programs at their returns.
func insideNames(t *testing.T, path string, prefix string) (names []string) {
	s := harness.Attach(t, testprog.Start(t, path).Pid, nil)
	defer s.Close()
	for _, name := range functionsOf(t, path, prefix) {
		e := s.Plan(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: kprobe.EngineExits, Program: kprobe.CountOnly})
		if e.Verdict == kprobe.VerdictRefuse {
			t.Logf("%s: %s", name, e.Reason)
			continue
		}
		names = append(names, name)
	}
	return names
}
