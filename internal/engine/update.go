package engine

import (
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/errno"
	"kprobe/internal/probed"
	"kprobe/internal/roles"
)

// Update gives a registered probe another program, while it is hit: each hit runs the one
// or the other, and none is lost. tell tells the caller which one the probe has. Not from a handler. Errors: EINVAL for a
// probe without a program, or that is not registered here, or a program of another session; EDEADLK, ENOTSUP, ESRCH.
func (e *Engine) Update(p *roles.Probe, program *roles.Program, tell func()) (err error) {
	if err := e.Turns.BeginChange(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	if !p.In(e.Home) || !p.Plain() || p.Program == nil {
		return errno.New(syscall.EINVAL, "not a probe with a program that is registered here")
	}
	if err := program.Fits(e.Home, bpf.Kprobe, 0); err != nil {
		return p.Asked.Named(err)
	}
	was := p.Program
	set := func(to *roles.Program) { e.On.Owner.On(func() { p.Program = to }) }
	set(program)
	err = e.despiteUnmapping(func(bool) error {
		pt := p.Point
		if pt == nil {
			return nil // it is for when it has a place
		}
		if err := p.CheckPlace(pt.Loc, pt.Pinned); err != nil || !p.Active() {
			return err
		}
		defer e.optimizer.Soon()
		return e.kit.Redetour(probed.List{pt}, map[*probed.Point][]*probed.Probe{pt: e.On.Points.Inside(pt.Probes)})
	})
	if err != nil {
		set(was)
		return err
	}
	tell()
	return nil
}
