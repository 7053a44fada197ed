package roles

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/errno"
	"kprobe/internal/inside"
	"kprobe/internal/machine"
	"kprobe/internal/pool"
	"kprobe/internal/within"
	"kprobe/target"
)

// Programs are eBPF programs that were loaded into a target, and their maps.
type Programs struct {
	*inside.Programs

	home   *Home
	arch   *arch.Arch // that they are compiled for
	maps   *within.Share
	pool   *pool.Maps // nil where all maps are the session's own
	pooled *within.Share
	tgid   int // of the target, as they see it
}

// Program is one of them.
type Program struct {
	of *Programs
	p  *inside.Program // nil: CountOnly
}

// CountOnly is the program of a probe that only counts its hits.
var CountOnly = new(Program)

// Load verifies programs, maps memory for their maps in the target, and compiles them; with a pool, they work on
// its maps. It is called in a turn. Errors: EINVAL with the verifier's words; ENOTSUP, EPERM.
func (h *Home) Load(c *bpf.Collection, p *pool.Maps) (*Programs, error) {
	if err := h.Within.Arrange(machine.For(inside.AtReturns(c.Programs))); err != nil {
		return nil, err
	}
	proofs, layout, err := h.Within.Proofs(c, p != nil)
	if err != nil {
		return nil, &errno.Error{Errno: inside.Errno(err), Err: err}
	}
	ps := &Programs{home: h, arch: h.On.Arch, pool: p, tgid: h.Within.TGID()}
	var own, common inside.Memory
	if layout.Size > 0 {
		if ps.maps, err = h.Within.Share(int(layout.Size), layout.SizeFor); err != nil {
			return nil, err
		}
		own = ps.maps.Memory
	}
	if p != nil {
		if ps.pooled, err = h.Within.SharePool(p); err == nil {
			common = ps.pooled.Memory
		}
	}
	if err == nil {
		if ps.Programs, err = h.Within.Compile(proofs, layout, own, common); err != nil {
			err = &errno.Error{Errno: syscall.EINVAL, Err: err}
		}
	}
	if err != nil {
		return nil, errors.Join(err, h.Within.Unshare(ps.maps), h.Within.Unshare(ps.pooled))
	}
	h.Programs = append(h.Programs, ps)
	return ps, nil
}

// reload gives the program that the target has executed the maps of those that were loaded before. Programs
// for which that fails are of no use any more; those of another machine wait for the next.
func (h *Home) reload() {
	h.Programs = slices.DeleteFunc(h.Programs, func(ps *Programs) bool {
		ps.Forget()
		err := errors.Join(h.Within.Reshare(ps.maps), h.Within.Reshare(ps.pooled))
		h.On.Report(err)
		return err != nil
	})
}

// Named finds a program by its name, nil where there is none.
func (ps *Programs) Named(name string) *Program {
	p := ps.Program(name)
	if p == nil {
		return nil
	}
	return &Program{ps, p}
}

// Unlock gives up the locks of a pool's maps that the target held when it ended.
func (ps *Programs) Unlock() {
	if ps.pool != nil {
		ps.pool.Unlock(ps.tgid)
	}
}

// Free gives back the memory that the maps of a session which is over have in the controller. Errors: of munmap(2).
func (ps *Programs) Free() error {
	if ps.maps == nil {
		return nil
	}
	defer func() { ps.maps = nil }()
	return ps.home.On.T.(target.Sharer).Unshare(ps.maps.Ours)
}

// Fits tells whether the program can be a probe's in a session; data is what private data calls have there.
func (p *Program) Fits(h *Home, kind bpf.Kind, data int) error {
	switch {
	case p == CountOnly:
		return nil
	case p.of == nil || p.of.home != h:
		return errno.New(syscall.EINVAL, "the program was loaded by another session")
	case h.On.Kind.Cannot(p.p) != "":
		return errno.New(syscall.ENOTSUP, "program %q %s, which cannot be done in a kernel", p.p.Spec.Name, h.On.Kind.Cannot(p.p))
	case p.CallData() > data:
		return errno.New(syscall.EINVAL, "program %q asks for %d bytes of private data, and the probe's calls have %d", p.p.Spec.Name, p.CallData(), data)
	case p.foreign():
		return errno.New(syscall.EINVAL, "the program was compiled for %s", p.of.arch.Name)
	case p.p.Spec.Kind != kind:
		return errno.New(syscall.EINVAL, "program %q is for a %v", p.p.Spec.Name, p.p.Spec.Kind)
	}
	return nil
}

// result tells whether the program looks at what the function returns.
func (p *Program) result() bool { return p != nil && p.p != nil && p.p.Results() }

// CallData tells how many bytes of a call's private data the program asks for.
func (p *Program) CallData() int {
	if p == nil || p.p == nil {
		return 0
	}
	return p.p.CallData()
}

// overrides tells whether the program may replace the probed function.
func (p *Program) overrides() bool { return p != nil && p.p != nil && p.p.Overrides() }

// foreign tells whether the target is of another machine now than the program.
func (p *Program) foreign() bool {
	return p != nil && p != CountOnly && p.of.arch != p.of.home.On.Arch
}

// lost tells whether the target has executed a program that could not get the maps of
// this one.
func (p *Program) lost() bool {
	return p != nil && p != CountOnly && !slices.Contains(p.of.home.Programs, p.of)
}

// use is a program as a detour runs it; counting is done by each detour anyway.
func use(p *Program, entry arch.Addr, cookie uint64) []inside.Use {
	if p == nil || p == CountOnly {
		return nil
	}
	return []inside.Use{{Program: p.p, FuncIP: entry, Cookie: cookie}}
}
