package kprobe

import (
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/pool"
	"kprobe/internal/roles"
)

// Programs are eBPF programs that were loaded into a target, and their maps.
type Programs struct {
	s  *Session
	ps *roles.Programs
}

// Program is a handler that runs inside the target, compiled, without a stop: a
// probe's Program field.
type Program struct{ p *roles.Program }

// CountOnly is the program of a probe that only counts its hits.
var CountOnly = new(Program)

// Load verifies programs, maps memory for their maps in the target, and compiles
// them. They stay until Close. Errors: EINVAL with the verifier's words; ENOTSUP
// where the target cannot have programs, or none at returns; EDEADLK from a handler.
func (s *Session) Load(c *bpf.Collection) (*Programs, error) { return s.load(c, nil) }

// LoadPooled is Load of a pool's programs, which work on the pool's maps. Errors: those of Load; ENOTSUP and EPERM also where the
// target cannot have the pool: it is no process of 64 bits, or in a container of its own.
func (s *Session) LoadPooled(p *Pool) (*Programs, error) {
	if p == nil {
		return nil, fail(syscall.EINVAL, "no pool given")
	}
	return s.load(p.maps.Of, p.maps)
}

func (s *Session) load(c *bpf.Collection, on *pool.Maps) (_ *Programs, err error) {
	if c == nil {
		return nil, fail(syscall.EINVAL, "no collection of programs given")
	}
	if err := s.e.Turns.BeginChange(); err != nil {
		return nil, err
	}
	defer s.e.Turns.End(&err)
	ps, err := s.e.Load(c, on)
	if err != nil {
		return nil, err
	}
	return &Programs{s, ps}, nil
}

// Program finds a program by its name. Errors: ENOENT.
func (ps *Programs) Program(name string) (*Program, error) {
	p := ps.program(name)
	if p == nil {
		return nil, fail(syscall.ENOENT, "no program %q", name)
	}
	return p, nil
}

// Map finds a map by its name: the bytes that the programs work on, as they work.
// It keeps its last contents when the session is closed. Errors: ENOENT.
func (ps *Programs) Map(name string) (*bpf.Map, error) {
	m := ps.ps.Map(name)
	if m == nil {
		return nil, fail(syscall.ENOENT, "no map %q", name)
	}
	return m, nil
}

// Segment is the memory of all maps of the programs. Its last thread slot is nobody's in the
// target: the controller's own programs (bpf.VM) may use it.
func (ps *Programs) Segment() *bpf.Segment { return ps.ps.Maps }

// program is Program, nil for none.
func (ps *Programs) program(name string) *Program {
	if p := ps.ps.Named(name); p != nil {
		return &Program{p}
	}
	return nil
}

// Free gives the memory back that a closed session's own maps have in the controller: a Map of Programs must not be used any more.
// One of the Pool can. Errors: EBUSY where the session is not closed; of munmap(2).
func (ps *Programs) Free() error {
	if !ps.s.e.Turns.Closed.Load() {
		return fail(syscall.EBUSY, "the session is not closed")
	}
	return ps.ps.Free()
}

// role is the program as a probe's role has it; nil for none.
func (p *Program) role() *roles.Program {
	switch {
	case p == nil:
		return nil
	case p == CountOnly:
		return roles.CountOnly
	case p.p == nil:
		return new(roles.Program) // it was loaded by no session
	}
	return p.p
}
