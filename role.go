package kprobe

import (
	"fmt"
	"sync/atomic"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/symbol"
)

// role is the part of a Kprobe that depends on its kind: it works for itself, or for the probe of another kind that
// it is a part of. All that differs between the kinds is asked here, by the engine (probed.Role) and by the
// session, so nothing else looks at a probe's type.
//
//	role        letter  its place                    at a shared point  counted inside by
//	plain       k       any instruction              before all others  its detour
//	asJprobe    j       a function's entry, alone    after all others   (never inside)
//	asReturn    r       a function's entry           before all others  the account of its calls
//	asExit              where the function is left   after all others   (its return probe)
//	asWatch     w       data                         (has no point)     (never inside)
type role interface {
	probed.Role
	// kprobe is the probe whose role it is.
	kprobe() *Kprobe
	// letter is the list's.
	letter() byte
	// internal tells whether the session made the probe, so that nobody is told of it.
	internal() bool
	// find resolves the place that the probe was given.
	find(*Session) (symbol.Loc, error)
	// place is where the probe is at work; ok is false while it waits or is gone.
	place() (loc symbol.Loc, ok bool)
	// fits holds the probe to the rules of its kind about places, also beside the rest
	// of its batch.
	fits(*Session, *batch, symbol.Loc) error
	// join takes a probe that fits into a batch.
	join(*Session, *batch, symbol.Loc) error
	// work is the program that runs inside the target for the probe, and the one at the
	// entry of its function; nil where there is none.
	work() (program, entry *Program)
	// returns is the return probe whose entry this is, watches the watchpoint; nil for
	// other roles.
	returns() *Kretprobe
	watches() *Watchpoint
	// anew has the probe do its work by the handlers that it has got in place of programs.
	anew(*Session) error
	// release makes the probe again what it was before it was registered.
	release(*Session)
}

// as is the probe's role.
func (p *Kprobe) as() role {
	if p.probe.Role == nil {
		return plain{p}
	}
	return p.probe.Role.(role)
}

// containerOf is the Kprobe that the engine knows as a probe (the kernel's container_of).
func containerOf(p *probed.Probe) *Kprobe { return p.Role.(role).kprobe() }

// probesOf are some Kprobes as the engine knows them.
func probesOf(ps []*Kprobe) []*probed.Probe {
	all := make([]*probed.Probe, len(ps))
	for i, p := range ps {
		all[i] = &p.probe
	}
	return all
}

// containersOf are the Kprobes that the engine knows as probes.
func containersOf(ps []*probed.Probe) []*Kprobe {
	all := make([]*Kprobe, len(ps))
	for i, p := range ps {
		all[i] = containerOf(p)
	}
	return all
}

// runsInside tells whether a probe's work is done in the target.
func (p *Kprobe) runsInside() bool { return p.as().Inside() }

// any tells whether something holds for one of the probe's programs.
func (p *Kprobe) any(holds func(*Program) bool) bool {
	program, entry := p.as().work()
	return holds(program) || holds(entry)
}

// plain is the role of a probe that works for itself. The others begin with it and say
// where they differ.
type plain struct{ p *Kprobe }

func (r plain) kprobe() *Kprobe { return r.p }
func (plain) letter() byte      { return 'k' }
func (plain) internal() bool    { return false }

func (r plain) find(s *Session) (symbol.Loc, error) {
	p := r.p
	if p.isFound() {
		loc, err := s.on.Image.Again(p.Loc)
		if p.SymbolName == "" || err == nil && loc.Module == p.Loc.Module {
			return loc, err
		}
	}
	return s.on.Image.PlaceAfter(p.Loc, p.SymbolName, p.Addr, p.Offset)
}

func (r plain) place() (loc symbol.Loc, ok bool) {
	if r.p.probe.Point == nil {
		return loc, false
	}
	return r.p.probe.Point.Loc, true
}

func (plain) fits(*Session, *batch, symbol.Loc) error { return nil }

func (r plain) join(s *Session, b *batch, loc symbol.Loc) error {
	pt, err := b.Point(loc)
	if err != nil {
		return err
	}
	if err := r.p.checkPlace(s, loc, pt.Pinned); err != nil {
		return err
	}
	b.Add(&r.p.probe, pt)
	return nil
}

func (r plain) work() (program, entry *Program) { return r.p.Program, nil }
func (plain) returns() *Kretprobe               { return nil }
func (plain) watches() *Watchpoint              { return nil }
func (r plain) anew(s *Session) error           { return r.p.prepare(s) }
func (plain) release(*Session)                  {}

// Disabled is asked by handlers' goroutines too, while the owner thread switches.
func (r plain) Disabled() bool { return atomic.LoadUint32(&r.p.Flags)&FlagDisabled != 0 }

func (r plain) Inside() bool {
	program, _ := r.p.as().work()
	return program != nil
}

func (r plain) Entry() *probed.Probe { return &r.p.probe }
func (r plain) Post() bool           { return r.p.PostHandler != nil }
func (plain) Trails() bool           { return false }
func (plain) Swaps() bool            { return false }

// Misses: what only counts hits misses none of its own.
func (r plain) Misses() bool {
	program, _ := r.p.as().work()
	return program != CountOnly
}

func (r plain) Want(w *inside.Want, entry arch.Addr) error {
	w.Programs = append(w.Programs, use(r.p.Program, entry, r.p.Cookie)...)
	return nil
}

func (plain) Account() *inside.Owner { return nil }

func (plain) Tally(d *inside.Detour) inside.Tally {
	hits, missed := d.Counts()
	return inside.Tally{Hits: hits, Missed: missed}
}

func (r plain) Fold(d *inside.Detour) {
	t := r.Tally(d)
	r.p.hits.Add(t.Hits)
	r.p.missed.Add(t.Missed)
}

func (plain) Unwound() {}

func (r plain) Linked() {
	p := r.p
	p.probe.Leaving.Store(false) // it was, perhaps, taken back
	p.given, p.placed, p.Addr = p.Addr, true, p.probe.Point.Addr
}

func (r plain) Unlinked() { r.p.unplace() }

func (r plain) Line() string { return fmt.Sprintf("%c %s", r.p.as().letter(), r.p.SymbolName) }

func (r plain) Named(err error) error { return named(r.p, err) }
