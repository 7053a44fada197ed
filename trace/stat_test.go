package trace_test

import (
	"slices"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/trace"
)

// Every hit is counted, and every call is in the histogram once.
func TestStat(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	p.Round("100")
	s := attach(t, p.Pid, nil)
	st, err := trace.NewStat(s, false, "p:mul hammer_mul", "r:add hammer_add", "r:leaf hammer_leaf")
	ok(t, err)
	for round := uint64(1); round <= 3; round++ {
		p.Round("500")
		rows, err := st.Rows()
		ok(t, err)
		if len(rows) != 3 || rows[0].Latency != nil || rows[0].Name != "mul" || rows[1].Name != "add" {
			t.Fatalf("%v", rows)
		}
		for _, r := range rows {
			if r.Hits != 2000*round || r.Missed != 0 {
				t.Errorf("round %d: %s at %s: %d hits, %d missed", round, r.Name, r.Place, r.Hits, r.Missed)
			}
			timed := uint64(0)
			for _, n := range r.Latency {
				timed += n
			}
			if r.Latency != nil && timed != r.Hits {
				t.Errorf("round %d: %s: %d calls timed of %d", round, r.Name, timed, r.Hits)
			}
		}
		s.WaitOptimized()
	}
	ok(t, st.Close())
	rows, err := st.Rows()
	ok(t, err)
	if rows[0].Hits != 6000 || rows[1].Hits != 6000 {
		t.Errorf("closed: %v", rows)
	}
	if _, err := trace.NewStat(s, false, "w:x w@0x1000"); err == nil {
		t.Error("a watchpoint is counted")
	}
}

// Goroutines' stacks move between the beginning of a call and its end, and they change
// threads; a panic takes calls away that nobody returns from.
func TestStatGo(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	p := testprog.Start(t, testprog.Build(t, "goprog"))
	want := p.Round("500")
	s := attach(t, p.Pid, nil)
	st, err := trace.NewStat(s, false, "r:leaf main.goLeaf", "r200:grow main.goGrow", "r200:panic main.goPanic")
	ok(t, err)
	for round := uint64(1); round <= 3; round++ {
		if got := p.Round("500"); !slices.Equal(got, want) {
			t.Fatalf("round %d: %q, want %q", round, got, want)
		}
		rows, err := st.Rows()
		ok(t, err)
		for i, calls := range []uint64{4 * 500, 101 + 102 + 103 + 104, 0} {
			r, timed := rows[i], uint64(0)
			for _, n := range r.Latency {
				timed += n
			}
			if r.Hits != calls*round || timed != r.Hits || i < 2 && r.Missed != 0 {
				t.Errorf("round %d: %s: %d hits, %d timed, %d missed, want %d", round, r.Name, r.Hits, timed, r.Missed, calls*round)
			}
		}
		s.WaitOptimized()
	}
	ok(t, st.Close())
}
