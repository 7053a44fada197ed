package kprobe

import (
	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/symbol"
)

// role is what a Kprobe works for: itself, or the probe of another kind that it is a
// part of. All that differs between the kinds is asked here, so nothing else
// looks at a probe's type.
//
//	role        letter  its place                    at a shared point  counted inside by
//	plain       k       any instruction              before all others  its detour
//	asJprobe    j       a function's entry, alone    after all others   (never inside)
//	asReturn    r       a function's entry           before all others  the account of its calls
//	asExit              where the function is left   after all others   (its return probe)
//	asWatch     w       data                         (has no point)     (never inside)
type role interface {
	// letter is the list's.
	letter() byte
	// internal tells whether the session made the probe, so that nobody is told of it.
	internal() bool
	// find resolves the place that the probe was given.
	find(*Session, *Kprobe) (symbol.Loc, error)
	// place is where the probe is at work; ok is false while it waits or is gone.
	place(*Kprobe) (loc symbol.Loc, ok bool)
	// fits holds the probe to the rules of its kind about places, also beside the rest
	// of its batch.
	fits(*Session, *batch, symbol.Loc) error
	// join takes a probe that fits into a batch.
	join(*Session, *batch, *Kprobe, symbol.Loc) error
	// trails tells whether the probe comes after the others at its point.
	trails() bool
	// linked is called when the probe has got its point, unlinked when it has lost it or
	// not got it after all. Ground.View is held.
	linked(*Session, *point)
	unlinked(*Session)
	// work is the program that runs inside the target for the probe, and the one at the
	// entry of its function; nil where there is none.
	work(*Kprobe) (program, entry *Program)
	// want adds the probe's part to the detour of its point. entry is that of the function.
	want(w *inside.Want, p *Kprobe, entry arch.Addr) error
	// tally is what a detour has counted of the probe; fold adds it to the probe's own
	// counts, when the detour is retired.
	tally(*inside.Detour) inside.Tally
	fold(*Kprobe, *inside.Detour)
	// returns is the return probe whose entry this is, watches the watchpoint; nil for
	// other roles.
	returns() *Kretprobe
	watches() *Watchpoint
	// anew has the probe do its work by the handlers that it has got in place of programs.
	anew(*Session, *Kprobe) error
	// release makes the probe again what it was before it was registered.
	release(*Session)
}

// as is the probe's role.
func (p *Kprobe) as() role {
	if p.role == nil {
		return plain{}
	}
	return p.role
}

// swaps tells whether it is the entry of a return probe that swaps return addresses.
func (p *Kprobe) swaps() bool {
	rp := p.as().returns()
	return rp != nil && rp.plan.Swaps()
}

// runsInside tells whether a probe's work is done in the target.
func (p *Kprobe) runsInside() bool {
	program, _ := p.as().work(p)
	return program != nil
}

// any tells whether something holds for one of the probe's programs.
func (p *Kprobe) any(holds func(*Program) bool) bool {
	program, entry := p.as().work(p)
	return holds(program) || holds(entry)
}

// plain is the role of a probe that works for itself. The others begin with it and say
// where they differ.
type plain struct{}

func (plain) letter() byte   { return 'k' }
func (plain) internal() bool { return false }

func (plain) find(s *Session, p *Kprobe) (symbol.Loc, error) {
	if p.isFound() {
		loc, err := s.on.Image.Again(p.Loc)
		if p.SymbolName == "" || err == nil && loc.Module == p.Loc.Module {
			return loc, err
		}
	}
	return s.on.Image.PlaceAfter(p.Loc, p.SymbolName, p.Addr, p.Offset)
}

func (plain) place(p *Kprobe) (loc symbol.Loc, ok bool) {
	if p.point == nil {
		return loc, false
	}
	return p.point.Loc, true
}

func (plain) fits(*Session, *batch, symbol.Loc) error { return nil }

func (plain) join(s *Session, b *batch, p *Kprobe, loc symbol.Loc) error {
	pt, err := b.Point(loc)
	if err != nil {
		return err
	}
	if err := p.checkPlace(s, loc, pt.Pinned); err != nil {
		return err
	}
	b.Add(p, pt)
	return nil
}

func (plain) trails() bool            { return false }
func (plain) linked(*Session, *point) {}
func (plain) unlinked(*Session)       {}

func (plain) work(p *Kprobe) (program, entry *Program) { return p.Program, nil }

func (plain) want(w *inside.Want, p *Kprobe, entry arch.Addr) error {
	w.Programs = append(w.Programs, use(p.Program, entry, p.Cookie)...)
	return nil
}

func (plain) tally(d *inside.Detour) inside.Tally {
	hits, missed := d.Counts()
	return inside.Tally{Hits: hits, Missed: missed}
}

func (r plain) fold(p *Kprobe, d *inside.Detour) {
	t := r.tally(d)
	p.hits.Add(t.Hits)
	p.missed.Add(t.Missed)
}

func (plain) returns() *Kretprobe  { return nil }
func (plain) watches() *Watchpoint { return nil }
func (plain) release(*Session)     {}

func (plain) anew(s *Session, p *Kprobe) error { return p.prepare(s) }
