package calls

import (
	"slices"

	"kprobe/arch"
	"kprobe/symbol"
)

// A program that walks its own stack must find its own return addresses there, so they are put
// back meanwhile. What the controller has swapped a detour may have swapped once more, or the other
// way round, where both have a probe on a call, or on one and that which it ends in.

// Unswapped is a return address that is in its place while its stack is walked: of a call
// here, or of one of a detour, D.
type Unswapped[D any] struct {
	slot   arch.Addr // 0: it is the detour's
	Detour D
}

// Detours swap return addresses, too.
type Detours[D any] interface {
	// Unswap puts back what the detours can. It is asked again until there is nothing, and
	// told of what it has put back already.
	Unswap(already []D) []D
	SwapAgain(d D)          // undo that
	End(d D)                // that call is over, perhaps: the stack was unwound
	Hold() (release func()) // keep the detours as they are
}

// Unswap puts the return addresses of a thread's calls back, and tells which: of the calls that it has made,
// and of those on the stack that it stands on, which a coroutine has made on another thread. The thread is stopped.
func Unswap[I, D any](u *UnderWay[I], at Spot, detours Detours[D]) (us []Unswapped[D]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps, _ := u.world.Maps()
	defer detours.Hold()()
	var theirs []D
	for n := -1; n < len(us); {
		n = len(us)
		for sp, fr := range u.at {
			word, err := u.world.Word(sp)
			if err == nil && word == u.Trampoline() && !fr.bared &&
				(fr.thread == at.Thread || sp >= at.SP && symbol.SameMapping(maps, sp, at.SP)) && u.world.PutWord(sp, fr.real) == nil {
				fr.bared = true
				us = append(us, Unswapped[D]{slot: sp})
			}
		}
		ds := detours.Unswap(theirs)
		theirs = append(theirs, ds...)
		for _, d := range ds {
			us = append(us, Unswapped[D]{Detour: d})
		}
	}
	return us
}

// SwapAgain undoes it, from the last on, where the call is still under way.
func SwapAgain[I, D any](u *UnderWay[I], us []Unswapped[D], detours Detours[D]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	defer detours.Hold()()
	for _, it := range slices.Backward(us) {
		if it.slot == 0 {
			detours.SwapAgain(it.Detour)
			continue
		}
		word, err := u.world.Word(it.slot)
		if fr := u.at[it.slot]; fr != nil && fr.bared {
			if err == nil && word == fr.real {
				u.world.PutWord(it.slot, u.Trampoline())
			}
			fr.bared = false
		}
	}
}

// End counts as unwound what may be over when the stack has been unwound: some of
// the calls may live on, nobody can tell which. Their return addresses are back.
func End[I, D any](u *UnderWay[I], us []Unswapped[D], detours Detours[D]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	defer detours.Hold()()
	for _, it := range us {
		if it.slot == 0 {
			detours.End(it.Detour)
		} else if fr := u.at[it.slot]; fr != nil {
			fr.giveUp(Unwound)
			fr.bared, fr.ended = false, true
			if fr.outer != nil {
				u.at[it.slot] = fr.outer
			}
		}
	}
}
