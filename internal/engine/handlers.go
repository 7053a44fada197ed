package engine

import (
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/internal/roles"
	"kprobe/internal/traced"
	"kprobe/target"
)

// handlers are a session's, as the server of stops has them run (stops.Handlers).
type handlers struct{ *Engine }

func (hs handlers) View(th target.Thread) *roles.View {
	if !hs.opts.Concurrent {
		hs.scratch.Begin(hs.Home, th)
		return hs.scratch
	}
	v := hs.opts.View()
	v.Begin(hs.Home, th)
	v.Aside()
	return v
}

func (handlers) Before(ps []*probed.Probe, v *roles.View) bool { return roles.Before(ps, v) }
func (handlers) After(ps []*probed.Probe, v *roles.View)       { roles.After(ps, v) }
func (handlers) Passed(ps []*probed.Probe)                     { roles.Passed(ps) }

func (handlers) Faulted(ps []*probed.Probe, v *roles.View, trap int) bool {
	return roles.Faulted(ps, v, trap)
}

func (hs handlers) Cramped(ds []*inside.Detour) {
	hs.Turns.Changing(func() { hs.Turns.Report(hs.Links.LeaveCramped(ds)); hs.listChanged() })
}

// Outlived ends a session whose process faults for ever while it has a tracer.
func (hs handlers) Outlived(signal int) { hs.outlived(signal) }

// Notified is the owner's part in a hit of a probe of our own: the thread stays where it is, and the rest is done where
// planning may be. It answers false for a call that need not be looked at.
func (hs handlers) Notified(pt *probed.Point, v *roles.View) bool {
	on, th := hs.On, v.Thread
	if !pt.Asks {
		on.Image.Chosen(pt.Loc, v.R[on.Arch.Ret])
		go hs.librariesChanged(th)
		return true
	}
	call := traced.CallAt(pt.Loc, pt.Site.Insn, v.Arg, v.GoArgs, v.R[on.Arch.Ret], on.Own())
	return hs.opts.Family.Asked(call, hs.TaskOf(th).PID, hs.goWithout, func() { hs.goOn(th) })
}
