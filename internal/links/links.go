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
type Links[P comparable] struct {
	kit    *parts.Kit[P]
	probes Probes[P]
}

// Probes answers the questions about probes that this package asks.
type Probes[P any] interface {
	Active(P) bool // its handlers, or its program, are to run
	Inside(P) bool // its work is done in the target
	Post(P) bool   // it has a post-handler
	Trails(P) bool // it comes after the others at its point
	Swaps(P) bool  // it swaps return addresses
	Gone(P, bool)  // it is told that it is gone for good, or not after all
	// Point is the point that a probe is on; nil where it is on none. Linked tells it of its point,
	// Unlinked that it has lost it, or has not got it after all: Ground.View is held.
	Point(P) *probed.Point[P]
	Linked(P, *probed.Point[P])
	Unlinked(P)
	Line(P) string // for a change's lines
}

// New has the links of a session's probes.
func New[P comparable](kit *parts.Kit[P], probes Probes[P]) *Links[P] { return &Links[P]{kit, probes} }

// Pinned says why an instruction must run where it stands; "" where it need not.
func (l *Links[P]) Pinned(site *patch.Site) string {
	return l.kit.On.Kind.Pinned(site.Addr, site.Addr+arch.Addr(len(site.Original)))
}

// Apply carries a batch out, with more that has to be done in the same stop. Errors: those of the
// parts; then nothing has changed.
func (l *Links[P]) Apply(b *Batch[P], more change.Part) error {
	k := l.kit
	slices.SortFunc(b.fresh, probed.ByAddr[P])
	after := b.inside()
	k.Around(b.fresh, after)
	d := &parts.Detours[P]{Kit: k, After: after, Taken: func(a arch.Addr) bool { return k.On.Probed(a) || b.byAddr[a] != nil }, Over: k.On.Ended}
	w := k.Rewriting(func() probed.List[P] { return b.changing(d) })
	at := &arriving[P]{b: b, d: d, text: w}
	w.As = func() *probed.Outlook[P] { return at.look(b.plan(d)) }
	c := &change.Change{
		What: "register",
		Parts: []change.Part{
			&home[P]{b: b},
			&parts.Slots[P]{Kit: k, Needs: b.needs(), At: b.altered},
			&parts.Trampoline[P]{Kit: k, Near: b.swapped()},
			d,
			&parts.Lifeline[P]{Kit: k, More: func() int { return probed.List[P](b.fresh).Entries() + d.Entries() }},
			more,
			&linking[P]{b: b},
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

// Leave takes probes off their points. The other programs there that run inside the target get
// other detours. parted is called in the stop, with the points that have no probe any more. Errors:
// parted's; those of text that could not be put back.
func (l *Links[P]) Leave(ps []P, parted func(gone []*probed.Point[P]) error) error {
	k, on := l.kit, l.kit.On
	pts := l.points(ps)
	going := set(ps)
	after := make(map[*probed.Point[P]][]P)
	left := make(map[*probed.Point[P]][]P, len(pts))
	leaves := func(p P) bool { return going[p] }
	for _, pt := range pts {
		if pt.Detour != nil {
			after[pt] = slices.DeleteFunc(on.Points.Inside(pt.Probes), leaves)
		}
		left[pt] = slices.DeleteFunc(slices.Clone(pt.Probes), leaves)
	}
	taken := func(a arch.Addr) bool {
		pt := on.Points.At(a)
		ps, some := left[pt]
		return pt != nil && (!some || len(ps) > 0 || pt.Notify)
	}
	k.Around(slices.DeleteFunc(slices.Clone(pts), func(pt *probed.Point[P]) bool { return taken(pt.Addr) }), after)
	d := &parts.Detours[P]{Kit: k, After: after, Taken: taken}
	unlink := func() {
		on.View.Lock()
		defer on.View.Unlock()
		for _, pt := range pts {
			pt.Probes = left[pt]
			on.Points.Refresh(pt)
		}
	}
	var ended error
	w := k.Rewriting(func() probed.List[P] { return d.With(pts) })
	w.Singly = true
	w.As = func() *probed.Outlook[P] {
		return &probed.Outlook[P]{Table: on.Points, Points: on.Points.List, Probes: left, Stays: d.Stays}
	}
	c := &change.Change{
		What:  "unregister",
		Frees: true,
		Parts: []change.Part{
			d,
			&parts.State{What: fmt.Sprintf("%d probes leave %d points", len(ps), len(pts)), Set: unlink},
			parts.Final{Do: func() { ended = parted(empty(pts)) }},
		},
		Text: w,
	}
	return errors.Join(c.Insist(on.Owner), w.Left, ended)
}

// empty are the points that nothing is at any more.
func empty[P any](pts []*probed.Point[P]) (gone []*probed.Point[P]) {
	for _, pt := range pts {
		if len(pt.Probes) == 0 && pt.Text == text.Own && !pt.Notify {
			gone = append(gone, pt)
		}
	}
	return gone
}

// Switch switches probes off or on. The part flags does that, and more has to be done in the same
// stop. Errors: those of the parts; then nothing has changed.
func (l *Links[P]) Switch(ps []P, off bool, flags, more change.Part) error {
	switched := set(ps)
	after := make(map[*probed.Point[P]][]P)
	for _, p := range ps {
		if pt := l.probes.Point(p); pt != nil && l.probes.Inside(p) {
			after[pt] = slices.DeleteFunc(slices.Clone(pt.Probes), func(q P) bool {
				return !l.probes.Inside(q) || switched[q] && off || !switched[q] && !l.probes.Active(q)
			})
		}
	}
	pts := l.points(ps)
	c := &change.Change{
		What:  "switch",
		Parts: []change.Part{&parts.Detours[P]{Kit: l.kit, After: after, Taken: l.kit.On.Probed}, flags, more},
		Text:  l.kit.Rewriting(func() probed.List[P] { return pts }),
	}
	return c.Insist(l.kit.On.Owner)
}

// Everywhere carries out a change that concerns the text at all points. Errors: those of the parts;
// then nothing has changed.
func (l *Links[P]) Everywhere(what string, ps ...change.Part) error {
	c := &change.Change{What: what, Parts: ps, Text: l.kit.Rewriting(func() probed.List[P] { return l.kit.On.Points.List })}
	return c.Do(l.kit.On.Owner)
}

// In are the points that are in some modules.
func (l *Links[P]) In(modules []*symbol.Module) (pts []*probed.Point[P]) {
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
func (l *Links[P]) Lose(pts []*probed.Point[P], gone func(P)) {
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
func (l *Links[P]) points(ps []P) []*probed.Point[P] {
	var pts []*probed.Point[P]
	for _, p := range ps {
		if pt := l.probes.Point(p); pt != nil {
			pts = append(pts, pt)
		}
	}
	slices.SortFunc(pts, probed.ByAddr[P])
	return slices.Compact(pts)
}

func set[P comparable](ps []P) map[P]bool {
	in := make(map[P]bool, len(ps))
	for _, p := range ps {
		in[p] = true
	}
	return in
}
