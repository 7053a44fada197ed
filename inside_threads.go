package kprobe

import (
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/inside"
	"kprobe/target"
)

// insideSignal deals with a signal that reaches a thread in code of ours that probes
// run. It answers false for a thread that is elsewhere.
func (s *Session) insideSignal(h *hit, st target.Stop) bool {
	if s.inside == nil {
		return false
	}
	slotPC := h.regs.PC()
	course, d, err := s.inside.Signalled(&h.regs.r, s.ownFault(st), s.t)
	s.report(err)
	switch course {
	case inside.Elsewhere:
		return false
	case inside.Mended:
		s.resume(h, 0)
		return true
	case inside.Placed:
		if d != nil {
			s.faultAt(h, slotPC)
		} else if pt := s.points.at(h.regs.PC()); pt != nil && pt.outer {
			// It came by a trap, and the handlers have run. What runs inside has not.
			s.taken[execution{pt, h.regs.SP()}] = away{st.Thread, false}
		}
		s.t.SetRegs(st.Thread, &h.regs.r)
	case inside.Onward:
		// It has served the probe in part. It goes on to the end of that, which is
		// not far, and gets its signal there.
		if driver, ok := s.t.(target.Driver); ok {
			st.Signal, err = s.inside.DriveOut(driver, st.Thread, st.Signal, s.t)
		}
		if errors.Is(err, target.ErrGone) {
			return true
		}
		s.report(err)
	}
	s.deliver(st.Thread, st.Signal)
	return true
}

// servedInside is for a point with programs and post-handlers: its thread is led through
// the detour as far as the instruction, which then is our affair, since the detour's own has
// no stop behind it.
func (s *Session) servedInside(h *hit) {
	th := h.regs.th
	served, left := false, 0
	err := s.t.SetRegs(th, &h.regs.r)
	if driver, ok := s.t.(target.Driver); ok && err == nil {
		served, left, err = s.inside.Serve(s.t, driver, th, h.point.Detour)
	}
	if err == nil {
		err = s.t.Regs(th, &h.regs.r)
	}
	switch {
	case errors.Is(err, target.ErrGone):
	case err != nil:
		s.report(err)
		s.t.Resume(th, 0) // to the end of the detour, which it is in, by itself
	case left != 0:
		s.signalled(target.Stop{Kind: target.StopSignal, Thread: th, Signal: left})
	case served:
		h.again = true
		s.goOn(h)
	default:
		s.resume(h, h.signal)
	}
}

// ownFault tells whether a signal comes from the thread's own instruction.
func (s *Session) ownFault(st target.Stop) bool {
	if s.faulter == nil {
		return false
	}
	f, err := s.faulter.Fault(st.Thread)
	return err == nil && f.Sync
}

// leaveDetoursIn takes a forked child out of what it has in common with its parent.
func (s *Session) leaveDetoursIn(c target.Child) {
	var r arch.Regs
	if s.inside == nil || c.Regs(&r) != nil {
		return
	}
	moved, err := s.inside.LeaveIn(&r, c)
	if moved {
		err = errors.Join(err, c.SetRegs(&r))
	}
	for _, r := range s.insideRanges() {
		err = errors.Join(err, c.Free(r.Start, int(r.End-r.Start)))
	}
	s.cleanError(c, err)
}

// fold adds what a retired detour has counted to its probes' own counts.
func (s *Session) fold(d *inside.Detour) {
	for _, p := range d.Owner.([]*Kprobe) {
		p.as().fold(p, d)
	}
}

// disown has a probe begin to count anew: what the detours counted that it had is not its any more. s may be nil.
func (s *Session) disown(p *Kprobe) {
	if s == nil {
		return
	}
	s.view.Lock()
	defer s.view.Unlock()
	if s.inside == nil {
		return
	}
	for _, d := range s.inside.Retired() {
		if ps := d.Owner.([]*Kprobe); slices.Contains(ps, p) {
			d.Owner = slices.DeleteFunc(slices.Clone(ps), func(o *Kprobe) bool { return o == p })
		}
	}
}

// tally adds to a return probe's own counts what was counted inside.
func (rp *Kretprobe) tally(t inside.Tally) {
	rp.returned.Add(t.Hits)
	rp.nmissed.Add(t.Missed)
	for why, n := range t.Lost {
		rp.lost[rp.insideLoss(why)].Add(n)
	}
}

// insideLoss is what a loss inside the target is called.
func (rp *Kretprobe) insideLoss(why int) loss {
	if why == inject.LostUnwound && (rp.plan == nil || !rp.plan.Unwinds) {
		return longjmp
	}
	return [inject.Losses]loss{unwound, goexit, exited}[why]
}

// settleInside gives up the account that a return probe has inside, whose calls under way are
// nobody's any more.
func (s *Session) settleInside(rp *Kretprobe) {
	s.view.Lock()
	defer s.view.Unlock()
	if s.inside != nil {
		rp.tally(s.inside.Settle(rp))
	}
}

// sweepInside counts those of its calls that are over although they did not return. The target is frozen.
func (s *Session) sweepInside(rp *Kretprobe) {
	s.view.RLock()
	defer s.view.RUnlock()
	if rt := s.image.Goroutines(); s.inside != nil {
		over, under := s.inside.Over(rp, func(g arch.Addr, id uint64) bool { return rt.Ended(g, id, s.t) }, s.word)
		rp.tally(over)
		rp.lost[unregistered].Add(under)
	}
}

// counted is what was counted of a probe inside and was not folded yet.
func (s *Session) counted(p *Kprobe) (t inside.Tally) {
	s.view.RLock()
	defer s.view.RUnlock()
	if s.inside == nil {
		return t
	}
	if rp := p.as().returns(); rp != nil {
		if t, ok := s.inside.Tally(rp); ok {
			return t
		}
	}
	ds := s.inside.Retired()
	if pt := p.point; pt != nil && pt.Detour != nil {
		ds = append(ds[:len(ds):len(ds)], pt.Detour)
	}
	for _, d := range ds {
		if slices.Contains(d.Owner.([]*Kprobe), p) {
			t.Add(p.as().tally(d))
		}
	}
	return t
}
