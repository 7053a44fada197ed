package links

import (
	"slices"
	"syscall"

	"kprobe/internal/change"
	"kprobe/internal/errno"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
)

// LeaveCramped leaves places alone whose detours a thread's stack has had no room for: the next
// such thread would die there, should no controller be left to serve its fault. No trap takes the
// jump's place, since a signal's handler needs more of that stack. Errors: those of the parts; then
// nothing has changed.
func (l *Links) LeaveCramped(ds []*inside.Detour) error {
	on := l.kit.On
	var ps []*probed.Probe
	for _, pt := range on.Points.List {
		if pt.Detour == nil || !slices.ContainsFunc(ds, pt.Detour.Needs) {
			continue
		}
		ps = append(ps, pt.Probes...)
		if slices.Contains(ds, pt.Detour) {
			on.Report(errno.New(syscall.ENOTSUP, "%s cannot be probed: a thread's stack has no room for a detour there", pt.Loc))
		}
	}
	if len(ps) == 0 {
		return nil
	}
	set := func(ps []*probed.Probe, back bool) {
		on.View.Lock()
		defer on.View.Unlock()
		for _, p := range ps {
			p.Gone.Store(!back)
		}
		for _, pt := range l.points(ps) {
			on.Points.Refresh(pt)
		}
	}
	return l.Switch(ps, true, set, change.Nothing{})
}
