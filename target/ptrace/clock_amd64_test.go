//go:build linux && amd64

package ptrace

import (
	"math/bits"
	"testing"
	"time"
)

// The counter's time goes with the kernel's.
func TestCounterClock(t *testing.T) {
	c, err := counterClock()
	if err != nil {
		t.Log("no counter to tell the time by here: ", err)
		return
	}
	first := readClock()
	time.Sleep(50 * time.Millisecond)
	for _, r := range []reading{first, readClock()} {
		hi, lo := bits.Mul64(r.counter, c.mult)
		got := c.base + (hi<<(64-clockShift) | lo>>clockShift)
		// A reading may be as wrong as the time between its two looks at the counter.
		if d := int64(got - r.clock); d < -1e6 || d > 1e6 {
			t.Errorf("the counter says %d ns, the clock %d", got, r.clock)
		}
	}
}
