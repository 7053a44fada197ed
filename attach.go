package kprobe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"kprobe/internal/image"
	"kprobe/internal/links"
	"kprobe/symbol"
)

// batch is what one registration is going to do.
type batch struct {
	*links.Batch
	watches []*Watchpoint
	wait    []*Kprobe // whose file is not mapped yet
}

func (s *Session) newBatch() *batch { return &batch{Batch: s.links.Batch()} }

// apply carries a batch out.
func (s *Session) apply(b *batch) error {
	if b.Empty() && len(b.watches) == 0 {
		return nil
	}
	if err := s.links.Apply(b.Batch, s.watching(b.watches...), s.takeBack); err != nil {
		return err
	}
	s.optimizer.Soon()
	s.reclaimer.Soon()
	return nil
}

// register is the road of a probe: check, resolve, analyse and plan touch
// nothing; apply does, in one stop of the target, or a large batch in several, all or nothing.
func (s *Session) register(ps []*Kprobe) (err error) {
	if err := s.turns.BeginChange(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	if err := s.refresh(); err != nil {
		return err
	}
	b := s.newBatch()
	ps, err = s.prepareAll(b, ps)
	if err != nil {
		return err
	}
	if q, some := b.PostInside(); some && !s.on.Kind.Posts() {
		p := containerOf(q)
		return &BatchError{max(0, slices.Index(ps, p)), named(p, errPostInside)}
	}
	walks := s.watchWalks(b)
	ps = append(ps[:len(ps):len(ps)], walks...)
	// The first hit may come before apply returns.
	for _, p := range ps {
		s.serial++
		if p.last != nil {
			p.last.within.Disown(&p.probe)
		}
		p.last, p.order = s, s.serial
		p.probe.Leaving.Store(false)
		p.in.Store(s)
		p.probe.Gone.Store(false)
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
	s.watchResolvers()
	s.listChanged()
	return nil
}

// prepareAll prepares a batch's probes, but for the optional ones that cannot be placed. It answers
// which there are then. Errors: *BatchError.
func (s *Session) prepareAll(b *batch, ps []*Kprobe) (left []*Kprobe, err error) {
	var refused *BatchError
	for i, p := range ps {
		if err := errors.Join(s.on.Ended(), checkNew(p)); err != nil {
			return nil, &BatchError{i, named(p, err)}
		}
		before, watches, wait := b.Mark(), len(b.watches), len(b.wait)
		err := s.prepare(b, p)
		if err != nil && p.Otherwise != nil && p.runsInside() {
			b.Back(before)
			p.Otherwise(err)
			if err = p.as().anew(s); err == nil {
				err = s.prepare(b, p)
			}
		}
		switch {
		case err == nil:
			left = append(left, p)
			continue
		case !p.Optional:
			return nil, &BatchError{i, named(p, err)}
		}
		b.Back(before)
		b.watches, b.wait = b.watches[:watches], b.wait[:wait]
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

// checkNew checks what the caller filled in.
func checkNew(p *Kprobe) error {
	if p.Addr != 0 && p.lasts() || p.Addr == 0 && !p.lasts() {
		return fail(syscall.EINVAL, "give either a symbol or an address")
	}
	p.Flags &= FlagDisabled
	return nil
}

// prepare takes one probe as far as its plan, or lets it wait for its file.
func (s *Session) prepare(b *batch, p *Kprobe) error {
	loc, err := p.as().find(s)
	if err != nil {
		var absent *symbol.NoModuleError
		if p.lasts() && (errors.As(err, &absent) || p.Patient && (errors.Is(err, syscall.ENOENT) || errors.Is(err, image.ErrUnbound))) {
			b.wait = append(b.wait, p)
			return nil
		}
		return err
	}
	if err := p.as().fits(s, b, loc); err != nil {
		return err
	}
	return p.as().join(s, b, loc)
}

var errPostInside = fail(syscall.ENOTSUP, "a program and a post-handler at one instruction of a kernel")

// checkPlace tells whether the probe's programs can be at a place.
func (p *Kprobe) checkPlace(s *Session, at symbol.Loc, pinned string) error {
	if !p.runsInside() || p.Program == CountOnly {
		return nil
	}
	return s.on.TakesProgram(at, pinned, p.any((*Program).overrides))
}

// Symbols are the files and names of the target, as of the last registration or
// Refresh.
func (s *Session) Symbols() *symbol.Space { return s.on.Image.Space }

// Refresh looks at what the target has mapped now. Not from a handler (EDEADLK).
// Errors: ESRCH.
func (s *Session) Refresh() (err error) {
	if err := s.turns.BeginUse(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	return s.refresh()
}

// Lookup finds the function that a Kprobe with this SymbolName would be on; where no function has that name,
// the variable that a Watchpoint would be on: its Func.Kind is symbol.Data, and its Size 0 where that is not known.
// Not from a handler (EDEADLK), which has Symbols. Errors: ENOENT, EADDRNOTAVAIL;
// EINVAL where it is bound to the kernel's code; ESRCH.
func (s *Session) Lookup(symbolName string) (loc symbol.Loc, err error) {
	if err := s.turns.BeginUse(); err != nil {
		return loc, err
	}
	defer s.turns.End(&err)
	return s.on.Image.Symbol(symbolName)
}

// named puts the probe's own words before an error.
func named(p *Kprobe, err error) error {
	what := p.where()
	if p.Offset != 0 {
		what += fmt.Sprintf("+%d", p.Offset)
	}
	var e *Error
	if errors.As(err, &e) && !strings.Contains(e.Error(), what) {
		return &Error{Errno: e.Errno, Reason: what, Err: e}
	}
	return err
}
