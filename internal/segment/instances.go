package segment

import (
	"slices"

	"kprobe/arch"
)

// Call is an instance in flight: a call whose return will be seen.
type Call struct {
	State int       // of the thread that called
	Slot  arch.Addr // of the return address
	Ret   arch.Addr // the real one
	Probe uint32    // Return.ID

	// Left tells that it was taken for one that longjmp has left. It may be under way all the same.
	Left bool

	data uint64 // CallData
	away bool
}

// Calls lists the instances in flight. To take a return probe out, write Ret to
// the Slot of each of its calls that still holds the swapped address, with all
// threads stopped, and Drop it.
func (s *Segment) Calls() []Call {
	var all []Call
	for i := range s.Given() {
		all = append(all, s.nested(i)...)
	}
	return append(all, s.away(-1)...)
}

// CallsOf lists those of the thread with a key.
func (s *Segment) CallsOf(key uint64) []Call {
	if i := s.Find(key); i >= 0 {
		return s.calls(i)
	}
	return nil
}

// Has tells whether an instance that was listed is in flight still.
func (s *Segment) Has(c Call) bool {
	return slices.ContainsFunc(s.calls(c.State), func(d Call) bool {
		return d.Slot == c.Slot && d.Ret == c.Ret && d.Probe == c.Probe
	})
}

// calls lists those of one state: the nested ones, the newest first, and then those that are away.
func (s *Segment) calls(i int) []Call { return append(s.nested(i), s.away(i)...) }

// nested lists those on a state's stack of instances.
func (s *Segment) nested(i int) (all []Call) {
	at := s.State(i)
	top := at + int(s.Get(at+StateCalls)-uint64(s.StateAddr(i)))
	for c := top - CallSize; c > at+StateCallsAt; c -= CallSize {
		if slot := s.Get(c + CallSlot); slot != 0 {
			all = append(all, s.call(c, i, slot))
		}
	}
	return all
}

// call is what an instance in mem says.
func (s *Segment) call(at, state int, slot uint64) Call {
	return Call{
		State: state, Slot: arch.Addr(slot), Ret: arch.Addr(s.Get(at + CallRet)), Probe: uint32(s.Get(at + CallProbe)),
		Left: s.mark(at) == markLeft, data: s.Get(at + CallData),
	}
}

func (s *Segment) mark(at int) uint32 { return uint32(s.Get(at+CallProbe) >> 32) }

// is tells whether an instance is the one that was listed: calls that end in jumps to others
// have one slot with these.
func (s *Segment) is(at int, c Call) bool {
	return s.Get(at+CallRet) == uint64(c.Ret) && uint32(s.Get(at+CallProbe)) == c.Probe
}

// Mend tells that the calls at a stack slot that would return to one address shall to
// another: a call that ended in a jump to them is dropped. No thread is in a routine.
func (s *Segment) Mend(slot, from, to arch.Addr) {
	mend := func(at int) {
		if s.Get(at+CallRet) == uint64(from) {
			s.Put(at+CallRet, uint64(to))
		}
	}
	for i := range s.Given() {
		at := s.State(i) + StateCallsAt
		for end := at + MaxCalls*CallSize; at < end; at += CallSize {
			if s.Get(at+CallSlot) == uint64(slot) {
				mend(at)
			}
		}
	}
	for n := range s.awayWith(uint64(slot)) {
		mend(s.AwayCall(n))
	}
}

// Drop forgets an instance. No thread is in a routine.
func (s *Segment) Drop(c Call) {
	if c.data != 0 {
		s.free(c.State, c.data)
	}
	if c.away {
		s.dropAway(c)
		return
	}
	at, addr := s.State(c.State), uint64(s.StateAddr(c.State))
	top := at + int(s.Get(at+StateCalls)-addr)
	for i := at + StateCallsAt + CallSize; i < top; i += CallSize {
		if s.Get(i+CallSlot) == uint64(c.Slot) && s.is(i, c) {
			s.Put(i+CallSlot, 0)
		}
	}
	for top > at+StateCallsAt+CallSize && s.Get(top-CallSize+CallSlot) == 0 { // no hole on top
		top -= CallSize
	}
	s.Put(at+StateCalls, addr+uint64(top-at))
}
