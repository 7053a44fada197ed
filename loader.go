package kprobe

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/internal/linker"
	"kprobe/internal/probed"
	"kprobe/internal/traced"
	"kprobe/symbol"
	"kprobe/target"
)

// loader watches what the dynamic linker maps and unmaps. The linker calls an
// empty function, made for debuggers, before and after each change; a probe
// of our own on it tells us. Its thread waits there until pending probes are
// armed, so that not even a constructor of the new library is missed.
type loader struct {
	state arch.Addr // of r_debug.r_state; 0 where it is not known

	waiting target.Thread // the thread of a started program that waits for Continue
	waits   bool
	ready   chan struct{} // closed when a started program has loaded its libraries
}

// watchLoader places the probes on the dynamic linker. A program that was just
// started runs as far as its libraries being mapped.
func (s *Session) watchLoader(ctx context.Context, first target.Start) error {
	ready := s.beginLoading(first)
	if ready == nil {
		return nil // a static program, or a child: it waits where it is
	}
	select {
	case <-ready:
	case <-s.on.Owner.Over():
		return fail(syscall.ESRCH, "the program ended before its libraries were loaded (%v)", s.exit)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// beginLoading lets a program that was just started load its libraries. The channel is closed when it has; it is nil
// where there is nothing to wait for.
func (s *Session) beginLoading(first target.Start) (ready <-chan struct{}) {
	s.turns.Lock()
	defer s.turns.Unlock()
	found := s.placeLoader(first.OK && !first.Begun)
	s.loader.waiting, s.loader.waits = first.Thread, first.OK
	if !first.OK || !found || first.Begun {
		return nil
	}
	s.on.Owner.Do(func() { s.on.T.Resume(first.Thread, 0) })
	return s.loader.ready
}

// placeLoader finds the linker's function and probes it; with entry, the
// program's first instruction too.
func (s *Session) placeLoader(entry bool) bool {
	s.watchTracers()
	locs, state := linker.Places(s.on.Image, entry)
	s.loader.state = state
	return len(locs) > 0 && s.notifyAt(locs, false)
}

// notifyAt puts probes of our own at some places: the linker's, or where programs ask for a tracer. It is called in a turn.
func (s *Session) notifyAt(locs []symbol.Loc, asks bool) bool {
	b := s.newBatch()
	for _, loc := range locs {
		pt, err := b.Point(loc)
		if err == nil {
			s.on.Owner.On(func() { pt.Notify, pt.Asks = true, asks }) // it may be a point that there was
		} else if !asks || !errors.Is(err, syscall.EILSEQ) { // what looks like a call, in the text, may be none
			s.turns.Report(err)
		}
	}
	err := s.apply(b)
	s.turns.Report(err)
	return err == nil
}

// notified is the owner's part in a hit of a probe of our own: the thread stays where it is, and the rest is done where planning may
// be. It answers false for a call that concerns nobody.
func (s *Session) notified(pt *point, r *Regs) bool {
	th := r.th
	if !pt.Asks {
		s.on.Image.Chosen(pt.Loc, r.ReturnValue())
		go s.librariesChanged(th)
		return true
	}
	return s.opts.family.Asked(traced.CallAt(pt.Loc, pt.Site.Insn, r.Arg, r.GoArgs, r.ReturnValue(), s.on.Own()), s.task(th).PID, s.goWithout, func() { s.on.Owner.Do(func() { s.on.T.Resume(th, 0) }) })
}

func (s *Session) librariesChanged(th target.Thread) {
	if changed, waits := s.lookAtLibraries(th); !waits {
		s.mapped(th, changed)
	}
}

// mapped lets a thread go on when all is said of what it has mapped.
func (s *Session) mapped(th target.Thread, changed bool) {
	if f := s.opts.Mapped; f != nil && changed {
		f(s)
	}
	s.on.Owner.Do(func() { s.on.T.Resume(th, 0) })
}

// lookAtLibraries tells whether there may be others, and whether the thread that has mapped them waits.
func (s *Session) lookAtLibraries(th target.Thread) (changed, waits bool) {
	s.turns.Lock()
	defer s.turns.Unlock()
	if s.turns.Over() {
		return false, true
	}
	if linker.Consistent(s.on.Arch, s.loader.state, s.on.T.ReadAt) {
		s.turns.Report(s.refresh())
		s.watchTracers()
		s.armPending()
		if l := s.loader; l != nil && l.waits && l.ready != nil {
			// The first time: the program waits for Continue.
			l.waiting = th
			close(l.ready)
			l.ready = nil
			return false, true
		}
		changed = true
	}
	return changed, false
}

// Continue lets a program that was just started run. On any other target it
// does nothing. Errors: EDEADLK.
func (s *Session) Continue() error {
	if err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.Unlock()
	if s.loader == nil || !s.loader.waits {
		return nil
	}
	s.loader.waits = false
	th := s.loader.waiting
	s.on.Owner.Do(func() { s.on.T.Resume(th, 0) })
	return nil
}

// refresh looks at what is mapped now.
func (s *Session) refresh() error {
	removed, err := s.on.Image.Look()
	if err != nil {
		return err
	}
	s.goneWith(removed)
	s.within.LearnFiles()
	return s.on.Forbid()
}

// goneWith marks the probes in unmapped modules. Nothing is written: what is
// at those addresses now is not what was probed.
func (s *Session) goneWith(removed []*symbol.Module) {
	lost := s.links.In(removed)
	s.on.View.RLock()
	unmapped := slices.DeleteFunc(s.watches.All(), func(w *Watchpoint) bool { return !slices.Contains(removed, w.loc.Module) })
	s.on.View.RUnlock()
	if len(lost)+len(unmapped) == 0 {
		return
	}
	s.on.Owner.Frozen(func() error {
		for _, w := range unmapped {
			w.Kp.probe.Gone.Store(true)
			s.turns.Report(named(&w.Kp, fail(syscall.ENOENT, "its data has been unmapped")))
		}
		s.turns.Report(s.watches.Remove(unmapped))
		s.links.Lose(lost, func(q *probed.Probe) {
			p := containerOf(q)
			if p.probe.Gone.Store(!p.Patient || !p.lasts()); !p.probe.Gone.Load() {
				p.Loc = p.probe.Point.Loc // another copy of the file is not what it waits for
				p.unplace()
				s.pending = append(s.pending, p)
			} else if !p.as().internal() {
				s.turns.Report(named(p, fail(syscall.ENOENT, "its code has been unmapped")))
			}
			p.probe.Point = nil
		})
		s.threads.Retire(lost)
		return nil
	})
	s.listChanged()
}

// armPending tries the probes that wait for their code to be mapped.
func (s *Session) armPending() {
	b := s.newBatch()
	waiting := s.pending
	s.pending = nil
	for _, p := range waiting {
		if p.any((*Program).foreign) {
			s.pending = append(s.pending, p) // for the next program that is executed
			continue
		}
		switch err := s.prepare(b, p); {
		case err == nil:
		case errors.Is(err, syscall.ENOENT), errors.Is(err, image.ErrUnbound):
			s.pending = append(s.pending, p)
		default:
			p.probe.Gone.Store(true)
			s.turns.Report(named(p, err))
		}
	}
	s.pending = append(s.pending, b.wait...)
	if err := s.apply(b); err != nil {
		s.turns.Report(err)
		for _, q := range b.Probes {
			if p := containerOf(q); !p.as().internal() {
				s.pending = append(s.pending, p)
			}
		}
		for _, w := range b.watches {
			s.pending = append(s.pending, &w.Kp)
		}
	}
	s.watchResolvers()
	s.listChanged()
}

// watchResolvers places hidden probes on the returns of the resolvers of those indirect functions that probes wait for. It is called in a turn.
func (s *Session) watchResolvers() {
	for _, p := range s.pending {
		if returns := s.on.Image.Resolver(p.SymbolName); len(returns) > 0 {
			s.notifyAt(returns, false)
		}
	}
}
