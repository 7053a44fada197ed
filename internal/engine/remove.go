package engine

import (
	"slices"
	"syscall"

	"kprobe/internal/calls"
	"kprobe/internal/errno"
	"kprobe/internal/probed"
	"kprobe/internal/roles"
)

// Unregister removes probes. It passes over nil ones and strangers, and tells stranger the indexes of those
// that are registered nowhere. When it returns, no handler of theirs runs. Not from a handler. Errors: EDEADLK; EINVAL where none is registered
// here; the target could not be restored in full.
func (e *Engine) Unregister(ps []*roles.Probe, stranger func(i int)) (err error) {
	if err := e.Turns.Begin(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	var good []*roles.Probe
	going := make(map[*roles.Probe]bool, len(ps))
	for i, p := range ps {
		switch {
		case p == nil, going[p]: // is passed over
		case !p.In(e.Home):
			if !p.Claimed.Load() { // else it is another session's, or about to be
				stranger(i)
			}
		default:
			good = append(good, p)
			going[p] = true
		}
	}
	err = e.remove(good)
	if err == nil && len(ps) > 0 && len(good) == 0 {
		err = errNotHere
	}
	return err
}

var errNotHere = errno.New(syscall.EINVAL, "not registered here")

// remove takes probes off their points. A point without probes goes.
func (e *Engine) remove(ps []*roles.Probe) error {
	e.Links.Silence(roles.All(ps))
	ps = roles.WithExits(ps) // which go on to see calls end, unreported, until they are gone
	err := e.withdraw(roles.All(ps))
	for _, p := range ps {
		p.As().Release()
		p.End()
		p.Claimed.Store(false)
	}
	gone := func(p *roles.Probe) bool { return !p.In(e.Home) }
	e.probes, e.pending = slices.DeleteFunc(e.probes, gone), slices.DeleteFunc(e.pending, gone)
	e.listChanged()
	return err
}

// withdraw takes probes off their points that were silenced, and waits for their handlers.
func (e *Engine) withdraw(ps []*probed.Probe) (err error) {
	if !e.Turns.Exited.Load() && len(ps) > 0 {
		err = e.Links.Leave(ps, func(ps []*probed.Probe, gone []*probed.Point) error {
			leaving := roles.AllOf(ps)
			e.CountEnded(leaving, e.stands)
			e.threads.Retire(gone)
			return e.Watches.Remove(roles.OnData(leaving))
		})
		e.optimizer.Soon()
		e.threads.Drain(ps)
	}
	e.On.Owner.Grace()
	for _, p := range ps { // not before: a handler may just have looked at it
		p.Unlinked()
	}
	return err
}

// stands tells where the threads of the frozen target stand.
func (e *Engine) stands(yield func(calls.Stand) bool) {
	e.Views(func(v *roles.View) bool {
		return yield(calls.Stand{Spot: v.Spot(), Returning: e.threads.Returning(v.PC())})
	}, func() *roles.View { return new(roles.View) })
}

// Switch switches probes off or on (kprobes.txt 4.7, 4.8). A point stays armed until all its probes are
// disabled. Not from a handler. Errors: EINVAL where one is nil, not registered here, or gone; EDEADLK, EPERM, ESRCH.
func (e *Engine) Switch(ps []*roles.Probe, off bool) (err error) {
	if err := e.Turns.Begin(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	for _, p := range ps {
		if p == nil || !p.In(e.Home) {
			return errNotHere
		}
		if p.Gone.Load() && !off {
			return p.Asked.Named(errno.New(syscall.EINVAL, "it is gone"))
		}
	}
	if err := e.Turns.Changeable(); err != nil {
		return err
	}
	defer e.listChanged()
	if !off {
		for _, p := range ps {
			if rt := p.As().Return(); rt != nil {
				rt.Sighted()
			}
		}
		return e.switchTo(roles.WithExits(ps), off)
	}
	// The exits of a return probe go when no call is under way whose return is to be reported: that is
	// known only when none can begin any more.
	err = e.switchTo(ps, off)
	if exits := roles.IdleExits(ps); err == nil && len(exits) > 0 {
		err = e.switchTo(exits, off)
	}
	return err
}

// switchTo does it for probes as they are given.
func (e *Engine) switchTo(ps []*roles.Probe, off bool) error {
	was := make(map[*roles.Probe]uint32, len(ps))
	for _, p := range ps {
		was[p] = *p.Flags
	}
	set := func(ps []*probed.Probe, back bool) {
		e.setFlags(roles.AllOf(ps), func(p *roles.Probe) uint32 {
			switch {
			case back:
				return was[p]
			case off:
				return was[p] | roles.FlagDisabled
			}
			return was[p] &^ roles.FlagDisabled
		})
	}
	defer e.optimizer.Soon()
	return e.despiteUnmapping(func(bool) error { return e.Links.Switch(roles.All(ps), off, set, e.Watching()) })
}

// setFlags changes the flags of probes.
func (e *Engine) setFlags(ps []*roles.Probe, to func(*roles.Probe) uint32) {
	e.On.View.Lock()
	defer e.On.View.Unlock()
	for _, p := range ps {
		p.Switch(to(p))
	}
}
