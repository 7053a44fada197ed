package engine

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"kprobe/internal/errno"
	"kprobe/internal/probed"
	"kprobe/internal/roles"
)

// BatchError tells which probe of a batch failed.
type BatchError struct {
	Index int // in the array given
	Err   error
}

func (e *BatchError) Error() string { return fmt.Sprintf("probe %d: %v", e.Index, e.Err) }
func (e *BatchError) Unwrap() error { return e.Err }

// Register registers probes that are prepared. Check, resolve, analyse and plan touch nothing; apply does, in
// one stop of the target, or a large batch in several, all or nothing. An optional probe that could not be
// placed has its Refusal. Errors: *BatchError; EDEADLK, EPERM, ESRCH.
func (e *Engine) Register(ps []*roles.Probe) (err error) {
	if err := e.Turns.BeginChange(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	if err := e.refresh(); err != nil {
		return err
	}
	return e.despiteUnmapping(func(last bool) error { return e.register(ps, last) })
}

// register is one try.
func (e *Engine) register(ps []*roles.Probe, last bool) (err error) {
	b := e.Batch()
	ps, err = e.prepareAll(b, ps, last)
	if err != nil {
		return err
	}
	if q, some := b.PostInside(); some && !e.On.Kind.Posts() {
		p := roles.Of(q)
		return &BatchError{max(0, slices.Index(ps, p)), p.Asked.Named(errPostInside)}
	}
	walks := e.watchWalks(b)
	ps = append(ps[:len(ps):len(ps)], walks...)
	// The first hit may come before apply returns.
	for _, p := range ps {
		p.Begin()
	}
	if err := e.apply(b); err != nil {
		for _, p := range ps {
			p.End()
		}
		return err
	}
	e.walks = e.walks || len(walks) > 0
	e.probes = append(e.probes, ps...)
	e.pending = append(e.pending, b.Wait...)
	e.watchResolvers()
	e.listChanged()
	return nil
}

var errPostInside = errno.New(syscall.ENOTSUP, "a program and a post-handler at one instruction of a kernel")

// prepareAll prepares a batch's probes, but for the optional ones that cannot be placed. It answers
// which there are then. Where another try may find code unmapped that is not there, no probe is left out for that.
// Errors: *BatchError.
func (e *Engine) prepareAll(b *roles.Batch, ps []*roles.Probe, last bool) (left []*roles.Probe, err error) {
	var refused *BatchError
	for i, p := range ps {
		p.Refusal = nil
		if err := errors.Join(e.On.Ended(), p.Check()); err != nil {
			return nil, &BatchError{i, p.Asked.Named(err)}
		}
		before := b.Mark()
		err := b.Prepare(p)
		if !last && errors.Is(err, syscall.EFAULT) {
			return nil, &BatchError{i, p.Asked.Named(err)}
		}
		if err != nil && p.Otherwise != nil && p.Inside() {
			b.Back(before)
			if err = p.Otherwise(err); err == nil {
				err = b.Prepare(p)
			}
		}
		switch {
		case err == nil:
			left = append(left, p)
			continue
		case !p.Optional:
			return nil, &BatchError{i, p.Asked.Named(err)}
		}
		b.Back(before)
		p.Refusal = p.Asked.Named(err)
		if refused == nil {
			refused = &BatchError{i, p.Refusal}
		}
	}
	if len(left) == 0 && refused != nil {
		return nil, refused
	}
	return left, nil
}

// apply carries a batch out.
func (e *Engine) apply(b *roles.Batch) error {
	if b.Empty() && len(b.Watches) == 0 {
		return nil
	}
	if err := e.Links.Apply(b.Batch, e.Watching(b.Watches...), e.takeBack); err != nil {
		return err
	}
	e.optimizer.Soon()
	e.reclaimer.Soon()
	return nil
}

// takeBack withdraws the probes of a batch that have come, since others of it cannot.
func (e *Engine) takeBack(come []*probed.Probe) {
	e.Links.Silence(come)
	e.On.Alive(e.withdraw(come))
}
