package engine

import (
	"kprobe/internal/traced"
	"kprobe/target"
)

// execed deals with a target whose program has been replaced: nothing that we
// put there exists any more. Its one thread stands still until restart has forgotten
// that. Probes with a symbol wait for it to come back.
func (e *Engine) execed(st target.Stop) {
	e.threads.Forget()
	e.On.Owner.Executed = true
	e.On.Image.Replaced()
	e.Calls.Replaced()
	go e.restart(st.Thread)
}

// restart looks at the new program and arms what it has.
func (e *Engine) restart(th target.Thread) {
	if e.begun() {
		e.mapped(th, true)
	}
}

// begun is restart's part in a turn; it answers false where the session is over.
func (e *Engine) begun() bool {
	e.Turns.Lock()
	defer e.Turns.Unlock()
	if e.Turns.Over() {
		return false
	}
	e.On.Owner.Grace()
	e.On.Owner.Do(func() {
		// Not before: the call that had the turn may have been planning with all that. Nothing of
		// it came into the new program, and no thread of that has run.
		e.On.View.Lock()
		e.On.Text.Lifeline.Forget()
		e.optimizer.Forget()
		e.Turns.Report(e.Within.Forget())
		e.raised = nil
		e.On.Points.List = nil
		e.On.Room.Forget()
		e.Watches.Forget()
		e.On.View.Unlock()
		e.On.Owner.Executed = false
		e.Turns.Report(e.On.Image.Become(e.On.T.Arch()))
		e.On.LearnMachine()
		e.Calls.Replaced() // again: handlers that were on their way may have begun calls
		e.Calls.Become(e.On.Arch)
	})
	e.Home.Replaced()
	e.pending, e.tracers = nil, traced.Search{}
	for _, p := range e.probes {
		p.Point = nil
		if p.Gone.Store(!p.Lasts() || p.Lost()); !p.Gone.Load() { // else with the address, or the program's maps
			p.Unplace()
			e.pending = append(e.pending, p)
		}
	}
	e.Turns.Report(e.refresh())
	e.placeLoader(true)
	e.armPending()
	return true
}
