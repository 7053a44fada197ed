package kprobe

import (
	"errors"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/target"
)

// besides is a target on which probes need no memory: breakpoints are kept beside
// its own, and the probed instruction is carried out where it stands, while
// nothing else runs. No byte of the target changes, so none has to be put back,
// and an instruction may be of any kind: it never runs anywhere else.
type besides interface {
	target.Breaker
	target.Stepper
}

// passDetour is for a point whose instruction has been replaced by another, such as
// ftrace's call. The detour has the one that was there, so it is of no use while that lasts:
// what only counts is counted here, and programs have missed the hit. The same holds always where the
// instruction must run where it stands; no program is there then.
func (s *Session) passDetour(h *hit) {
	for _, p := range h.probes {
		switch {
		case h.again || !p.active() || !p.runsInside():
		case p.Program == CountOnly:
			p.hits.Add(1)
		default:
			p.missed.Add(1)
		}
	}
	s.stepOver(h)
}

// stepOver lets the probed instruction have its effect where it stands, whatever
// it is by now. What does nothing is passed over: that saves half of a hit's
// cost, and in a kernel most functions begin with it, until its tracer makes it a call.
func (s *Session) stepOver(h *hit) {
	th, site := h.regs.th, h.point.Site
	if site.Insn.Nop && s.text.Check(&h.point.Place) == nil {
		h.regs.SetPC(site.Addr + arch.Addr(site.Insn.Len))
		s.emulated(h)
		return
	}
	const rounds = 100 // of an instruction that repeats, in one stop
	err := s.t.SetRegs(th, &h.regs.r)
	for i := 0; err == nil && (i == 0 || i < rounds && site.Insn.Repeats && h.regs.PC() == site.Addr); i++ {
		if err = s.beside.Step(th); err == nil {
			err = s.t.Regs(th, &h.regs.r)
		}
	}
	if err != nil {
		if !errors.Is(err, target.ErrGone) {
			s.report(err)
		}
		s.t.Resume(th, 0)
		return
	}
	if site.Insn.Repeats && h.regs.PC() == site.Addr { // the others have waited for long
		s.taken[execution{h.point, h.regs.SP()}] = away{th, true}
		s.resume(h, 0)
		return
	}
	s.emulated(h)
}

// besideVerdict is how stepOver goes about an instruction, in a plan's words.
func besideVerdict(site *patch.Site) string {
	switch {
	case site.Kind == isa.Emulate:
		return "emulate"
	case site.Insn.Nop:
		return "skip"
	}
	return "step"
}
