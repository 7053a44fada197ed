package roles

import (
	"kprobe/internal/calls"
	"kprobe/internal/probed"
)

// What runs at a stop: see stops.Handlers.

// Before runs the handlers of probes before the instruction: it answers false if one has moved the PC.
func Before(ps []*probed.Probe, v *View) bool {
	for _, q := range ps {
		if !q.Active() {
			continue
		}
		role := q.Role.(Role)
		if !q.Inside() {
			role.Probe().Hits.Add(1) // the others count where they run
		}
		if role.before(v) {
			return false
		}
	}
	return true
}

// After runs those after it.
func After(ps []*probed.Probe, v *View) {
	for _, q := range ps {
		if q.Active() && q.Post() {
			Of(q).Handlers.After(v)
		}
	}
}

// Passed counts the hits of probes whose detour was passed over. A probe that only counts has its hit, other
// programs have missed theirs; a return that is not armed is missed as well.
func Passed(ps []*probed.Probe) {
	for _, q := range ps {
		p := Of(q)
		switch {
		case !q.Active() || !q.Inside():
		case p.As().Return() != nil:
			p.As().Return().note(calls.Missed)
		case p.Program == CountOnly:
			p.Hits.Add(1)
		default:
			p.Missed.Add(1)
		}
	}
}

// Faulted runs the fault-handlers for a fault of the instruction. It answers whether one has dealt with it.
func Faulted(ps []*probed.Probe, v *View, trap int) bool {
	for _, q := range ps {
		if p := Of(q); p.Handlers != nil && q.Active() && p.Handlers.Faulted(v, trap) {
			return true
		}
	}
	return false
}

// Returned runs the handlers of calls that are over, of every probe on the call, newest first.
func (h *Home) Returned(over []*Call, v *View) {
	for i := len(over) - 1; i >= 0; i-- {
		rt := over[i].Instance.Of
		if rt.entry.Leaving.Load() {
			h.Calls.Lose(over[i], calls.Unregistered)
			continue
		}
		rt.Hits.Add(1)
		rt.Handlers.Returned(over[i].Instance, v)
		h.Calls.Done(over[i])
	}
}

// Accessed runs the handlers for data that was accessed, by register; nil where there are none.
func (h *Home) Accessed(set uint) func(*View) {
	ws := h.Watches.In(set)
	if len(ws) == 0 {
		return nil
	}
	return func(v *View) {
		for _, p := range ws {
			p.As().Data().Fired(v)
		}
	}
}

// Among counts an access that one of several registers saw, where it is not known which: each may have missed
// it.
func (h *Home) Among(set uint) {
	for _, p := range h.Watches.In(set) {
		p.Missed.Add(1)
	}
}
