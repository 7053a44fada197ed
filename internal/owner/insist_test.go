package owner

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kprobe/target"
)

// What takes long is tried again all the same: on a busy machine one try of many probes takes longer than the patience.
func TestInsistOnWhatTakesLong(t *testing.T) {
	for _, takes := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := insist(0, func(bool) error {
				if time.Sleep(takes); tries < 4 {
					tries++
					return syscall.EEXIST
				}
				return nil
			})
			if err != nil {
				t.Errorf("%v after %d tries of %v", err, tries, takes)
			}
		})
	}
}

// It ends, and says to the last try that it is.
func TestInsistEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, told := time.Now(), false
		err := insist(0, func(last bool) error { told = last; return target.ErrNotNow })
		if took := time.Since(begun); err != target.ErrNotNow || !told || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("%v after %v; the last was told: %v", err, took, told)
		}
	})
}
