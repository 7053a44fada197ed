package life

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
	"kprobe/trace"
)

// Probes that a process's control group has no memory for are refused, in numbers, and cost it nothing: written, they would be its end.
// Where there is room they are placed. What they took is given back with them.
func TestMemoryGroup(t *testing.T) {
	const def = "p libc.so.6:*"
	g := testprog.NewMemoryGroup(t)
	p := testprog.StartCmd(t, g.Command(testprog.Build(t, "threads", "-O2", "-pthread")))
	p.Expect("ready") // what is not mapped yet would wait, and need no memory
	for _, tt := range []struct {
		left   uint64
		inside bool
		fits   bool
	}{
		{1500 << 10, false, false},
		{2500 << 10, false, false},
		{1500 << 10, true, false},
		{32 << 20, false, true},
		{1500 << 10, false, false}, // as before: nothing of the last one counts any more
	} {
		g.Leave(t, tt.left)
		proc, err := ptrace.Attach(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		s, err := kprobe.Open(proc, &kprobe.Options{Unlisted: true})
		if err != nil {
			t.Fatal(err)
		}
		tr := trace.New(s, func(*event.Event) {})
		tr.Inside = tt.inside
		before := harness.OwnText(t, p.Pid)
		err = tr.Add(def)
		switch {
		case tt.fits && err != nil:
			t.Errorf("%d KiB left: %v", tt.left>>10, err)
		case !tt.fits && (!errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), " KiB left of ")):
			t.Errorf("%d KiB left: %v, want ENOMEM in numbers", tt.left>>10, err)
		case tt.fits && harness.OwnText(t, p.Pid) < before+500:
			t.Errorf("only %d KiB of text are its own, with probes all over libc", harness.OwnText(t, p.Pid))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if after := harness.OwnText(t, p.Pid); after > before+16 {
			t.Errorf("%d KiB left: %d KiB of its text are its own when the session is closed, %d before", tt.left>>10, after, before)
		}
		if !p.Alive() {
			t.Fatalf("%d KiB left: the process has ended", tt.left>>10)
		}
	}
}
