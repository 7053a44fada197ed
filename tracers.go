package kprobe

import (
	"fmt"

	"kprobe/internal/traced"
)

// Who of a followed family wants to trace another of it (a debugger, strace, a child that asks for it) could not, since we
// do; and a child that stops itself for such a tracer would stand still for good. So there is a probe of our own on the function
// that they ask with, and who shall be traced is let go before the call is made.

// watchTracers places that probe where the function is mapped. It is called in a turn.
func (s *Session) watchTracers() {
	places := s.tracers.Places(s.on.Image.Space, s.on.Image.ISA, s.opts.Follow != nil)
	if len(places) > 0 && !s.notifyAt(places, true) {
		s.tracers = traced.Search{}
	}
}

// outlived ends a session whose process ends by a fault as soon as nobody traces it: until then it faults for ever.
func (s *Session) outlived(signal int) {
	if s.left.CompareAndSwap(false, true) {
		go s.goWithout(fmt.Sprintf("is the init process of its namespace, and ends by a fault (signal %d) only when it has no tracer", signal))
	}
}

// goWithout ends a session whose process must not be traced any more.
func (s *Session) goWithout(why string) {
	s.left.Store(true)
	s.turns.Report(fail(0, "process %d %s: it is let go, without its probes", s.on.T.PID(), why))
	s.turns.Report(s.Close())
	s.turns.Tell()
}
