package engine

import (
	"context"
	"errors"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/linker"
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

// loaded is told of a thread that has mapped libraries. It answers whether these are those of a program that was
// started, which waits for Continue then.
func (l *loader) loaded(th target.Thread) bool {
	if !l.waits || l.ready == nil {
		return false
	}
	l.waiting = th
	close(l.ready)
	l.ready = nil
	return true
}

// watchLoader places the probes on the dynamic linker. A program that was just
// started runs as far as its libraries being mapped.
func (e *Engine) watchLoader(ctx context.Context, first target.Start) error {
	ready := e.beginLoading(first)
	if ready == nil {
		return nil // a static program, or a child: it waits where it is
	}
	select {
	case <-ready:
	case <-e.On.Owner.Over():
		return errno.New(syscall.ESRCH, "the program ended before its libraries were loaded (%v)", e.exit)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// beginLoading lets a program that was just started load its libraries. The channel is closed when it has; it is nil
// where there is nothing to wait for.
func (e *Engine) beginLoading(first target.Start) (ready <-chan struct{}) {
	e.Turns.Lock()
	defer e.Turns.Unlock()
	found := e.placeLoader(first.OK && !first.Begun)
	e.loader.waiting, e.loader.waits = first.Thread, first.OK
	if !first.OK || !found || first.Begun {
		return nil
	}
	e.goOn(first.Thread)
	return e.loader.ready
}

// placeLoader finds the linker's function and probes it; with entry, the
// program's first instruction too.
func (e *Engine) placeLoader(entry bool) bool {
	e.watchTracers()
	locs, state := linker.Places(e.On.Image, entry)
	e.loader.state = state
	return len(locs) > 0 && e.notifyAt(locs, false)
}

// notifyAt puts probes of our own at some places: the linker's, or where programs ask for a tracer. It is called in a turn.
func (e *Engine) notifyAt(locs []symbol.Loc, asks bool) bool {
	b := e.Batch()
	for _, loc := range locs {
		pt, err := b.Point(loc)
		if err == nil {
			e.On.Owner.On(func() { pt.Notify, pt.Asks = true, asks }) // it may be a point that there was
		} else if !asks || !errors.Is(err, syscall.EILSEQ) { // what looks like a call, in the text, may be none
			e.Turns.Report(err)
		}
	}
	err := e.apply(b)
	e.Turns.Report(err)
	return err == nil
}

// Continue lets a program that was just started run. On any other target it
// does nothing. Errors: EDEADLK.
func (e *Engine) Continue() error {
	if err := e.Turns.Begin(); err != nil {
		return err
	}
	defer e.Turns.Unlock()
	if e.loader.waits {
		e.loader.waits = false
		e.goOn(e.loader.waiting)
	}
	return nil
}
