package kprobe

import (
	"time"

	"kprobe/internal/parts"
)

// Jump optimization (kprobes.txt 1.4): a point whose probes all run inside the
// target has a jump to a detour, if nothing speaks against it when it is registered (see internal/links). Else it
// begins with a trap that leads its threads to the detour. A little later, so
// that many go at once, the trap becomes a jump there, if nothing does by then.
// The detour is the same, so nobody can tell but by the clock.

// optimizeDelay is how long a point waits: the kernel's five ticks.
const optimizeDelay = 20 * time.Millisecond

// Optimization reads the switch (kprobes.txt 1.4.4: debug.kprobes-optimization).
func (s *Session) Optimization() bool {
	s.on.View.RLock()
	defer s.on.View.RUnlock()
	return !s.on.Points.Unoptimized
}

// SetOptimization is the switch: off makes every jump a trap again and allows no
// new ones, on lets probes be optimized. It is on at first.
func (s *Session) SetOptimization(on bool) (err error) {
	if err := s.beginChange(); err != nil {
		return err
	}
	defer s.end(&err)
	set := func(on bool) {
		s.on.View.Lock()
		defer s.on.View.Unlock()
		s.on.Points.Unoptimized = !on
	}
	was := s.Optimization()
	set(on)
	s.optimizeSoon() // without jumps, a kernel may have traps
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
		return errInHandler
	}
	for look := 1; s.optimize() && look < 5; look++ {
		time.Sleep(optimizeDelay)
	}
	return nil
}

// optimizeSoon is called with mu held.
func (s *Session) optimizeSoon() {
	if !s.waiting && s.within.Some() {
		s.waiting = true
		time.AfterFunc(optimizeDelay, func() { s.optimize() })
	}
}

// optimize makes jumps of the traps that can be, and tells whether a thread that cannot be looked at was in the way.
func (s *Session) optimize() (stuck bool) {
	s.changing(func() {
		if s.waiting = false; !s.within.Some() {
			return
		}
		tried, again := s.optimizer.Run()
		if stuck = s.optimizer.Stuck(); again {
			s.optimizeSoon()
		}
		if tried {
			s.listChanged()
		}
	})
	return stuck
}
