package stops

import (
	"errors"

	"kprobe/internal/inside"
	"kprobe/target"
)

// insideSignal deals with a signal that reaches a thread in code of ours that probes
// run. It answers false for a thread that is elsewhere.
func (s *Server[V, I]) insideSignal(h *hit[V, I], st target.Stop) bool {
	if !s.Within.Some() {
		return false
	}
	slotPC := h.pc()
	course, d, err := s.Within.Signalled(h.regs, s.On.OwnFault(st), s.On.T)
	s.On.Report(err)
	switch course {
	case inside.Elsewhere:
		return false
	case inside.Mended:
		s.mended(h)
		return true
	case inside.Placed:
		if d != nil {
			s.faultAt(h, slotPC)
		} else if pt := s.On.Points.At(h.pc()); pt != nil && pt.Outer {
			// It came by a trap, and the handlers have run. What runs inside has not.
			s.Threads.Take(st.Thread, pt, h.sp(), false)
		}
		s.On.T.SetRegs(st.Thread, h.regs)
	case inside.Onward:
		// It has served the probe in part. It goes on to the end of that, which is
		// not far, and gets its signal there.
		if driver, ok := s.On.T.(target.Driver); ok {
			st.Signal, err = s.Within.DriveOut(driver, st.Thread, st.Signal, s.On.T)
			s.leaveCramped(s.Within.Cramped(), func() {})
		}
		if errors.Is(err, target.ErrGone) {
			return true
		}
		s.On.Report(err)
	}
	s.deliver(st.Thread, st.Signal)
	return true
}

// mended has a thread go on whose fault was ours. Where its stack had no room for a detour it waits until the place is left
// alone: for the next thread there may be no controller any more.
func (s *Server[V, I]) mended(h *hit[V, I]) {
	cramped := s.Within.Cramped()
	if len(cramped) == 0 {
		s.resume(h, 0)
		return
	}
	th := h.th
	if s.On.T.SetRegs(th, h.regs) != nil {
		return // killed meanwhile
	}
	s.leaveCramped(cramped, func() {
		if h, ok := s.hit(th); ok {
			s.resume(h, 0)
		}
	})
}

// leaveCramped has places left alone that a thread's stack has had no room for, where planning may be. What is then to be done is
// the owner thread's.
func (s *Server[V, I]) leaveCramped(ds []*inside.Detour, then func()) {
	if len(ds) == 0 {
		then()
		return
	}
	go func() {
		s.Handlers.Cramped(ds)
		s.On.Owner.Do(then)
	}()
}

// servedInside is for a point with programs and post-handlers: its thread is led through
// the detour as far as the instruction, which then is our affair, since the detour's own has
// no stop behind it.
func (s *Server[V, I]) servedInside(h *hit[V, I]) {
	th := h.th
	served, left := false, 0
	err := s.On.T.SetRegs(th, h.regs)
	if driver, ok := s.On.T.(target.Driver); err == nil && (ok || h.point.Detour.Together()) {
		served, left, err = s.Within.Serve(s.On.T, driver, th, h.point.Detour)
	}
	if err == nil {
		err = s.On.T.Regs(th, h.regs)
	}
	ds := s.Within.Cramped()
	if len(ds) == 0 {
		s.wasServed(h, served, left, err)
		return
	}
	kept := *h
	s.leaveCramped(ds, func() {
		if h, ok := s.hit(th); ok {
			h.point, h.probes, h.signal = kept.point, kept.probes, kept.signal
			s.wasServed(h, served, left, err)
		}
	})
}

// wasServed is for a thread behind Within.Serve, and what that has answered.
func (s *Server[V, I]) wasServed(h *hit[V, I], served bool, left int, err error) {
	th := h.th
	switch {
	case errors.Is(err, target.ErrGone):
	case err != nil:
		s.On.Report(err)
		s.On.T.Resume(th, 0) // to the end of the detour, which it is in, by itself
	case left != 0:
		s.Signalled(target.Stop{Kind: target.StopSignal, Thread: th, Signal: left})
	case served:
		h.again = true
		s.goOn(h)
	default:
		s.resume(h, h.signal)
	}
}
