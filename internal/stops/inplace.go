package stops

import (
	"errors"

	"kprobe/arch"
	"kprobe/target"
)

// passDetour is for a point whose instruction has been replaced by another, such as
// ftrace's call. The detour has the one that was there, so it is of no use while that lasts:
// what only counts is counted here, and programs have missed the hit. The same holds always where the
// instruction must run where it stands; no program is there then.
func (s *Server[V, I]) passDetour(h *hit[V, I]) {
	if !h.again {
		s.Handlers.Passed(h.probes)
	}
	s.stepOver(h)
}

// stepOver lets the probed instruction have its effect where it stands, whatever
// it is by now. What does nothing is passed over: that saves half of a hit's
// cost, and in a kernel most functions begin with it, until its tracer makes it a call.
func (s *Server[V, I]) stepOver(h *hit[V, I]) {
	th, site := h.th, h.point.Site
	if site.Insn.Nop && s.On.Text.Check(&h.point.Place) == nil {
		h.setPC(site.Addr + arch.Addr(site.Insn.Len))
		s.emulated(h)
		return
	}
	const rounds = 100 // of an instruction that repeats, in one stop
	err := s.On.T.SetRegs(th, h.regs)
	for i := 0; err == nil && (i == 0 || i < rounds && site.Insn.Repeats && h.pc() == site.Addr); i++ {
		if err = s.On.Kind.Step(th); err == nil {
			err = s.On.T.Regs(th, h.regs)
		}
	}
	if err != nil {
		if !errors.Is(err, target.ErrGone) {
			s.On.Report(err)
		}
		s.On.T.Resume(th, 0)
		return
	}
	if s.excepted(h) {
		return
	}
	if site.Insn.Repeats && h.pc() == site.Addr { // the others have waited for long
		s.Threads.Take(th, h.point, h.sp(), true)
		s.resume(h, 0)
		return
	}
	s.emulated(h)
}

// excepted serves an instruction that has faulted where it stands, in place of being done: its fault-handlers are asked, and the
// kernel's own handler, to which the CPU has come, goes on unless one has dealt with it.
func (s *Server[V, I]) excepted(h *hit[V, I]) bool {
	trap, at, ok := s.On.Kind.Excepted(h.th, h.regs)
	if !ok || at.Addr(s.On.Arch.PC) != h.point.Addr {
		return false
	}
	entered := *h.regs
	*h.regs = at
	if !s.Handlers.Faulted(h.point.Probes, h.view, trap) {
		a := s.On.Arch
		for _, own := range []arch.Reg{a.PC, a.SP, a.Flags} { // the others are the instruction's still
			h.regs[own] = entered[own]
		}
	}
	s.resume(h, 0)
	return true
}
