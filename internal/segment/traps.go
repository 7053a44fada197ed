package segment

import "kprobe/arch"

// The table of traps tells a gate, by a trap's address, where its CPU goes on. Open
// addressing: an entry that was never used ends a search. It is changed while no CPU runs; one may stand
// in the middle of a search nevertheless, so entries do not move.
//
//	key    address of the trap; 1 for an entry that is free again, 0 for one that never had a key
//	value  where it leads; 0 for one that is away, but that a CPU may be on its way from
const (
	trapBits   = 13
	trapWindow = 64 // how far from its place an entry may be; one more at the end is never used
	TrapEntry  = 16
	TrapShift  = 32 - trapBits - 4
	TrapMask   = (1<<trapBits - 1) * TrapEntry
	trapsSize  = (1<<trapBits + trapWindow + 1) * TrapEntry
	trapFree   = 1
)

// TrapsAt is the offset of the table of traps.
func (l Layout) TrapsAt() int { return l.PoolAt() + l.poolSize() }

// trap is the offset of a trap's entry, -1 for none. Where it has none it is one that it can have, if
// that is asked for.
func (s *Segment) trap(at arch.Addr, fresh bool) int {
	start := s.TrapsAt() + int(uint32(at)*HashFactor>>TrapShift)&TrapMask
	free := -1
	for e := start; e < start+trapWindow*TrapEntry; e += TrapEntry {
		k := s.Get(e)
		if k == uint64(at) {
			return e
		}
		if k <= trapFree && free < 0 {
			free = e
		}
		if k == 0 {
			break
		}
	}
	if !fresh {
		return -1
	}
	return free
}

// RoomForTrap tells whether LeadTrap would have a place for one.
func (s *Segment) RoomForTrap(at arch.Addr) bool { return s.trap(at, true) >= 0 }

// LeadTrap has the gate send CPUs on that execute the trap at an address; false where the table has
// no room for it. No CPU runs.
func (s *Segment) LeadTrap(at, to arch.Addr) bool {
	e := s.trap(at, true)
	if e < 0 {
		return false
	}
	s.Put(e+8, uint64(to))
	s.Put(e, uint64(at))
	return true
}

// LeaveTrap tells that the trap is not there any more. A CPU that has executed it and comes to the
// gate later goes back to it. No CPU runs.
func (s *Segment) LeaveTrap(at arch.Addr) {
	if e := s.trap(at, false); e >= 0 {
		s.Put(e+8, 0)
	}
}

// ForgetTraps frees the entries of traps that are away. No CPU is on its way from one to the gate.
func (s *Segment) ForgetTraps() {
	if !s.Gate {
		return
	}
	for e := s.TrapsAt(); e < s.TrapsAt()+trapsSize; e += TrapEntry {
		if s.Get(e) > trapFree && s.Get(e+8) == 0 {
			s.Put(e, trapFree)
		}
	}
}
