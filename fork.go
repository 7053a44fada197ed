package kprobe

import (
	"errors"
	"syscall"

	"kprobe/internal/traced"
	"kprobe/target"
)

// forked cleans a child that was born with our breakpoints and trampoline
// addresses in its copy of the memory, and lets it go. It has not run yet.
func (s *Session) forked(st target.Stop) {
	c := st.Child
	s.threads.CleanChild(c, func(err error) {
		if err != nil {
			s.turns.Report(fail(0, "clean child %d: %v", c.PID(), err))
		}
	})
	s.release(c)
	s.on.T.Resume(st.Thread, 0)
}

// release lets a clean child go, or gives it a session of its own.
func (s *Session) release(c target.Child) {
	if f, ok := c.(target.Follower); ok && s.opts.Follow != nil {
		attach, err := f.Follow()
		if err == nil {
			s.opts.family.Expect(c.PID())
			s.children.Go(func() { s.follow(c.PID(), attach) })
			return
		}
		s.notFollowed(c.PID(), err)
	}
	if err := c.Detach(); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have been killed
		s.turns.Report(fail(0, "let go of child %d: %v", c.PID(), err))
	}
}

func (s *Session) follow(pid int, attach func() (target.Target, error)) {
	var child *Session
	t, err := attach()
	if err == nil {
		if child, err = Open(t, &s.opts); err != nil {
			t.Close() // closed already, where Open came far enough
		}
	}
	if err != nil {
		s.opts.family.Join(pid, nil)
		s.notFollowed(pid, err)
		s.turns.Tell()
		return
	}
	s.opts.Follow(child)
	s.opts.family.Join(pid, child.goWithout)
	child.Continue()
}

// notFollowed reports what is no news if the child was killed.
func (s *Session) notFollowed(pid int, err error) {
	if !errors.Is(err, target.ErrGone) && !errors.Is(err, syscall.ESRCH) {
		s.turns.Report(fail(0, "child %d is not followed: %v", pid, err))
	}
}

// execed deals with a target whose program has been replaced: nothing that we
// put there exists any more. Its one thread stands still until restart has forgotten
// that. Probes with a symbol wait for it to come back.
func (s *Session) execed(st target.Stop) {
	s.threads.Forget()
	s.on.Owner.Executed = true
	s.on.Image.Replaced()
	s.calls.Replaced()
	go s.restart(st.Thread)
}

// restart looks at the new program and arms what it has.
func (s *Session) restart(th target.Thread) {
	if s.begun() {
		s.mapped(th, true)
	}
}

// begun is restart's part in a turn; it answers false where the session is over.
func (s *Session) begun() bool {
	s.turns.Lock()
	defer s.turns.Unlock()
	if s.turns.Over() {
		return false
	}
	s.on.Owner.Grace()
	s.on.Owner.Do(func() {
		// Not before: the call that had the turn may have been planning with all that. Nothing of
		// it came into the new program, and no thread of that has run.
		s.on.View.Lock()
		s.on.Text.Lifeline.Forget()
		s.optimizer.Forget()
		s.turns.Report(s.within.Forget())
		s.raised = nil
		s.on.Points.List = nil
		s.on.Room.Forget()
		s.watches.Forget()
		s.on.View.Unlock()
		s.on.Owner.Executed = false
		s.turns.Report(s.on.Image.Become(s.on.T.Arch()))
		s.on.LearnMachine()
		s.calls.Replaced() // again: handlers that were on their way may have begun calls
		s.calls.Become(s.on.Arch)
	})
	s.reload()
	clear(s.jprobes)
	s.pending, s.tracers = nil, traced.Search{}
	for _, p := range s.probes {
		p.probe.Point = nil
		if p.probe.Gone.Store(!p.lasts() || p.any((*Program).lost)); !p.probe.Gone.Load() { // else with the address, or the program's maps
			p.unplace()
			s.pending = append(s.pending, p)
		}
	}
	s.turns.Report(s.refresh())
	s.placeLoader(true)
	s.armPending()
	return true
}
