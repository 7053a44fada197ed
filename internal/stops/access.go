package stops

import (
	"kprobe/target"
)

// Accessed deals with a thread that has accessed watched data. If it stands in
// memory of ours, the handlers see it where the program thinks it is; but it goes
// on there: it need not be at the end of its slot (repeated string instructions).
func (s *Server[V, I]) Accessed(st target.Stop) {
	h, ok := s.hit(st.Thread)
	if !ok {
		return
	}
	s.Handlers.Among(st.Among)
	s.On.Text.Lifeline.Keep(st.Thread)
	real := *h.regs
	ours, theirs := s.Threads.Leave(h.regs)
	if !theirs {
		s.On.T.Resume(st.Thread, 0)
		return
	}
	shown := *h.regs
	s.fire(h, st.Accessed, func() {
		if h.pc() == shown.Addr(s.On.Arch.PC) && ours() {
			for i, v := range h.regs {
				if v == shown[i] {
					h.regs[i] = real[i]
				}
			}
		}
		s.resume(h, 0)
	})
}

// fire runs the handlers of the watchpoints in a set, and then what comes then on
// the owner thread.
func (s *Server[V, I]) fire(h *hit[V, I], set uint, then func()) {
	fired := s.Handlers.Accessed(set)
	if fired == nil {
		then()
		return
	}
	handlers := func() func() {
		fired(h.view)
		return then
	}
	if !s.Concurrent {
		handlers()()
		return
	}
	// Should we die meanwhile, nothing is left to do for this trap: the thread's
	// registers are as the instruction left them.
	s.On.Owner.Aside(handlers)
}
