package kprobe

// UpdateProgram gives a registered probe another program, while it is hit: each hit runs the one
// or the other, and none is lost. Counts go on. The probe has a program already, CountOnly
// perhaps. Not from a handler (EDEADLK). Errors: EINVAL for handlers, no program, one of
// another session, or a probe that is not registered here; ENOTSUP; ESRCH.
func (s *Session) UpdateProgram(p *Kprobe, program *Program) (err error) {
	if p == nil || program == nil {
		return errNoProbe
	}
	return s.e.Update(&p.probe, program.role(), func() { p.Program = program })
}
