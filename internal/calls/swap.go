package calls

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/returns"
	"kprobe/target"
)

// frame is one call whose return address has been swapped for the trampoline's. Its key is the
// address of the stack slot that holds it: that is unique in the process, whichever thread or
// coroutine runs on the stack.
type frame[I any] struct {
	real   arch.Addr // what was in the slot: the return address, or a detour's
	thread target.Thread
	calls  []*Call[I] // oldest first: several probes, or tail calls
	bared  bool       // the return address is in the slot, while a stack is walked (walks.go)
	ended  bool       // a walk has put the return address back for good; see left
	outer  *frame[I]  // of a call whose slot the target has used anew, and will come back to
}

// Swap begins to watch a call at its first instruction, and swaps its return address for the
// trampoline's. wanted is asked without the lock.
func (u *UnderWay[I]) Swap(p *Probe[I], at Spot, wanted func(*Call[I]) bool) Outcome {
	sp := at.SP
	u.mu.Lock()
	defer u.mu.Unlock()
	ret, err := u.world.Word(sp)
	if err != nil {
		return Missed
	}
	fr := u.at[sp]
	// Where a detour has swapped it once more, after us, this is a call that ours
	// ended in: it comes back to the trampoline, too, when the detour's return is over.
	swapped := ret == u.Trampoline() || fr != nil && u.kept(sp, ret)
	var outer *frame[I]
	if fr != nil && !swapped {
		if outer, fr = fr, nil; !u.swapped(sp) { // else this one is its tail call
			u.abandon(sp, Longjmp) // its slot has been used anew: that call never returned
			outer = nil
		}
	}
	if swapped && fr == nil {
		return Missed // not a return address of ours; leave it alone
	}
	back := u.comesBackTo(sp, ret)
	if fr == nil && back == ret && !u.world.Keeps(ret) && !u.world.Called(ret) {
		return Missed // the function was jumped to, and whatever that is, it is the function's own
	}
	if p.active >= p.MaxActive {
		u.reclaim(p, at)
	}
	c, outcome := u.begin(p, at, back, wanted)
	if outcome != Watched {
		return outcome
	}
	if fr == nil {
		// Read anew: a detour that is no more may have been there when wanted was asked.
		if ret, err = u.world.Word(sp); err != nil {
			c.give()
			return Missed
		}
		// A detour's, perhaps, which a call that ended in this one has swapped.
		if u.world.Note(sp, ret, u.all) != nil || u.world.PutWord(sp, u.Trampoline()) != nil {
			c.give()
			return Missed
		}
		fr = &frame[I]{real: ret, thread: at.Thread, outer: outer}
		u.at[sp] = fr
	}
	fr.thread = at.Thread // a coroutine's call may have come to another
	fr.calls = append(fr.calls, c)
	return Watched
}

// Return is a call that has come to the trampoline.
type Return[I any] struct {
	Back  arch.Addr  // where it comes back to in the program
	Next  arch.Addr  // where it goes on now: there, or through a detour
	Calls []*Call[I] // whose return is to be reported, oldest first: Done or Lose is called with each
}

// Returned takes off the call of a thread that has come to the trampoline. ok is false where
// nothing is known of it.
func (u *UnderWay[I]) Returned(sp arch.Addr) (r Return[I], ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	slot, fr := returns.Popped(u.at, sp, u.arch)
	if fr == nil {
		return r, false
	}
	delete(u.at, slot)
	if fr.outer != nil {
		u.at[slot] = fr.outer
	}
	back := u.comesBackTo(slot, fr.real)
	fr.dropLeaving()
	return Return[I]{back, fr.real, fr.calls}, true
}

// Stray counts a thread on the trampoline of which no call is known, and answers what there is to say: nil but for the first
// time, the tenth, the hundredth and so on. Once there is one, there may be one at each call of a function.
func (u *UnderWay[I]) Stray(th target.Thread, sp arch.Addr) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.strays++
	n := u.strays
	for n%10 == 0 {
		n /= 10
	}
	if n != 1 {
		return nil
	}
	so := ""
	if u.strays > 1 {
		so = fmt.Sprintf(" (%d times by now)", u.strays)
	}
	return errno.New(0, "thread %d returned to the trampoline with no call known at %v%s", int(th), sp, so)
}

// Popped is where a thread goes on that stands on the trampoline with this stack pointer, or
// stood there when it was asked first; ok is false where it does not.
func (u *UnderWay[I]) Popped(sp arch.Addr) (next arch.Addr, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, fr := returns.Popped(u.at, sp, u.arch); fr != nil {
		return fr.real, true
	}
	return 0, false
}

// abandon forgets a call that will not return through the trampoline, and those that its slot
// had before it.
func (u *UnderWay[I]) abandon(sp arch.Addr, why Loss) {
	for fr := range u.at[sp].chain {
		fr.giveUp(why)
	}
	delete(u.at, sp)
}

// chain is a frame and those that its slot is to come back to, the newest first.
func (fr *frame[I]) chain(yield func(*frame[I]) bool) {
	for ; fr != nil && yield(fr); fr = fr.outer {
	}
}

// giveUp takes the instances off a call that seems to be over. The call itself
// is kept: whether a coroutine was dropped or only waits, nobody can tell from
// outside, and should it return after all, it must come to the right place.
func (fr *frame[I]) giveUp(why Loss) {
	for _, c := range fr.calls {
		if !c.orphan {
			c.lose(why)
		}
	}
	fr.calls = nil
}

// dropLeaving takes off a call that has come back what is of probes that are being unregistered. It is here,
// on the owner thread: handlers that are on their way to goroutines are waited for, and later ones must not
// touch a probe that may be somebody's again.
func (fr *frame[I]) dropLeaving() {
	fr.calls = slices.DeleteFunc(fr.calls, func(c *Call[I]) bool {
		leaving := !c.orphan && c.Probe.Leaving()
		if leaving {
			c.lose(Unregistered)
		}
		return leaving || c.orphan
	})
}

// swapped tells whether a call, to whose slot a thread has come again at a function's entry, will return to the
// trampoline. Where the target keeps its address it will, also if that is not found: a call that is new would
// bring an address of the program's own.
func (u *UnderWay[I]) swapped(sp arch.Addr) bool {
	word, err := u.world.Word(sp)
	return err == nil && u.world.Keeps(word) || len(u.places(sp)) > 0 || u.inDetour(sp)
}

// left tells whether a call will not return to the trampoline. Its thread may be running: so it is told
// by one look at the slot, and whatever may be in there before our trap is hit is no sign. That is, besides
// the trampoline's address, the return address of any detour, whatever its calls are: on its way back a
// thread has taken its call off the list before it puts the trampoline's address there.
func (u *UnderWay[I]) left(sp arch.Addr) bool {
	word, err := u.world.Word(sp)
	if fr := u.at[sp]; fr != nil && (fr.bared || fr.ended && err == nil && word == fr.real) {
		return false // what was put back it may have fetched before: a coroutine's, which another thread has now
	}
	if err == nil && (word == u.Trampoline() || u.world.Returns(word)) {
		return false
	}
	return len(u.places(sp)) == 0 && !u.world.Carried()
}

// ComesBackTo is where a call comes back to in the program whose return address, read from its stack
// slot, is ret: it may be of ours, or not.
func (u *UnderWay[I]) ComesBackTo(slot, ret arch.Addr) arch.Addr {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.comesBackTo(slot, ret)
}

// Real is the program's own return address of a call whose slot holds ret. It is false where ret is
// ours and nothing is known of the call.
func (u *UnderWay[I]) Real(slot, ret uint64) (uint64, bool) {
	real := u.ComesBackTo(arch.Addr(slot), arch.Addr(ret))
	return uint64(real), !u.IsTrampoline(real) && !u.world.Returns(real)
}

// comesBackTo is where a call with a stack slot comes back to in the program, where the slot holds ret:
// detours and the controller may have swapped it, in any order.
func (u *UnderWay[I]) comesBackTo(sp, ret arch.Addr) arch.Addr {
	way := u.world.Way(sp) // takes back one swap of a detour's after another
	for fr := u.at[sp]; ; fr = fr.outer {
		ret = way(ret)
		if fr == nil || ret != u.Trampoline() {
			return ret
		}
		ret = fr.real
	}
}

// places are where the trampoline's address is kept for the calls with a stack
// slot, the last call first: in the slot, and where the target put it.
func (u *UnderWay[I]) places(sp arch.Addr) (at []arch.Addr) {
	if word, err := u.world.Word(sp); err == nil && word == u.Trampoline() {
		at = append(at, sp)
	}
	if len(at) == 0 || u.at[sp].outer != nil {
		at = append(at, u.world.Kept(sp, u.Trampoline())...)
	}
	return at
}

// inDetour tells whether a call will return to the trampoline by way of a detour, which has
// swapped its return address after us.
func (u *UnderWay[I]) inDetour(sp arch.Addr) bool {
	word, err := u.world.Word(sp)
	return err == nil && u.kept(sp, word)
}

// kept tells whether a call that would return to an address of ours inside the target comes to
// the trampoline from there.
func (u *UnderWay[I]) kept(sp, ret arch.Addr) bool {
	return ret != u.Trampoline() && u.world.Way(sp)(ret) == u.Trampoline()
}

// Retire has f take detours away which calls come back through, as one step for all who ask meanwhile where
// a call comes back to. f tells redirect of each call that goes on to another address than a detour's, and
// whose return address it could not find. The target is frozen.
func (u *UnderWay[I]) Retire(f func(redirect func(slot, from, to arch.Addr) error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f(u.redirect)
}

func (u *UnderWay[I]) redirect(slot, from, to arch.Addr) error {
	if fr := u.at[slot]; fr != nil && fr.real == from {
		fr.real = to
		return u.world.Note(slot, to, u.all)
	}
	return nil
}
