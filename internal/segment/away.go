package segment

import (
	"iter"
	"sync/atomic"

	"kprobe/arch"
)

// A thread's stack of instances is for calls that lie in each other on the thread's own stack. Some do not, or
// there may be too many. They are away: in a table of all threads, where the slot of a call finds it, whoever makes it return.
//
//   - Calls on other stacks: coroutines are suspended in them, go on in any order, and on any thread.
//   - Those that are deeper than the thread's stack of instances has room.
//   - Those that a call above them on the thread's own stack shows to be left by longjmp, perhaps. Or else a part of
//     that stack has been made another one. Their slots know (under_way in testdata): while such a slot holds what was put there, the call
//     may return. So it keeps its address, and is counted as lost until it does.
//
// The table has keys, which are slots, and an instance for each. A slot's hash says in which bucket it is. Nobody looks
// for a key but who runs on that stack, so a call is entered by one cmpxchg, and found without any. There is no order of
// calls in the table; those at one slot jumped to each other, or else the older ones are over.
//
// In a full bucket those make room whose slots say that they are over. Where that gives none, a call is missed.
const (
	awayKeys  = headAway      // address of the keys
	awayCalls = headAway + 8  // of their instances
	awayMask  = headAway + 16 // of a key's hash: 4 bytes
	awayAny   = headAway + 20 // there has been one, some time: 1 byte

	awayBucket = 16 // keys
	awayShift  = 16 // of a hash: what is above that says which bucket
	awayEntry  = 8 + CallSize

	awayClaimed = 1 // a key whose instance is being made
	LeastAway   = 4 * awayBucket
)

// Away is the counter behind those of Lost calls that a return probe in the target has: how many of a
// thread's calls are away, and are not taken for lost.
const Away = Losses

// Counters are how many a return probe has from its ID on.
const Counters = Away + 1

// AwayEntries counts the calls that the table of those away has room for.
func (l Layout) AwayEntries() int {
	if l.Slots {
		return 0 // nothing swaps return addresses there
	}
	return max(l.Away, LeastAway)
}

func (l Layout) awaySize() int { return RoundUp(l.AwayEntries()*awayEntry, PageSize) }

func (s *Segment) initAway() {
	n := s.AwayEntries()
	if n == 0 {
		return
	}
	s.Put(awayKeys, uint64(s.Addr)+uint64(s.Layout.AwayAt()))
	s.Put(awayCalls, uint64(s.Addr)+uint64(s.AwayCall(0)))
	atomic.StoreUint32(s.Word32(awayMask), uint32(n-1)&^(awayBucket-1))
}

// AwayKey is where in Mem a key is.
func (s *Segment) AwayKey(n int) int { return s.Layout.AwayAt() + 8*n }

// AwayCall is where its instance is.
func (s *Segment) AwayCall(n int) int { return s.AwayKey(s.AwayEntries()) + CallSize*n }

// away lists the calls that are away of a state, of all for -1.
func (s *Segment) away(state int) (all []Call) {
	if s.Mem[awayAny] == 0 {
		return nil
	}
	keys := s.AwayKey(0)
	for n := range s.AwayEntries() {
		slot := s.Get(keys + 8*n)
		if slot <= awayClaimed {
			continue
		}
		at := s.AwayCall(n)
		owner := s.NumberOf(s.Get(at + callOwner))
		if state < 0 || owner == state {
			c := s.call(at, owner, slot)
			c.away = true
			all = append(all, c)
		}
	}
	return all
}

// awayWith are the entries with a slot.
func (s *Segment) awayWith(slot uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		if s.AwayEntries() == 0 {
			return
		}
		first := int(uint32(slot)*HashFactor>>awayShift) & int(atomic.LoadUint32(s.Word32(awayMask)))
		for n := first; n < first+awayBucket; n++ {
			if s.Get(s.AwayKey(n)) == slot && !yield(n) {
				return
			}
		}
	}
}

// dropAway forgets a call that is away.
func (s *Segment) dropAway(c Call) {
	for n := range s.awayWith(uint64(c.Slot)) {
		at := s.AwayCall(n)
		if !s.is(at, c) {
			continue
		}
		if s.mark(at) != markLeft {
			atomic.AddUint32(s.Word32(s.State(c.State)+Counter(int(c.Probe)+Away)), ^uint32(0))
		}
		s.Put(s.AwayKey(n), 0)
		return
	}
}

// leaveOwn gives up the calls of a thread that has ended, or whose state another gets: those on its own stack. What is
// away on other stacks may go on on other threads.
func (s *Segment) leaveOwn(i int) {
	at := s.State(i)
	low, high := arch.Addr(s.Get(at+StateStackLow)), arch.Addr(s.Get(at+stateStackHigh))
	for _, c := range s.calls(i) {
		if c.Slot < low || c.Slot >= high {
			continue
		}
		if !c.Left { // else it is counted
			s.add(i, int(c.Probe)+LostExited)
		}
		s.Drop(c)
	}
}
