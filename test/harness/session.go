package harness

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// Attach opens a session on a running program. Its end checks that the text
// is what the files hold and that nobody traces the program any more.
func Attach(t testing.TB, pid int, o *kprobe.Options) *kprobe.Session {
	t.Helper()
	p, err := ptrace.Attach(pid)
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = &kprobe.Options{}
	}
	if o.Report == nil {
		o.Report = func(err error) { t.Errorf("reported: %v", err) }
	}
	s, err := kprobe.Open(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Detach(t, s) })
	return s
}

// Detach closes a session and holds it to its promise.
func Detach(t testing.TB, s *kprobe.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		if errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("close: %v", err)
		}
		return
	}
	if _, over := s.Exited(); over {
		return
	}
	diffs, err := testprog.TextDiff(s.Target().PID())
	if err != nil {
		t.Errorf("compare text: %v", err)
	}
	for _, d := range diffs {
		t.Errorf("text differs after detach: %s", d)
	}
}

// Register registers probes in one batch.
func Register(t testing.TB, s *kprobe.Session, ps ...*kprobe.Kprobe) {
	t.Helper()
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
}

// Round is a round under probes. What handlers and the test write is seen by
// the other: both ends wait for the thread that handlers run on.
func Round(t testing.TB, s *kprobe.Session, p *testprog.Proc, format string, args ...any) []string {
	t.Helper()
	Settle(t, s)
	defer Settle(t, s)
	return p.Round(format, args...)
}

// SameRound runs a round and compares it with an unprobed one.
func SameRound(t testing.TB, s *kprobe.Session, p *testprog.Proc, want []string, line string) {
	t.Helper()
	if got := Round(t, s, p, "%s", line); !slices.Equal(Untimed(got), Untimed(want)) {
		t.Errorf("under probes:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Settle waits for the thread that handlers run on.
func Settle(t testing.TB, s *kprobe.Session) {
	t.Helper()
	OK(t, s.SetEnabled(s.Enabled()))
}

// Ends holds a program to an end in order.
func Ends(t testing.TB, p *testprog.Proc) {
	t.Helper()
	if r := p.Result(); !r.OK() {
		t.Errorf("the program ended so: %s", r)
	}
}

// Optimized counts the probes that jumps lead to.
func Optimized(s *kprobe.Session) (n int) {
	for _, e := range s.List() {
		if e.Optimized {
			n++
		}
	}
	return n
}

// OK ends a test at an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Errno holds an error to an errno.
func Errno(t testing.TB, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, not errno %d (%v)", err, int(want), want)
	}
}

// SameLines holds what a program prints to what it printed before.
func SameLines(t testing.TB, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("line %d is\n%s\nwithout probes\n%s", i+1, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, without probes %d", len(got), len(want))
	}
}

// Untimed takes the counts of timers out of a round's lines: they differ from run to run.
func Untimed(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, "timers ") })
}

// SumOf is the last result of a round of n calls of jumper.
func SumOf(n int) (r uint64) {
	for i := range n {
		r = r*3 + uint64(i)
	}
	return r
}

// Pre makes a pre-handler that lets the instruction be.
func Pre(f func(regs *kprobe.Regs)) func(*kprobe.Kprobe, *kprobe.Regs) int {
	return func(_ *kprobe.Kprobe, regs *kprobe.Regs) int {
		f(regs)
		return 0
	}
}
