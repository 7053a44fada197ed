package links

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/internal/change"
	"kprobe/internal/parts"
	"kprobe/internal/probed"
)

// Switch switches probes off or on, very many of them in pieces. set switches some, or back to what they were, in
// a stop. More is done in the first one, which is that of probes at no point. Where a piece fails, those before it are switched
// back. Errors: those of the parts; then nothing has changed.
func (l *Links) Switch(ps []*probed.Probe, off bool, set func(ps []*probed.Probe, back bool), more change.Part) error {
	were := make(map[*probed.Probe]bool, len(ps))
	for _, p := range ps {
		were[p] = p.Disabled()
	}
	to := &turn{
		what: fmt.Sprintf("disabled: %v", off),
		off:  func(*probed.Probe) bool { return off }, comes: !off,
		set: func(ps []*probed.Probe) { set(ps, false) }, was: func(ps []*probed.Probe) { set(ps, true) },
		more: more,
	}
	pieces := l.pieces(ps, func(p *probed.Probe) *probed.Point { return p.Point })
	done, err := l.turn(to, pieces)
	if err != nil && done > 0 {
		back := &turn{
			what: to.what + ", back",
			off:  func(p *probed.Probe) bool { return were[p] }, comes: off,
			set: to.was, more: more,
		}
		_, failed := l.turn(back, pieces[:done])
		l.kit.On.Alive(failed)
	}
	return err
}

// turn says how probes are switched.
type turn struct {
	what  string
	off   func(*probed.Probe) bool // whether one of them is off then
	comes bool                     // text of ours comes; else it goes
	set   func([]*probed.Probe)
	was   func([]*probed.Probe) // nil where nothing can be set back
	more  change.Part
}

// turn does it for a piece after the other. It answers how many have turned.
func (l *Links) turn(t *turn, pieces [][]*probed.Probe) (done int, err error) {
	on := l.kit.On
	var coming map[*probed.Point]bool
	if t.comes && len(pieces) > 1 {
		on.Owner.On(on.Text.Unnoted)
		coming = make(map[*probed.Point]bool)
		for _, pt := range l.points(slices.Concat(pieces...)) {
			coming[pt] = true
		}
	}
	for i, piece := range pieces {
		more := change.Part(change.Nothing{})
		if i == 0 {
			more = t.more
		}
		pts, off := l.points(piece), make(map[*probed.Probe]bool, len(piece))
		for _, p := range piece {
			off[p] = t.off(p)
		}
		d := &parts.Detours{Kit: l.kit, After: insideThen(piece, off), Taken: on.Probed}
		w := l.kit.Rewriting(func() probed.List { return pts })
		w.Unlisted = i != tells(t.comes, len(pieces))
		w.As = func() *probed.Outlook {
			return &probed.Outlook{
				Table: on.Points, Points: on.Points.List, Off: off, Stays: d.Stays,
				Comes: func(pt *probed.Point) bool { return coming[pt] },
			}
		}
		flags := &parts.State{What: fmt.Sprintf("%d probes %s", len(piece), t.what), Set: func() { t.set(piece) }}
		if t.was != nil {
			flags.Was = func() { t.was(piece) }
		}
		c := &change.Change{What: "switch", Parts: []change.Part{d, flags, more}, Text: w, Frees: !t.comes}
		if err := c.Insist(on.Owner); err != nil {
			return i, err
		}
	}
	return len(pieces), nil
}

// insideThen gives the probes that run inside the target then, for each point where a piece changes that.
func insideThen(piece []*probed.Probe, off map[*probed.Probe]bool) map[*probed.Point][]*probed.Probe {
	after := make(map[*probed.Point][]*probed.Probe)
	for _, p := range piece {
		pt := p.Point
		if pt == nil || !p.Inside() || after[pt] != nil {
			continue
		}
		after[pt] = slices.DeleteFunc(slices.Clone(pt.Probes), func(q *probed.Probe) bool { return !q.Inside() || !q.ActiveWith(off) })
	}
	return after
}

// tells picks the piece that tells the lifeline of what there is: the first, where traps come, and else the last.
func tells(comes bool, pieces int) int {
	if comes {
		return 0
	}
	return pieces - 1
}

// Everywhere carries out a change that concerns the text at all points: the switch is set, and more is done, and
// the text follows, of very many probes in pieces. Errors: those of the parts; then nothing has changed.
func (l *Links) Everywhere(what string, set *parts.State, more ...change.Part) error {
	on := l.kit.On
	first := &change.Change{What: what, Parts: append([]change.Part{set}, more...)}
	pieces := l.pieces(on.Points.Probes(), func(p *probed.Probe) *probed.Point { return p.Point })
	if len(pieces) == 1 {
		first.Text = l.kit.Rewriting(func() probed.List { return on.Points.List })
		return first.Do(on.Owner)
	}
	if err := first.Do(on.Owner); err != nil {
		return err
	}
	err := l.follow(what, set.Was, pieces)
	if err != nil {
		back := &change.Change{What: what + ", back", Parts: append([]change.Part{&parts.State{Set: set.Was}}, more...)}
		on.Alive(errors.Join(back.Do(on.Owner), l.follow(back.What, nil, pieces)))
	}
	return err
}

// follow brings the text to what it should be, a piece after the other. The lifeline is told once: before the
// first trap comes, or when the last has gone. was sets the switch back where a piece cannot follow.
func (l *Links) follow(what string, was func(), pieces [][]*probed.Probe) error {
	on := l.kit.On
	comes := !on.Points.Disarmed
	if comes {
		on.Owner.On(on.Text.Unnoted)
	}
	for i, piece := range pieces {
		pts := l.points(piece)
		w := l.kit.Rewriting(func() probed.List { return pts })
		w.As, w.Unlisted = on.Points.Present, i != tells(comes, len(pieces))
		c := &change.Change{What: what, Parts: []change.Part{&parts.State{Set: func() {}, Was: was}}, Text: w, Frees: on.Points.Disarmed}
		if err := c.Insist(on.Owner); err != nil {
			return err
		}
	}
	return nil
}
