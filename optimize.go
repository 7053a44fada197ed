package kprobe

import (
	"kprobe/internal/parts"
	"kprobe/internal/turns"
)

// Jump optimization (kprobes.txt 1.4): a point whose probes all run inside the
// target has a jump to a detour, if nothing speaks against it when it is registered (see internal/links). Else it
// begins with a trap that leads its threads to the detour. A little later, so
// that many go at once, the trap becomes a jump there, if nothing does by then.
// The detour is the same, so nobody can tell but by the clock.

// Optimization reads the switch (kprobes.txt 1.4.4: debug.kprobes-optimization).
func (s *Session) Optimization() bool {
	s.on.View.RLock()
	defer s.on.View.RUnlock()
	return !s.on.Points.Unoptimized
}

// SetOptimization is the switch: off makes every jump a trap again and allows no
// new ones, on lets probes be optimized. It is on at first.
func (s *Session) SetOptimization(on bool) (err error) {
	if err := s.turns.BeginChange(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	set := func(on bool) {
		s.on.View.Lock()
		defer s.on.View.Unlock()
		s.on.Points.Unoptimized = !on
	}
	was := s.Optimization()
	set(on)
	s.optimizer.Soon() // without jumps, a kernel may have traps
	if on {
		return nil
	}
	err = s.links.Everywhere("no jumps", &parts.State{What: "optimization is off", Set: func() {}, Was: func() { set(was) }})
	s.listChanged()
	return err
}

// WaitOptimized returns when no point waits for its jump: each has it, or keeps the trap. A thread that cannot be looked
// at, since it sleeps uninterruptibly or waits in vfork, is waited for, but not for long. Not from a handler (EDEADLK).
func (s *Session) WaitOptimized() error {
	if s.on.Owner.InHandler() {
		return turns.ErrInHandler
	}
	s.optimizer.Wait()
	return nil
}
