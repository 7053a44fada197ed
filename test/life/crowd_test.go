package life

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// crowd is a program that counts in a map and writes a record, at a function's entry and at its return.
type crowd struct {
	hits    *kprobe.Kprobe
	returns *kprobe.Kretprobe
	runs    *bpf.Map
	records *bpf.Reader
	sum     [2]uint64 // of what was read: runs of the two programs
}

func newCrowd(t *testing.T, s *kprobe.Session) *crowd {
	t.Helper()
	const text = `
		*(u32 *)(r10 -4) = %d
		r1 = map runs; r2 = r10; r2 += -4; call map_lookup_elem
		if r0 == 0 goto out
		r1 = *(u64 *)(r0 +0); r1 += 1; *(u64 *)(r0 +0) = r1
		r1 = map records; r2 = r10; r2 += -4; r3 = 4; r4 = 0; call ringbuf_output
	out:	r0 = 0
		exit`
	maps := []*bpf.MapSpec{
		{Name: "runs", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 2},
		{Name: "records", Type: bpf.RingBuf, MaxEntries: 256 << 10},
	}
	ps := harness.Load(t, s, maps, map[string]bpf.Kind{"returned": bpf.Kretprobe}, map[string]string{"entered": fmt.Sprintf(text, 0), "returned": fmt.Sprintf(text, 1)})
	c := &crowd{}
	entered, err := ps.Program("entered")
	harness.OK(t, err)
	returned, err := ps.Program("returned")
	harness.OK(t, err)
	c.runs, err = ps.Map("runs")
	harness.OK(t, err)
	records, err := ps.Map("records")
	harness.OK(t, err)
	c.records, err = bpf.NewReader(records)
	harness.OK(t, err)
	c.hits = &kprobe.Kprobe{SymbolName: "crowd_leaf", Program: entered}
	c.returns = &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "crowd_leaf"}, Program: returned}
	harness.OK(t, s.Register(c.hits, c.returns))
	s.WaitOptimized()
	return c
}

// check holds what was counted, since the beginning, to the calls that there were.
func (c *crowd) check(t *testing.T, when string, calls uint64) {
	t.Helper()
	for {
		rec, more, err := c.records.Read()
		harness.OK(t, err)
		if !more {
			break
		}
		c.sum[binary.LittleEndian.Uint32(rec.Data)]++
	}
	var runs [2]uint64
	for i := range runs {
		values, err := c.runs.Threads(binary.LittleEndian.AppendUint32(nil, uint32(i)))
		harness.OK(t, err)
		for _, v := range values {
			runs[i] += binary.LittleEndian.Uint64(v)
		}
	}
	want := [2]uint64{calls, calls}
	if c.hits.Hits() != calls || c.hits.NMissed() != 0 || c.returns.Hits() != calls || c.returns.NMissed() != 0 || c.returns.Lost() != (kprobe.Lost{}) {
		t.Errorf("%s: %d hits and %d returns of %d calls, %d and %d missed, lost %+v", when, c.hits.Hits(), c.returns.Hits(), calls, c.hits.NMissed(), c.returns.NMissed(), c.returns.Lost())
	}
	if runs != want || c.sum != want || c.records.Lost() != 0 {
		t.Errorf("%s: %d runs are counted, %d recorded, %d lost, of %d calls", when, runs, c.sum, c.records.Lost(), calls)
	}
}

// Every thread of a program with more of them than there is memory for at first has its hits counted, its returns seen and its records
// read: threads that begin later, those that are there before, and those that come and go.
func TestManyThreads(t *testing.T) {
	for _, c := range []struct {
		flags        []string
		stack        string
		many, churns int
	}{
		{[]string{"-O2"}, "64", 1500, 1000},
		{[]string{"-O2", "-m32"}, "64", 200, 600},
	} {
		t.Run(fmt.Sprint(c.flags), func(t *testing.T) {
			if !testing.Short() {
				c.churns = 100_000
				if c.many > 1000 {
					c.many = 5000
				}
			}
			p := testprog.Start(t, testprog.Build(t, "crowd", c.flags...), c.stack)
			s := harness.Attach(t, p.Pid, nil)
			probes := newCrowd(t, s)
			calls := 0
			// The program says nothing in a round. So none takes long.
			const most = 3000
			lines := slices.Repeat([]string{fmt.Sprint(min(c.churns, most), " churn")}, (c.churns+most-1)/most)
			lines = slices.Concat([]string{fmt.Sprint(c.many)}, lines, []string{fmt.Sprint(c.many)})
			for _, line := range lines {
				var n int
				var sum uint64
				got := p.Round("%s", line)
				if _, err := fmt.Sscanf(got[len(got)-1], "calls %d %d", &n, &sum); len(got) != 1 || err != nil {
					t.Fatalf("round %q: %q", line, got)
				}
				calls += n
				probes.check(t, line, uint64(calls))
			}
		})
	}
}

// Threads that begin later get no rings where the control group has no memory for what they may write: written, they would be the
// process's end. Their hits are missed, not lost without a word, and one line says why, in numbers.
func TestManyThreadsInAMemoryGroup(t *testing.T) {
	const many, calls = 200, 3 * 200
	g := testprog.NewMemoryGroup(t)
	path := testprog.Build(t, "crowd", "-O2")
	p := testprog.StartCmd(t, g.Command(path))
	testprog.Executed(t, p.Pid, path)
	p.Expect("ready")
	for _, tt := range []struct {
		left uint64
		fits bool
	}{{32 << 20, false}, {256 << 20, true}} {
		g.Leave(t, tt.left)
		var reported []error
		s := harness.Attach(t, p.Pid, &kprobe.Options{Report: func(err error) { reported = append(reported, err) }})
		probes := newCrowd(t, s)
		got := p.Round("%d", many)
		hits, missed := probes.hits.Hits(), probes.hits.NMissed()
		if hits+missed != calls || tt.fits != (missed == 0) || hits < calls/10 {
			t.Errorf("%d MiB left: %q, %d hits and %d missed of %d calls", tt.left>>20, got, hits, missed, calls)
		}
		harness.Detach(t, s)
		if tt.fits && len(reported) > 0 || !tt.fits && (len(reported) != 1 || !errors.Is(reported[0], syscall.ENOMEM) || !strings.Contains(reported[0].Error(), " KiB left of ")) {
			t.Errorf("%d MiB left: reported %q", tt.left>>20, reported)
		}
		if !p.Alive() {
			t.Fatalf("%d MiB left: the process has ended", tt.left>>20)
		}
	}
}
