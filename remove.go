package kprobe

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/room"
	"kprobe/internal/text"
	"kprobe/target"
)

// unregister removes probes in one stop. Bad entries get Addr 0, as the
// kernel does it; the others go all the same.
func (s *Session) unregister(ps []*Kprobe) (err error) {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end(&err)
	var good []*Kprobe
	going := make(map[*Kprobe]bool, len(ps))
	bad := 0
	for _, p := range ps {
		switch {
		case p == nil:
			bad++
		case p.in.Load() != s:
			if !p.claimed.Load() { // else it is another session's, or about to be
				p.Addr = 0
			}
			bad++
		case going[p]:
			bad++
		default:
			good = append(good, p)
			going[p] = true
		}
	}
	err = s.remove(good)
	if err == nil && bad > 0 && len(good) == 0 {
		err = fail(syscall.EINVAL, "not registered here")
	}
	return err
}

// remove takes probes off their points. A point without probes goes.
func (s *Session) remove(ps []*Kprobe) error {
	var err error
	s.silence(ps)
	ps = withExits(ps) // which go on to see calls end, unreported, until they are gone
	if !s.exited.Load() && len(ps) > 0 {
		err = s.takeOff(ps)
		s.drain(ps)
	}
	going := make(map[*Kprobe]bool, len(ps))
	for _, p := range ps {
		going[p] = true
	}
	s.probes = slices.DeleteFunc(s.probes, func(p *Kprobe) bool { return going[p] })
	s.pending = slices.DeleteFunc(s.pending, func(p *Kprobe) bool { return going[p] })
	s.grace()
	for _, p := range ps { // not before: a handler may just have looked at it
		p.unplace()
		p.as().unlinked(s)
		p.as().release(s)
		p.in.Store(nil)
		p.claimed.Store(false)
	}
	s.listChanged()
	return err
}

// silence has no handler of some probes begin any more, whatever becomes of their removal.
// Handlers that run on the owner thread have ended when it returns; grace waits for others.
func (s *Session) silence(ps []*Kprobe) {
	leave := func() {
		for _, p := range ps {
			p.leaving.Store(true)
		}
	}
	if !s.do(leave) {
		leave() // there is no owner any more
	}
}

// drain waits until no program of probes that were taken off runs, and no call under way will come back to one.
// Threads leave programs by themselves, and the calls' return addresses are put back as soon as nobody
// stands in the detour. A kernel's CPUs cannot be waited for so.
func (s *Session) drain(ps []*Kprobe) {
	if s.machine != nil || !slices.ContainsFunc(ps, (*Kprobe).runsInside) {
		return
	}
	err := target.Insist(func(bool) error {
		if !s.inDetours(ps) {
			return nil
		}
		return s.frozen(func() error {
			_, err := s.evacuate()
			s.findVacant()
			s.after = append(s.after, s.dropVacant)
			if err == nil && slices.ContainsFunc(s.retiredOf(ps), func(d *inside.Detour) bool { return s.inside.Lingers(d, s.t) }) {
				err = target.ErrNotNow
			}
			return err
		})
	})
	switch {
	case errors.Is(err, target.ErrNotNow):
		s.report(fail(0, "a thread has not come out of a program of a probe that was unregistered"))
	case !errors.Is(err, syscall.ESRCH):
		s.report(err)
	}
}

// inDetours tells whether there are detours that ran programs of some probes.
func (s *Session) inDetours(ps []*Kprobe) bool {
	s.view.RLock()
	defer s.view.RUnlock()
	return len(s.retiredOf(ps)) > 0
}

// retiredOf are the retired detours that ran programs of some probes.
func (s *Session) retiredOf(ps []*Kprobe) (ds []*inside.Detour) {
	if s.inside == nil {
		return nil
	}
	for _, d := range s.inside.Retired() {
		if slices.ContainsFunc(d.Owner.([]*Kprobe), func(p *Kprobe) bool { return slices.Contains(ps, p) }) {
			ds = append(ds, d)
		}
	}
	return ds
}

// takeOff takes probes off their points. What else runs inside the target there
// gets other detours.
func (s *Session) takeOff(ps []*Kprobe) error {
	pts := pointsOf(ps)
	going := make(map[*Kprobe]bool, len(ps))
	for _, p := range ps {
		going[p] = true
	}
	after := make(map[*point][]*Kprobe)
	for _, pt := range pts {
		if pt.Detour != nil {
			after[pt] = slices.DeleteFunc(insideOf(pt.probes), func(p *Kprobe) bool { return going[p] })
		}
	}
	left := make(map[*point][]*Kprobe, len(pts))
	for _, pt := range pts {
		left[pt] = slices.DeleteFunc(slices.Clone(pt.probes), func(p *Kprobe) bool { return going[p] })
	}
	taken := func(a arch.Addr) bool {
		pt := s.points.at(a)
		ps, some := left[pt]
		return pt != nil && (!some || len(ps) > 0 || pt.notify)
	}
	s.replanAround(slices.DeleteFunc(slices.Clone(pts), func(pt *point) bool { return taken(pt.Addr) }), after)
	var r *rearming
	return s.changeDetours(after, taken, func(d *detours) error {
		r = (&outlook{Session: s, points: s.points, probes: left, stays: d.stays}).rearming(d.with(pts))
		if s.ahead(r) != nil {
			r = nil // then all of it in the stop, as far as that goes
		}
		return nil
	}, func(d *detours) error { return s.disconnect(ps, pts, left, d, r) })
}

// pointsOf lists the points that probes are on, each once, in order.
func pointsOf(ps []*Kprobe) []*point {
	var pts []*point
	for _, p := range ps {
		if p.point != nil {
			pts = append(pts, p.point)
		}
	}
	slices.SortFunc(pts, byAddr)
	return slices.Compact(pts)
}

// disconnect does the removal in the frozen target; pts are the probes' points.
func (s *Session) disconnect(ps []*Kprobe, pts []*point, left map[*point][]*Kprobe, d *detours, r *rearming) error {
	s.view.Lock()
	for _, pt := range pts {
		pt.probes = left[pt]
		pt.refresh()
	}
	s.view.Unlock()
	d.retrap()
	var err error
	if r == nil || s.carryOut(r) != nil {
		// Somebody else changed a byte of ours. The rest is still put back, one
		// by one, and the foreign byte stays as it is.
		err = s.rearmSingly(d.with(pts))
	}
	s.adoptDetours(d)
	s.countEnded(ps)
	var gone []*point
	for _, pt := range pts {
		if len(pt.probes) == 0 && pt.Text == text.Own && !pt.notify {
			gone = append(gone, pt)
		}
	}
	s.retire(gone)
	return errors.Join(err, s.unwatch(watchpointsOf(ps)))
}

func (s *Session) rearmSingly(pts []*point) error {
	var errs []error
	for _, pt := range pts {
		if e := s.rearm([]*point{pt}); e != nil {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

// retire forgets points whose original bytes are back, after moving out every
// thread that stands in one of their slots or in front of their handlers.
func (s *Session) retire(pts []*point) {
	if len(pts) == 0 {
		return
	}
	for _, pt := range pts {
		pt.live = false
	}
	stuck, err := s.evacuate()
	stuck = stuck || err != nil
	s.view.Lock()
	defer s.view.Unlock()
	s.dropDead()
	if stuck {
		return // a thread that could not be stopped may be in one: they stay as they are
	}
	s.after = append(s.after, func() { s.releaseSlots(pts) })
}

// releaseSlots gives back the slots of points that are no more.
func (s *Session) releaseSlots(pts []*point) {
	s.view.Lock()
	defer s.view.Unlock()
	for _, pt := range pts {
		pt.slots.Release(pt.Site)
	}
}

// evacuate moves the threads of the frozen target out of the slots of points
// that are no longer live. It answers whether some thread could not be stopped
// for that, and what kept it from moving one that could.
func (s *Session) evacuate() (stuck bool, err error) {
	move := func(th target.Thread, r *arch.Regs) {
		if e := s.t.SetRegs(th, r); e != nil && !errors.Is(e, target.ErrGone) {
			err = e
		}
	}
	trapped := make(map[target.Thread]int) // index into stops; the PCs are set back
	for i, st := range s.stops {
		if st.Back {
			trapped[st.Thread] = i
		}
	}
	for _, th := range s.t.Threads() {
		var r arch.Regs
		if e := s.t.Regs(th, &r); e != nil {
			if !errors.Is(e, target.ErrGone) {
				err = e
			}
			continue
		}
		pc := arch.Addr(r[s.arch.PC])
		i, trap := trapped[th]
		switch pt, ref, ok := s.standsIn(pc); {
		case trap && pt != nil && !pt.live:
			// It has executed the breakpoint, and its handlers are gone.
			r[s.arch.PC] = uint64(pc)
			move(th, &r)
			s.stops[i].Kind = target.StopWoken
			s.t.Resume(th, 0)
		case ok && !ref.Of.live:
			after := trap && ref.AtBreak(pc)
			if after {
				r[s.arch.PC] = uint64(ref.Slot.Next)
				s.stops[i].Kind = target.StopWoken
			} else {
				ref.Leave(s.arch, &r)
			}
			move(th, &r)
			if after {
				s.t.Resume(th, 0)
			}
		case !ok && s.inside != nil && s.inside.LeaveRetired(&r, s.t, s.probed):
			move(th, &r)
			if pt := s.points.at(arch.Addr(r[s.arch.PC])); pt != nil && pt.live && pt.outer {
				// It is in front of the detour's programs, and came there by a trap: its handlers have run.
				s.taken[execution{pt, arch.Addr(r[s.arch.SP])}] = away{th, false}
			}
		}
	}
	s.forgetTaken(func(pt *point, _ target.Thread) bool { return !pt.live })
	return s.t.Stuck() > 0, err
}

// standsIn finds the point or the slot that an address belongs to.
func (s *Session) standsIn(pc arch.Addr) (*point, room.Ref[*point], bool) {
	ref, ok := s.room.At(pc)
	return s.points.at(pc), ref, ok
}

// setDisabled switches probes off or on (kprobes.txt 4.7, 4.8). A point stays
// armed until all its probes are disabled.
func (s *Session) setDisabled(ps []*Kprobe, off bool) (err error) {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end(&err)
	for _, p := range ps {
		if p == nil || p.in.Load() != s {
			return fail(syscall.EINVAL, "not registered here")
		}
		if p.gone.Load() && !off {
			return named(p, fail(syscall.EINVAL, "its code is gone"))
		}
	}
	if err := s.changeable(); err != nil {
		return err
	}
	defer s.listChanged()
	if !off {
		return s.switchTo(withExits(ps), off)
	}
	// The exits of a return probe go when no call is under way whose return is to be reported: that is
	// known only when none can begin any more.
	if err := s.switchTo(ps, off); err != nil {
		return err
	}
	if exits := s.idleExits(ps); len(exits) > 0 {
		return s.switchTo(exits, off)
	}
	return nil
}

// switchTo does it for probes as they are given, in one stop.
func (s *Session) switchTo(ps []*Kprobe, off bool) error {
	pts := pointsOf(ps)
	switched := make(map[*Kprobe]bool, len(ps))
	for _, p := range ps {
		switched[p] = true
	}
	after := make(map[*point][]*Kprobe)
	for _, p := range ps {
		if pt := p.point; pt != nil && p.runsInside() {
			after[pt] = slices.DeleteFunc(slices.Clone(pt.probes), func(q *Kprobe) bool {
				return !q.runsInside() || switched[q] && off || !switched[q] && !q.active()
			})
		}
	}
	return s.changeDetours(after, s.probed, nil, func(d *detours) error {
		was := make(map[*Kprobe]uint32, len(ps))
		for _, p := range ps {
			was[p] = p.Flags
		}
		s.setFlags(ps, func(p *Kprobe) uint32 {
			if off {
				return was[p] | FlagDisabled
			}
			return was[p] &^ FlagDisabled
		})
		d.retrap()
		err := s.bringAbout(pts)
		if err != nil {
			s.setFlags(ps, func(p *Kprobe) uint32 { return was[p] })
			s.report(s.bringAbout(pts))
			return err
		}
		s.adoptDetours(d)
		return nil
	})
}

// setFlags changes the flags of probes, and what follows from them at their points.
func (s *Session) setFlags(ps []*Kprobe, to func(*Kprobe) uint32) {
	s.view.Lock()
	defer s.view.Unlock()
	for _, p := range ps {
		atomic.StoreUint32(&p.Flags, to(p))
		if p.point != nil {
			p.point.refresh()
		}
	}
}

// Enabled reads the global switch (kprobes.txt appendix A, the file
// kprobes/enabled).
func (s *Session) Enabled() bool {
	s.view.RLock()
	defer s.view.RUnlock()
	return !s.disarmed
}

// SetEnabled is the global switch: off disarms every probe, on arms those that
// are not disabled. The probes' own states are left alone.
func (s *Session) SetEnabled(on bool) (err error) {
	if err := s.beginChange(); err != nil {
		return err
	}
	defer s.end(&err)
	s.optimizeSoon()
	return s.frozen(func() error {
		set := func(off bool) {
			s.view.Lock()
			s.disarmed = off
			s.view.Unlock()
		}
		set(!on)
		if !on {
			s.loseUnseen()
		}
		err := s.bringAbout(s.points)
		if err != nil {
			set(on)
			s.report(s.bringAbout(s.points))
		}
		return err
	})
}

// bringAbout has points and watchpoints be on or off as they should.
func (s *Session) bringAbout(pts []*point) error {
	if err := s.rearm(pts); err != nil {
		return err
	}
	return s.rewatch()
}
