package trace_test

import (
	"bytes"

	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// The latency histograms of i386 functions: the tests of the package once more on programs
// built for that.
func TestI386Stat(t *testing.T) {
	testprog.Programs32.Need(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestStat$", "-test.v")
	cmd.Env = append(os.Environ(), "KPROBE_TEST_CFLAGS=-m32")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Definitions are captured inside i386 programs: arguments are on the stack, and pointers have
// 4 bytes.
func TestI386CapturedInside(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2", "-m32"), "2")
	want := p.Round("200")
	s := attach(t, p.Pid, nil)
	var mu sync.Mutex
	var tokens, left []uint64
	wrong, last := 0, map[int]uint64{}
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Name {
		case "churned":
			tokens = append(tokens, e.Args[0].Bits)
		case "left":
			left = append(left, e.Args[0].Bits)
		case "add": // the second argument counts
			if n, seen := last[e.TID]; seen && e.Args[0].Bits != n+1 {
				wrong++
			}
			last[e.TID] = e.Args[0].Bits
		}
	})
	tr.Inside = true
	ok(t, tr.Add("p:churned churner token=+0(+4(%sp)):s32", "p:add hammer_add i=$arg2:u32", "r:left churner token=+0($arg1):s32"))
	s.WaitOptimized()
	for _, e := range s.List() {
		if !e.Optimized {
			t.Errorf("%v runs outside", e)
		}
	}
	if got := p.Round("200"); !slices.Equal(got, want) {
		t.Errorf("probed, a round gives %q, want %q", got, want)
	}
	ok(t, tr.Close())
	tr.Flush()
	mu.Lock()
	defer mu.Unlock()
	if want := []uint64{0, 1, 2}; !slices.Equal(tokens, want) || !slices.Equal(left, want) || wrong != 0 || len(last) != 2 {
		t.Errorf("tokens %d, and %d at returns, %d wrong, last %v", tokens, left, wrong, last)
	}
}
