package standing

import (
	"errors"
	"maps"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/probed"
	"kprobe/target"
)

// Evacuate moves the threads of the frozen target out of the slots of points
// that are no longer live. It answers whether some thread could not be stopped
// for that, and what kept it from moving one that could.
func (ts *Threads) Evacuate() (stuck bool, err error) {
	on, a := ts.on, ts.on.Arch
	move := func(th target.Thread, r *arch.Regs) {
		if e := on.T.SetRegs(th, r); e != nil && !errors.Is(e, target.ErrGone) {
			err = e
		}
	}
	trapped := make(map[target.Thread]int) // index into Stops; the PCs are set back
	merged := make(map[target.Thread]bool) // a signal that was sent to them may stand for a trap as well (package stops)
	for i, st := range on.Owner.Stops {
		switch {
		case st.Back:
			trapped[st.Thread] = i
		case st.Kind == target.StopTrap && !on.OwnFault(st):
			merged[st.Thread] = true
		}
	}
	for _, th := range on.T.Threads() {
		var r arch.Regs
		if e := on.T.Regs(th, &r); e != nil {
			if !errors.Is(e, target.ErrGone) {
				err = e
			}
			continue
		}
		pc := r.Addr(a.PC)
		if merged[th] && ts.ranIntoOurs(pc-arch.Addr(a.BreakPC), &r) {
			pc -= arch.Addr(a.BreakPC)
			r[a.PC] = uint64(pc)
			move(th, &r)
		}
		i, trap := trapped[th]
		pt := on.Points.At(pc)
		switch ref, ok := on.Room.At(pc); {
		case trap && pt != nil && !pt.Live:
			// It has executed the breakpoint, and its handlers are gone.
			r[a.PC] = uint64(pc)
			move(th, &r)
			on.Owner.Wake(i)
		case ok && !ref.Of.Live:
			after := trap && ref.AtBreak(pc)
			if after {
				r[a.PC] = uint64(ref.Slot.Next)
			} else {
				ref.Leave(a, &r)
			}
			move(th, &r)
			if after {
				on.Owner.Wake(i)
			}
		case !ok && ts.within.Some():
			left, before := ts.within.LeaveRetired(&r, on.T, on.Probed)
			if !left {
				break
			}
			move(th, &r)
			if before {
				ts.takeFault(th)
			}
			if pt := on.Points.At(r.Addr(a.PC)); pt != nil && pt.Live && pt.Outer {
				// It is in front of the detour's programs, and came there by a trap: its handlers
				// have run.
				ts.Take(th, pt, r.Addr(a.SP), false)
			}
		}
	}
	maps.DeleteFunc(ts.taken, func(e execution, _ away) bool { return !e.point.Live })
	return on.T.Stuck() > 0, err
}

// ranIntoOurs tells whether a thread that stands behind an address, with a signal that was sent to
// it, has come to a trap of ours there and to nothing else.
func (ts *Threads) ranIntoOurs(at arch.Addr, r *arch.Regs) bool {
	on := ts.on
	if pt := on.Points.At(at); pt != nil {
		run, known := pt.Site.HasRun(on.Arch, r, on.T)
		return known && !run
	}
	ref, ok := on.Room.At(at)
	_, strayed := on.Strayed(at)
	return strayed || ok && ref.AtBreak(at) || ts.calls.IsTrampoline(at)
}

// Retire forgets points whose original bytes are back, after moving out every
// thread that stands in one of their slots or in front of their handlers. The target is frozen.
func (ts *Threads) Retire(pts []*probed.Point) {
	if len(pts) == 0 {
		return
	}
	for _, pt := range pts {
		pt.Live = false
	}
	stuck, err := ts.Evacuate()
	stuck = stuck || err != nil
	ts.on.View.Lock()
	defer ts.on.View.Unlock()
	ts.on.Points.List = ts.on.Points.Live()
	if stuck {
		return // a thread that could not be stopped may be in one: they stay as they are
	}
	ts.on.Owner.After(func() {
		ts.on.View.Lock()
		defer ts.on.View.Unlock()
		for _, pt := range pts {
			pt.Slots.Release(pt.Site)
		}
	})
}

// Vacate is Evacuate. It also takes the counts and drops the memory of retired detours that no
// thread is in any more. Errors: target.ErrNotNow, while programs of some probes run, or may be
// come back to.
func (ts *Threads) Vacate(ps []*probed.Probe) error {
	_, err := ts.Evacuate()
	ts.within.Collect()
	ts.on.Owner.After(ts.within.Drop)
	if ds := ts.within.RetiredOf(ps); err == nil && len(ds) > 0 && ts.within.Linger(ds, ts.on.T) {
		err = target.ErrNotNow
	}
	return err
}

// Drain waits until no program of probes that were taken off runs, and no call under way will come
// back to one. Threads leave programs by themselves, and the calls' return addresses are put back
// as soon as no thread stands in the detour. A thread that does not come out is reported. A kernel's
// CPUs cannot be waited for.
func (ts *Threads) Drain(ps []*probed.Probe) {
	if ts.on.Kind.OnCPUs() || !slices.ContainsFunc(ps, func(p *probed.Probe) bool { return p.Inside() }) {
		return
	}
	err := ts.on.Owner.Insist(func(bool) error {
		ts.on.View.RLock()
		retired := ts.within.RetiredOf(ps)
		ts.on.View.RUnlock()
		if len(retired) == 0 {
			return nil
		}
		return ts.on.Owner.Frozen(func() error { return ts.Vacate(ps) })
	})
	switch {
	case errors.Is(err, target.ErrNotNow):
		ts.on.Report(errno.New(0, "a thread has not come out of a program of a probe that was unregistered"))
	case !errors.Is(err, syscall.ESRCH):
		ts.on.Report(err)
	}
}

// GiveCallsBack puts every real return address back; the target is frozen, and the
// trampoline is about to go. Errors: as calls.UnderWay.GiveBack.
func (ts *Threads) GiveCallsBack(anyhow bool) error {
	on, a := ts.on, ts.on.Arch
	if err := ts.calls.GiveBack(anyhow, func(slot, from, to arch.Addr) { ts.within.Seg.Mend(slot, from, to) }); err != nil {
		return err
	}
	// A thread may stand just behind its return, on the trampoline itself.
	for _, th := range on.T.Threads() {
		var r arch.Regs
		if on.T.Regs(th, &r) != nil || !ts.calls.IsTrampoline(r.Addr(a.PC)) {
			continue
		}
		if next, ok := ts.calls.Popped(r.Addr(a.SP)); ok {
			r[a.PC] = uint64(next)
			on.T.SetRegs(th, &r)
		}
		for i, st := range on.Owner.Stops {
			if st.Thread == th && st.Back {
				on.Owner.Wake(i)
			}
		}
	}
	ts.calls.Forget()
	return nil
}

// TakenOff sees to threads that stand where jumps were which have just been taken away.
func (ts *Threads) TakenOff(jumps probed.List) {
	ts.takeFaults(jumps)
	ts.enter(jumps)
}

// enter has threads go into the detours of jumps that have just been taken away, if they stand
// where the jump was, behind a landing pad: by that they have come to the probe, where a trap may
// be now, and would not come to it again.
func (ts *Threads) enter(jumps probed.List) {
	on := ts.on
	for _, th := range on.T.Threads() {
		var r arch.Regs
		if on.T.Regs(th, &r) != nil {
			continue
		}
		pc := r.Addr(on.Arch.PC)
		for _, pt := range jumps.Around(pc, 0) {
			if to, ok := pt.Detour.Entered(pc); ok {
				r[on.Arch.PC] = uint64(to)
				if err := on.T.SetRegs(th, &r); err != nil && !errors.Is(err, target.ErrGone) {
					on.Report(err)
				}
			}
		}
	}
}

// takeFault takes back the fault of a thread in a detour to which nothing had happened there: it
// was ours.
func (ts *Threads) takeFault(th target.Thread) {
	for i, st := range ts.on.Owner.Stops {
		if st.Thread == th && st.Kind == target.StopSignal && ts.on.OwnFault(st) {
			ts.on.Owner.Wake(i)
		}
	}
}

// takeFaults takes back the faults of threads that came to the middle of jumps which have just
// been taken away: they have not been served yet, and what faults there is gone.
func (ts *Threads) takeFaults(jumps probed.List) {
	on := ts.on
	for i, st := range on.Owner.Stops {
		var r arch.Regs
		if st.Kind != target.StopSignal || on.T.Regs(st.Thread, &r) != nil {
			continue
		}
		pc := r.Addr(on.Arch.PC)
		for _, pt := range jumps.Around(pc, 0) {
			if pt.Detour.Under(pc) && on.OwnFault(st) {
				on.Owner.Wake(i)
				break
			}
		}
	}
}

// leaveHandler leads the threads of the frozen target out of the lifeline's handler. One that is
// about to get a signal is left to the service of that stop.
func (ts *Threads) leaveHandler() {
	on := ts.on
	for _, th := range on.T.Threads() {
		var r arch.Regs
		stopped := func(st target.Stop) bool { return st.Thread == th && st.Kind != target.StopWoken }
		if on.T.Regs(th, &r) != nil || slices.ContainsFunc(on.Owner.Stops, stopped) {
			continue
		}
		if _, _, err := on.Text.Lifeline.LeadOut(th, r.Addr(on.Arch.PC), 0); err != nil && !errors.Is(err, target.ErrGone) {
			on.Report(err)
		}
	}
}
