package engine

import (
	"fmt"

	"kprobe/internal/parts"
	"kprobe/internal/turns"
)

// Enabled reads the global switch.
func (e *Engine) Enabled() bool {
	e.On.View.RLock()
	defer e.On.View.RUnlock()
	return !e.On.Points.Disarmed
}

// SetEnabled is the global switch: off disarms every probe, on arms those that
// are not disabled. The probes' own states are left alone.
func (e *Engine) SetEnabled(on bool) (err error) {
	if err := e.Turns.BeginChange(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	e.optimizer.Soon()
	set := func(on bool) {
		e.On.View.Lock()
		e.On.Points.Disarmed = !on
		e.On.View.Unlock()
		e.Calls.See(on)
	}
	was := e.Enabled()
	enabled := &parts.State{What: fmt.Sprintf("enabled: %v", on), Set: func() { set(on) }, Was: func() { set(was) }}
	return e.despiteUnmapping(func(bool) error { return e.Links.Everywhere("switch all", enabled, e.Watching()) })
}

// Optimization reads the switch of jumps.
func (e *Engine) Optimization() bool {
	e.On.View.RLock()
	defer e.On.View.RUnlock()
	return !e.On.Points.Unoptimized
}

// SetOptimization is the switch: off makes every jump a trap again and allows no
// new ones, on lets probes be optimized. It is on at first.
func (e *Engine) SetOptimization(on bool) (err error) {
	if err := e.Turns.BeginChange(); err != nil {
		return err
	}
	defer e.Turns.End(&err)
	set := func(on bool) {
		e.On.View.Lock()
		defer e.On.View.Unlock()
		e.On.Points.Unoptimized = !on
	}
	was := e.Optimization()
	set(on)
	e.optimizer.Soon() // without jumps, a kernel may have traps
	if on {
		return nil
	}
	off := &parts.State{What: "optimization is off", Set: func() { set(false) }, Was: func() { set(was) }}
	err = e.despiteUnmapping(func(bool) error { return e.Links.Everywhere("no jumps", off) })
	e.listChanged()
	return err
}

// WaitOptimized returns when no point waits for its jump: each has it, or keeps the trap. Errors: EDEADLK.
func (e *Engine) WaitOptimized() error {
	if e.On.Owner.InHandler() {
		return turns.ErrInHandler
	}
	e.optimizer.Wait()
	return nil
}
