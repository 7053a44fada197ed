package inside

import (
	"slices"
	"sync"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// written is a process of which is noted what is written at one address.
type written struct {
	*ptrace.Process
	at arch.Addr

	mu    sync.Mutex
	bytes []byte
}

func (w *written) WriteAt(a arch.Addr, b []byte) error {
	if a <= w.at && w.at < a+arch.Addr(len(b)) {
		w.mu.Lock()
		w.bytes = append(w.bytes, b[w.at-a])
		w.mu.Unlock()
	}
	return w.Process.WriteAt(a, b)
}

// Where a jump can be, it is there from the first: no thread meets a trap before it. One that does while it blocks
// the signal dies, if nobody serves it any more.
func TestJumpAtOnce(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	const line, calls = "20", 80
	before := p.Round(line)
	process, err := ptrace.Attach(p.Pid)
	harness.OK(t, err)
	w := &written{Process: process}
	s, err := kprobe.Open(w, &kprobe.Options{Report: func(err error) { t.Errorf("reported: %v", err) }})
	harness.OK(t, err)
	t.Cleanup(func() { harness.Detach(t, s) })
	loc, err := s.Lookup("hammer_mul")
	harness.OK(t, err)
	w.at = loc.Addr
	own := make([]byte, 1)
	harness.OK(t, process.ReadAt(w.at, own))

	jump := &kprobe.Kprobe{SymbolName: "hammer_mul", Program: kprobe.CountOnly}
	harness.OK(t, s.Register(jump))
	harness.SameRound(t, s, p, before, line)
	if jump.Hits() != calls {
		t.Errorf("%d hits, want %d", jump.Hits(), calls)
	}
	harness.OK(t, s.Unregister(jump))
	w.mu.Lock()
	defer w.mu.Unlock()
	// A page may be written as a whole, for another place: what comes again is no change.
	if got := slices.Compact(w.bytes); slices.Contains(got, process.Arch().Break[0]) || len(got) != 2 || got[1] != own[0] {
		t.Errorf("at %v is written: % x; want a jump, and then % x again", w.at, got, own)
	}
}
