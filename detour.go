package kprobe

import (
	"errors"
	"maps"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
	"kprobe/internal/text"
	"kprobe/target"
)

// detours is a change of what probes run inside the target: planned while it
// runs, carried out while it stands still.
type detours struct {
	batch *inside.Batch
	at    map[*point]*inside.Detour // nil: none any more
	lost  []patch.Range             // planned, and not to be had

	planned []*inside.Detour // in order of their sites
}

// planDetours plans what the probes will need that run inside the target; after
// tells, for each point where they change, which they are; taken, where points will be. It
// answers nil for no change.
func (s *Session) planDetours(after map[*point][]*Kprobe, taken func(arch.Addr) bool) (*detours, error) {
	if len(after) == 0 {
		return nil, nil
	}
	if err := s.checkCounters(after); err != nil {
		return nil, err
	}
	change := &detours{batch: s.inside.Begin(), at: make(map[*point]*inside.Detour)}
	changes := func(pt *point) bool { _, yes := after[pt]; return yes }
	for _, pt := range slices.SortedFunc(maps.Keys(after), byAddr) {
		ps := after[pt]
		if len(ps) == 0 {
			change.at[pt] = nil
			continue
		}
		d, err := s.planDetour(change, pt, ps, taken, changes)
		if err != nil {
			change.batch.Undo()
			return nil, named(ps[0], &Error{Errno: syscall.EINVAL, Err: err})
		}
		d.Owner, change.at[pt] = ps, d
		change.planned = append(change.planned, d)
	}
	change.batch.Finish()
	return change, nil
}

// checkCounters tells before any work is done that there are too few counters for it. Errors: ENOSPC.
func (s *Session) checkCounters(after map[*point][]*Kprobe) error {
	need := 0
	for pt, ps := range after {
		if pt.Detour != nil {
			continue // which has some, and gives them back
		}
		for _, p := range ps {
			if program, _ := p.as().work(p); program != CountOnly || p.as().returns() != nil {
				need++ // for what it misses
				break
			}
		}
		need++
	}
	if spare := s.inside.Spare(); need > spare {
		return fail(syscall.ENOSPC, "%d counters would be needed, and the target has room for %d more", need, spare)
	}
	return nil
}

func (s *Session) planDetour(change *detours, pt *point, ps []*Kprobe, taken func(arch.Addr) bool, changes func(*point) bool) (*inside.Detour, error) {
	w := inside.Want{Site: pt.Addr, Near: s.nearTo(pt), Code: pt.Site.Original}
	w.Jump = s.jumpAt(pt).Beside(func(a arch.Addr) bool { return taken(a) || s.aheadAt(a, changes) })
	if s.machine != nil { // the detour would have what is others' to rewrite, jump or not
		w.Jump = w.Jump.Without(func(span patch.Range) string { return s.machine.Owned(span.Start, span.End) })
	}
	if w.Jump != nil {
		w.Ahead = func() *patch.Jump {
			j := s.image.Ahead(pt.loc, taken)
			if s.reaches(pt.Addr, j.Addr, changes, change) {
				return &patch.Jump{Addr: pt.Addr}
			}
			return j
		}
	}
	entry := pt.Addr - arch.Addr(pt.loc.Off)
	for _, p := range ps {
		if err := p.as().want(&w, p, entry); err != nil {
			return nil, err
		}
	}
	return change.batch.Detour(w)
}

// aheadAt tells whether the jump of a point behind an address, ahead of the point, depends on what
// stands there. Points that change are not asked: they are planned later, and keep out of the way.
func (s *Session) aheadAt(a arch.Addr, changes func(*point) bool) bool {
	return slices.ContainsFunc(s.points.within(a+1, a+longest), func(n *point) bool {
		return n.Detour != nil && n.Detour.Ahead() && a >= n.Detour.Span.Start && !changes(n)
	})
}

// reaches tells whether the jump of a point in front of pt, as it is or as it was planned just
// now, depends on what stands from an address on, which is in front of pt too.
func (s *Session) reaches(pt, from arch.Addr, changes func(*point) bool, change *detours) bool {
	lo := from - min(from, longest)
	for _, n := range slices.Backward(change.planned) {
		if n.Site < lo {
			break
		}
		if n.Span.End > from {
			return true
		}
	}
	return slices.ContainsFunc(s.points.within(lo, pt), func(n *point) bool {
		return n.Detour != nil && n.Detour.Span.End > from && !changes(n)
	})
}

// insideData is how much private data a call has for programs; none, where they ask for none.
func (rp *Kretprobe) insideData() int {
	if rp.Program.callData()+rp.EntryProgram.callData() == 0 {
		return 0
	}
	return (rp.DataSize + 7) &^ 7
}

// probed tells whether there is a point at an address.
func (s *Session) probed(a arch.Addr) bool { return s.points.at(a) != nil }

// replanAround adds to a change the points whose detours run the instructions of points that
// come or go: with a probe on these the detours must not, without they may.
func (s *Session) replanAround(pts []*point, after map[*point][]*Kprobe) {
	for _, pt := range pts {
		for _, n := range s.points.within(pt.Addr-min(pt.Addr, inside.Around), pt.Addr+inside.Around) {
			if _, planned := after[n]; !planned && n.Detour != nil && n.Detour.Hides(pt.Addr) {
				after[n] = insideOf(n.probes)
			}
		}
	}
}

// use is a program as a detour runs it; counting is done by each detour anyway.
func use(p *Program, entry arch.Addr, cookie uint64) []inside.Use {
	if p == nil || p == CountOnly {
		return nil
	}
	return []inside.Use{{Program: p.p, FuncIP: entry, Cookie: cookie}}
}

// nearTo is the module that a point is in.
func (s *Session) nearTo(pt *point) patch.Range { return image.RangeOf(pt.loc.Module, pt.Addr) }

// jumpAt finds out how a jump could stand at a point; nil where nothing is known
// of the code around it.
func (s *Session) jumpAt(pt *point) *patch.Jump {
	if pt.notify {
		return nil
	}
	return s.image.Jump(pt.loc, pt.Site.Original)
}

// mapDetours maps and writes what a change needs. Nothing leads there yet, so it is
// done piece by piece: the target is stopped for some mappings at a time, and runs
// meanwhile.
func (s *Session) mapDetours(c *detours) error {
	if c == nil {
		return nil
	}
	const atATime = 16
	for rs := range slices.Chunk(c.batch.Map, atATime) {
		err := s.frozen(func() error {
			for _, r := range rs {
				if err := s.room.Map(r); err != nil {
					if errors.Is(err, syscall.EEXIST) {
						c.lost = append(c.lost, r)
					}
					return err
				}
				s.inside.Mapped(r)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	const pagesAtATime = 128
	for spans := range slices.Chunk(patch.Spans(c.batch.Writes, pageSize), pagesAtATime) {
		if err := s.meanwhile(func() error { return patch.Fill(s.t, spans) }); err != nil {
			return err
		}
	}
	return nil
}

// changeDetours plans and carries out a change of what runs inside the target, with
// f in the same stop of it, and ahead before. taken tells where points will be.
func (s *Session) changeDetours(after map[*point][]*Kprobe, taken func(arch.Addr) bool, ahead, f func(*detours) error) error {
	return target.Insist(func(bool) error {
		d, err := s.planDetours(after, taken)
		if err != nil {
			return err
		}
		if err = s.mapDetours(d); err == nil && ahead != nil {
			err = ahead(d)
		}
		if err == nil {
			err = s.frozen(func() error { return f(d) })
		}
		s.dropDetours(d)
		s.optimizeSoon()
		return err
	})
}

// entries counts what the lifeline may have to know for a change's detours.
func (c *detours) entries() (n int) {
	if c == nil {
		return 0
	}
	for pt, d := range c.at {
		n += entriesOf(&text.Place{Addr: pt.Addr, Site: pt.Site, Detour: d})
	}
	return n + c.batch.Areas()
}

// entriesOf is that for one of them. Where no jump leads to a detour now, one may when probes beside it
// have gone: with a trap for each inner byte, and one that it is ahead of.
func entriesOf(p *text.Place) int {
	const most = 6
	if p.Detour != nil && !p.Detour.Optimizable() {
		return most
	}
	return len(p.Entries())
}

// with are points, and those that change with a change, in order.
func (c *detours) with(pts points) points {
	all := slices.Clone(pts)
	if c != nil {
		all = slices.AppendSeq(all, maps.Keys(c.at))
	}
	slices.SortFunc(all, byAddr)
	return slices.Compact(all)
}

// dropDetours gives a plan up of which nothing came.
func (s *Session) dropDetours(c *detours) {
	if c == nil || c.batch == nil {
		return
	}
	c.batch.Undo()
	for _, r := range c.lost {
		s.inside.Avoid(r)
	}
}

// stays tells whether a point keeps its jump, or the trap that is led: to an old detour nothing leads any more.
func (c *detours) stays(pt *point) bool {
	if c == nil {
		return true
	}
	_, changes := c.at[pt]
	return !changes
}

// retrap has the jumps to old detours become traps with the next rearm.
func (c *detours) retrap() {
	if c != nil {
		for pt := range c.at {
			pt.unready()
		}
	}
}

// adoptDetours makes a change's detours those of their points, when no jump leads
// to the old ones any more. The target is frozen.
func (s *Session) adoptDetours(c *detours) {
	if c == nil {
		return
	}
	s.view.Lock()
	c.batch.Adopt()
	c.batch = nil
	s.text.Unnoted()
	for pt, d := range c.at {
		if pt.Detour != nil {
			s.inside.Retire(pt.Detour)
		}
		pt.Detour = d
	}
	s.view.Unlock()
	s.findVacant()
	s.after = append(s.after, s.dropVacant)
}

// findVacant finds the retired detours that nobody comes to any more. The target is frozen.
func (s *Session) findVacant() {
	if s.inside == nil {
		return
	}
	s.view.Lock()
	s.inside.FindVacant(s.t)
	rs := s.inside.Redirects()
	s.view.Unlock()
	s.frames.redirect(s, rs)
}

// dropVacant gives back what retired detours had.
func (s *Session) dropVacant() {
	s.view.Lock()
	defer s.view.Unlock()
	if s.inside != nil {
		s.inside.DropVacant(s.fold)
	}
}

// insideOf are those of a point's probes that run inside the target now.
func insideOf(ps []*Kprobe) []*Kprobe {
	return slices.DeleteFunc(slices.Clone(ps), func(p *Kprobe) bool { return !p.active() || !p.runsInside() })
}
