// Package standing knows of the threads that stand in code of ours: in slots, in detours, on the
// trampoline, or in front of handlers that have run. They are moved to where the program thinks
// they are, before the program or a tool can see otherwise, and before the code goes.
//
//	standing.go  executions that a signal took away
//	evacuate.go  threads of the target, before code of ours goes
//	copies.go    children, and a target that is about to end
package standing

import (
	"maps"
	"slices"

	"kprobe/arch"
	"kprobe/internal/ground"
	"kprobe/internal/probed"
	"kprobe/internal/within"
	"kprobe/symbol"
	"kprobe/target"
)

// Threads are the threads of one session's target. Their work belongs to the owner thread.
type Threads struct {
	on     *ground.Ground
	within *within.Within
	calls  Calls
	taken  map[execution]away
}

// Calls are the calls under way.
type Calls interface {
	IsTrampoline(pc arch.Addr) bool
	Popped(sp arch.Addr) (next arch.Addr, ok bool)
	Restore(arch.Memory) error
	GiveBack(anyhow bool, mend func(slot, from, to arch.Addr)) error
	Forget()
}

// execution is one pass through a point. The handlers of those in Threads.taken
// ran, and then a signal took the thread away from its slot or detour: it will come again.
type execution struct {
	point *probed.Point
	sp    arch.Addr // tells the call from every other one that is under way
}

// away is a thread that is away from such a pass.
type away struct {
	th     target.Thread
	inside bool // the part that runs inside the target has run too
}

// New knows of none yet.
func New(on *ground.Ground, w *within.Within, c Calls) *Threads {
	return &Threads{on: on, within: w, calls: c, taken: make(map[execution]away)}
}

// Take notes that a thread was taken away from its pass through a point, after the handlers; inside
// tells that what runs inside the target has run, too.
func (ts *Threads) Take(th target.Thread, pt *probed.Point, sp arch.Addr, inside bool) {
	ts.taken[execution{pt, sp}] = away{th, inside}
}

// Back tells whether a thread that comes to a point was taken away from this very pass. It is not
// away any more then. The signal may have made a scheduler in the program (Go's preempts so) go on
// with the call on another thread.
func (ts *Threads) Back(th target.Thread, pt *probed.Point, sp arch.Addr) (back, inside bool) {
	if len(ts.taken) == 0 {
		return false, false
	}
	this := execution{pt, sp}
	it, back := ts.taken[this]
	delete(ts.taken, this)
	if !ts.on.Image.Schedules() {
		// Whose stack frames are gone were left by longjmp; a signal handler's
		// own stack tells nothing about them.
		maps.DeleteFunc(ts.taken, func(e execution, a away) bool { return a.th == th && sp > e.sp && ts.sameStack(sp, e.sp) })
	}
	return back, back && it.inside
}

// Renew is for a point of the frozen target that has handlers now, and had none. Meanwhile a thread
// that was away from a pass may have come through unseen. So the handlers count its next pass there
// as another one. A thread that stands in front of the point still has not come through.
func (ts *Threads) Renew(pt *probed.Point) {
	a := ts.on.Arch
	maps.DeleteFunc(ts.taken, func(e execution, by away) bool {
		var r arch.Regs
		return e.point == pt && (ts.on.T.Regs(by.th, &r) != nil || r.Addr(a.PC) != pt.Addr || r.Addr(a.SP) != e.sp)
	})
}

// sameStack tells whether two addresses lie in one mapping.
func (ts *Threads) sameStack(a, b arch.Addr) bool {
	maps, err := ts.on.T.Maps()
	return err == nil && symbol.SameMapping(maps, a, b)
}

// Ended tells of a thread that has ended: it comes back from nowhere.
func (ts *Threads) Ended(th target.Thread) {
	if !ts.on.Image.Schedules() {
		maps.DeleteFunc(ts.taken, func(_ execution, a away) bool { return a.th == th })
	}
}

// Forget is for a target that executes another program.
func (ts *Threads) Forget() { clear(ts.taken) }

// Leave changes registers from a place in memory of ours to the same state in
// the program. ours tells whether a thread can still go on from there, theirs
// whether the instruction before it is one of the program's.
func (ts *Threads) Leave(r *arch.Regs) (ours func() bool, theirs bool) {
	a := ts.on.Arch
	pc, sp := r.Addr(a.PC), r.Addr(a.SP)
	if ref, ok := ts.on.Room.At(pc); ok {
		ref.Leave(a, r)
		return func() bool { return ref.Of.Live }, !ref.Again(pc)
	}
	if in := ts.within.Inside; in != nil {
		d, displaced := in.Displaced(r, ts.on.T)
		if displaced || d != nil || in.Busy(pc) {
			return func() bool {
				return in.Find(pc) == d && !slices.Contains(in.Retired(), d)
			}, displaced
		}
	}
	call := func() (next arch.Addr, ok bool) {
		if !ts.calls.IsTrampoline(pc) {
			return 0, false
		}
		return ts.calls.Popped(sp)
	}
	if next, ok := call(); ok {
		r[a.PC] = uint64(next)
	}
	return func() bool { _, ok := call(); return ok }, true
}

// Returning tells whether a stopped thread may be behind its return and before we have seen it.
func (ts *Threads) Returning(pc arch.Addr) bool {
	return ts.calls.IsTrampoline(pc) || ts.calls.IsTrampoline(pc-arch.Addr(ts.on.Arch.BreakPC)) ||
		ts.within.Some() && (ts.within.Busy(pc) || ts.within.Find(pc) != nil)
}
