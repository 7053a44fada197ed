package trace_test

import (
	"slices"
	"strings"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// The stacks of what runs go from the code that runs to main, whether calls on the way are timed, and their return addresses
// swapped, or not. What is not known is told, and no address of ours is shown as a function.
func TestSampled(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	s := attach(t, p.Pid, nil)
	x, err := trace.NewSampled(s)
	testprog.Need(t, "samples of the kernel's counters", err == nil)
	defer x.Close()
	look := func() (whole, cut int) {
		t.Helper()
		testprog.Until(t, "the program is sampled", p.Pid, func() bool {
			p.Round("200000")
			ok(t, x.Read(func(tid int, stack []event.Frame, end string) {
				if tid != p.Pid {
					t.Errorf("thread %d", tid)
				}
				last := stack[len(stack)-1].Name()
				switch {
				case slices.ContainsFunc(stack, func(f event.Frame) bool { return f.Name() == "main" }):
					whole++
				case end != "" || len(stack) == 1 || strings.Contains(last, "start"):
					cut++
				default:
					t.Errorf("%v ends with no word", stack)
				}
			}))
			return whole > 0 && whole+cut > 5
		})
		return whole, cut
	}
	if whole, cut := look(); cut > whole {
		t.Errorf("%d stacks to main, and %d others", whole, cut)
	}
	st, err := trace.NewStat(s, false, "r jumper")
	ok(t, err)
	look()
	ok(t, st.Close())
}
