package kprobe

import (
	"cmp"
	"slices"

	"kprobe/arch"
	"kprobe/internal/patch"
	"kprobe/internal/text"
	"kprobe/target"
)

// points are in order of address. The slice is replaced, never changed in place: what
// takes the place of another is made ready while the target runs.
type points []*point

// from is the index of the first one that is not below an address.
func (ps points) from(addr arch.Addr) int {
	i, _ := slices.BinarySearchFunc(ps, addr, func(pt *point, a arch.Addr) int { return cmp.Compare(pt.Addr, a) })
	return i
}

// at is the one at an address, nil for none.
func (ps points) at(addr arch.Addr) *point {
	if i := ps.from(addr); i < len(ps) && ps[i].Addr == addr {
		return ps[i]
	}
	return nil
}

// within are those from one address on and below another.
func (ps points) within(lo, hi arch.Addr) points {
	if hi < lo {
		return nil
	}
	return ps[ps.from(lo):ps.from(hi)]
}

// longest is the most that may stand over the program's own bytes at a point, and ahead of it, or
// depend on them.
const longest = patch.LongestSpan

// standing is what stands at a point, for who is not the owner: a kernel's tracer may have
// its jump give way at any time.
func (s *Session) standing(pt *point) text.Kind {
	s.view.RLock()
	defer s.view.RUnlock()
	return pt.Text
}

// outlook is how things will be after a change that is being planned: which points
// there will be, and what differs at some of them.
type outlook struct {
	*Session
	points points
	probes map[*point][]*Kprobe // else as they are
	stays  func(*point) bool    // whether what may stand there may still; nil: everywhere
	hope   bool                 // everything may that can
}

// present is the outlook of no change.
func (s *Session) present() *outlook { return &outlook{Session: s, points: s.points} }

func (o *outlook) probesOf(pt *point) []*Kprobe {
	if ps, ok := o.probes[pt]; ok {
		return ps
	}
	return pt.probes
}

// due tells whether anything of ours is to stand at a point.
func (o *outlook) due(pt *point) bool {
	return pt.notify || !o.disarmed && slices.ContainsFunc(o.probesOf(pt), (*Kprobe).active)
}

// wanted tells what.
func (o *outlook) wanted(pt *point) text.Kind {
	may := func(now bool) bool { return o.hope || now && (o.stays == nil || o.stays(pt)) }
	switch {
	case !o.due(pt):
		return text.Own
	case may(pt.optimized.Load()) && o.optimizable(pt) == "":
		return text.Jump
	case may(pt.led.Load()) && o.leadable(pt):
		return text.Trap
	}
	return o.text.Armed()
}

// rearming is what brings the text at some points to what it should be.
type rearming struct {
	*text.Rewrite
	pts []*point
}

// rearming plans to bring the text at points to what it will have to be.
func (o *outlook) rearming(pts []*point) *rearming {
	cs := make([]text.Change, len(pts))
	for i, pt := range pts {
		cs[i] = text.Change{Place: &pt.Place, From: pt.Text, To: o.wanted(pt)}
	}
	return &rearming{o.text.Plan(cs, func(yield func(*text.Place, bool) bool) {
		for _, pt := range o.points {
			if !yield(&pt.Place, o.due(pt)) {
				return
			}
		}
	}), pts}
}

// rearm brings the text at some points to what it should be, all or none. The target is
// frozen.
func (s *Session) rearm(pts []*point) error {
	r := s.present().rearming(pts)
	if err := s.ahead(r); err != nil {
		return err
	}
	return s.carryOut(r)
}

// ahead writes what nothing leads to before carryOut.
func (s *Session) ahead(r *rearming) error {
	if !r.HasAhead() {
		return nil
	}
	return s.meanwhile(r.Ahead)
}

// carryOut is the rest, in the stop. Where texts have changed since it was planned (see
// giveWay), it is planned anew.
func (s *Session) carryOut(r *rearming) error {
	if r.Stale() {
		return s.rearm(r.pts)
	}
	jumps := slices.DeleteFunc(slices.Clone(r.pts), func(pt *point) bool { return pt.Text != text.Jump })
	err := r.CarryOut()
	if err == nil {
		for _, pt := range r.pts { // what is away comes again after a look at who stands there
			pt.optimized.Store(pt.Text == text.Jump)
			pt.led.Store(pt.Text == text.Trap)
		}
		s.forgive(jumps)
	}
	return err
}

// forgive takes back the faults of threads that came to the middle of jumps which have just
// been taken away: they have not been served yet, and what faults there is gone.
func (s *Session) forgive(jumps points) {
	jumps = slices.DeleteFunc(jumps, func(pt *point) bool { return pt.Text == text.Jump })
	if len(jumps) == 0 {
		return
	}
	for i, st := range s.stops {
		var r arch.Regs
		if st.Kind != target.StopSignal || s.t.Regs(st.Thread, &r) != nil {
			continue
		}
		pc := arch.Addr(r[s.arch.PC])
		under := func(pt *point) bool { return pt.Detour.Under(pc) }
		if slices.ContainsFunc(jumps.within(pc-min(pc, longest), pc+longest), under) && s.ownFault(st) {
			s.stops[i].Kind = target.StopWoken
			s.t.Resume(st.Thread, 0)
		}
	}
}

// ReadMem reads the target's memory as the program wrote it: where probes have
// put breakpoints, the original bytes are seen. Errors: EFAULT.
func (s *Session) ReadMem(addr arch.Addr, p []byte) error {
	if err := s.t.ReadAt(addr, p); err != nil {
		return err
	}
	s.view.RLock()
	defer s.view.RUnlock()
	for _, pt := range s.points.within(addr-min(addr, longest), addr+arch.Addr(len(p))+longest) {
		w := pt.Stands()
		patch.Overlay(p, addr, w.Addr, w.Old)
	}
	if s.gate != nil {
		w := s.gate.Stands()
		patch.Overlay(p, addr, w.Addr, w.Old)
	}
	return nil
}
