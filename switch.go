package kprobe

// Enabled reads the global switch (kprobes.txt appendix A, the file
// kprobes/enabled).
func (s *Session) Enabled() bool { return s.e.Enabled() }

// SetEnabled is the global switch: off disarms every probe, on arms those that
// are not disabled. The probes' own states are left alone.
func (s *Session) SetEnabled(on bool) (err error) { return s.e.SetEnabled(on) }

// Jump optimization (kprobes.txt 1.4): a point whose probes all run inside the
// target has a jump to a detour, if nothing speaks against it when it is registered (see internal/links). Else it
// begins with a trap that leads its threads to the detour. A little later, so
// that many go at once, the trap becomes a jump there, if nothing does by then.
// The detour is the same, so nobody can tell but by the clock.

// Optimization reads the switch (kprobes.txt 1.4.4: debug.kprobes-optimization).
func (s *Session) Optimization() bool { return s.e.Optimization() }

// SetOptimization is the switch: off makes every jump a trap again and allows no
// new ones, on lets probes be optimized. It is on at first.
func (s *Session) SetOptimization(on bool) (err error) { return s.e.SetOptimization(on) }

// WaitOptimized returns when no point waits for its jump: each has it, or keeps the trap. A thread that cannot be looked
// at, since it sleeps uninterruptibly or waits in vfork, is waited for, but not for long. Not from a handler (EDEADLK).
func (s *Session) WaitOptimized() error { return s.e.WaitOptimized() }
