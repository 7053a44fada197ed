// Package patch plans what will be written where, and why: breakpoints, slots
// that displaced instructions run in, and the pages they lie on. Plans are
// values that can be printed and compared; nothing here touches a target.
//
// It imports isa (the interface only) and arch.
package patch

import (
	"fmt"
	"slices"

	"kprobe/arch"
)

// granule is the unit slots are given out in. It keeps slot starts aligned
// for the fetch unit and makes the index from address to slot small.
const granule = 16

// Arena is one range of memory in the target that holds slots.
type Arena struct {
	Addr arch.Addr
	Size int

	used []bool // per granule
	next int    // where to look first
	live int    // granules given out
}

// NewArena plans an arena. Size is rounded up to whole granules.
func NewArena(addr arch.Addr, size int) *Arena {
	n := (size + granule - 1) / granule
	return &Arena{Addr: addr, Size: n * granule, used: make([]bool, n)}
}

// Contains tells whether an address lies in the arena.
func (a *Arena) Contains(addr arch.Addr) bool {
	return addr >= a.Addr && addr < a.Addr+arch.Addr(a.Size)
}

// Take gives out n bytes, aligned to a granule; false where there is no room.
func (a *Arena) Take(n int) (arch.Addr, bool) {
	need := (n + granule - 1) / granule
	if need == 0 || need > len(a.used)-a.live {
		return 0, false // a full one is not searched: each slot of a large batch comes by it
	}
	if at, ok := a.search(a.next, need); ok {
		return a.give(at, need), true
	}
	if at, ok := a.search(0, need); ok {
		return a.give(at, need), true
	}
	return 0, false
}

func (a *Arena) search(from, need int) (int, bool) {
	run := 0
	for i := from; i < len(a.used); i++ {
		if a.used[i] {
			run = 0
			continue
		}
		if run++; run == need {
			return i - need + 1, true
		}
	}
	return 0, false
}

func (a *Arena) give(at, need int) arch.Addr {
	for i := range need {
		a.used[at+i] = true
	}
	a.next = at + need
	a.live += need
	return a.Addr + arch.Addr(at*granule)
}

// Release takes back what Take gave.
func (a *Arena) Release(addr arch.Addr, n int) {
	at := int(addr-a.Addr) / granule
	for i := range (n + granule - 1) / granule {
		if !a.used[at+i] {
			panic(fmt.Sprintf("patch: slot at %v released twice", addr))
		}
		a.used[at+i] = false
		a.live--
	}
	a.next = min(a.next, at)
}

// Empty tells whether nothing is given out.
func (a *Arena) Empty() bool { return a.live == 0 }

// Near tells whether every displacement between the arena and a range fits: isa.ISA has the
// reach.
func (a *Arena) Near(r arch.Range, reach arch.Addr) bool {
	return max(a.Addr+arch.Addr(a.Size), r.End)-min(a.Addr, r.Start) < reach
}

// FindAbove picks the first address from one on for size bytes, as FindGap does: for what need
// not be in reach of anything.
func FindAbove(from arch.Addr, size int, occupied []arch.Range, limit, page arch.Addr) (arch.Addr, bool) {
	need := (arch.Addr(size) + page - 1) &^ (page - 1)
	at := (from + page - 1) &^ (page - 1)
	for _, o := range occupied {
		if o.End+page <= at {
			continue
		}
		if o.Start >= at+need+page {
			break
		}
		at = (o.End + 2*page - 1) &^ (page - 1)
	}
	return at, at+need >= at && at+need+page <= limit
}

// FindGap picks an address for size bytes within reach of the whole of near,
// in none of the occupied ranges (in order of address), below limit and above
// floor. The nearest gap below is preferred, since programs grow upwards
// (heap) from their text; then the nearest above. False where there is none.
func FindGap(near arch.Range, reach arch.Addr, size int, occupied []arch.Range, floor, limit, page arch.Addr) (arch.Addr, bool) {
	lo, hi := floor, limit
	if near.End > reach && near.End-reach > lo {
		lo = near.End - reach
	}
	if near.Start < ^arch.Addr(0)-reach && near.Start+reach < hi {
		hi = near.Start + reach
	}
	need := (arch.Addr(size) + page - 1) &^ (page - 1)
	// A page is left free on both sides: neighbours must not grow into us,
	// nor run over from them.
	var best arch.Addr
	found := false
	better := func(at arch.Addr) bool {
		if !found {
			return true
		}
		below, bestBelow := at < near.Start, best < near.Start
		if below != bestBelow {
			return below
		}
		if below {
			return at > best
		}
		return at < best
	}
	consider := func(start, end arch.Addr) { // a gap
		start, end = max(start+page, lo), min(end-min(end, page), hi)
		start = (start + page - 1) &^ (page - 1)
		end &^= page - 1
		if start >= end || end-start < need {
			return
		}
		at := start
		if end <= near.Start {
			at = end - need // as high as possible below
		}
		if better(at) {
			best, found = at, true
		}
	}
	prev := floor
	for _, o := range slices.Concat(occupied, []arch.Range{{Start: limit, End: limit}}) {
		if o.Start > prev {
			consider(prev, o.Start)
		}
		prev = max(prev, o.End)
	}
	return best, found
}
