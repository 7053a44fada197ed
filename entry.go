package kprobe

import (
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/symbol"
)

// checkOwner holds jprobes and return probes to their rules about places.
func (s *Session) checkOwner(b *batch, p *Kprobe, loc symbol.Loc) error {
	switch owner := p.owner.(type) {
	case *Jprobe:
		if !s.image.IsEntry(loc) {
			return fail(syscall.EINVAL, "a jprobe must be at a function's entry, and %s is not", loc)
		}
		taken := s.jprobes[arch.Addr(loc.Addr)] != nil
		for _, q := range b.probes {
			_, j := q.owner.(*Jprobe)
			taken = taken || j && b.at[q].Addr == arch.Addr(loc.Addr)
		}
		if taken {
			return fail(syscall.EEXIST, "%s has a jprobe already", loc)
		}
		return owner.compile(s.arch, loc)
	case *Kretprobe:
		if !s.image.IsEntry(loc) {
			return fail(syscall.EINVAL, "a return probe must be at a function's entry, and %s is not", loc)
		}
		return s.chooseEngine(owner, loc)
	}
	return nil
}

var errPostInside = fail(syscall.ENOTSUP, "a program and a post-handler at one instruction of a kernel")

// postInside is a probe of the batch with whom a program and a post-handler meet, nil for
// none.
func (b *batch) postInside() *Kprobe {
	meet := make(map[*point][2]bool)
	for _, p := range b.probes {
		pt := b.at[p]
		for _, q := range append(slices.Clip(pt.probes), p) {
			meet[pt] = [2]bool{meet[pt][0] || q.PostHandler != nil, meet[pt][1] || q.runsInside()}
		}
		if meet[pt] == [2]bool{true, true} {
			return p
		}
	}
	return nil
}

// forgetJprobe gives up a jprobe's claim to its function.
func (s *Session) forgetJprobe(j *Jprobe) {
	for a, o := range s.jprobes {
		if o == j {
			delete(s.jprobes, a)
		}
	}
}
