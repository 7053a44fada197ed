package engine

import (
	"fmt"
	"slices"
	"strings"

	"kprobe/internal/listing"
	"kprobe/internal/roles"
)

// List lists the registered probes as of the last change that is complete. It waits for no change that is under way.
func (e *Engine) List() []listing.Entry {
	return e.shown.Load().Entries(&e.On.View, e.On.Kind.OnCPUs())
}

// Pending lists the names of the probes that wait for their code to be mapped, likewise.
func (e *Engine) Pending() []string { return slices.Clone(e.shown.Load().Pending) }

// Exits tells how many exits a probe's function has that are probed, and at how many of them a jump stands; likewise.
func (e *Engine) Exits(p *roles.Probe) (probed, jumps int) {
	if !p.In(e.Home) {
		return 0, 0
	}
	return e.shown.Load().Exits(&e.On.View, &p.Probe)
}

// listChanged shows the list as it is now, to other processes too. It is called in a turn.
func (e *Engine) listChanged() {
	l := &listing.Shown{Program: e.On.Image.Program()}
	for _, p := range e.probes {
		if r, ok := show(p); ok {
			l.Probes = append(l.Probes, r)
		}
	}
	for _, p := range e.pending {
		if !p.Hidden {
			l.Pending = append(l.Pending, p.Where())
		}
	}
	e.shown.Store(l)
	if e.state == nil {
		return
	}
	var b strings.Builder
	for _, entry := range e.List() {
		fmt.Fprintln(&b, entry)
	}
	e.state.Save(b.String())
}

// show is a probe in the list; ok is false for one that is in none.
func show(p *roles.Probe) (r listing.Probe, ok bool) {
	if p.Hidden {
		return r, false
	}
	r = listing.Probe{Of: &p.Probe, Point: p.Point, Row: p.Row()}
	if r.Loc, r.Placed = p.As().Place(); !r.Placed && !p.Gone.Load() {
		return r, false
	}
	if p.Point != nil {
		r.Rank = slices.Index(p.Point.Probes, &p.Probe)
	}
	if rt := p.As().Return(); rt != nil {
		r.Exits = rt.Exits()
	}
	return r, true
}
