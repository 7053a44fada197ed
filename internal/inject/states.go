package inject

import (
	"slices"
	"sync/atomic"
)

// States are given out one after the other, here and by the routine find in the target, and never more than headMax says. The states
// are the segment's last part, so their memory need not be there before it is of use: the file behind it grows. The
// controller asks before it gives out more states than were agreed to; a thread that enters itself does not.

// ahead are so many states that are asked for beyond those that are needed.
const ahead = 8

// Allow has more states given out only as allow agrees to that, which is asked by how many there would be. States may be taken
// by threads that enter themselves whatever it says. Before any is given out.
func (s *Segment) Allow(states int, allow func(states int) bool) {
	s.allow = allow
	s.limit(states)
}

// Allowed is the number of states that may be given out.
func (s *Segment) Allowed() int { return int(atomic.LoadUint32(s.word32(headMax))) }

func (s *Segment) limit(states int) {
	atomic.StoreUint32(s.word32(headMax), uint32(min(states, s.Threads)))
}

// Reserve sees to it that n states more can be given out; false where that is not agreed to.
func (s *Segment) Reserve(n int) bool {
	need := min(s.given()+n, s.Threads)
	if s.allow == nil || need <= s.agreed {
		return true
	}
	for _, states := range []int{min(need+ahead, s.Threads), need} {
		if s.allow(states) {
			s.agreed = states
			s.limit(max(states, s.Allowed()))
			return true
		}
	}
	return false
}

// leave notes an entry whose thread has ended. Those that other threads have taken since, or that are noted twice, are forgotten some time.
func (s *Segment) leave(e int) {
	if len(s.freed) > 2*s.given()+ahead {
		slices.Sort(s.freed)
		s.freed = slices.DeleteFunc(slices.Compact(s.freed), func(e int) bool { return s.get(e) != tombstone || s.get(e+8) == 0 })
	}
	s.freed = append(s.freed, e)
}

// tid is the id of the thread that a state was assigned to, as far as that is known here; 0 where the state itself has to be asked.
func (s *Segment) tid(i int) uint32 {
	if i < len(s.tids) {
		return s.tids[i]
	}
	return 0
}

func (s *Segment) setTID(i int, tid uint32) {
	for i >= len(s.tids) {
		s.tids = append(s.tids, 0)
	}
	s.tids[i] = tid
}
