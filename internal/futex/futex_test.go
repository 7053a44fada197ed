//go:build linux

package futex

import (
	"sync/atomic"
	"testing"
	"time"
)

// A thread waits as long as it may, and not a moment longer than until it is woken.
func TestWait(t *testing.T) {
	var word atomic.Uint32
	if begin := time.Now(); Wait(&word, 5*time.Millisecond) || time.Since(begin) < 5*time.Millisecond {
		t.Errorf("nobody has woken it, and it waited for %v", time.Since(begin))
	}
	for i := range 100 { // before it waits, and while it does
		word.Store(0)
		go func() {
			time.Sleep(time.Duration(i) * 10 * time.Microsecond)
			word.Store(1)
			Wake(&word)
		}()
		if begin := time.Now(); !Wait(&word, 10*time.Second) || time.Since(begin) > 5*time.Second {
			t.Errorf("round %d: it was woken, and waited for %v", i, time.Since(begin))
		}
	}
}
