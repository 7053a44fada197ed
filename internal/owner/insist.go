package owner

import (
	"errors"
	"syscall"
	"time"

	"kprobe/internal/patience"
	"kprobe/target"
)

// Insist tries again, for a while, what the target cannot do just now: a vfork child of its runs until its exec, or it
// has mapped memory where ours was to be. Time in which the target waits for a CPU does not count. A try may itself take
// longer than that while, so there are always some.
func (o *Owner) Insist(try func(last bool) error) error { return insist(o.t.PID(), try) }

func insist(pid int, try func(last bool) error) error {
	const long, atLeast = 2 * time.Second, 8
	p := patience.Of(pid, long)
	for tries := 1; ; tries++ {
		last := tries >= atLeast && p.Spent()
		err := try(last)
		if last || !errors.Is(err, target.ErrNotNow) && !errors.Is(err, syscall.EEXIST) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
