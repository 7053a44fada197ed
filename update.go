package kprobe

import (
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/probed"
)

// UpdateProgram gives a registered probe another program, while it is hit: each hit runs the one
// or the other, and none is lost. Counts go on. The probe has a program already, CountOnly
// perhaps. Not from a handler (EDEADLK). Errors: EINVAL for handlers, no program, one of
// another session, or a probe that is not registered here; ENOTSUP; ESRCH.
func (s *Session) UpdateProgram(p *Kprobe, program *Program) (err error) {
	if p == nil || program == nil {
		return errNoProbe
	}
	if err := s.turns.BeginChange(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	if _, other := p.as().(plain); p.in.Load() != s || !other || p.Program == nil {
		return fail(syscall.EINVAL, "not a probe with a program that is registered here")
	}
	if err := program.fits(s, bpf.Kprobe, 0); err != nil {
		return named(p, err)
	}
	pt, was := p.probe.Point, p.Program
	set := func(to *Program) { s.on.Owner.On(func() { p.Program = to }) }
	set(program)
	if pt != nil {
		err = p.checkPlace(s, pt.Loc, pt.Pinned)
	}
	if err == nil && pt != nil && p.probe.Active() { // else it is for when it has a place, and is on
		err = s.redetour(pointList{pt}, map[*point][]*probed.Probe{pt: s.on.Points.Inside(pt.Probes)})
	}
	if err != nil {
		set(was)
	}
	return err
}

// redetour gives points other detours.
func (s *Session) redetour(pts pointList, after map[*point][]*probed.Probe) error {
	defer s.optimizer.Soon()
	return s.kit.Redetour(pts, after)
}

// IsEnabled tells whether the probe is registered, and neither disabled nor gone. The
// session's switch (Enabled) is not asked.
func (p *Kprobe) IsEnabled() bool { return p.Registered() && p.probe.Active() }
