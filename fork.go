package kprobe

import (
	"bytes"
	"errors"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/mem"
	"kprobe/internal/returns"
	"kprobe/internal/text"
	"kprobe/target"
)

// forked cleans a child that was born with our breakpoints and trampoline
// addresses in its copy of the memory, and lets it go. It has not run yet.
func (s *Session) forked(st target.Stop) {
	c := st.Child
	s.cleanError(c, s.restoreIn(c))
	var r arch.Regs
	if c.Regs(&r) == nil {
		// The call that made it may itself have been probed.
		if ref, ok := s.room.At(arch.Addr(r[s.arch.PC])); ok {
			ref.Leave(s.arch, &r)
			c.SetRegs(&r)
		}
	}
	s.leaveDetoursIn(c)
	s.cleanError(c, s.text.Lifeline.LeaveIn(c))
	for _, a := range s.room.Spans() {
		s.cleanError(c, c.Free(a.Start, int(a.End-a.Start)))
	}
	s.release(c)
	s.t.Resume(st.Thread, 0)
}

// release lets a clean child go, or gives it a session of its own.
func (s *Session) release(c target.Child) {
	if f, ok := c.(target.Follower); ok && s.opts.Follow != nil {
		attach, err := f.Follow()
		if err == nil {
			s.children.Go(func() { s.follow(c.PID(), attach) })
			return
		}
		s.notFollowed(c.PID(), err)
	}
	if err := c.Detach(); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have been killed
		s.report(fail(0, "let go of child %d: %v", c.PID(), err))
	}
}

func (s *Session) follow(pid int, attach func() (target.Target, error)) {
	t, err := attach()
	if err != nil {
		s.notFollowed(pid, err)
		s.tell()
		return
	}
	o := s.opts
	child, err := Open(t, &o)
	if err != nil {
		t.Close() // closed already, where Open came far enough
		s.notFollowed(pid, err)
		s.tell()
		return
	}
	s.opts.Follow(child)
	child.Continue()
}

// notFollowed reports what is no news if the child was killed.
func (s *Session) notFollowed(pid int, err error) {
	if !errors.Is(err, target.ErrGone) && !errors.Is(err, syscall.ESRCH) {
		s.report(fail(0, "child %d is not followed: %v", pid, err))
	}
}

func (s *Session) cleanError(c target.Child, err error) {
	if err != nil {
		s.report(fail(0, "clean child %d: %v", c.PID(), err))
	}
}

// restoreIn puts the text and the return addresses back in a copy of the target's memory, or in
// that of a target which is about to end.
func (s *Session) restoreIn(m mem.ReadWriter) (err error) {
	for _, pt := range s.points {
		if pt.Text != text.Own {
			err = errors.Join(err, s.disarmIn(m, pt))
		}
	}
	s.frames.mu.Lock()
	err = errors.Join(err, s.frames.restore(s, m))
	s.frames.mu.Unlock()
	if s.inside != nil {
		err = errors.Join(err, s.inside.GiveBackIn(m))
	}
	return err
}

// disarmIn puts a point's bytes back there.
func (s *Session) disarmIn(m mem.ReadWriter, pt *point) error {
	w := pt.Stands()
	b := make([]byte, len(w.New))
	if m.ReadAt(w.Addr, b) != nil || !bytes.Equal(b, w.New) {
		return nil
	}
	return m.WriteAt(w.Addr, w.Old)
}

// execed deals with a target whose program has been replaced: nothing that we
// put there exists any more. Its one thread stands still until restart has forgotten
// that. Probes with a symbol wait for it to come back.
func (s *Session) execed(st target.Stop) {
	clear(s.taken)
	s.executed = true
	s.frames.mu.Lock()
	for sp, fr := range s.frames.at {
		s.frames.abandon(sp, fr)
	}
	s.frames.trampoline = 0
	s.image.Replaced()
	for _, ri := range s.frames.calls.Drop(func(returns.Place, *Kretprobe, *KretprobeInstance) bool { return true }) {
		ri.lose(exited)
	}
	s.frames.native = returns.Stacks{}
	s.frames.mu.Unlock()
	go s.restart(st.Thread)
}

// restart looks at the new program and arms what it has.
func (s *Session) restart(th target.Thread) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed.Load() || s.exited.Load() {
		return
	}
	s.grace()
	s.do(func() {
		// Not before: who had mu may have been planning with all that. Nothing of
		// it came into the new program, and no thread of that has run.
		s.view.Lock()
		s.text.Lifeline.Forget()
		s.report(s.forgetInside())
		s.raised = nil
		s.points = nil
		s.room.Forget()
		clear(s.watches)
		clear(s.watching)
		s.view.Unlock()
		s.executed = false
		s.report(s.image.Become(s.t.Arch()))
		s.learnMachine()
	})
	s.reload()
	clear(s.jprobes)
	s.pending = nil
	for _, p := range s.probes {
		p.point = nil
		if p.SymbolName == "" || p.any((*Program).lost) {
			p.gone.Store(true) // with the address, or the program's maps
			continue
		}
		p.unplace()
		s.pending = append(s.pending, p)
	}
	if err := s.refresh(); err != nil {
		s.report(err)
	}
	s.loader.points, s.loader.state = nil, 0
	s.placeLoader(true)
	s.armPending()
	s.do(func() { s.t.Resume(th, 0) })
}
