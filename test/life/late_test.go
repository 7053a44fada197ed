package life

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A followed child waits for its session. On a very busy machine the session comes too late: the child has gone on, and its hits are
// lost. The session reports that. Here each session is late, since no child waits.
func TestLifeFollowedLate(t *testing.T) {
	testprog.WaitsAsleep.Need(t)
	waitInLoop(t, 0)
	p := testprog.Start(t, testprog.Build(t, "forks", "-O2"))
	want := p.Round("3")
	var late atomic.Int64
	s := harness.Attach(t, p.Pid, &kprobe.Options{
		Unlisted: true,
		Follow: func(child *kprobe.Session) {
			go func() {
				<-child.Done()
				child.Close()
			}()
		},
		Report: func(err error) { // other errors come, too: a late session meets a child in the middle of its work
			if strings.Contains(err.Error(), "is followed late: what it did before is not seen") || strings.Contains(err.Error(), "not attached to within 0s") {
				late.Add(1)
			}
		},
	})
	if got := p.Round("3"); !slices.Equal(got, want) {
		t.Errorf("followed:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	harness.Ends(t, p)
	<-s.Done()
	if late.Load() == 0 {
		t.Error("no child was late, or none was told of")
	}
	t.Logf("%d children were late", late.Load())
}
