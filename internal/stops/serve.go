package stops

import (
	"errors"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/text"
	"kprobe/target"
)

// dispatch runs the handlers, here or on a goroutine of their own.
func (s *Server[V, I]) dispatch(h *hit[V, I]) {
	if s.skipped(h) {
		s.goOn(h)
		return
	}
	if !s.Concurrent || h.point.Notify {
		if s.handlers(h) {
			s.goOn(h)
		} else {
			s.resume(h, h.signal)
		}
		return
	}
	// The stop will be read before it is served: the trap must be able to
	// happen once more. Until it is read, its signal is still there.
	r := *h.regs
	if s.On.Text.Lifeline.Catches() {
		r[s.On.Arch.Flags] |= s.On.Machine.Lifeline.Mark()
		s.On.T.SetRegs(h.th, &r)
	}
	s.On.Owner.Aside(func() (then func()) {
		if s.handlers(h) {
			return func() { s.goOn(h) }
		}
		return func() { s.resume(h, h.signal) }
	})
}

// skipped tells that the handlers of this very execution ran before a signal
// took the thread away; h.again, that what runs inside did too.
func (s *Server[V, I]) skipped(h *hit[V, I]) (same bool) {
	if !h.after {
		same, h.again = s.Threads.Back(h.th, h.point, h.sp())
	}
	return same
}

// handlers runs the pre-handlers, or the post-handlers. It answers false if a
// pre-handler has moved the PC.
func (s *Server[V, I]) handlers(h *hit[V, I]) bool {
	if h.after {
		s.Handlers.After(h.probes, h.view)
		return true
	}
	return s.Handlers.Before(h.probes, h.view)
}

// goOn lets the probed instruction have its effect: emulated, or in a slot.
// With post-handlers the thread comes back, or they run here and now.
func (s *Server[V, I]) goOn(h *hit[V, I]) {
	pt := h.point
	site := pt.Site
	switch {
	case h.after || !pt.Live: // done, or the instruction is back in its place
	case pt.Detour != nil && pt.Post && !h.again && s.On.Kind.Posts():
		s.servedInside(h)
		return
	case pt.Detour != nil && pt.Pinned != "":
		s.passDetour(h)
		return
	case pt.Detour != nil && pt.Text == text.Beside && !s.On.Unchanged(pt): // else it is ours that is there
		if !s.passThrough(h) {
			s.passDetour(h)
		}
		return
	case pt.Detour != nil && !h.again:
		h.setPC(pt.Detour.ServeAt())
	case pt.Post && site.Step != nil:
		h.setPC(site.Step.Addr)
	case s.On.Kind.InPlace() && (site.Kind != isa.Emulate || s.On.Text.Check(&pt.Place) != nil):
		s.stepOver(h)
		return
	case (site.Kind == isa.Emulate || pt.Post) && site.Emulate(h.regs, (*performed[V, I])(h)) == nil:
		if h.accessed == 0 {
			s.emulated(h)
		} else {
			s.fire(h, h.accessed, func() { s.emulated(h) })
		}
		return
	case s.On.Kind.InPlace(): // emulation has failed, for want of memory that the instruction uses: the CPU shall fault on it
		s.stepOver(h)
		return
	default:
		// Here too if emulation fails.
		if site.Boost == nil {
			s.On.T.SetRegs(h.th, h.regs)
			s.deliverFault(h.th, faultSignal, true)
			return
		}
		h.setPC(site.Boost.Addr)
	}
	s.resume(h, h.signal)
}

// emulated goes on behind an instruction that was emulated.
func (s *Server[V, I]) emulated(h *hit[V, I]) {
	if h.point.Post {
		h.probes, h.after = h.point.Probes, true // one may have been removed meanwhile
		s.dispatch(h)
		return
	}
	s.resume(h, h.signal)
}

const (
	// trapSignal is SIGTRAP.
	trapSignal = 5
	// faultSignal is SIGSEGV: what the few instructions get that no slot can run,
	// when the memory that they need is not there.
	faultSignal = 11
)

// resume writes the registers back and lets the thread go on.
func (s *Server[V, I]) resume(h *hit[V, I], signal int) {
	if signal == 0 && s.On.Text.Lifeline.Catches() {
		h.regs[s.On.Arch.Flags] |= s.On.Machine.Lifeline.Mark()
	}
	if s.On.T.SetRegs(h.th, h.regs) != nil {
		return // killed meanwhile
	}
	if h.point == nil || !h.point.Notify || h.after || !s.Handlers.Notified(h.point, h.view) {
		s.deliver(h.th, signal)
	}
}

// deliver lets a thread go on, with a signal unless that is 0.
func (s *Server[V, I]) deliver(th target.Thread, signal int) {
	s.deliverFault(th, signal, s.On.OwnFault(target.Stop{Thread: th}))
}

// deliverFault is deliver where it is known whether the signal is for the thread's own instruction.
func (s *Server[V, I]) deliverFault(th target.Thread, signal int, fault bool) {
	if signal == trapSignal && s.On.Text.Lifeline.Ignored(th) {
		signal = 0
	}
	if d, ok := s.On.T.(target.Dumper); ok && signal != 0 {
		switch {
		case d.Dumps(th, signal):
			s.unseen()
		case fault && d.Outlives(th, signal):
			s.Handlers.Outlived(signal)
		}
	}
	s.On.T.Resume(th, signal)
}

// unseen has a target that is about to end, core dumped, look as if it had never been probed. Threads are let out of
// what detours call, but not for ever.
func (s *Server[V, I]) unseen() {
	err := s.On.Owner.Insist(func(bool) error { return s.On.Owner.Freeze(s.Threads.Unseen) })
	if !errors.Is(err, target.ErrNotNow) {
		s.On.Alive(err)
	}
}

// performed is memory for the instruction of a hit. The processor does not see
// accesses that we make, so watchpoints are looked for here.
type performed[V Registers, I any] hit[V, I]

func (h *performed[V, I]) ReadAt(a arch.Addr, p []byte) error {
	h.accessed |= h.by.Watched.Touched(a, len(p), false)
	return h.by.On.T.ReadAt(a, p)
}

func (h *performed[V, I]) WriteAt(a arch.Addr, p []byte) error {
	h.accessed |= h.by.Watched.Touched(a, len(p), true)
	return h.by.On.T.WriteAt(a, p)
}
