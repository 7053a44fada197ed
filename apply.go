package kprobe

import (
	"cmp"
	"maps"
	"slices"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/internal/patch"
	"kprobe/internal/room"
	"kprobe/target"
)

// slotNeed is a slot still to be placed.
type slotNeed struct {
	pt   *point
	step bool
}

// needs lists the slots that linking the batch's probes asks for.
func (b *batch) needs() []slotNeed {
	var ns []slotNeed
	for _, pt := range b.fresh {
		if pt.Site.NeedsBoost() {
			ns = append(ns, slotNeed{pt, false})
		}
	}
	asked := make(map[*point]bool)
	for _, p := range b.probes {
		pt := b.at[p]
		if p.PostHandler != nil && pt.Site.NeedsStep() && !asked[pt] {
			asked[pt] = true
			ns = append(ns, slotNeed{pt, true})
		}
	}
	return ns
}

// apply carries a batch out, in the end. The target may map something where the
// plan has its slots before it is stopped, or all its threads may wait for a
// vfork child just then: neither lasts.
func (s *Session) apply(b *batch) error {
	return target.Insist(func(bool) error { return s.tryApply(b) })
}

// tryApply carries a batch out. Slots are planned and assembled beforehand, so
// that the target is stopped only for the writing.
func (s *Session) tryApply(b *batch) error {
	if len(b.probes)+len(b.fresh)+len(b.watches) == 0 {
		return nil
	}
	var slots []patch.Write
	slices.SortFunc(b.fresh, byAddr)
	needs := b.needs()
	within := b.inside()
	s.replanAround(b.fresh, within)
	var err error
	if len(within) > 0 {
		err = s.goInside()
	}
	if err == nil {
		err = s.planSlots(needs, &slots)
	}
	if err == nil {
		err = s.planTrampoline(b, &slots)
	}
	var d *detours
	if err == nil {
		d, err = s.planDetours(within, func(a arch.Addr) bool { return s.probed(a) || b.byAddr[a] != nil })
	}
	begin := false
	if err == nil {
		begin, err = s.planLife(2*len(b.fresh) + d.entries())
	}
	if err == nil {
		err = s.mapAhead(begin, slots)
	}
	if err == nil {
		err = s.mapDetours(d)
	}
	var r *rearming
	if err == nil {
		r = s.planLinks(b, d)
		err = s.ahead(r)
	}
	if err == nil {
		err = s.frozen(func() error { return s.arm(b, d, r) })
	}
	if err != nil {
		s.forgetSlots(needs)
		s.room.Drop(s.frozen)
		s.dropDetours(d)
		s.text.Lifeline.Drop()
		return err
	}
	s.optimizeSoon()
	s.reclaimSoon(reclaimDelay)
	return nil
}

// mapAhead maps the memory for slots, and fills those, in a stop of its own that has
// nothing else to do.
func (s *Session) mapAhead(lifeline bool, slots []patch.Write) error {
	if s.room.Planned() || lifeline {
		err := s.frozen(func() error {
			if err := s.text.Lifeline.Start(s.room.Map); err != nil {
				return err
			}
			return s.room.MapPlanned()
		})
		if err != nil {
			return err
		}
	}
	if len(slots) == 0 {
		return nil
	}
	spans := patch.Spans(slots, pageSize)
	return s.meanwhile(func() error { return patch.Fill(s.t, spans) })
}

// planLife has the lifeline make room for more entries, if it must.
func (s *Session) planLife(more int) (bool, error) {
	need := 2*len(s.points) + more // each may have a second trap, at the end of a slot
	for _, pt := range s.points {
		need += entriesOf(&pt.Place)
	}
	return s.text.Lifeline.Plan(s.arch, need, func(size int) (arch.Addr, error) {
		return s.room.Find(s.programRange(), size)
	})
}

// programRange is where the program lies: any place will do, a near one is
// found where programs keep their mappings.
func (s *Session) programRange() patch.Range { return image.RangeOf(s.image.Program(), room.UserFloor) }

// inside tells, for each point that the batch brings probes to which run inside
// the target, which of these it will have.
func (b *batch) inside() map[*point][]*Kprobe {
	after := make(map[*point][]*Kprobe)
	for _, p := range slices.Backward(b.probes) { // the newest first
		if p.runsInside() && p.active() {
			after[b.at[p]] = append(after[b.at[p]], p)
		}
	}
	for pt, ps := range after {
		after[pt] = append(ps, insideOf(pt.probes)...)
	}
	return after
}

// planSlots gives every need a place, in the arenas that there are or in new
// ones at addresses that are free now, and assembles the code.
func (s *Session) planSlots(needs []slotNeed, writes *[]patch.Write) error {
	if len(needs) == 0 || s.beside != nil {
		return nil
	}
	if !s.room.Some() {
		return fail(syscall.ENOTSUP, "the target has no memory for slots")
	}
	for i, n := range needs {
		site, plan := n.pt.Site, n.pt.Site.PlanBoost
		if n.step {
			plan = site.PlanStep
		}
		w, err := n.pt.slots.Plan(s.room, site, n.step, s.nearTo(n.pt), len(needs)-i, func(at arch.Addr) error { return plan(s.isa, at) })
		if err != nil {
			return err
		}
		*writes = append(*writes, w)
	}
	return nil
}

// planTrampoline gives the first return probe of a session the breakpoint that
// swapped return addresses lead to.
func (s *Session) planTrampoline(b *batch, writes *[]patch.Write) error {
	i := slices.IndexFunc(b.probes, func(p *Kprobe) bool { return p.swaps() && !p.runsInside() })
	if i < 0 || s.frames.trampoline != 0 {
		return nil
	}
	if s.beside != nil {
		var err error
		b.trampoline, err = s.image.Padding(b.at[b.probes[i]].loc)
		return err
	}
	if !s.room.Some() {
		return fail(syscall.ENOTSUP, "the target has no memory for a return trampoline")
	}
	_, at, err := s.room.Take(s.nearTo(b.at[b.probes[i]]), 1)
	if err != nil {
		return err
	}
	b.trampoline = at
	*writes = append(*writes, patch.Write{Addr: at, New: s.arch.Break})
	return nil
}

// forgetSlots gives back what planSlots took.
func (s *Session) forgetSlots(needs []slotNeed) {
	for _, n := range needs {
		n.pt.slots.Forget(n.pt.Site, n.step)
	}
}

// othersPlan is memory that the target does not list and is not to be had either:
// that which detours will want and, in a kernel, all that they have.
func (s *Session) othersPlan() (rs []patch.Range) {
	if s.inside != nil {
		rs = s.inside.Planned()
	}
	if s.machine != nil {
		rs = slices.Concat(rs, s.insideRanges())
	}
	return rs
}

// tellOthers has detours keep out of memory that was given out.
func (s *Session) tellOthers(r patch.Range) {
	if s.inside != nil {
		s.inside.Avoid(r)
	}
}

// frozen runs f on the owner thread with every thread of the target stopped, and one of them ready to make
// calls for us. Where none is, they are let have their signals first, for a while: the owner does that
// in between.
func (s *Session) frozen(f func() error) error {
	l, ok := s.t.(target.Lapser)
	tries := 50
	if s.t.OnOwner() {
		tries = 0
	}
	for ; ; tries-- {
		err, ready := error(errClosed), true
		s.onOwner(func() {
			err = s.freeze(func() error {
				if ready = !ok || tries == 0 || s.t.Stuck() > 0 || l.Ready(); !ready {
					return nil
				}
				return f()
			})
		})
		if ready || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *Session) freeze(f func() error) error {
	start := time.Now()
	stops, err := s.t.Freeze()
	for _, st := range stops {
		if st.Child != nil {
			s.handle(st) // its copy of the memory is the one before f
			continue
		}
		s.stops = append(s.stops, st)
	}
	if err == nil && (s.executed || slices.ContainsFunc(s.stops, func(st target.Stop) bool { return st.Kind == target.StopExec })) {
		err = errExecuted
	}
	if err == nil {
		err = f()
	}
	if e := s.t.Thaw(); err == nil {
		err = e
	}
	s.stats.lastStop.Store(int64(time.Since(start)))
	for _, f := range s.after {
		f()
	}
	s.after = nil
	return err
}

// meanwhile runs f on the owner thread while the target runs. Nothing is written into a
// program that was planned for the one before it: that thread would know.
func (s *Session) meanwhile(f func() error) error {
	err := error(errClosed)
	s.onOwner(func() {
		if err = errExecuted; !s.executed {
			err = f()
		}
	})
	return err
}

// errExecuted: what was planned is about a program that is no more. Nobody has
// looked at the new one yet; see restart.
var errExecuted = fail(syscall.ESRCH, "the process is executing another program just now")

// arm carries a batch out in the frozen target: all that can be was done before. Any
// failure undoes all of it.
func (s *Session) arm(b *batch, d *detours, r *rearming) error {
	if b.trampoline != 0 {
		if s.beside != nil {
			if err := s.beside.SetBreak(b.trampoline); err != nil {
				return err
			}
		}
		if err := s.text.Lifeline.NoteReturn(b.trampoline); err != nil {
			return err
		}
		s.frames.trampoline = b.trampoline
		if s.inside != nil {
			s.inside.Seg.SetOther(b.trampoline)
		}
	}
	if err := s.watch(b.watches); err != nil {
		return err
	}
	old := s.link(b)
	d.retrap()
	if err := s.carryOut(r); err != nil {
		s.unlink(b, old)
		s.takeBack(b.watches)
		if b.trampoline != 0 {
			s.frames.trampoline = 0
			s.reportAlive(s.text.Lifeline.NoteReturn(0))
		}
		s.text.Unnoted() // those of the batch are about to be unmapped
		s.reportAlive(s.rearm(nil))
		return err
	}
	s.adopt(b)
	s.adoptDetours(d)
	return nil
}

// byAddr is the order that points are kept in: what goes through all of them
// while the target stands still needs no sorting.
func byAddr(a, b *point) int { return cmp.Compare(a.Addr, b.Addr) }

// planLinks plans which probes will be on which points, newest first, as the kernel
// does; jprobes stay last, and the exits of return probes.
func (s *Session) planLinks(b *batch, d *detours) *rearming {
	b.links = make(map[*point][]*Kprobe, len(b.fresh))
	for _, p := range b.probes {
		pt := b.at[p]
		ps, seen := b.links[pt]
		if !seen && pt.live {
			ps = pt.probes
		}
		if p.as().trails() {
			ps = append(ps[:len(ps):len(ps)], p)
		} else {
			ps = append([]*Kprobe{p}, ps...)
		}
		b.links[pt] = ps
	}
	b.points = patch.Merge(s.points, b.fresh, byAddr)
	o := &outlook{Session: s, points: b.points, probes: b.links, stays: d.stays}
	changing := slices.AppendSeq(slices.Clone(b.fresh), maps.Keys(b.links))
	for _, pt := range b.fresh {
		changing = append(changing, s.covering(pt.Addr)...)
	}
	return o.rearming(d.with(changing))
}

// link puts the batch's probes on their points. It answers how the points were that
// there were.
func (s *Session) link(b *batch) map[*point][]*Kprobe {
	s.view.Lock()
	defer s.view.Unlock()
	old := make(map[*point][]*Kprobe)
	for pt, ps := range b.links {
		if pt.live {
			old[pt] = pt.probes
		}
		pt.probes = ps
		pt.refresh()
	}
	for _, p := range b.probes {
		pt := b.at[p]
		p.as().linked(s, pt)
		p.point, p.given, p.placed, p.Addr = pt, p.Addr, true, pt.Addr
	}
	for _, pt := range b.fresh {
		pt.live = true
	}
	s.points = b.points
	return old
}

// dropDead takes points that are no longer live out of where they are looked up.
func (s *Session) dropDead() {
	s.points = slices.DeleteFunc(slices.Clone(s.points), func(pt *point) bool { return !pt.live })
}

func (s *Session) unlink(b *batch, old map[*point][]*Kprobe) {
	s.view.Lock()
	defer s.view.Unlock()
	for _, p := range b.probes {
		p.as().unlinked(s)
		p.unplace()
	}
	for pt, probes := range old {
		pt.probes = probes
		pt.refresh()
	}
	for _, pt := range b.fresh {
		pt.live, pt.probes = false, nil
		pt.refresh()
	}
	s.dropDead()
}

// unplace forgets where a probe was.
func (p *Kprobe) unplace() {
	p.point = nil
	if p.placed {
		p.Addr, p.placed = p.given, false
	}
}

// refresh derives what the hit path asks of the point's probes.
func (pt *point) refresh() {
	pt.outer = slices.ContainsFunc(pt.probes, func(p *Kprobe) bool { return p.active() && !p.runsInside() })
	pt.post = slices.ContainsFunc(pt.probes, func(p *Kprobe) bool { return p.active() && p.PostHandler != nil })
}

// adopt makes new arenas and slots known to the hit path.
func (s *Session) adopt(b *batch) {
	s.view.Lock()
	defer s.view.Unlock()
	more := s.room.Adopt()
	for _, pt := range b.fresh {
		pt.slots.Enter(pt.Site, pt)
	}
	for pt := range b.links {
		if b.byAddr[pt.Addr] != pt {
			pt.slots.Enter(pt.Site, pt)
		}
	}
	if more {
		s.report(s.forbid())
	}
}
