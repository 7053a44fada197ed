package engine

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/target"
)

// removeAll leaves the target as it was found. A call that is refused here must
// not cost the target its health, so what did not succeed is tried once more. If
// it fails again, the lifeline stays for what is still in place, and the
// guardian takes over (see Close).
func (e *Engine) removeAll() error {
	e.remove(slices.Clone(e.probes)) // what it cannot put back is put back, or reported, below
	e.threads.GiveCopiesBack()
	var err error
	for range 2 {
		if err = e.On.Owner.Insist(e.leave); err == nil {
			return nil
		}
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil // it ended by itself, and not only a thread of it: then the second try has done it
	}
	return err
}

// leave is one try. What cannot be done before the exec of a vfork child that makes us leave is the guardian's.
func (e *Engine) leave(last bool) error {
	err := e.On.Owner.Frozen(func() error {
		return e.threads.TakeAway(last || e.left.Load(), e.optimizer.CloseGate, e.others)
	})
	if e.left.Load() && errors.Is(err, target.ErrNotNow) {
		return nil
	}
	return err
}

// others are the rest of what is ours in the target: watchpoints, and semaphores of static probes.
func (e *Engine) others() error {
	if _, err := e.Watches.Renew(); err != nil {
		return err
	}
	return e.raised.Lower(e.On.T)
}

// Raise raises semaphores of static probes, which Close lowers. Not from a handler. Errors: EFAULT; EDEADLK, ESRCH.
func (e *Engine) Raise(at ...arch.Addr) (err error) {
	if err := e.Turns.BeginChange(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	return e.On.Owner.Frozen(func() error { return e.raised.Raise(e.On.T, at) })
}
