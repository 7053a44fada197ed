package standing

import (
	"cmp"
	"errors"
	"slices"

	"kprobe/arch"
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
		func() error { ts.giveCopiesBack(on.Text.Written()); return nil },
		func() error { return ts.within.Leave(anyhow) },
		func() error { ts.leaveHandler(); return on.Text.Lifeline.End(anyhow) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(foreign, on.Leave())
}

// copiesAtOnce bounds the pages that one stop gives back: each is compared with the file, which takes some
// 20 microseconds.
const copiesAtOnce = 1024

// GiveCopiesBack has the target share its text with other processes again, as far as that is what its
// files have: much of it, in several stops. The rest is TakeAway's.
func (ts *Threads) GiveCopiesBack() {
	var written []arch.Range
	ts.on.Owner.On(func() { written = ts.on.Text.Written() })
	if len(written) <= copiesAtOnce {
		return
	}
	slices.SortFunc(written, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	for piece := range slices.Chunk(written, copiesAtOnce) {
		if ts.on.Owner.Frozen(func() error { ts.giveCopiesBack(piece); return nil }) != nil {
			return
		}
	}
}

// giveCopiesBack does it for some pages. If that fails, nothing but memory is lost: it is only told.
func (ts *Threads) giveCopiesBack(pages []arch.Range) {
	on := ts.on
	if t, ok := on.T.(target.Reverter); ok && on.T.Stuck() == 0 {
		on.Alive(t.Revert(pages))
	}
}
