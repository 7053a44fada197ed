package target

import (
	"errors"
	"syscall"
	"time"
)

// Insist tries again, for a while, what the target cannot do just now: a vfork child of its runs until its exec, or it
// has mapped memory where ours was to be. A try may itself take longer than that while, so there are always some.
func Insist(try func(last bool) error) error {
	const patience, atLeast = 2 * time.Second, 8
	end := time.Now().Add(patience)
	for tries := 1; ; tries++ {
		last := tries >= atLeast && time.Now().After(end)
		err := try(last)
		if last || !errors.Is(err, ErrNotNow) && !errors.Is(err, syscall.EEXIST) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
