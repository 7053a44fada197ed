// Package links has which probes are on which points: how a batch of probes comes to them, and how
// probes leave them, or are switched off and on, in one stop of the target each.
//
//	batch.go  what one registration brings, as far as it is planned
//	links.go  the changes
package links

import (
	"fmt"
	"maps"
	"slices"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/inside"
	"kprobe/internal/machine"
	"kprobe/internal/parts"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// Batch is the plan of one registration.
type Batch[P comparable] struct {
	Probes []P // to be linked to their points, in order

	l      *Links[P]
	at     map[P]*probed.Point[P]
	joined map[arch.Addr][]P  // Probes by where they are going to be
	fresh  []*probed.Point[P] // points that do not exist yet
	byAddr map[arch.Addr]*probed.Point[P]
	links  map[*probed.Point[P]][]P // the probes that will be on points, where these change
	linked []*probed.Point[P]       // these, in order, so that nothing is sorted or looked up while the target stands
	with   [][]P                    // and what will be on each
	met    []*probed.Point[P]       // those of them that exist already
	points probed.List[P]           // all there will be
}

// Batch is one with nothing in it.
func (l *Links[P]) Batch() *Batch[P] {
	return &Batch[P]{l: l, at: make(map[P]*probed.Point[P]), joined: make(map[arch.Addr][]P), byAddr: make(map[arch.Addr]*probed.Point[P])}
}

// Empty tells whether nothing is to be done.
func (b *Batch[P]) Empty() bool { return len(b.Probes)+len(b.fresh) == 0 }

// Add has a probe be on a point.
func (b *Batch[P]) Add(p P, pt *probed.Point[P]) {
	b.Probes = append(b.Probes, p)
	b.at[p] = pt
	b.joined[pt.Addr] = append(b.joined[pt.Addr], p)
}

// At is the point that a probe of the batch is going to be on, nil for none.
func (b *Batch[P]) At(p P) *probed.Point[P] { return b.at[p] }

// Point finds or plans the probe point at a place. Errors: those of the analysis.
func (b *Batch[P]) Point(loc symbol.Loc) (*probed.Point[P], error) {
	addr, on := arch.Addr(loc.Addr), b.l.kit.On
	if pt := on.Points.At(addr); pt != nil {
		return pt, nil
	}
	if pt := b.byAddr[addr]; pt != nil {
		return pt, nil
	}
	site, err := on.Image.Analyse(loc)
	if err != nil {
		return nil, err
	}
	pt := &probed.Point[P]{Place: text.Place{Addr: addr, Site: site}, Loc: loc, Pinned: b.l.Pinned(site)}
	b.fresh = append(b.fresh, pt)
	b.byAddr[addr] = pt
	return pt, nil
}

// Site is the result of the analysis of a place, that of the point there: the first caller has the
// place analysed. Errors: those of the analysis.
func (b *Batch[P]) Site(loc symbol.Loc) (*patch.Site, error) {
	pt, err := b.Point(loc)
	if err != nil {
		return nil, err
	}
	return pt.Site, nil
}

// Others are the probes that are at an address, or are going to be. Each probe of a batch may ask,
// and a batch may have a hundred thousand: so the batch is not gone through for it.
func (b *Batch[P]) Others(at arch.Addr) (ps []P) {
	if pt := b.l.kit.On.Points.At(at); pt != nil {
		ps = slices.Clone(pt.Probes)
	}
	return append(ps, b.joined[at]...)
}

// Mark is a state of a batch to go back to.
type Mark struct{ probes, fresh int }

// Mark is the batch's state now.
func (b *Batch[P]) Mark() Mark { return Mark{len(b.Probes), len(b.fresh)} }

// Back takes out of the batch all probes that have come in since a mark.
func (b *Batch[P]) Back(m Mark) {
	for _, p := range b.Probes[m.probes:] {
		at := b.at[p].Addr
		b.joined[at] = b.joined[at][:len(b.joined[at])-1] // one for each: the probes that came last
		delete(b.at, p)
	}
	for _, pt := range b.fresh[m.fresh:] {
		delete(b.byAddr, pt.Addr)
	}
	b.Probes, b.fresh = b.Probes[:m.probes], b.fresh[:m.fresh]
}

// PostInside is a probe of the batch with which a program and a post-handler meet at one point; ok
// is false for none.
func (b *Batch[P]) PostInside() (p P, ok bool) {
	rules := b.l.probes
	meet := make(map[*probed.Point[P]][2]bool)
	for _, p := range b.Probes {
		pt := b.at[p]
		for _, q := range append(slices.Clip(pt.Probes), p) {
			meet[pt] = [2]bool{meet[pt][0] || rules.Post(q), meet[pt][1] || rules.Inside(q)}
		}
		if meet[pt] == [2]bool{true, true} {
			return p, true
		}
	}
	return p, false
}

// needs lists the slots that linking the batch's probes asks for.
func (b *Batch[P]) needs() []parts.Need[P] {
	var ns []parts.Need[P]
	for _, pt := range b.fresh {
		if pt.Site.NeedsBoost() {
			ns = append(ns, parts.Need[P]{Point: pt})
		}
	}
	asked := make(map[*probed.Point[P]]bool)
	for _, p := range b.Probes {
		pt := b.at[p]
		if b.l.probes.Post(p) && pt.Site.NeedsStep() && !asked[pt] {
			asked[pt] = true
			ns = append(ns, parts.Need[P]{Point: pt, Step: true})
		}
	}
	return ns
}

// altered are the points that come with the batch, and those at which other probes will be then.
func (b *Batch[P]) altered() probed.List[P] { return slices.Concat(b.fresh, b.met) }

// swapped is the point of the first return probe that swaps return addresses by a handler; nil for
// none.
func (b *Batch[P]) swapped() *probed.Point[P] {
	i := slices.IndexFunc(b.Probes, func(p P) bool { return b.l.probes.Swaps(p) && !b.l.probes.Inside(p) })
	if i < 0 {
		return nil
	}
	return b.at[b.Probes[i]]
}

// inside tells, for each point that the batch brings probes to which run inside
// the target, which of these it will have.
func (b *Batch[P]) inside() map[*probed.Point[P]][]P {
	after := make(map[*probed.Point[P]][]P)
	for _, p := range slices.Backward(b.Probes) { // the newest first
		if b.l.probes.Inside(p) && b.l.probes.Active(p) {
			after[b.at[p]] = append(after[b.at[p]], p)
		}
	}
	for pt, ps := range after {
		after[pt] = append(ps, b.l.kit.On.Points.Inside(pt.Probes)...)
	}
	return after
}

// plan plans which probes will be on which points, newest first, as the kernel
// does; jprobes stay last, and the exits of return probes.
func (b *Batch[P]) plan(d *parts.Detours[P]) *probed.Outlook[P] {
	b.links = make(map[*probed.Point[P]][]P, len(b.fresh))
	for _, p := range b.Probes {
		pt := b.at[p]
		ps, seen := b.links[pt]
		if !seen && pt.Live {
			ps = pt.Probes
		}
		if b.l.probes.Trails(p) {
			ps = append(ps[:len(ps):len(ps)], p)
		} else {
			ps = append([]P{p}, ps...)
		}
		b.links[pt] = ps
	}
	b.linked = slices.SortedFunc(maps.Keys(b.links), probed.ByAddr[P])
	b.with, b.met = make([][]P, len(b.linked)), nil
	for i, pt := range b.linked {
		b.with[i] = b.links[pt]
		if b.byAddr[pt.Addr] != pt {
			b.met = append(b.met, pt)
		}
	}
	table := b.l.kit.On.Points
	b.points = patch.Merge(table.List, b.fresh, probed.ByAddr[P])
	return &probed.Outlook[P]{Table: table, Points: b.points, Probes: b.links, Stays: d.Stays}
}

// changing are the points where the text changes with a batch.
func (b *Batch[P]) changing(d *parts.Detours[P]) probed.List[P] {
	changing := slices.AppendSeq(slices.Clone(b.fresh), maps.Keys(b.links))
	for _, pt := range b.fresh {
		changing = append(changing, b.l.kit.On.Points.Covering(pt.Addr)...)
	}
	return d.With(changing)
}

// home is the memory that the target shares with us, where a batch's probes run inside it.
type home[P comparable] struct {
	change.Nothing
	b *Batch[P]
}

func (h *home[P]) Plan() error {
	rules := h.b.l.probes
	if slices.ContainsFunc(h.b.Probes, func(p P) bool { return rules.Inside(p) && rules.Active(p) }) {
		return h.b.l.kit.Within.Arrange(machine.Detours)
	}
	return nil
}

// linking are a batch's probes on their points.
type linking[P comparable] struct {
	change.Nothing
	b   *Batch[P]
	old map[*probed.Point[P]][]P // the points that there were
}

func (x *linking[P]) Commit() error {
	b, on := x.b, x.b.l.kit.On
	on.View.Lock()
	defer on.View.Unlock()
	x.old = make(map[*probed.Point[P]][]P)
	for i, pt := range b.linked {
		if pt.Live {
			x.old[pt] = pt.Probes
		}
		pt.Probes = b.with[i]
		on.Points.Refresh(pt)
	}
	for _, p := range b.Probes {
		b.l.probes.Linked(p, b.at[p])
	}
	for _, pt := range b.fresh {
		pt.Live = true
	}
	on.Points.List = b.points
	return nil
}

func (x *linking[P]) Undo() {
	b, on := x.b, x.b.l.kit.On
	on.View.Lock()
	defer on.View.Unlock()
	for _, p := range b.Probes {
		b.l.probes.Unlinked(p)
	}
	for pt, probes := range x.old {
		pt.Probes = probes
		on.Points.Refresh(pt)
	}
	for _, pt := range b.fresh {
		pt.Live, pt.Probes = false, nil
		on.Points.Refresh(pt)
	}
	on.Points.List = on.Points.Live()
}

// arriving are the fresh points of a batch at which a jump can stand from the first: then no thread
// ever meets a trap there. That is quicker, and a thread that meets none cannot die of one that is
// not served any more. At the others there are traps, and jumps later where they can be (package
// optimize): where a thread stands under the jump, or where others rewrite the text.
type arriving[P comparable] struct {
	change.Nothing
	b    *Batch[P]
	d    *parts.Detours[P]
	text *probed.Rewriting[P]

	room *inside.Vacancy
}

// look has an outlook hope for jumps.
func (x *arriving[P]) look(o *probed.Outlook[P]) *probed.Outlook[P] {
	o.First = x.d.First
	o.Hope = x.hopes
	return o
}

// hopes tells whether a point may have its jump at once.
func (x *arriving[P]) hopes(pt *probed.Point[P]) bool {
	if x.b.l.kit.On.Kind.Shared() || x.b.byAddr[pt.Addr] != pt {
		return false
	}
	return x.d.First(pt) != nil
}

// later: a thread that does not stop may be under any of the jumps, which would all be traps for
// now. Most wait for a child of vfork, and that executes its program soon.
func (x *arriving[P]) later() bool {
	return len(x.text.Firsts()) > 0 && x.b.l.kit.On.T.Stuck() > 0
}

func (x *arriving[P]) Plan() error {
	x.room = nil
	return nil
}

func (x *arriving[P]) Commit() (err error) {
	ds := x.text.Firsts()
	if len(ds) == 0 {
		return nil
	}
	on := x.b.l.kit.On
	if x.room, err = inside.Vacate(on.T, on.Read, ds, nil); err == nil {
		x.text.Refuse(x.room.Busy)
	}
	return err
}

// Undo: the detours that threads were moved to are not there then.
func (x *arriving[P]) Undo() {
	if x.room != nil {
		x.b.l.kit.On.Alive(x.room.Undo(x.b.l.kit.On.T))
	}
}

func (x *linking[P]) Lines() (ls []string) {
	for _, p := range x.b.Probes {
		ls = append(ls, fmt.Sprintf("%s on %v", x.b.l.probes.Line(p), x.b.at[p].Addr))
	}
	return ls
}
