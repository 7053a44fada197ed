package kprobe

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/internal/patch"
	"kprobe/target"
)

// removeAll leaves the target as it was found. A call that is refused here must
// not cost the target its health, so what did not succeed is tried once more. If
// it fails again, the lifeline stays for what is still in place, and the
// guardian takes over (see Close).
func (s *Session) removeAll() error {
	s.remove(slices.Clone(s.probes)) // what it cannot put back is put back, or reported, below
	var err error
	for range 2 {
		err = target.Insist(s.leave)
		if err == nil || errors.Is(err, syscall.ESRCH) { // it ended by itself
			return nil
		}
	}
	return err
}

// leave is one try. What cannot be done before the exec of a vfork child that makes us leave is the guardian's.
func (s *Session) leave(last bool) error {
	err := s.on.Owner.Frozen(func() error { return s.takeAway(last || s.left.Load()) })
	if s.left.Load() && errors.Is(err, target.ErrNotNow) {
		return nil
	}
	return err
}

// takeAway takes what is left of a session out of the frozen target: first what
// leads to our memory, then the memory. It can be called again.
func (s *Session) takeAway(anyhow bool) error {
	if s.on.T.Stuck() > 0 && !anyhow {
		return target.ErrNotNow // a thread that cannot be stopped may need it
	}
	rest := s.on.Points.List
	s.on.View.Lock()
	for _, pt := range rest {
		pt.Notify = false
	}
	s.on.View.Unlock()
	foreign := s.on.Points.Rearm(rest)
	if foreign != nil {
		foreign = s.on.Points.RearmSingly(rest)
	}
	if foreign != nil && !patch.OnlyForeign(foreign) {
		return foreign
	}
	s.threads.Retire(rest)
	for _, step := range []func() error{
		func() error { _, err := s.threads.Evacuate(); return err },
		s.optimizer.CloseGate,
		func() error { s.within.Collect(); return s.threads.GiveCallsBack(anyhow) },
		func() error { _, err := s.watches.Renew(); return err },
		func() error { return s.raised.Lower(s.on.T) },
		func() error { return s.within.Leave(anyhow) },
		s.on.Text.Lifeline.End,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(foreign, s.on.Leave())
}
