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
		err = target.Insist(func(last bool) error { return s.frozen(func() error { return s.takeAway(last) }) })
		if err == nil || errors.Is(err, syscall.ESRCH) { // it ended by itself
			return nil
		}
	}
	return err
}

// takeAway takes what is left of a session out of the frozen target: first what
// leads to our memory, then the memory. It can be called again.
func (s *Session) takeAway(anyhow bool) error {
	if s.t.Stuck() > 0 && !anyhow {
		return target.ErrNotNow // a thread that cannot be stopped may need it
	}
	rest := s.points
	s.view.Lock()
	for _, pt := range rest {
		pt.notify = false
	}
	s.view.Unlock()
	var foreign error
	if s.rearm(rest) != nil {
		if foreign = s.rearmSingly(rest); foreign != nil && !patch.OnlyForeign(foreign) {
			return foreign
		}
	}
	s.retire(rest)
	if _, err := s.evacuate(); err != nil {
		return err
	}
	if err := s.closeGate(); err != nil {
		return err
	}
	s.findVacant()
	if err := s.frames.giveBack(s, anyhow); err != nil {
		return err
	}
	if err := s.rewatch(); err != nil {
		return err
	}
	if err := s.raised.Lower(s.t); err != nil {
		return err
	}
	if err := s.leaveInside(anyhow); err != nil {
		return err
	}
	if err := s.text.Lifeline.End(); err != nil {
		return err
	}
	return errors.Join(foreign, s.freeArenas())
}

// freeArenas unmaps what we mapped. What a thread that cannot be stopped may
// still run in stays: it works without us.
func (s *Session) freeArenas() error {
	if s.t.Stuck() > 0 {
		return nil
	}
	s.view.Lock()
	defer s.view.Unlock()
	return s.room.Leave()
}
