package kprobe

import "kprobe/internal/traced"

// Who of a followed family wants to trace another of it (a debugger, strace, a child that asks for it) could not, since we
// do; and a child that stops itself for such a tracer would stand still for good. So there is a probe of our own on the function
// that they ask with, and who shall be traced is let go before the call is made.

// watchTracers places that probe where the function is mapped. mu is held.
func (s *Session) watchTracers() {
	if s.opts.Follow == nil {
		return
	}
	places := s.tracers.Places(s.on.Image.Space, s.on.Image.ISA)
	if len(places) > 0 && !s.notifyAt(places, true) {
		s.tracers = traced.Search{}
	}
}

// letGo ends a session whose process shall have another tracer.
func (s *Session) letGo() {
	s.report(fail(0, "process %d shall be traced by another one: it is let go, without its probes", s.on.T.PID()))
	s.left.Store(true)
	s.report(s.Close())
	s.tell()
}
