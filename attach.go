package kprobe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/patch"
	"kprobe/internal/room"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// point is one probed address and all the probes on it (the kernel's
// aggregate). It belongs to the owner thread once it is in Session.points.
type point struct {
	text.Place
	loc    symbol.Loc
	probes []*Kprobe // newest first; replaced, never changed in place
	post   bool      // an active probe has a post-handler
	outer  bool      // an active probe runs outside the target
	live   bool      // in Session.points
	notify bool      // internal: the dynamic linker's notification
	pinned string    // why the instruction must run where it stands; "" where it need not

	crowded   bool        // somebody else's text was in what a jump would displace
	optimized atomic.Bool // the jump to the detour may stand there; changed in the stops, also while somebody plans
	refused   bool        // and was not possible the last time
	led       atomic.Bool // a trap that the gate leads to the detour may; likewise
	slots     room.Slots[*point]
}

// batch is what one registration is going to do.
type batch struct {
	probes  []*Kprobe          // to be linked to their points, in order
	at      map[*Kprobe]*point //
	watches []*Watchpoint
	fresh   []*point // points that do not exist yet
	byAddr  map[arch.Addr]*point
	links   map[*point][]*Kprobe // what will be on points where that changes
	points  points               // all there will be
	wait    []*Kprobe            // whose file is not mapped yet

	trampoline arch.Addr // planned for the session's first return probe
}

func (b *batch) init() {
	b.at = make(map[*Kprobe]*point)
	b.byAddr = make(map[arch.Addr]*point)
}

// register is the road of a probe: check, resolve, analyse and plan touch
// nothing; apply does, in one stop of the target, all or nothing.
func (s *Session) register(ps []*Kprobe) (err error) {
	if err := s.beginChange(); err != nil {
		return err
	}
	defer s.end(&err)
	if err := s.refresh(); err != nil {
		return err
	}
	b := new(batch)
	b.init()
	ps, err = s.prepareAll(b, ps)
	if err != nil {
		return err
	}
	if p := b.postInside(); p != nil && s.machine != nil {
		return &BatchError{max(0, slices.Index(ps, p)), named(p, errPostInside)}
	}
	walks := s.watchWalks(b)
	ps = append(ps[:len(ps):len(ps)], walks...)
	// The first hit may come before apply returns.
	for _, p := range ps {
		s.serial++
		p.last.disown(p)
		p.last, p.order = s, s.serial
		p.leaving.Store(false)
		p.in.Store(s)
		p.gone.Store(false)
		p.hits.Store(0)
		p.missed.Store(0)
		p.said.Store(false)
	}
	if err := s.apply(b); err != nil {
		for _, p := range ps {
			p.in.Store(nil)
		}
		return err
	}
	s.walks = s.walks || len(walks) > 0
	s.probes = append(s.probes, ps...)
	s.pending = append(s.pending, b.wait...)
	s.listChanged()
	return nil
}

// prepareAll prepares a batch's probes, but for the optional ones that cannot be placed. It answers
// which there are then. Errors: *BatchError.
func (s *Session) prepareAll(b *batch, ps []*Kprobe) (left []*Kprobe, err error) {
	var refused *BatchError
	for i, p := range ps {
		if err := checkNew(p); err != nil {
			return nil, &BatchError{i, named(p, err)}
		}
		before := b.mark()
		err := s.prepare(b, p)
		switch {
		case err == nil:
			left = append(left, p)
			continue
		case !p.Optional:
			return nil, &BatchError{i, named(p, err)}
		}
		b.back(before)
		p.refusal = named(p, err)
		if refused == nil {
			refused = &BatchError{i, p.refusal}
		}
	}
	if len(left) == 0 && refused != nil {
		return nil, refused
	}
	return left, nil
}

// marks is how far a batch has come.
type marks struct{ probes, watches, fresh, wait int }

func (b *batch) mark() marks { return marks{len(b.probes), len(b.watches), len(b.fresh), len(b.wait)} }

// back takes out of the batch what has come in since.
func (b *batch) back(m marks) {
	for _, p := range b.probes[m.probes:] {
		delete(b.at, p)
	}
	for _, pt := range b.fresh[m.fresh:] {
		delete(b.byAddr, pt.Addr)
	}
	b.probes, b.watches, b.fresh, b.wait = b.probes[:m.probes], b.watches[:m.watches], b.fresh[:m.fresh], b.wait[:m.wait]
}

func (s *Session) usable() error {
	if s.closed.Load() {
		return errClosed
	}
	if s.exited.Load() {
		return gone(s.t)
	}
	return nil
}

// changeable is usable for those who change the target.
func (s *Session) changeable() error {
	if s.looking {
		return fail(syscall.EPERM, "the session only looks")
	}
	return s.usable()
}

// checkNew checks what the caller filled in.
func checkNew(p *Kprobe) error {
	if (p.SymbolName == "") == (p.Addr == 0) {
		return fail(syscall.EINVAL, "give either a symbol or an address")
	}
	p.Flags &= FlagDisabled
	return nil
}

// prepare takes one probe as far as its plan, or lets it wait for its file.
func (s *Session) prepare(b *batch, p *Kprobe) error {
	loc, err := p.as().find(s, p)
	if err != nil {
		var absent *symbol.NoModuleError
		if p.SymbolName != "" && (errors.As(err, &absent) || p.Patient && errors.Is(err, syscall.ENOENT)) {
			b.wait = append(b.wait, p)
			return nil
		}
		return err
	}
	if err := p.as().fits(s, b, loc); err != nil {
		return err
	}
	return p.as().join(s, b, p, loc)
}

var errPostInside = fail(syscall.ENOTSUP, "a program and a post-handler at one instruction of a kernel")

// postInside is a probe of the batch with whom a program and a post-handler meet, nil for
// none.
func (b *batch) postInside() *Kprobe {
	meet := make(map[*point][2]bool)
	for _, p := range b.probes {
		pt := b.at[p]
		for _, q := range append(slices.Clip(pt.probes), p) {
			meet[pt] = [2]bool{meet[pt][0] || q.PostHandler != nil, meet[pt][1] || q.runsInside()}
		}
		if meet[pt] == [2]bool{true, true} {
			return p
		}
	}
	return nil
}

// pointFor finds or plans the probe point at a place.
func (s *Session) pointFor(b *batch, loc symbol.Loc) (*point, error) {
	addr := arch.Addr(loc.Addr)
	if pt := s.points.at(addr); pt != nil {
		return pt, nil
	}
	if pt := b.byAddr[addr]; pt != nil {
		return pt, nil
	}
	site, err := s.image.Analyse(loc)
	if err != nil {
		return nil, err
	}
	pt := &point{Place: text.Place{Addr: addr, Site: site}, loc: loc}
	pt.pinned = s.pinned(site)
	b.fresh = append(b.fresh, pt)
	b.byAddr[addr] = pt
	return pt, nil
}

// pinned says why an instruction must run where it stands; "" where it need not.
func (s *Session) pinned(site *patch.Site) string {
	if s.machine == nil {
		return ""
	}
	return s.machine.Pinned(site.Addr, site.Addr+arch.Addr(len(site.Original)))
}

// checkPinned: behind a program the instruction runs elsewhere.
func (p *Kprobe) checkPinned(why string) error {
	if why == "" || !p.runsInside() || p.Program == CountOnly {
		return nil
	}
	return fail(syscall.ENOTSUP, "no program can run in front of an instruction that must run where it stands: %s", why)
}

// Symbols are the files and names of the target, as of the last registration or
// Refresh.
func (s *Session) Symbols() *symbol.Space { return s.image.Space }

// Refresh looks at what the target has mapped now. Not from a handler (EDEADLK).
// Errors: ESRCH.
func (s *Session) Refresh() (err error) {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end(&err)
	if err := s.usable(); err != nil {
		return err
	}
	return s.refresh()
}

// Lookup finds the function that a Kprobe with this SymbolName would be on.
// Not from a handler (EDEADLK), which has Symbols. Errors: ENOENT, EADDRNOTAVAIL;
// EINVAL where it is bound to the kernel's code; ESRCH.
func (s *Session) Lookup(symbolName string) (loc symbol.Loc, err error) {
	if err := s.begin(); err != nil {
		return loc, err
	}
	defer s.end(&err)
	if err := s.usable(); err != nil {
		return loc, err
	}
	return s.image.Function(symbolName)
}

// named puts the probe's own words before an error.
func named(p *Kprobe, err error) error {
	what := p.SymbolName
	if what == "" {
		what = p.Addr.String()
	}
	if p.Offset != 0 {
		what += fmt.Sprintf("+%d", p.Offset)
	}
	var e *Error
	if errors.As(err, &e) && !strings.Contains(e.Error(), what) {
		return &Error{Errno: e.Errno, Reason: what, Err: e}
	}
	return err
}
