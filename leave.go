package kprobe

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/target"
)

// removeAll leaves the target as it was found. A call that is refused here must
// not cost the target its health, so what did not succeed is tried once more. If
// it fails again, the lifeline stays for what is still in place, and the
// guardian takes over (see Close).
func (s *Session) removeAll() error {
	s.remove(slices.Clone(s.probes)) // what it cannot put back is put back, or reported, below
	s.threads.GiveCopiesBack()
	var err error
	for range 2 {
		if err = s.on.Owner.Insist(s.leave); err == nil {
			return nil
		}
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil // it ended by itself, and not only a thread of it: then the second try has done it
	}
	return err
}

// leave is one try. What cannot be done before the exec of a vfork child that makes us leave is the guardian's.
func (s *Session) leave(last bool) error {
	err := s.on.Owner.Frozen(func() error {
		return s.threads.TakeAway(last || s.left.Load(), s.optimizer.CloseGate, s.others)
	})
	if s.left.Load() && errors.Is(err, target.ErrNotNow) {
		return nil
	}
	return err
}

// others are the rest of what is ours in the target: watchpoints, and semaphores of static probes.
func (s *Session) others() error {
	if _, err := s.watches.Renew(); err != nil {
		return err
	}
	return s.raised.Lower(s.on.T)
}
