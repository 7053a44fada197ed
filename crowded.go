package kprobe

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/patch"
)

// A detour has a copy of what its jump would displace, be the jump there or not. In a kernel others
// rewrite text as well, and what they put there must be carried out, not what was there before.

// displaced is what a point's detour has a copy of.
func (pt *point) displaced() (at arch.Addr, code []byte) {
	if d := pt.Detour; d != nil && d.Way != nil {
		return d.Span.Start, d.Jump.Old
	}
	return pt.Addr, pt.Site.Original
}

// unchanged tells whether what its detour has a copy of is there, under what is ours.
func (s *Session) unchanged(pt *point) bool {
	at, code := pt.displaced()
	have := make([]byte, len(code))
	return s.ReadMem(at, have) == nil && slices.Equal(have, code)
}

// replanCrowded has the points make do with copies of their own instructions that have others' in their detours'
// copies: those that a probe of the kernel's own is on, that is. When these are gone, it is as before.
func (s *Session) replanCrowded() error {
	if s.machine == nil {
		return nil
	}
	after := make(map[*point][]*Kprobe)
	var pts points
	for _, pt := range s.points {
		if pt.Detour == nil || pt.Detour.Way == nil && !pt.crowded {
			continue
		}
		at, code := pt.displaced()
		changes := pt.Site.Insn.Len < len(code) && s.machine.Owned(at, at+arch.Addr(len(code))) != ""
		if pt.crowded {
			changes = len(s.jumpFor(pt).Ways) > 0
		}
		if changes {
			after[pt] = insideOf(pt.probes)
			pts = append(pts, pt)
		}
	}
	if len(pts) == 0 {
		return nil
	}
	err := s.redetour(after, pts)
	for _, pt := range pts {
		pt.crowded = pt.crowded != (err == nil)
	}
	return err
}

// redetour gives points other detours.
func (s *Session) redetour(after map[*point][]*Kprobe, pts points) error {
	return s.changeDetours(after, s.probed, nil, func(d *detours) error {
		d.retrap()
		if err := s.rearm(pts); err != nil {
			return err
		}
		s.adoptDetours(d)
		return nil
	})
}

// jumpFor is how a jump could stand at a kernel's point, with nothing of others' displaced.
func (s *Session) jumpFor(pt *point) *patch.Jump {
	j := s.jumpAt(pt).Beside(func(a arch.Addr) bool { return a != pt.Addr && s.probed(a) })
	if j == nil {
		return new(patch.Jump)
	}
	return j.Without(func(span patch.Range) string { return s.machine.Owned(span.Start, span.End) })
}
