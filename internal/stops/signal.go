package stops

import (
	"errors"

	"kprobe/arch"
	"kprobe/internal/probed"
	"kprobe/target"
)

// Signalled deals with a signal that is about to reach a thread. If the thread
// stands in a slot, it is put back where the program thinks it is, before its
// signal handler or an unwinder can see otherwise.
func (s *Server[V, I]) Signalled(st target.Stop) {
	h, ok := s.hit(st.Thread)
	if !ok {
		return
	}
	pc := h.pc()
	if led, left, err := s.On.Text.Lifeline.LeadOut(st.Thread, pc, st.Signal); led {
		if !errors.Is(err, target.ErrGone) {
			s.On.Report(err)
			s.deliver(st.Thread, left)
		}
		return
	}
	ref, ok := s.On.Room.At(pc)
	h.signal = st.Signal
	switch {
	case s.Calls.IsTrampoline(pc): // the trap there would be next: it is served now, and the signal comes to where it leads
		s.returned(h)
		return
	case !ok:
		if s.insideSignal(h, st) {
			return
		}
		if to, ok := s.On.Points.Strayed(pc); ok && s.On.OwnFault(st) {
			h.setPC(to)
			s.resume(h, 0)
			return
		}
		s.deliver(st.Thread, st.Signal)
		return
	case ref.AtBreak(pc): // likewise
		s.stepped(h, ref)
		return
	}
	sync, fault := false, target.Fault{}
	if s.faulter != nil {
		var err error
		fault, err = s.faulter.Fault(st.Thread)
		sync = err == nil && fault.Sync
	}
	executed := ref.Leave(s.On.Arch, h.regs)
	if sync && !executed {
		s.faulted(h, st, ref.Of, fault, pc)
		return
	}
	if !executed {
		// An asynchronous signal came between the handlers and the
		// instruction. The thread will meet the breakpoint again when the
		// signal handler returns; that is not another execution.
		s.Threads.Take(st.Thread, ref.Of, h.sp(), true)
	}
	s.On.T.SetRegs(st.Thread, h.regs)
	s.deliver(st.Thread, st.Signal)
}

// faulted deals with a fault of the probed instruction. The registers are
// already those of the program at the probe's address.
func (s *Server[V, I]) faulted(h *hit[V, I], st target.Stop, pt *probed.Point, f target.Fault, slotPC arch.Addr) {
	h.point = pt
	if s.Handlers.Faulted(pt.Probes, h.view, f.Trap) {
		s.On.T.SetRegs(st.Thread, h.regs)
		s.On.T.Resume(st.Thread, 0)
		return
	}
	if f.Insn && f.Addr == slotPC {
		s.faulter.SetFaultAddr(st.Thread, pt.Addr)
	}
	s.On.T.SetRegs(st.Thread, h.regs)
	s.deliver(st.Thread, st.Signal)
}

// faultAt tells the program of a fault where it thinks that it was.
func (s *Server[V, I]) faultAt(h *hit[V, I], slotPC arch.Addr) {
	f, err := s.faulter.Fault(h.th)
	if err == nil && f.Insn && f.Addr == slotPC {
		s.faulter.SetFaultAddr(h.th, h.pc())
	}
}
