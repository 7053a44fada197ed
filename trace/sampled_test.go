package trace_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// A sample's stack is the stack of its moment, though the thread has gone on when it is read. Each
// function is called by a real caller of it, whether calls on the way are timed, with swapped
// return addresses, or not. A walk that ends early says so.
func TestSampled(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "callers", "-O2"))
	s := attach(t, p.Pid, nil)
	x, err := trace.NewSampled(s)
	if runtime.GOARCH != "amd64" && errors.Is(err, syscall.ENOTSUP) {
		return // stacks are walked there only
	}
	ok(t, err)
	defer x.Close()
	callers := map[string][]string{"work": {"often", "seldom"}, "often": {"main"}, "seldom": {"main"}}
	look := func() (whole, cut int) {
		t.Helper()
		testprog.Until(t, "the program is sampled", p.Pid, func() bool {
			p.Round("1000000")
			ok(t, x.Read(func(tid int, stack []event.Frame, end string) {
				var names []string
				for i := range stack {
					names = append(names, stack[i].Name())
				}
				for i := range names[:len(names)-1] {
					if known := callers[names[i]]; known != nil && !slices.Contains(known, names[i+1]) {
						t.Errorf("%s is called by %s: %q", names[i], names[i+1], names)
					}
				}
				switch {
				case tid != p.Pid:
					t.Errorf("thread %d", tid)
				case slices.Contains(names, "main"):
					whole++
				case end != "" || len(stack) == 1 || strings.Contains(names[len(names)-1], "start"):
					cut++
				default:
					t.Errorf("%q ends with no word", names)
				}
			}))
			return whole+cut > 30
		})
		return whole, cut
	}
	if whole, cut := look(); cut > whole {
		t.Errorf("%d stacks to main, and %d others", whole, cut)
	}
	st, err := trace.NewStat(s, false, "r often", "r work")
	ok(t, err)
	look()
	ok(t, st.Close())
}
