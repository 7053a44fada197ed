package segment

import (
	"slices"
	"sync/atomic"

	"kprobe/arch"
)

// States are given out one after the other, here and by the routine find in the target, and never
// more than headMax says. Their memory need not exist before it is of use: the file behind it grows.
// The controller asks before it gives out more states than were agreed to; a thread that enters
// itself does not.

const (
	// Spare counts the states that exist beyond the needed ones, since a thread that enters itself
	// cannot ask. When there are fewer, the controller asks for more, ahead of the need.
	Spare = 8
	ahead = 32
)

// Allow has more states given out only where allow agrees to so many states, of so many lanes.
// Threads that enter themselves may take up to states of them, whatever allow says. widen makes
// memory for more lanes of so many states. Allow is called before any state is given out.
func (s *Segment) Allow(states int, allow func(states, lanes int) bool, widen func(states, lanes int) error) {
	s.allow, s.widen = allow, widen
	s.limit(states)
}

// Allowed is the number of states that may be given out.
func (s *Segment) Allowed() int { return int(atomic.LoadUint32(s.Word32(headMax))) }

// Hold says that maps may have values of so many slots' threads, of a program that the target
// executed before.
func (s *Segment) Hold(slots int) {
	s.held = slots
	s.limit(s.Allowed())
}

func (s *Segment) limit(states int) {
	atomic.StoreUint32(s.Word32(headHeld), uint32(max(states, s.held)))
	atomic.StoreUint32(s.Word32(headMax), uint32(min(states, s.Threads)))
}

// Reserve sees to it that n more states can be given out, and some beyond these; false where that is
// not agreed to.
func (s *Segment) Reserve(n int) bool {
	need := min(s.Given()+n, s.Threads)
	if s.allow == nil || min(need+Spare, s.Threads) <= s.agreed {
		return true
	}
	for _, more := range []int{ahead, Spare, 0} {
		states := min(need+more, s.Threads)
		if states <= s.agreed {
			break
		}
		if more > 0 && s.tight > 0 {
			s.tight--
			continue
		}
		if s.allow(states, s.lanes) {
			s.agreed = states
			s.limit(max(states, s.Allowed()))
			break
		}
		s.tight = ahead
	}
	return need <= s.agreed
}

// Reach sees to it that a counter is there. Errors: those of widen.
func (s *Segment) Reach(n int) error {
	if !s.Grouped {
		return nil
	}
	lanes := s.laneOf(n) + 1
	if lanes <= s.lanes {
		return nil
	}
	if s.widen != nil {
		if err := s.widen(s.Allowed(), lanes); err != nil {
			return err
		}
	}
	s.lanes = lanes
	return nil
}

// leave notes an entry whose thread has ended. Those that other threads have taken since, or that are noted twice, are forgotten some time.
func (s *Segment) leave(e int) {
	if len(s.freed) > 2*s.Given()+ahead {
		slices.Sort(s.freed)
		s.freed = slices.DeleteFunc(slices.Compact(s.freed), func(e int) bool { return s.Get(e) != tombstone || s.Get(e+8) == 0 })
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

// Before returns the stack pointer that a thread had before it went to its private stack. ok is false where
// sp, its stack pointer now, is in none.
func (s *Segment) Before(sp arch.Addr) (before arch.Addr, ok bool) {
	i := s.NumberOf(uint64(sp)) // a stack lies before its state, in the same place
	if i >= s.Given() || sp >= s.StateAddr(i) || sp < s.StateAddr(i)-StackSize {
		return 0, false
	}
	return arch.Addr(s.Get(s.State(i) + StateRSP)), true
}
