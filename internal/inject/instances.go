package inject

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

	data uint64 // callData
	away bool
}

// Calls lists the instances in flight. To take a return probe out, write Ret to
// the Slot of each of its calls that still holds the swapped address, with all
// threads stopped, and Drop it.
func (s *Segment) Calls() []Call {
	var all []Call
	for i := range s.given() {
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
	at := s.state(i)
	top := at + int(s.get(at+stateCalls)-uint64(s.stateAddr(i)))
	for c := top - callSize; c > at+stateCallsAt; c -= callSize {
		if slot := s.get(c + callSlot); slot != 0 {
			all = append(all, s.call(c, i, slot))
		}
	}
	return all
}

// call is what an instance in mem says.
func (s *Segment) call(at, state int, slot uint64) Call {
	return Call{
		State: state, Slot: arch.Addr(slot), Ret: arch.Addr(s.get(at + callRet)), Probe: uint32(s.get(at + callProbe)),
		Left: s.mark(at) == markLeft, data: s.get(at + callData),
	}
}

func (s *Segment) mark(at int) uint32 { return uint32(s.get(at+callProbe) >> 32) }

// is tells whether an instance is the one that was listed: calls that end in jumps to others
// have one slot with these.
func (s *Segment) is(at int, c Call) bool {
	return s.get(at+callRet) == uint64(c.Ret) && uint32(s.get(at+callProbe)) == c.Probe
}

// Mend tells that the calls at a stack slot that would return to one address shall to
// another: a call that ended in a jump to them is dropped. No thread is in a routine.
func (s *Segment) Mend(slot, from, to arch.Addr) {
	mend := func(at int) {
		if s.get(at+callRet) == uint64(from) {
			s.put(at+callRet, uint64(to))
		}
	}
	for i := range s.given() {
		at := s.state(i) + stateCallsAt
		for end := at + maxCalls*callSize; at < end; at += callSize {
			if s.get(at+callSlot) == uint64(slot) {
				mend(at)
			}
		}
	}
	for n := range s.awayWith(uint64(slot)) {
		mend(s.awayCall(n))
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
	at, addr := s.state(c.State), uint64(s.stateAddr(c.State))
	top := at + int(s.get(at+stateCalls)-addr)
	for i := at + stateCallsAt + callSize; i < top; i += callSize {
		if s.get(i+callSlot) == uint64(c.Slot) && s.is(i, c) {
			s.put(i+callSlot, 0)
		}
	}
	for top > at+stateCallsAt+callSize && s.get(top-callSize+callSlot) == 0 { // no hole on top
		top -= callSize
	}
	s.put(at+stateCalls, addr+uint64(top-at))
}
