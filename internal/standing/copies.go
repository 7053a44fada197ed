package standing

import (
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/target"
)

// Restore puts the text and the return addresses back in a copy of the target's memory, or in
// that of a target which is about to end.
func (ts *Threads) Restore(m arch.Memory) error {
	err := errors.Join(ts.on.Points.RestoreIn(m), ts.calls.Restore(m))
	if ts.within.Some() {
		err = errors.Join(err, ts.within.GiveBackIn(m))
	}
	return err
}

// CleanChild takes all of ours out of a child that was born with a copy of the target's memory. It
// has not run yet. failed gets the errors of steps that could not be done.
func (ts *Threads) CleanChild(c target.Child, failed func(error)) {
	on := ts.on
	failed(ts.Restore(c))
	var r arch.Regs
	if c.Regs(&r) == nil {
		// The call that made it may itself have been probed.
		if ref, ok := on.Room.At(r.Addr(on.Arch.PC)); ok {
			ref.Leave(on.Arch, &r)
			c.SetRegs(&r)
		}
	}
	failed(ts.within.LeaveIn(c))
	failed(on.Text.Lifeline.LeaveIn(c))
	for _, a := range on.Room.Spans() {
		failed(c.Free(a.Start, int(a.End-a.Start)))
	}
}

// Unseen makes the frozen target look as if it had never been probed. A program that dies of a
// signal may leave a core file, which shall have the program's text, its return addresses, and its
// threads where they stand in its own code. It has not long to live, so our knowledge of it stays
// as it is: as with a child, we will not come back to its memory. Errors: target.ErrNotNow, where a thread runs what
// detours call, and is to come back from there first. No other comes there, since the text is the program's now.
func (ts *Threads) Unseen() (err error) {
	on, a := ts.on, ts.on.Arch
	err = ts.Restore(on.T)
	trapped := make(map[target.Thread]bool)
	for i, st := range on.Owner.Stops {
		if st.Back { // of a trap that is not there any more
			trapped[st.Thread] = true
			on.Owner.Wake(i)
		}
	}
	for _, th := range on.T.Threads() {
		var r arch.Regs
		if on.T.Regs(th, &r) != nil {
			continue
		}
		pc := r.Addr(a.PC)
		ref, slot := on.Room.At(pc)
		switch {
		case slot && trapped[th] && ref.AtBreak(pc):
			r[a.PC] = uint64(ref.Slot.Next)
		case slot:
			ref.Leave(a, &r)
		case ts.calls.IsTrampoline(pc):
			if next, ok := ts.calls.Popped(r.Addr(a.SP)); ok {
				r[a.PC] = uint64(next)
			}
		case ts.within.Some():
			_, e := ts.within.Inside.LeaveIn(&r, on.T)
			err = errors.Join(err, e)
		}
		if r.Addr(a.PC) != pc {
			err = errors.Join(err, on.T.SetRegs(th, &r))
		}
	}
	if err == nil && ts.within.Some() && slices.ContainsFunc(on.T.Threads(), ts.called) {
		err = target.ErrNotNow
	}
	return err
}

// called tells whether a stopped thread runs what detours call, and will go on with it: no stop of its own
// waits to be served.
func (ts *Threads) called(th target.Thread) bool {
	var r arch.Regs
	return !slices.ContainsFunc(ts.on.Owner.Stops, func(st target.Stop) bool { return st.Thread == th }) &&
		ts.on.T.Regs(th, &r) == nil && ts.within.Busy(r.Addr(ts.on.Arch.PC))
}
