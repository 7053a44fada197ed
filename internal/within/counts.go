package within

import (
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/mem"
	"kprobe/internal/probed"
)

// Collect finds the retired detours that nobody comes to any more. The target is frozen.
func (w *Within) Collect() {
	if !w.Some() {
		return
	}
	var failed []error
	w.calls.Retire(func(redirect func(slot, from, to arch.Addr) error) {
		w.on.View.Lock()
		w.FindVacant(w.on.T)
		rs := w.Redirects()
		w.on.View.Unlock()
		for _, r := range rs {
			failed = append(failed, redirect(r.Slot, r.From, r.To))
		}
	})
	w.on.Report(errors.Join(failed...))
}

// Drop gives back what the retired detours had that Collect has found.
func (w *Within) Drop() {
	w.on.View.Lock()
	defer w.on.View.Unlock()
	if w.Some() {
		w.DropVacant(w.fold)
	}
}

// RetiredOf are the retired detours that ran programs of some probes. Ground.View is held, or the caller is
// the owner thread.
func (w *Within) RetiredOf(ps []*probed.Probe) (ds []*inside.Detour) {
	if !w.Some() {
		return nil
	}
	of := make(map[*probed.Probe]bool, len(ps))
	for _, p := range ps {
		of[p] = true
	}
	for _, d := range w.Retired() {
		if slices.ContainsFunc(w.probes(d), func(p *probed.Probe) bool { return of[p] }) {
			ds = append(ds, d)
		}
	}
	return ds
}

// fold adds what a detour that is no more has counted to its probes' own counts.
func (w *Within) fold(d *inside.Detour) {
	for _, p := range w.probes(d) {
		p.Fold(d)
	}
	w.Gone(d)
}

// Disown has a probe begin to count anew: what the detours counted that it had is not its any more.
func (w *Within) Disown(p *probed.Probe) {
	w.on.View.Lock()
	defer w.on.View.Unlock()
	for _, d := range w.RetiredOf([]*probed.Probe{p}) {
		w.without(d, p)
	}
}

// Counted is what was counted of a probe inside and was not folded yet.
func (w *Within) Counted(p *probed.Probe) (t inside.Tally) {
	w.on.View.RLock()
	defer w.on.View.RUnlock()
	if !w.Some() {
		return t
	}
	if account := p.Account(); account != nil {
		if t, ok := w.Tally(account); ok {
			return t
		}
	}
	ds := w.RetiredOf([]*probed.Probe{p})
	if pt := p.Point; pt != nil && pt.Detour != nil && slices.Contains(w.probes(pt.Detour), p) {
		ds = append(ds, pt.Detour)
	}
	for _, d := range ds {
		t.Add(p.Tally(d))
	}
	return t
}

// Settle closes the account that a return probe has inside, whose calls under way are
// nobody's any more.
func (w *Within) Settle(account *inside.Owner) {
	w.on.View.Lock()
	defer w.on.View.Unlock()
	if w.Some() {
		w.Inside.Settle(account)
	}
}

// Sweep finds those of an account's calls that are over although they did not return, and how many others
// are under way. The target is frozen.
func (w *Within) Sweep(account *inside.Owner) (over inside.Tally, under uint64) {
	w.on.View.RLock()
	defer w.on.View.RUnlock()
	rt := w.on.Image.Goroutines()
	if !w.Some() {
		return over, 0
	}
	ended := func(g arch.Addr, id uint64) bool { return rt.Ended(g, id, w.on.T) }
	return w.Over(account, ended, func(a arch.Addr) (uint64, error) { return mem.Word(w.on.T, w.on.Arch, a) })
}

// ReclaimEnded gives up the calls of a kernel's tasks that have ended, and tells how many they were. That takes a
// stop of the machine. Errors: the target's.
func (w *Within) ReclaimEnded() (freed int, err error) {
	err = w.on.Owner.Frozen(func() error {
		if over, err := w.on.Kind.Over(); err == nil { // else some other time
			freed = w.Reclaim(w.on.T, over)
		}
		return nil
	})
	return freed, err
}
