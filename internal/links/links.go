package links

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/parts"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// Links are the links of one session between probes and points.
type Links struct{ kit *parts.Kit }

// New has the links of a session's probes.
func New(kit *parts.Kit) *Links { return &Links{kit} }

// Pinned says why an instruction must run where it stands; "" where it need not.
func (l *Links) Pinned(site *patch.Site) string {
	return l.kit.On.Kind.Pinned(site.Addr, site.Addr+arch.Addr(len(site.Original)))
}

// Apply carries a batch out, a large one in pieces, with more that has to be done in the last stop. Where a
// piece fails, back takes the probes back that have come by then. Errors: those of the parts; then nothing
// has changed.
func (l *Links) Apply(b *Batch, more change.Part, back func(come []*probed.Probe)) error {
	pieces := b.pieces()
	for i, piece := range pieces {
		last := change.Part(change.Nothing{})
		if i == len(pieces)-1 {
			last = more
		}
		err := l.apply(piece, last, func(a arch.Addr) bool { return l.kit.On.Probed(a) || b.byAddr[a] != nil })
		if err == nil {
			continue
		}
		var come []*probed.Probe
		for _, p := range pieces[:i] {
			come = append(come, p.Probes...)
		}
		if len(come) > 0 {
			back(come)
		}
		return err
	}
	return nil
}

// apply carries a piece of a batch out. taken are the places of all of the batch, and of what there is.
func (l *Links) apply(b *Batch, more change.Part, taken func(arch.Addr) bool) error {
	k := l.kit
	slices.SortFunc(b.fresh, probed.ByAddr)
	after := b.inside()
	k.Around(b.fresh, after)
	d := &parts.Detours{Kit: k, After: after, Taken: taken, Over: k.On.Ended}
	w := k.Rewriting(func() probed.List { return b.changing(d) })
	at := &arriving{b: b, d: d, text: w}
	w.As = func() *probed.Outlook { return at.look(b.plan(d)) }
	c := &change.Change{
		What: "register",
		Parts: []change.Part{
			&home{b: b},
			&parts.Slots{Kit: k, Needs: b.needs(), At: b.altered},
			&parts.Trampoline{Kit: k, Near: b.swapped()},
			d,
			&parts.Lifeline{Kit: k, More: func() int { return probed.List(b.fresh).Entries() + d.Entries() }},
			more,
			&linking{b: b},
			at,
		},
		Text: w,
		Over: k.On.Ended,
	}
	if !k.On.T.OnOwner() { // else nothing is served while it waits
		c.Later = at.later
	}
	return c.Insist(k.On.Owner)
}

// Silence has no handler of some probes begin any more, whatever becomes of their removal.
// Handlers that run on the owner thread have ended when it returns; owner.Grace waits for others.
func (l *Links) Silence(ps []*probed.Probe) {
	leave := func() {
		for _, p := range ps {
			p.Leaving.Store(true)
		}
	}
	if !l.kit.On.Owner.Do(leave) {
		leave() // there is no owner any more
	}
}

// Leave takes probes off their points, many of them in pieces. The other programs there that run inside the
// target get other detours. parted is called in each stop, with the probes that leave and the points that
// have no probe any more. Errors: parted's; those of text that could not be put back; the target's, and
// then the pieces behind stay as they are.
func (l *Links) Leave(ps []*probed.Probe, parted func(ps []*probed.Probe, gone []*probed.Point) error) (err error) {
	pieces := l.pieces(ps, func(p *probed.Probe) *probed.Point { return p.Point })
	for i, piece := range pieces {
		left, e := l.leave(piece, i == len(pieces)-1, parted)
		if err = errors.Join(err, left, e); e != nil {
			break
		}
	}
	return err
}

// leave does it for a piece. It answers what could not be put back, which is no reason to keep the others.
func (l *Links) leave(ps []*probed.Probe, last bool, parted func([]*probed.Probe, []*probed.Point) error) (left, err error) {
	k, on := l.kit, l.kit.On
	pts := l.points(ps)
	going := set(ps)
	after := make(map[*probed.Point][]*probed.Probe)
	stay := make(map[*probed.Point][]*probed.Probe, len(pts))
	leaves := func(p *probed.Probe) bool { return going[p] }
	for _, pt := range pts {
		if pt.Detour != nil {
			after[pt] = slices.DeleteFunc(on.Points.Inside(pt.Probes), leaves)
		}
		stay[pt] = slices.DeleteFunc(slices.Clone(pt.Probes), leaves)
	}
	taken := func(a arch.Addr) bool {
		pt := on.Points.At(a)
		ps, some := stay[pt]
		return pt != nil && (!some || len(ps) > 0 || pt.Notify)
	}
	k.Around(slices.DeleteFunc(slices.Clone(pts), func(pt *probed.Point) bool { return taken(pt.Addr) }), after)
	d := &parts.Detours{Kit: k, After: after, Taken: taken}
	unlink := func() {
		on.View.Lock()
		defer on.View.Unlock()
		for _, pt := range pts {
			pt.Probes = stay[pt]
			on.Points.Refresh(pt)
		}
	}
	var ended error
	w := k.Rewriting(func() probed.List { return d.With(pts) })
	w.Singly, w.Unlisted = true, !last
	w.As = func() *probed.Outlook {
		return &probed.Outlook{Table: on.Points, Points: on.Points.List, Probes: stay, Stays: d.Stays}
	}
	c := &change.Change{
		What:  "unregister",
		Frees: true,
		Parts: []change.Part{
			d,
			&parts.State{What: fmt.Sprintf("%d probes leave %d points", len(ps), len(pts)), Set: unlink},
			parts.Final{Do: func() { ended = parted(ps, empty(pts)) }},
		},
		Text: w,
	}
	err = c.Insist(on.Owner)
	return errors.Join(w.Left, ended), err
}

// empty are the points that nothing is at any more.
func empty(pts []*probed.Point) (gone []*probed.Point) {
	for _, pt := range pts {
		if len(pt.Probes) == 0 && pt.Text == text.Own && !pt.Notify {
			gone = append(gone, pt)
		}
	}
	return gone
}

// In are the points that are in some modules.
func (l *Links) In(modules []*symbol.Module) (pts []*probed.Point) {
	for _, pt := range l.kit.On.Points.List {
		if slices.Contains(modules, pt.Loc.Module) {
			pts = append(pts, pt)
		}
	}
	return pts
}

// Lose takes points out of use whose code has been unmapped. Nothing is written: the code at those
// addresses now is not the code that was probed. Only where the code is still there the text is put
// back first, for the sake of the notes on it. gone is called with each probe there, with
// Ground.View held. The target is frozen.
func (l *Links) Lose(pts []*probed.Point, gone func(*probed.Probe)) {
	if on := l.kit.On; on.Kind.Announced() {
		for _, pt := range pts {
			pt.Unready()
			back := []text.Change{{Place: &pt.Place, From: pt.Text, To: text.Own}}
			on.Report(on.Text.Plan(back, func(func(*text.Place, bool) bool) {}).CarryOut())
		}
	}
	l.kit.On.View.Lock()
	defer l.kit.On.View.Unlock()
	for _, pt := range pts {
		for _, p := range pt.Probes {
			gone(p)
		}
		pt.Probes, pt.Notify, pt.Text = nil, false, text.Own
		if pt.Detour != nil {
			l.kit.Within.Retire(pt.Detour)
			pt.Detour = nil
		}
	}
}

// points lists the points that probes are on, each once, in order.
func (l *Links) points(ps []*probed.Probe) []*probed.Point {
	var pts []*probed.Point
	for _, p := range ps {
		if pt := p.Point; pt != nil {
			pts = append(pts, pt)
		}
	}
	slices.SortFunc(pts, probed.ByAddr)
	return slices.Compact(pts)
}

func set(ps []*probed.Probe) map[*probed.Probe]bool {
	in := make(map[*probed.Probe]bool, len(ps))
	for _, p := range ps {
		in[p] = true
	}
	return in
}
