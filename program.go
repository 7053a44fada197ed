package kprobe

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/inside"
	"kprobe/internal/machine"
	"kprobe/internal/within"
)

// Programs are eBPF programs that were loaded into a target, and their maps.
type Programs struct {
	s      *Session
	set    *inside.Programs
	arch   *arch.Arch // that they are compiled for
	maps   *within.Share
	pool   *Pool // nil where all maps are the session's own
	pooled *within.Share
	tgid   int // of the target, as they see it
}

// Program is a handler that runs inside the target, compiled, without a stop: a
// probe's Program field.
type Program struct {
	s  *Session
	of *Programs
	p  *inside.Program // nil: CountOnly
}

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
	return s.load(p.maps.Of, p)
}

func (s *Session) load(c *bpf.Collection, pool *Pool) (_ *Programs, err error) {
	if c == nil {
		return nil, fail(syscall.EINVAL, "no collection of programs given")
	}
	if err := s.turns.BeginChange(); err != nil {
		return nil, err
	}
	defer s.turns.End(&err)
	if err := s.within.Arrange(machine.For(inside.AtReturns(c.Programs))); err != nil {
		return nil, err
	}
	proofs, layout, err := s.within.Proofs(c, pool != nil)
	if err != nil {
		return nil, &Error{Errno: inside.Errno(err), Err: err}
	}
	ps := &Programs{s: s, arch: s.on.Arch, pool: pool, tgid: s.within.TGID()}
	var own inside.Memory
	if layout.Size > 0 {
		if ps.maps, err = s.within.Share(int(layout.Size), layout.SizeFor); err != nil {
			return nil, err
		}
		own = ps.maps.Memory
	}
	common, err := pool.share(s, ps)
	if err == nil {
		if ps.set, err = s.within.Compile(proofs, layout, own, common); err != nil {
			err = &Error{Errno: syscall.EINVAL, Err: err}
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.within.Unshare(ps.maps), s.within.Unshare(ps.pooled))
	}
	s.programs = append(s.programs, ps)
	return ps, nil
}

// Program finds a program by its name. Errors: ENOENT.
func (ps *Programs) Program(name string) (*Program, error) {
	p := ps.set.Program(name)
	if p == nil {
		return nil, fail(syscall.ENOENT, "no program %q", name)
	}
	return &Program{ps.s, ps, p}, nil
}

// Map finds a map by its name: the bytes that the programs work on, as they work.
// It keeps its last contents when the session is closed. Errors: ENOENT.
func (ps *Programs) Map(name string) (*bpf.Map, error) {
	m := ps.set.Map(name)
	if m == nil {
		return nil, fail(syscall.ENOENT, "no map %q", name)
	}
	return m, nil
}

// Segment is the memory of all maps of the programs. Its last thread slot is nobody's in the
// target: the controller's own programs (bpf.VM) may use it.
func (ps *Programs) Segment() *bpf.Segment { return ps.set.Maps }

// fits tells whether the program can be a probe's in this session; data is what private data
// calls have there.
func (p *Program) fits(s *Session, kind bpf.Kind, data int) error {
	switch {
	case p == CountOnly:
		return nil
	case s.on.Kind.Cannot(p.p) != "":
		return fail(syscall.ENOTSUP, "program %q %s, which cannot be done in a kernel", p.p.Spec.Name, s.on.Kind.Cannot(p.p))
	case p.s != s:
		return fail(syscall.EINVAL, "the program was loaded by another session")
	case p.callData() > data:
		return fail(syscall.EINVAL, "program %q asks for %d bytes of private data, and the probe's calls have %d", p.p.Spec.Name, p.callData(), data)
	case p.foreign():
		return fail(syscall.EINVAL, "the program was compiled for %s", p.of.arch.Name)
	case p.p.Spec.Kind != kind:
		return fail(syscall.EINVAL, "program %q is for a %v", p.p.Spec.Name, p.p.Spec.Kind)
	}
	return nil
}

// reload gives the program that the target has executed the maps of those that were
// loaded before. Programs for which that fails are of no use any more; those of another
// machine wait for the next.
func (s *Session) reload() {
	s.programs = slices.DeleteFunc(s.programs, func(ps *Programs) bool {
		ps.set.Forget()
		err := errors.Join(s.within.Reshare(ps.maps), s.within.Reshare(ps.pooled))
		s.turns.Report(err)
		return err != nil
	})
}

// callData is how many bytes of a call's private data the program asks for.
func (p *Program) callData() int {
	if p == nil || p.p == nil {
		return 0
	}
	return p.p.CallData()
}

// overrides tells whether the program may replace the probed function.
func (p *Program) overrides() bool { return p != nil && p.p != nil && p.p.Overrides() }

// foreign tells whether the target is of another machine now than the program.
func (p *Program) foreign() bool { return p != nil && p != CountOnly && p.of.arch != p.s.on.Arch }

// lost tells whether the target has executed a program that could not get the maps of
// this one.
func (p *Program) lost() bool {
	return p != nil && p != CountOnly && !slices.Contains(p.s.programs, p.of)
}

// use is a program as a detour runs it; counting is done by each detour anyway.
func use(p *Program, entry arch.Addr, cookie uint64) []inside.Use {
	if p == nil || p == CountOnly {
		return nil
	}
	return []inside.Use{{Program: p.p, FuncIP: entry, Cookie: cookie}}
}
