// Package links has which probes are on which points: how a batch of probes comes to them, and how
// probes leave them, or are switched off and on, in one stop of the target each, or, if they are very many,
// in several.
//
//	batch.go   what one registration brings, as far as it is planned
//	links.go   how they come and go
//	switch.go  how they are switched off and on
//	pieces.go  how many probes are cut into pieces, a stop for each
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
type Batch struct {
	Probes []*probed.Probe // to be linked to their points, in order

	l      *Links
	at     map[*probed.Probe]*probed.Point
	joined map[arch.Addr][]*probed.Probe // Probes by where they are going to be
	fresh  []*probed.Point               // points that do not exist yet
	byAddr map[arch.Addr]*probed.Point
	links  map[*probed.Point][]*probed.Probe // the probes that will be on points, where these change
	linked []*probed.Point                   // these, in order, so that nothing is sorted or looked up while the target stands
	with   [][]*probed.Probe                 // and what will be on each
	met    []*probed.Point                   // those of them that exist already
	points probed.List                       // all there will be
}

// Batch is one with nothing in it.
func (l *Links) Batch() *Batch {
	return &Batch{l: l, at: make(map[*probed.Probe]*probed.Point), joined: make(map[arch.Addr][]*probed.Probe), byAddr: make(map[arch.Addr]*probed.Point)}
}

// Empty tells whether nothing is to be done.
func (b *Batch) Empty() bool { return len(b.Probes)+len(b.fresh) == 0 }

// Add has a probe be on a point.
func (b *Batch) Add(p *probed.Probe, pt *probed.Point) {
	b.Probes = append(b.Probes, p)
	b.at[p] = pt
	b.joined[pt.Addr] = append(b.joined[pt.Addr], p)
}

// At is the point that a probe of the batch is going to be on, nil for none.
func (b *Batch) At(p *probed.Probe) *probed.Point { return b.at[p] }

// Point finds or plans the probe point at a place. Errors: those of the analysis.
func (b *Batch) Point(loc symbol.Loc) (*probed.Point, error) {
	addr, on := loc.Addr, b.l.kit.On
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
	pt := &probed.Point{Place: text.Place{Addr: addr, Site: site, Module: loc.Module}, Loc: loc, Pinned: b.l.Pinned(site)}
	b.fresh = append(b.fresh, pt)
	b.byAddr[addr] = pt
	return pt, nil
}

// Site is the result of the analysis of a place, that of the point there: the first caller has the
// place analysed. Errors: those of the analysis.
func (b *Batch) Site(loc symbol.Loc) (*patch.Site, error) {
	pt, err := b.Point(loc)
	if err != nil {
		return nil, err
	}
	return pt.Site, nil
}

// Others are the probes that are at an address, or are going to be. Each probe of a batch may ask,
// and a batch may have a hundred thousand: so the batch is not gone through for it.
func (b *Batch) Others(at arch.Addr) (ps []*probed.Probe) {
	if pt := b.l.kit.On.Points.At(at); pt != nil {
		ps = slices.Clone(pt.Probes)
	}
	return append(ps, b.joined[at]...)
}

// Mark is a state of a batch to go back to.
type Mark struct{ probes, fresh int }

// Mark is the batch's state now.
func (b *Batch) Mark() Mark { return Mark{len(b.Probes), len(b.fresh)} }

// Back takes out of the batch all probes that have come in since a mark.
func (b *Batch) Back(m Mark) {
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
func (b *Batch) PostInside() (p *probed.Probe, ok bool) {
	meet := make(map[*probed.Point][2]bool)
	for _, p := range b.Probes {
		pt := b.at[p]
		for _, q := range append(slices.Clip(pt.Probes), p) {
			meet[pt] = [2]bool{meet[pt][0] || q.Post(), meet[pt][1] || q.Inside()}
		}
		if meet[pt] == [2]bool{true, true} {
			return p, true
		}
	}
	return p, false
}

// needs lists the slots that linking the batch's probes asks for.
func (b *Batch) needs() []parts.Need {
	var ns []parts.Need
	for _, pt := range b.fresh {
		if pt.Site.NeedsBoost() {
			ns = append(ns, parts.Need{Point: pt})
		}
	}
	asked := make(map[*probed.Point]bool)
	for _, p := range b.Probes {
		pt := b.at[p]
		if p.Post() && pt.Site.NeedsStep() && !asked[pt] {
			asked[pt] = true
			ns = append(ns, parts.Need{Point: pt, Step: true})
		}
	}
	return ns
}

// altered are the points that come with the batch, and those at which other probes will be then.
func (b *Batch) altered() probed.List { return slices.Concat(b.fresh, b.met) }

// swapped is the point of the first return probe that swaps return addresses by a handler; nil for
// none.
func (b *Batch) swapped() *probed.Point {
	i := slices.IndexFunc(b.Probes, func(p *probed.Probe) bool { return p.Swaps() && !p.Inside() })
	if i < 0 {
		return nil
	}
	return b.at[b.Probes[i]]
}

// inside tells, for each point that the batch brings probes to which run inside
// the target, which of these it will have.
func (b *Batch) inside() map[*probed.Point][]*probed.Probe {
	after := make(map[*probed.Point][]*probed.Probe)
	for _, p := range slices.Backward(b.Probes) { // the newest first
		if p.Inside() && p.Active() {
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
func (b *Batch) plan(d *parts.Detours) *probed.Outlook {
	b.links = make(map[*probed.Point][]*probed.Probe, len(b.fresh))
	for _, p := range b.Probes {
		pt := b.at[p]
		ps, seen := b.links[pt]
		if !seen && pt.Live {
			ps = pt.Probes
		}
		if p.Trails() {
			ps = append(ps[:len(ps):len(ps)], p)
		} else {
			ps = append([]*probed.Probe{p}, ps...)
		}
		b.links[pt] = ps
	}
	b.linked = slices.SortedFunc(maps.Keys(b.links), probed.ByAddr)
	b.with, b.met = make([][]*probed.Probe, len(b.linked)), nil
	for i, pt := range b.linked {
		b.with[i] = b.links[pt]
		if b.byAddr[pt.Addr] != pt {
			b.met = append(b.met, pt)
		}
	}
	table := b.l.kit.On.Points
	b.points = patch.Merge(table.List, b.fresh, probed.ByAddr)
	return &probed.Outlook{Table: table, Points: b.points, Probes: b.links, Stays: d.Stays}
}

// changing are the points where the text changes with a batch.
func (b *Batch) changing(d *parts.Detours) probed.List {
	changing := slices.AppendSeq(slices.Clone(b.fresh), maps.Keys(b.links))
	for _, pt := range b.fresh {
		changing = append(changing, b.l.kit.On.Points.Covering(pt.Addr)...)
	}
	return d.With(changing)
}

// home is the memory that the target shares with us, where a batch's probes run inside it.
type home struct {
	change.Nothing
	b *Batch
}

func (h *home) Plan() error {
	if slices.ContainsFunc(h.b.Probes, func(p *probed.Probe) bool { return p.Inside() && p.Active() }) {
		return h.b.l.kit.Within.Arrange((*machine.Machine).Counts)
	}
	return nil
}

// linking are a batch's probes on their points.
type linking struct {
	change.Nothing
	b   *Batch
	old map[*probed.Point][]*probed.Probe // the points that there were
}

func (x *linking) Commit() error {
	b, on := x.b, x.b.l.kit.On
	on.View.Lock()
	defer on.View.Unlock()
	x.old = make(map[*probed.Point][]*probed.Probe)
	for i, pt := range b.linked {
		if pt.Live {
			x.old[pt] = pt.Probes
		}
		pt.Probes = b.with[i]
		on.Points.Refresh(pt)
	}
	for _, p := range b.Probes {
		p.Point = b.at[p]
		p.Linked()
	}
	for _, pt := range b.fresh {
		pt.Live = true
	}
	on.Points.List = b.points
	return nil
}

func (x *linking) Undo() {
	b, on := x.b, x.b.l.kit.On
	on.View.Lock()
	defer on.View.Unlock()
	for _, p := range b.Probes {
		p.Point = nil
		p.Unlinked()
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
type arriving struct {
	change.Nothing
	b    *Batch
	d    *parts.Detours
	text *probed.Rewriting

	room *inside.Vacancy
}

// look has an outlook hope for jumps.
func (x *arriving) look(o *probed.Outlook) *probed.Outlook {
	o.First = x.d.First
	o.Hope = x.hopes
	return o
}

// hopes tells whether a point may have its jump at once.
func (x *arriving) hopes(pt *probed.Point) bool {
	if x.b.l.kit.On.Kind.Shared() || x.b.byAddr[pt.Addr] != pt {
		return false
	}
	return x.d.First(pt) != nil
}

// later: a thread that does not stop may be under any of the jumps, which would all be traps for
// now. Most wait for a child of vfork, and that executes its program soon.
func (x *arriving) later() bool {
	return len(x.text.Firsts()) > 0 && x.b.l.kit.On.T.Stuck() > 0
}

func (x *arriving) Plan() error {
	x.room = nil
	return nil
}

func (x *arriving) Commit() (err error) {
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
func (x *arriving) Undo() {
	if x.room != nil {
		x.b.l.kit.On.Alive(x.room.Undo(x.b.l.kit.On.T))
	}
}

func (x *linking) Lines() (ls []string) {
	for _, p := range x.b.Probes {
		ls = append(ls, fmt.Sprintf("%s on %v", p.Line(), x.b.at[p].Addr))
	}
	return ls
}
