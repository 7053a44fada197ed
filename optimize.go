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

// WaitOptimized returns when no point waits for its jump: each has it, or keeps
// the trap. Not from a handler (EDEADLK).
func (s *Session) WaitOptimized() error {
	if s.on.Owner.InHandler() {
		return errInHandler
	}
	s.optimize()
	return nil
}

// optimizeSoon is called with mu held.
func (s *Session) optimizeSoon() {
	if s.waiting || !s.within.Some() {
		return
	}
	s.waiting = true
	time.AfterFunc(optimizeDelay, s.optimize)
}

// optimize makes jumps of the traps that can be.
func (s *Session) optimize() {
	s.changing(func() {
		s.waiting = false
		if !s.within.Some() {
			return
		}
		tried, again := s.optimizer.Run()
		if again {
			s.optimizeSoon()
		}
		if tried {
			s.listChanged()
		}
	})
}
