package stops

import (
	"kprobe/arch"
	"kprobe/internal/probed"
	"kprobe/internal/text"
)

// passage is a detour that hits pass through whose instruction is another by now, such as the call that a kernel's tracer puts in the
// place of a NOP. The programs in the detour know nothing of that, but its end does: the copy there is of the instruction that was. So a
// breakpoint of the target's stands at the end, as long as a thread is on its way to it, and from there a thread goes back
// to the instruction, which is carried out where it stands.
type passage struct {
	point *probed.Point
	way   map[arch.Addr]bool // who is on his way, by the stack pointer: it is the same at the end
}

// passThrough has the programs of a hit run, and the instruction be done after that. It answers false where the thread is still to be
// led past the detour.
func (s *Server[V, I]) passThrough(h *hit[V, I]) bool {
	end, ok := h.point.Detour.Served()
	if !ok || h.again {
		return false
	}
	p := s.passages[end]
	if p == nil {
		if err := s.On.Kind.BreakAt(end); err != nil {
			s.On.Report(err)
			return false
		}
		if s.passages == nil {
			s.passages = make(map[arch.Addr]*passage)
		}
		p = &passage{point: h.point, way: make(map[arch.Addr]bool)}
		s.passages[end] = p
	}
	p.way[h.sp()] = true
	h.setPC(h.point.Detour.ServeAt())
	s.resume(h, h.signal)
	return true
}

// passed deals with a thread at the end of a passage.
func (s *Server[V, I]) passed(h *hit[V, I], p *passage) {
	end, sp, pt := h.pc(), h.sp(), p.point
	sent := p.way[sp]
	if delete(p.way, sp); len(p.way) == 0 {
		delete(s.passages, end)
		s.On.Report(s.On.Kind.UnbreakAt(end))
	}
	switch {
	case sent && pt.Live && pt.Text == text.Beside:
		h.point = pt
		h.setPC(pt.Addr)
		s.stepOver(h)
		return
	case sent && pt.Text == text.Own:
		h.setPC(pt.Addr)
	case len(p.way) > 0: // what stands in the text leads here, so the copy is right; over the others' breakpoint
		err := s.On.T.SetRegs(h.th, h.regs)
		if err == nil {
			err = s.On.Kind.Step(h.th)
		}
		s.On.Alive(err)
		s.On.T.Resume(h.th, 0)
		return
	}
	s.resume(h, 0)
}
