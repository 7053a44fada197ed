package roles

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/inside"
	"kprobe/internal/listing"
	"kprobe/internal/probed"
	"kprobe/symbol"
)

// Probe is a probe as a session has it. The zero value is ready for Prepare.
type Probe struct {
	probed.Probe
	Asked

	Hits, Missed atomic.Uint64 // by handlers
	Claimed      atomic.Bool   // by a registration or plan that is under way, or a registration that has succeeded
	Refusal      error         // why the last batch went without it
	Hidden       bool          // it is of the session's own making: no list shows it

	home  *Home                     // that it was prepared for
	in    atomic.Pointer[Home]      // that it is registered in
	last  *Home                     // that it was registered in, and which may have counts of it still
	given arch.Addr                 // Asked.Addr as the caller had it, while the probe is at a place
	at    atomic.Pointer[arch.Addr] // that place, which other goroutines may ask for; nil for none
}

// Role is the part of a probe that depends on its kind: it works for itself, or for the probe of another kind that
// it is a part of. All that differs between the kinds is asked here, by the engine (probed.Role) and by the
// session, so nothing else looks at a probe's type.
//
//	role      letter  its place                    at a shared point  counted inside by
//	plain     k       any instruction              before all others  its detour
//	asJprobe  j       a function's entry, alone    after all others   (never inside)
//	asReturn  r       a function's entry           before all others  the account of its calls
//	asExit            where the function is left   after all others   (its return probe)
//	asData    w       data                         (has no point)     (never inside)
type Role interface {
	probed.Role
	// Probe is the probe whose role it is.
	Probe() *Probe
	// Letter is the list's.
	Letter() byte
	// Internal tells whether the session made the probe, so that nobody is told of it.
	Internal() bool
	// Find resolves the place that the probe was given.
	Find() (symbol.Loc, error)
	// Place is where the probe is at work; ok is false while it waits or is gone.
	Place() (loc symbol.Loc, ok bool)
	// Fits holds the probe to the rules of its kind about places, also beside the rest
	// of its batch.
	Fits(*Batch, symbol.Loc) error
	// Join takes a probe that fits into a batch.
	Join(*Batch, symbol.Loc) error
	// Return is the return probe whose entry this is, Data the data that it watches; nil for
	// other roles.
	Return() *Return
	Data() *Data
	// Release makes the probe again what it was before it was registered.
	Release()

	// work is the program that runs inside the target for the probe, and the one at the
	// entry of its function; nil where there is none.
	work() (program, entry *Program)
	// before runs the handler in front of the instruction: it answers true if that has moved the PC.
	before(*View) (moved bool)
}

// The roles.
var _ = []Role{plain{}, asJprobe{}, asReturn{}, asExit{}, asData{}}

// Of is the probe that a part on a point belongs to (the kernel's container_of).
func Of(p *probed.Probe) *Probe { return p.Role.(Role).Probe() }

// All gives the parts of probes that are on points.
func All(ps []*Probe) []*probed.Probe {
	all := make([]*probed.Probe, len(ps))
	for i, p := range ps {
		all[i] = &p.Probe
	}
	return all
}

// AllOf is Of for several parts.
func AllOf(ps []*probed.Probe) []*Probe {
	all := make([]*Probe, len(ps))
	for i, p := range ps {
		all[i] = Of(p)
	}
	return all
}

// As is the probe's role.
func (p *Probe) As() Role { return p.Role.(Role) }

// Prepare makes a probe ready for a session, with the role of one that works for itself.
func (p *Probe) Prepare(h *Home, asked Asked) {
	p.Asked, p.home = asked, h
	p.Role = plain{p}
}

// Claim takes a probe for a call that registers or plans it, as it was asked to. A probe is claimed from before
// anything of it is looked at until after its removal: nobody else can come in between, in this session or
// another. Errors: EINVAL.
func (p *Probe) Claim(asked Asked) error {
	if !p.Claimed.CompareAndSwap(false, true) {
		return asked.Named(errno.New(syscall.EINVAL, "it is registered already"))
	}
	return nil
}

// Begin makes a prepared probe one of its session's. It counts from zero.
func (p *Probe) Begin() {
	if p.last != nil {
		p.last.Within.Disown(&p.Probe)
	}
	p.last = p.home
	p.Leaving.Store(false)
	p.in.Store(p.home)
	p.Gone.Store(false)
	p.Hits.Store(0)
	p.Missed.Store(0)
}

// End takes it out of its session.
func (p *Probe) End() { p.in.Store(nil) }

// Registered tells whether the probe is registered, pending ones included; In whether it is in a session.
func (p *Probe) Registered() bool { return p.in.Load() != nil }

// In tells whether the probe is registered in a session.
func (p *Probe) In(h *Home) bool { return p.in.Load() == h }

// Unplace forgets where a probe was.
func (p *Probe) Unplace() {
	p.Point = nil
	if p.at.Swap(nil) != nil {
		*p.Addr = p.given
	}
}

// place says where it is.
func (p *Probe) place(at arch.Addr) {
	p.given, *p.Addr = *p.Addr, at
	p.at.Store(&at)
}

// At is the address at which the probe is; 0 while it waits, or is not registered.
func (p *Probe) At() arch.Addr {
	if at := p.at.Load(); at != nil {
		return *at
	}
	return 0
}

// Await has a probe whose file has been unmapped wait for the same file.
func (p *Probe) Await() {
	*p.Loc = p.Point.Loc // another copy of the file is not what it waits for
	p.Unplace()
}

// Waits tells whether the probe waits for its file to come again, after that has gone.
func (p *Probe) Waits() bool { return p.Patient && p.Lasts() }

// Foreign tells whether a program of the probe's is for another machine than the target's is now, Lost whether one
// has lost its maps.
func (p *Probe) Foreign() bool { return p.any((*Program).foreign) }

// Lost tells whether a program of the probe's has lost its maps.
func (p *Probe) Lost() bool { return p.any((*Program).lost) }

// any tells whether something holds for one of the probe's programs.
func (p *Probe) any(holds func(*Program) bool) bool {
	program, entry := p.As().work()
	return holds(program) || holds(entry)
}

// Switch changes a probe's flags, and what follows from them at its point. Ground.View is held.
func (p *Probe) Switch(flags uint32) {
	atomic.StoreUint32(p.Flags, flags)
	if p.Point != nil {
		p.home.On.Points.Refresh(p.Point)
	}
}

// CheckPlace tells whether the probe's programs can be at a place.
func (p *Probe) CheckPlace(at symbol.Loc, pinned string) error {
	if !p.Inside() || p.Program == CountOnly {
		return nil
	}
	return p.home.On.TakesProgram(at, pinned, p.any((*Program).overrides))
}

// Counted tells what was counted inside the target.
func (p *Probe) Counted() (t inside.Tally) {
	if p.Role == nil {
		return t
	}
	h := p.in.Load()
	if _, own := p.Role.(plain); h == nil && own {
		h = p.last
	}
	if h != nil && p.Inside() {
		return h.Within.Counted(&p.Probe)
	}
	return t
}

// Plain tells whether the probe works for itself.
func (p *Probe) Plain() bool { _, yes := p.Role.(plain); return yes }

// Row is the probe in the list.
func (p *Probe) Row() listing.Row {
	return listing.Row{Addr: *p.Addr, Kind: p.As().Letter(), Name: p.Name, Offset: p.Offset}
}

// plain is the role of a probe that works for itself. The others begin with it and say
// where they differ.
type plain struct{ p *Probe }

func (r plain) Probe() *Probe { return r.p }
func (plain) Letter() byte    { return 'k' }
func (plain) Internal() bool  { return false }

func (r plain) Find() (symbol.Loc, error) {
	p, im := r.p, r.p.home.On.Image
	if p.found() {
		loc, err := im.Again(*p.Loc)
		if p.Name == "" || err == nil && loc.Module == p.Loc.Module {
			return loc, err
		}
	}
	return im.PlaceAfter(*p.Loc, p.Name, *p.Addr, p.Offset)
}

func (r plain) Place() (loc symbol.Loc, ok bool) {
	if r.p.Point == nil {
		return loc, false
	}
	return r.p.Point.Loc, true
}

func (plain) Fits(*Batch, symbol.Loc) error { return nil }

func (r plain) Join(b *Batch, loc symbol.Loc) error {
	pt, err := b.Point(loc)
	if err != nil {
		return err
	}
	if err := r.p.CheckPlace(loc, pt.Pinned); err != nil {
		return err
	}
	b.Add(&r.p.Probe, pt)
	return nil
}

func (r plain) work() (program, entry *Program) { return r.p.Program, nil }
func (plain) Return() *Return                   { return nil }
func (plain) Data() *Data                       { return nil }
func (plain) Release()                          {}

func (r plain) before(v *View) bool { return r.p.Handlers != nil && r.p.Handlers.Before(v) }

// Disabled is asked by handlers' goroutines too, while the owner thread switches.
func (r plain) Disabled() bool { return atomic.LoadUint32(r.p.Flags)&FlagDisabled != 0 }

func (r plain) Inside() bool {
	program, _ := r.p.As().work()
	return program != nil
}

func (r plain) Entry() *probed.Probe { return &r.p.Probe }
func (r plain) Post() bool           { return r.p.Posts }
func (plain) Trails() bool           { return false }
func (plain) Swaps() bool            { return false }

// Misses: what only counts hits misses none of its own.
func (r plain) Misses() bool {
	program, _ := r.p.As().work()
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
	r.p.Hits.Add(t.Hits)
	r.p.Missed.Add(t.Missed)
}

func (plain) Unwound() {}

func (r plain) Linked() {
	r.p.Leaving.Store(false) // it was, perhaps, taken back
	r.p.place(r.p.Point.Addr)
}

func (r plain) Unlinked() { r.p.Unplace() }

func (r plain) Line() string { return fmt.Sprintf("%c %s", r.p.As().Letter(), r.p.Name) }

func (r plain) Named(err error) error { return r.p.Asked.Named(err) }
