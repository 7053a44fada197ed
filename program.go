package kprobe

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/inside"
	"kprobe/internal/machine"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/internal/room"
	"kprobe/target"
)

// Programs are eBPF programs that were loaded into a target, and their maps.
type Programs struct {
	s    *Session
	set  *inside.Programs
	arch *arch.Arch // that they are compiled for
	addr arch.Addr  // of the maps
	size int
	ours []byte
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
// where the target cannot have programs; EDEADLK from a handler.
func (s *Session) Load(c *bpf.Collection) (ps *Programs, err error) {
	if c == nil {
		return nil, fail(syscall.EINVAL, "no collection of programs given")
	}
	if err := s.beginChange(); err != nil {
		return nil, err
	}
	defer s.end(&err)
	if err := s.goInside(); err != nil {
		return nil, err
	}
	proofs, layout, err := s.inside.Proofs(c)
	if err != nil {
		return nil, &Error{Errno: syscall.EINVAL, Err: err}
	}
	ps = &Programs{s: s, arch: s.arch}
	if layout.Size > 0 {
		if ps.addr, ps.ours, err = s.share(int(layout.Size)); err != nil {
			return nil, err
		}
		ps.size = len(ps.ours)
	}
	if ps.set, err = s.inside.Compile(proofs, layout, ps.addr, ps.ours); err != nil {
		return nil, errors.Join(&Error{Errno: syscall.EINVAL, Err: err}, s.unshare(ps.addr, ps.ours))
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
	case s.machine != nil && p.p.NotInKernels() != "":
		return fail(syscall.ENOTSUP, "program %q %s, which cannot be done in a kernel", p.p.Spec.Name, p.p.NotInKernels())
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

// goInside arranges the memory that the target shares with us, once a session.
func (s *Session) goInside() error {
	if s.inside != nil {
		return nil
	}
	nursery, ok := s.t.(target.Nursery)
	if s.sharer == nil || s.alloc == nil || !ok && s.machine == nil {
		return fail(syscall.ENOTSUP, "programs cannot run in this target")
	}
	if err := machine.Programs(s.arch); err != nil {
		return &Error{Errno: syscall.ENOTSUP, Err: err}
	}
	c, err := s.insideConfig()
	if err != nil {
		return &Error{Errno: syscall.ENOTSUP, Reason: "programs cannot run in this target", Err: err}
	}
	addr, ours, err := s.share(c.Room.Size())
	for less, ok := c.Room.Less(); tooLarge(err) && ok; less, ok = less.Less() {
		c.Room = less
		addr, ours, err = s.share(c.Room.Size())
	}
	if err != nil {
		return err
	}
	occupied, err := s.room.Occupied()
	if err != nil {
		return errors.Join(err, s.unshare(addr, ours))
	}
	s.shared = patch.Range{Start: addr, End: addr + arch.Addr(len(ours))}
	in, err := inside.New(c, addr, ours, append(occupied, s.shared))
	if err != nil {
		return errors.Join(err, s.unshare(addr, ours))
	}
	return s.frozen(func() error {
		s.inside, s.ours = in, ours
		in.Seg.SetOther(s.frames.trampoline)
		if s.machine != nil {
			s.text.Gate = in
			return nil // its CPUs are known already
		}
		if _, err := in.Trust(s.t, s.acquaintance(occupied)); err != nil {
			return err
		}
		for _, th := range s.t.Threads() {
			in.Welcome(s.t, th, s.acquaintance(occupied))
		}
		nursery.OnBirth(func(born, _ target.Thread) {
			if s.inside == nil {
				return
			}
			careful := s.inside.Careful()
			s.report(s.inside.Born(s.t, born, s.acquaintance(nil)))
			if s.inside.Careful() && !careful {
				time.AfterFunc(optimizeDelay, s.optimize)
			}
		})
		if l, ok := s.t.(interface{ Living([]byte, int) error }); ok {
			return l.Living(ours, in.Seg.Alive())
		}
		return nil
	})
}

// acquaintance is what inside wants to know of threads.
func (s *Session) acquaintance(stacks []patch.Range) inside.Acquaintance {
	return inside.Acquaintance{Comm: func(th target.Thread) string { return s.Comm(int(th)) }, Stacks: stacks}
}

// tooLarge tells whether memory was refused that might be had if it were less: there are limits
// on a process's addresses, its locked memory and its files.
func tooLarge(err error) bool {
	return errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EFBIG)
}

// insideConfig says what the target is like.
func (s *Session) insideConfig() (c inside.Config, err error) {
	c, err = inside.Configure(s.t, s.isa, returns.GoProgram(s.image.Space) != "")
	c.Page, c.Floor, c.Limit = pageSize, s.room.Floor, s.room.Limit
	c.Goroutine, c.GoID = s.image.Goroutines().Offsets()
	if err != nil || s.machine == nil {
		return c, err
	}
	if err = s.frozen(func() error { return c.ForMachine(s.machine) }); err == nil {
		s.room.Floor, s.room.Limit = c.Floor, c.Limit
	}
	return c, err
}

// findShared finds a place for shared memory.
func (s *Session) findShared(size int) (arch.Addr, error) {
	if s.machine != nil {
		return s.room.Find(patch.Range{Start: s.room.Floor, End: s.room.Floor + 1}, size)
	}
	return s.room.FindAbove(inside.Apart(s.arch), size)
}

// share maps memory that the target and we have in common.
func (s *Session) share(size int) (addr arch.Addr, ours []byte, err error) {
	size = (size + pageSize - 1) &^ (pageSize - 1)
	err = target.Insist(func(bool) error {
		var err error
		if addr, err = s.findShared(size); err != nil {
			return err
		}
		return s.frozen(func() (err error) {
			ours, err = s.sharer.Share(addr, size)
			return err
		})
	})
	if err != nil {
		return 0, nil, room.Explain(err)
	}
	return addr, ours, nil
}

func (s *Session) unshare(addr arch.Addr, ours []byte) error {
	if ours == nil {
		return nil
	}
	return errors.Join(s.frozen(func() error { return s.alloc.Free(addr, len(ours)) }), s.sharer.Unshare(ours))
}

// leaveInside takes what the target has for programs out of it. It fails while a
// thread is in code of ours; anyhow leaves it its memory.
func (s *Session) leaveInside(anyhow bool) error {
	if s.inside == nil {
		return nil
	}
	s.findVacant()
	s.view.Lock()
	defer s.view.Unlock()
	s.inside.DropVacant(s.fold)
	if len(s.inside.Retired()) > 0 {
		if !anyhow {
			return target.ErrNotNow
		}
	} else {
		for _, r := range s.insideRanges() {
			if err := s.alloc.Free(r.Start, int(r.End-r.Start)); err != nil && !errors.Is(err, target.ErrGone) {
				return err
			}
		}
	}
	return s.forgetInside()
}

// forgetInside gives up our side of what was shared: the target has gone on without
// it, to another program perhaps. The counts are kept. mu and view are held.
func (s *Session) forgetInside() error {
	if s.inside == nil {
		return nil
	}
	for _, pt := range s.points {
		if pt.Detour != nil {
			s.fold(pt.Detour)
			pt.Detour = nil
		}
	}
	for _, d := range s.inside.Retired() {
		s.fold(d)
	}
	for _, o := range s.inside.Accounts() {
		o.(*Kretprobe).tally(s.inside.Settle(o))
	}
	ours := s.ours
	s.inside, s.ours, s.gate, s.text.Gate = nil, nil, nil, nil
	return s.sharer.Unshare(ours)
}

// reload gives the program that the target has executed the maps of those that were
// loaded before. Programs for which that fails are of no use any more; those of another
// machine wait for the next.
func (s *Session) reload() {
	s.programs = slices.DeleteFunc(s.programs, func(ps *Programs) bool {
		ps.set.Forget()
		if ps.ours == nil || ps.arch != s.arch {
			return false
		}
		err := s.frozen(func() error { return s.sharer.Reshare(ps.addr, ps.ours) })
		s.report(err)
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
func (p *Program) foreign() bool { return p != nil && p != CountOnly && p.of.arch != p.s.arch }

// lost tells whether the target has executed a program that could not get the maps of
// this one.
func (p *Program) lost() bool {
	return p != nil && p != CountOnly && !slices.Contains(p.s.programs, p.of)
}

// insideRanges are the parts of memory that the target has for what runs inside.
func (s *Session) insideRanges() []patch.Range {
	if s.inside == nil {
		return nil
	}
	rs := append(slices.Clone(s.inside.Ranges()), s.shared)
	for _, ps := range s.programs {
		if ps.ours != nil && ps.arch == s.arch {
			rs = append(rs, patch.Range{Start: ps.addr, End: ps.addr + arch.Addr(ps.size)})
		}
	}
	return rs
}
