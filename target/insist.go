package target

import (
	"errors"
	"syscall"
	"time"
)

// Insist tries again, for a while, what the target cannot do just now: a vfork
// child of its runs until its exec.
func Insist(try func(last bool) error) error {
	const patience = 2 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		last := time.Now().After(end)
		err := try(last)
		if last || !errors.Is(err, ErrNotNow) && !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
}
