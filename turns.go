package kprobe

import "kprobe/internal/errno"

// A session does one thing after another: who begins a call waits for the calls before it,
// which may wait for the owner thread, or for handlers. Handlers therefore never wait: begin
// refuses them, and what they may ask is answered without it (see shown).

// begin takes the session for a call of a user's. Errors: EDEADLK.
func (s *Session) begin() error {
	if s.on.Owner.InHandler() {
		return errInHandler
	}
	s.mu.Lock()
	return nil
}

// beginUse is begin for a call that needs the target. Errors: EDEADLK, ESRCH.
func (s *Session) beginUse() error { return s.beginIf(s.usable) }

// beginChange is begin for a call that changes the target. Errors: EDEADLK, EPERM, ESRCH.
func (s *Session) beginChange() error { return s.beginIf(s.changeable) }

func (s *Session) beginIf(may func() error) error {
	err := s.begin()
	if err != nil {
		return err
	}
	if err = may(); err != nil {
		s.unlock()
	}
	return err
}

// changing calls f while nobody else changes the target, unless nobody may any more.
func (s *Session) changing(f func()) {
	s.mu.Lock()
	defer s.unlock()
	if s.changeable() == nil {
		f()
	}
}

// end lets the next one begin. Whatever the call stumbled over because the target ended
// under it is ESRCH: callers need not know which step that was.
func (s *Session) end(err *error) {
	s.unlock()
	if *err != nil && s.hasEnded() {
		*err = errno.Gone(s.on.T.PID())
	}
}

// hasEnded tells whether the target has ended, though nobody may have noticed yet.
func (s *Session) hasEnded() bool {
	maps, err := s.on.T.Maps()
	return s.exited.Load() || err != nil || len(maps) == 0
}

// unlock lets go of mu, and then tells what is to be told.
func (s *Session) unlock() {
	s.mu.Unlock()
	s.tell()
}
