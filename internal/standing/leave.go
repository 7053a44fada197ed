package standing

import (
	"errors"

	"kprobe/internal/patch"
	"kprobe/target"
)

// TakeAway takes the rest of a session out of the frozen target: first all ways that lead to our
// memory, then the memory. gate gives a kernel its handler of traps back, others takes out the rest
// that is ours. It can be called again. Errors: target.ErrNotNow while a thread may need the memory
// that goes, unless anyhow; those of the steps; bytes that others have put into the text.
func (ts *Threads) TakeAway(anyhow bool, gate, others func() error) error {
	on := ts.on
	if on.T.Stuck() > 0 && !anyhow {
		return target.ErrNotNow // a thread that cannot be stopped may need it
	}
	rest := on.Points.List
	on.View.Lock()
	for _, pt := range rest {
		pt.Notify = false
	}
	on.View.Unlock()
	foreign := on.Points.Rearm(rest)
	if foreign != nil {
		foreign = on.Points.RearmSingly(rest)
	}
	if foreign != nil && !patch.OnlyForeign(foreign) {
		return foreign
	}
	ts.Retire(rest)
	for _, step := range []func() error{
		func() error { _, err := ts.Evacuate(); return err },
		gate,
		func() error { ts.within.Collect(); return ts.GiveCallsBack(anyhow) },
		others,
		func() error { ts.giveCopiesBack(); return nil },
		func() error { return ts.within.Leave(anyhow) },
		func() error { ts.leaveHandler(); return on.Text.Lifeline.End(anyhow) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(foreign, on.Leave())
}

// giveCopiesBack has the target share its text with other processes again. If that fails, nothing
// but memory is lost: it is only told.
func (ts *Threads) giveCopiesBack() {
	on := ts.on
	if t, ok := on.T.(target.Reverter); ok && on.T.Stuck() == 0 {
		on.Alive(t.Revert(on.Text.Written()))
	}
}
