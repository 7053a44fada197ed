package kprobe

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/internal/text"
	"kprobe/symbol"
	"kprobe/target"
)

// loader watches what the dynamic linker maps and unmaps. The linker calls an
// empty function, made for debuggers, before and after each change; a probe
// of our own on it tells us. Its thread waits there until pending probes are
// armed, so that not even a constructor of the new library is missed.
type loader struct {
	points []arch.Addr
	state  arch.Addr // of r_debug.r_state; 0 where it is not known

	waiting target.Thread // the thread of a started program that waits for Continue
	waits   bool
	ready   chan struct{} // closed when a started program has loaded its libraries
}

// fresh is a target that was just started: its only thread waits and is owed a
// Resume, before the first instruction of its program unless that has begun.
type fresh interface {
	Fresh() (th target.Thread, begun, ok bool)
}

// watchLoader places the probes on the dynamic linker. A program that was just
// started runs as far as its libraries being mapped.
func (s *Session) watchLoader(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	th, begun, started := target.Thread(0), false, false
	if f, ok := s.t.(fresh); ok {
		th, begun, started = f.Fresh()
	}
	found := s.placeLoader(started && !begun)
	if !started {
		return nil
	}
	s.loader.waiting, s.loader.waits = th, true
	if !found || begun {
		return nil // a static program, or a child: it waits where it is
	}
	ready := s.loader.ready
	s.do(func() { s.t.Resume(th, 0) })
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-ready:
	case <-s.over:
		return fail(syscall.ESRCH, "the program ended before its libraries were loaded (%v)", s.exit)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// placeLoader finds the linker's function and probes it; with entry, the
// program's first instruction too: there all that was mapped is relocated.
func (s *Session) placeLoader(entry bool) bool {
	program := s.image.Program()
	if program == nil || program.File == nil || program.File.Interp() == "" {
		return false
	}
	var b batch
	b.init()
	note := func(loc symbol.Loc) {
		pt, err := s.pointFor(&b, loc)
		if err != nil {
			s.report(err)
			return
		}
		if !pt.notify { // else it is one already, and the owner reads it
			pt.notify = true
			s.loader.points = append(s.loader.points, pt.Addr)
		}
	}
	interp := program.File.Interp()
	locs, err := s.image.Space.Resolve(symbol.Query{Module: interp, Symbol: "_dl_debug_state", Kind: symbol.Func})
	if err != nil {
		return false
	}
	note(locs[0])
	if entry {
		if loc, ok := s.image.Space.At(program.File.Entry() + program.Bias); ok {
			loc.Off = 0 // whatever function it is in, execution begins here
			note(loc)
		}
	}
	if data, err := s.image.Space.Resolve(symbol.Query{Module: interp, Symbol: "_r_debug", Kind: symbol.Data}); err == nil {
		s.loader.state = arch.Addr(data[0].Addr) + 3*arch.Addr(s.arch.PtrSize)
	}
	if err := s.apply(&b); err != nil {
		s.report(err)
		return false
	}
	return true
}

// consistent tells whether the linker has finished a change (r_debug.r_state
// is RT_CONSISTENT).
func (s *Session) consistent() bool {
	if s.loader == nil || s.loader.state == 0 {
		return true
	}
	b := make([]byte, 4)
	return s.t.ReadAt(s.loader.state, b) != nil || s.arch.Order.Uint32(b) == 0
}

// loaderCalled is the owner's part: the thread stays where it is, and the rest
// is done where planning may be.
func (s *Session) loaderCalled(th target.Thread) { go s.librariesChanged(th) }

func (s *Session) librariesChanged(th target.Thread) {
	s.mu.Lock()
	defer s.unlock()
	if s.closed.Load() || s.exited.Load() {
		return
	}
	if s.consistent() {
		if err := s.refresh(); err != nil {
			s.report(err)
		}
		s.armPending()
		if l := s.loader; l != nil && l.waits && l.ready != nil {
			// The first time: the program waits for Continue.
			l.waiting = th
			close(l.ready)
			l.ready = nil
			return
		}
	}
	s.do(func() { s.t.Resume(th, 0) })
}

// Continue lets a program that was just started run. On any other target it
// does nothing. Errors: EDEADLK.
func (s *Session) Continue() error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.unlock()
	if s.loader == nil || !s.loader.waits {
		return nil
	}
	s.loader.waits = false
	th := s.loader.waiting
	s.do(func() { s.t.Resume(th, 0) })
	return nil
}

// refresh looks at what is mapped now.
func (s *Session) refresh() error {
	removed, err := s.image.Look()
	if err != nil {
		return err
	}
	if len(removed) > 0 {
		s.goneWith(removed)
	}
	return s.forbid()
}

// goneWith marks the probes in unmapped modules. Nothing is written: what is
// at those addresses now is not what was probed.
func (s *Session) goneWith(removed []*symbol.Module) {
	var lost []*point
	for _, pt := range s.points {
		if slices.Contains(removed, pt.loc.Module) {
			lost = append(lost, pt)
		}
	}
	var unmapped []*Watchpoint
	s.view.RLock()
	for _, w := range s.watches {
		if w != nil && w.loc.Module != nil && slices.Contains(removed, w.loc.Module) {
			unmapped = append(unmapped, w)
		}
	}
	s.view.RUnlock()
	if len(lost)+len(unmapped) == 0 {
		return
	}
	s.frozen(func() error {
		for _, w := range unmapped {
			w.Kp.gone.Store(true)
			s.report(named(&w.Kp, fail(syscall.ENOENT, "its data has been unmapped")))
		}
		s.report(s.unwatch(unmapped))
		s.view.Lock()
		for _, pt := range lost {
			for _, p := range pt.probes {
				p.gone.Store(true)
				p.point = nil
				if !p.as().internal() {
					s.report(named(p, fail(syscall.ENOENT, "its code has been unmapped")))
				}
			}
			pt.probes = nil
			pt.notify = false
			pt.Text = text.Own
			if pt.Detour != nil {
				s.inside.Retire(pt.Detour)
				pt.Detour = nil
			}
		}
		s.view.Unlock()
		s.retire(lost)
		return nil
	})
	s.listChanged()
}

// armPending tries the probes that wait for their code to be mapped.
func (s *Session) armPending() {
	var b batch
	b.init()
	waiting := s.pending
	s.pending = nil
	for _, p := range waiting {
		if p.any((*Program).foreign) {
			s.pending = append(s.pending, p) // for the next program that is executed
			continue
		}
		switch err := s.prepare(&b, p); {
		case err == nil:
		case errors.Is(err, syscall.ENOENT), errors.Is(err, image.ErrUnbound):
			s.pending = append(s.pending, p)
		default:
			p.gone.Store(true)
			s.report(named(p, err))
		}
	}
	s.pending = append(s.pending, b.wait...)
	if err := s.apply(&b); err != nil {
		s.report(err)
		s.pending = append(s.pending, slices.DeleteFunc(b.probes, func(p *Kprobe) bool { return p.as().internal() })...)
		for _, w := range b.watches {
			s.pending = append(s.pending, &w.Kp)
		}
	}
	s.listChanged()
}
