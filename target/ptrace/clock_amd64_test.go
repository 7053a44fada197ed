//go:build linux && amd64

package ptrace

import (
	"testing"
	"time"

	"kprobe/internal/host"
)

// The counter's time goes with the kernel's.
func TestCounterClock(t *testing.T) {
	c, err := counterClock()
	if err != nil {
		t.Log("no counter to tell the time by here: ", err)
		return
	}
	first := host.Counter(timeStamp).Read()
	time.Sleep(50 * time.Millisecond)
	for _, r := range []host.Reading{first, host.Counter(timeStamp).Read()} {
		// A reading may be as wrong as the time between its two looks at the counter.
		got := c.Nanoseconds(r.Counter)
		if d := int64(got - r.Clock); d < -1e6 || d > 1e6 {
			t.Errorf("the counter says %d ns, the clock %d", got, r.Clock)
		}
	}
}
