package calls

import (
	"iter"
	"slices"

	"kprobe/arch"
	"kprobe/internal/mem"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// Calls that end without returning, probes that go, threads that end, and the end of it all.

// Orphan lets the calls of an unregistered probe return unreported. The probe can then be somebody's
// again.
func (u *UnderWay[I]) Orphan(p *Probe[I]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, first := range u.at {
		for fr := range first.chain {
			for _, c := range fr.calls {
				if c.Probe == p && !c.orphan {
					c.orphan = true
					p.lost[Unregistered].Add(1)
				}
			}
		}
	}
	gone := u.exits.Drop(func(_ returns.Place, of *Probe[I], _ *Call[I]) bool { return of == p })
	p.lost[Unregistered].Add(uint64(len(gone)))
	p.active, p.free = 0, nil
}

// reclaim looks for instances whose calls are over although they never
// returned (longjmp, coroutines that were dropped): the stack slot no longer
// holds the trampoline, or lies below the stack pointer of its own thread.
func (u *UnderWay[I]) reclaim(p *Probe[I], at Spot) {
	for sp, first := range u.at {
		mine, watched := false, false
		for fr := range first.chain {
			mine = mine || slices.ContainsFunc(fr.calls, func(c *Call[I]) bool { return c.Probe == p })
			watched = watched || len(fr.calls) > 0
		}
		switch {
		case !mine && watched:
		case u.left(sp):
			u.abandon(sp, Longjmp)
		case mine && first.thread == at.Thread && sp < at.SP && u.sameStack(sp, at.SP):
			for fr := range first.chain {
				fr.giveUp(Longjmp)
			}
		}
	}
}

// sameStack tells whether two addresses lie in one mapping.
func (u *UnderWay[I]) sameStack(a, b arch.Addr) bool {
	maps, err := u.world.Maps()
	return err == nil && symbol.SameMapping(maps, a, b)
}

// prune forgets what was given up and whose stack has been used anew since.
func (u *UnderWay[I]) prune() {
	for sp, fr := range u.at {
		if len(fr.calls) == 0 && u.left(sp) {
			u.abandon(sp, Longjmp)
		}
	}
}

// all forgets what can be forgotten and tells what calls are under way then.
func (u *UnderWay[I]) all() (int, iter.Seq2[arch.Addr, arch.Addr]) {
	u.prune()
	n := 0
	for _, fr := range u.at {
		if !fr.ended {
			n++
		}
	}
	return n, func(yield func(sp, real arch.Addr) bool) {
		for sp, fr := range u.at {
			if !fr.ended && !yield(sp, fr.real) {
				return
			}
		}
	}
}

// ThreadExited gives up the calls of a thread that is gone. Not those that another has taken
// over, with the coroutine or goroutine that made them: they return.
func (u *UnderWay[I]) ThreadExited(th target.Thread) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, first := range u.at {
		for fr := range first.chain {
			if fr.thread == th {
				fr.giveUp(Exited)
			}
		}
	}
	for _, c := range u.exits.DropStack(u.native.Forget(int(th))) {
		c.lose(Exited)
	}
}

// TakenOff gives up a probe's calls by exits, when the probe has been taken off them: those that are over as what
// they are, where their stacks show it, and the others as Unregistered, since nobody will see them end. The
// target is frozen.
func (u *UnderWay[I]) TakenOff(p *Probe[I]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.unseen = true
	u.sweep(p)
	for _, c := range u.exits.Drop(func(_ returns.Place, of *Probe[I], _ *Call[I]) bool { return of == p }) {
		c.lose(Unregistered)
	}
}

// Stand is where a thread of the frozen target stands. Returning tells that it may be behind its return
// and before we have seen that.
type Stand struct {
	Spot
	Returning bool
}

// CountEnded gives up the calls that are over although they did not return, as the stacks of
// the frozen target show: those below a stack pointer on the stack that its thread was born with.
// On other stacks, coroutines', nothing tells.
func (u *UnderWay[I]) CountEnded(threads iter.Seq[Stand]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.at)+u.exits.Len() == 0 {
		return
	}
	for th := range threads {
		at := u.place(th.Spot)
		u.settle(at, th.Goroutine)
		if at.Stack == 0 {
			continue
		}
		limit := th.SP
		if th.Returning {
			limit -= arch.Addr(u.arch.PtrSize)
		}
		for slot, first := range u.at {
			if u.left(slot) || slot < limit && u.native.Of(int(th.Thread), u.world.PID(), slot, th.TP, u.world.Maps) == at.Stack {
				for fr := range first.chain {
					fr.giveUp(Longjmp)
				}
			}
		}
	}
}

// See says whether anything stands at exits from now on. Where not, the calls that are under way are given up, and those that
// handlers on their way begin. The target is frozen.
func (u *UnderWay[I]) See(exits bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unseen = !exits
	if u.unseen {
		u.loseExits(Unregistered)
	}
}

func (u *UnderWay[I]) loseExits(why Loss) {
	for _, c := range u.exits.Drop(func(returns.Place, *Probe[I], *Call[I]) bool { return true }) {
		c.lose(why)
	}
}

// Replaced forgets everything: the target executes another program.
func (u *UnderWay[I]) Replaced() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for sp := range u.at {
		u.abandon(sp, Longjmp)
	}
	u.SetTrampoline(0)
	u.loseExits(Exited)
	u.native = returns.Stacks{}
}

// GiveBack puts every real return address back; the target is frozen, and the
// trampoline is about to go. While a detour has one to return to, that fails (target.ErrNotNow), or
// anyhow is done although a thread may have fetched it by now: mend is told of each that
// the detours have to send elsewhere.
func (u *UnderWay[I]) GiveBack(anyhow bool, mend func(slot, from, to arch.Addr)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !anyhow && len(u.at) > 0 && u.world.Carried() {
		return target.ErrNotNow
	}
	for sp, fr := range u.at {
		at := u.places(sp)
		if len(at) == 0 && u.inDetour(sp) { // of one that is not vacant
			if !anyhow {
				return target.ErrNotNow
			}
			mend(sp, u.Trampoline(), fr.real)
		}
		if word, err := u.world.Word(sp); len(at) == 0 && err == nil && !anyhow && u.world.Returns(word) {
			return target.ErrNotNow // its thread is on its way here
		}
		for ; len(at) > 0 && fr != nil; at, fr = at[1:], fr.outer {
			if err := u.world.PutWord(at[0], fr.real); err != nil {
				return err
			}
		}
	}
	return nil
}

// Forget ends it, after GiveBack: there is no trampoline any more.
func (u *UnderWay[I]) Forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.at)
	u.SetTrampoline(0)
}

// Restore writes the real return addresses into the memory of a child that was
// forked from the target. It answers the first failure, and what it has put back
// stays so.
func (u *UnderWay[I]) Restore(m arch.Memory) (err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for sp := range u.at {
		word, e := mem.Word(m, u.arch, sp)
		if e != nil || u.world.Way(sp)(arch.Addr(word)) != u.Trampoline() {
			continue // the stack has been used for something else
		}
		if e := mem.PutWord(m, u.arch, sp, uint64(u.comesBackTo(sp, arch.Addr(word)))); err == nil {
			err = e
		}
	}
	return err
}
