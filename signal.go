package kprobe

import (
	"kprobe/arch"
	"kprobe/target"
)

// signalled deals with a signal that is about to reach a thread. If the thread
// stands in a slot, it is put back where the program thinks it is, before its
// signal handler or an unwinder can see otherwise.
func (s *Session) signalled(st target.Stop) {
	h := s.newHit(st.Thread)
	if s.t.Regs(st.Thread, &h.regs.r) != nil {
		return
	}
	pc := h.regs.PC()
	ref, ok := s.room.At(pc)
	// In front of a trap of ours that it would have run into next: that is
	// served now, and the signal comes to where it leads.
	h.signal = st.Signal
	switch {
	case s.frames.isTrampoline(pc):
		s.returned(h)
		return
	case !ok:
		if s.insideSignal(h, st) {
			return
		}
		if to, ok := s.strayed(pc); ok && s.ownFault(st) {
			h.regs.SetPC(to)
			s.resume(h, 0)
			return
		}
		s.deliver(st.Thread, st.Signal)
		return
	case ref.AtBreak(pc):
		s.stepped(h, ref)
		return
	}
	sync, fault := false, target.Fault{}
	if s.faulter != nil {
		var err error
		fault, err = s.faulter.Fault(st.Thread)
		sync = err == nil && fault.Sync
	}
	executed := ref.Leave(s.arch, &h.regs.r)
	if sync && !executed {
		s.faulted(h, st, ref.Of, fault, pc)
		return
	}
	if !executed {
		// An asynchronous signal came between the handlers and the
		// instruction. The thread will meet the breakpoint again when the
		// signal handler returns; that is not another execution.
		s.taken[execution{ref.Of, h.regs.SP()}] = away{st.Thread, true}
	}
	s.t.SetRegs(st.Thread, &h.regs.r)
	s.deliver(st.Thread, st.Signal)
}

// faulted deals with a fault of the probed instruction. The registers are
// already those of the program at the probe's address.
func (s *Session) faulted(h *hit, st target.Stop, pt *point, f target.Fault, slotPC arch.Addr) {
	h.point = pt
	for _, p := range pt.probes {
		if p.FaultHandler == nil || !p.active() {
			continue
		}
		if s.callFault(p, &h.regs, f.Trap) != 0 {
			s.t.SetRegs(st.Thread, &h.regs.r)
			s.t.Resume(st.Thread, 0)
			return
		}
	}
	if f.Insn && f.Addr == slotPC {
		s.faulter.SetFaultAddr(st.Thread, pt.Addr)
	}
	s.t.SetRegs(st.Thread, &h.regs.r)
	s.deliver(st.Thread, st.Signal)
}

// faultAt tells the program of a fault where it thinks that it was.
func (s *Session) faultAt(h *hit, slotPC arch.Addr) {
	f, err := s.faulter.Fault(h.regs.th)
	if err == nil && f.Insn && f.Addr == slotPC {
		s.faulter.SetFaultAddr(h.regs.th, h.regs.PC())
	}
}

func (s *Session) callFault(p *Kprobe, r *Regs, trapnr int) (result int) {
	defer func() {
		if e := recover(); e != nil {
			result = 0
			p.missed.Add(1)
			s.panicked(p, "fault-handler", e)
		}
	}()
	return p.FaultHandler(p, r, trapnr)
}
