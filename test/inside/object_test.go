package inside

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// clang compiles a program of package bpf's.
func clang(t testing.TB, file string) *bpf.Collection {
	t.Helper()
	object := testprog.CompileBPF(t, filepath.Join("..", "..", "bpf", "testdata", file), "-mcpu=v3")
	c, err := bpf.Load(bytes.NewReader(object))
	harness.OK(t, err)
	return c
}

// A histogram as people write it, in C, on a live Python: every call of malloc is in
// it, once.
func TestClangProgramOnPython(t *testing.T) {
	p := harness.StartPython(t)
	p.Round("allofit 2")
	want := p.Round("repeatable 2")
	s := harness.Attach(t, p.Pid, nil)
	ps, err := s.Load(clang(t, "hist.bpf.c"))
	harness.OK(t, err)
	probes, err := ps.Attach()
	harness.OK(t, err)
	hist, err := ps.Map("hist")
	harness.OK(t, err)
	for range 3 {
		if got := p.Round("repeatable 2"); !slices.Equal(got, want) {
			harness.SameLines(t, got, want)
		}
		s.WaitOptimized()
	}
	if n := harness.Optimized(s); n != 2 {
		t.Errorf("%d of 2 are optimized: %v", n, s.List())
	}
	// Python calls malloc also after it has answered: what is read is of one moment
	// only when it waits again.
	var timed, returns uint64
	testprog.UntilNil(t, "all returns are timed", p.Pid, func() error {
		timed, returns = 0, 0
		for _, threads := range hist.All() {
			timed += binary.LittleEndian.Uint64(bpf.Sum(threads))
		}
		for _, probe := range probes {
			if rp, is := probe.(*kprobe.Kretprobe); is {
				returns = rp.Hits()
			}
		}
		if returns != timed || returns < 100 {
			return fmt.Errorf("%d returns, %d in the histogram", returns, timed)
		}
		return nil
	})
	harness.Detach(t, s)
	harness.SameLines(t, p.Round("repeatable 2"), want)
}
