package engine

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/internal/errno"
	"kprobe/internal/image"
	"kprobe/internal/linker"
	"kprobe/internal/probed"
	"kprobe/internal/roles"
	"kprobe/symbol"
	"kprobe/target"
)

// librariesChanged is for a thread that has mapped or unmapped something, and waits until pending probes are armed.
func (e *Engine) librariesChanged(th target.Thread) {
	if changed, waits := e.lookAtLibraries(th); !waits {
		e.mapped(th, changed)
	}
}

// mapped lets a thread go on when all is said of what it has mapped.
func (e *Engine) mapped(th target.Thread, changed bool) {
	if f := e.opts.Mapped; f != nil && changed {
		f()
	}
	e.goOn(th)
}

// lookAtLibraries tells whether there may be others, and whether the thread that has mapped them waits.
func (e *Engine) lookAtLibraries(th target.Thread) (changed, waits bool) {
	e.Turns.Lock()
	defer e.Turns.Unlock()
	if e.Turns.Over() {
		return false, true
	}
	if changed = e.takeIn(); changed && e.loader.loaded(th) {
		return false, true
	}
	return changed, false
}

// takeIn looks at what is mapped and arms what has waited for it; false while the linker is in the middle of a change.
func (e *Engine) takeIn() bool {
	if !linker.Consistent(e.On.Arch, e.loader.state, e.On.T.ReadAt) {
		return false
	}
	e.Turns.Report(e.refresh())
	e.watchTracers()
	e.armPending()
	return true
}

// lookSoon is for a child that has shared the target's memory, and may have mapped something there. The child is gone, and waits for
// nothing. One look serves all children that come before it: a program may make such children faster than it is looked at.
func (e *Engine) lookSoon() {
	if e.looks.Swap(true) {
		return
	}
	go func() {
		if f := e.opts.Mapped; e.takeInNew() && f != nil {
			f()
		}
	}()
}

// takeInNew is takeIn where there is something new, or something waits.
func (e *Engine) takeInNew() bool {
	e.Turns.Lock()
	defer e.Turns.Unlock()
	e.looks.Store(false)
	return !e.Turns.Over() && (len(e.pending) > 0 || e.On.Image.Outdated()) && e.takeIn()
}

// Refresh looks at what the target has mapped now. Not from a handler. Errors: EDEADLK, ESRCH.
func (e *Engine) Refresh() (err error) {
	if err := e.Turns.BeginUse(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	return e.refresh()
}

// MayCome tells whether a function is there, or its file may be mapped later: whenever it is there, that may be unmapped and
// mapped again. Not from a handler.
func (e *Engine) MayCome(symbolName string) bool {
	if e.Turns.BeginUse() != nil {
		return false
	}
	defer e.Turns.Unlock()
	_, err := e.On.Image.Symbol(symbolName)
	absent := (*symbol.NoModuleError)(nil)
	return err == nil || errors.As(err, &absent)
}

// refresh is Refresh in a turn.
func (e *Engine) refresh() error {
	removed, err := e.On.Image.Look()
	if err != nil {
		return err
	}
	e.goneWith(removed)
	e.Within.LearnFiles()
	return e.On.Forbid()
}

// goneWith marks the probes in unmapped modules. Nothing is written: what is
// at those addresses now is not what was probed.
func (e *Engine) goneWith(removed []*symbol.Module) {
	lost := e.Links.In(removed)
	e.On.View.RLock()
	unmapped := slices.DeleteFunc(e.Watches.All(), func(p *roles.Probe) bool {
		loc, _ := p.As().Place()
		return !slices.Contains(removed, loc.Module)
	})
	e.On.View.RUnlock()
	if len(lost)+len(unmapped) == 0 {
		return
	}
	e.On.Owner.Frozen(func() error {
		for _, p := range unmapped {
			p.Gone.Store(true)
			e.Turns.Report(p.Asked.Named(errno.New(syscall.ENOENT, "its data has been unmapped")))
		}
		e.Turns.Report(e.Watches.Remove(unmapped))
		e.Links.Lose(lost, func(q *probed.Probe) {
			p := roles.Of(q)
			if p.Gone.Store(!p.Waits()); !p.Gone.Load() {
				p.Await()
				e.pending = append(e.pending, p)
			} else if !p.As().Internal() {
				e.Turns.Report(p.Asked.Named(errno.New(syscall.ENOENT, "its code has been unmapped")))
			}
			p.Point = nil
		})
		e.threads.Retire(lost)
		return nil
	})
	e.listChanged()
}

// armPending tries the probes that wait for their code to be mapped.
func (e *Engine) armPending() {
	b := e.Batch()
	waiting := e.pending
	e.pending = nil
	for _, p := range waiting {
		if p.Foreign() {
			e.pending = append(e.pending, p) // for the next program that is executed
			continue
		}
		before := b.Mark()
		switch err := b.Prepare(p); {
		case err == nil:
		case errors.Is(err, syscall.ENOENT), errors.Is(err, image.ErrUnbound), errors.Is(err, syscall.EFAULT):
			b.Back(before)
			e.pending = append(e.pending, p)
		default:
			p.Gone.Store(true)
			e.Turns.Report(p.Asked.Named(err))
		}
	}
	e.pending = append(e.pending, b.Wait...)
	if err := e.apply(b); err != nil {
		if !errors.Is(err, syscall.EFAULT) { // else it has been unmapped again
			e.Turns.Report(err)
		}
		for _, p := range roles.AllOf(b.Probes) {
			if !p.As().Internal() {
				e.pending = append(e.pending, p)
			}
		}
		e.pending = append(e.pending, b.Watches...)
	}
	e.watchResolvers()
	e.listChanged()
}

// watchResolvers places hidden probes on the returns of the resolvers of those indirect functions that probes wait for. It is called in a turn.
func (e *Engine) watchResolvers() {
	for _, p := range e.pending {
		if returns := e.On.Image.Resolver(p.Name); len(returns) > 0 {
			e.notifyAt(returns, false)
		}
	}
}

// unmappings are the tries of a step that meets code which is not there any more. A program that loads and unloads a library all the
// time gets in between now and then.
const unmappings = 10

// despiteUnmapping does a step that may find code unmapped since the last look: probes there wait then, or are gone, and the step is
// tried again. last tells that it is the last time. Errors: the step's; EFAULT where the code is mapped, and cannot be read.
func (e *Engine) despiteUnmapping(step func(last bool) error) (err error) {
	for n := range unmappings {
		if err = step(n == unmappings-1); !errors.Is(err, syscall.EFAULT) || e.refresh() != nil {
			break
		}
	}
	return err
}
