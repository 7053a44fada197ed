package segment

import (
	"sync/atomic"

	"kprobe/arch"
)

// A kernel's calls go on on whatever CPU their tasks do, and tasks come and go without our knowing. But each has a
// stack of its own, and so has each kind of interrupt on each CPU: the slot of a return address says which
// call it is. So the pool of a kernel is one table, searched from where a slot's hash says:
//
//	active    how many calls a probe has under way, by Enter.ID; 4 bytes each
//	calls     nodeSize bytes each; nodePlace is the slot, 0 for a free one
//	data      SlotData bytes for each call
//
// A call is entered by one cmpxchg, and found without any: only who runs on its stack looks for it,
// and interrupts are masked meanwhile. So nothing is locked, and no CPU waits for another.
const (
	slotsActive  = headSlots      // address of these numbers
	slotsFar     = headSlots + 8  // how far from where its search began any call has ever been; 4 bytes
	slotsMask    = headSlots + 12 // one less than the calls that there are; 4 bytes
	slotsCarrier = headSlots + 16 // what the kernel itself may put in a slot instead of its return address: two addresses

	// SlotData is the most private data that a kernel's call can have, in bytes.
	SlotData      = 1 << (nodeShift + SlotDataShift)
	SlotDataShift = 3
)

func (l Layout) activeSize() int { return RoundUp(4*l.Counters, nodeSize) }

func (l Layout) slotsSize() int {
	return RoundUp(l.activeSize()+l.Calls*(nodeSize+SlotData), PageSize)
}

func (s *Segment) initSlots() {
	at := s.PoolAt()
	s.Put(slotsActive, uint64(s.Addr)+uint64(at))
	s.Put(PoolCalls, uint64(s.Addr)+uint64(at+s.activeSize()))
	s.Put(PoolData, uint64(s.Addr)+uint64(s.nodeAt(s.Layout.Calls)))
	atomic.StoreUint32(s.Word32(slotsMask), uint32(s.Layout.Calls-1))
}

// SetCarriers tells of addresses that the kernel itself puts in the place of return addresses, to
// which it knows better where to go on: two at most count.
func (s *Segment) SetCarriers(at []arch.Addr) {
	for i, a := range at[:min(len(at), 2)] {
		s.Put(slotsCarrier+8*i, uint64(a))
	}
}

// nodeAt is where in mem the i-th call is.
func (s *Segment) nodeAt(i int) int { return s.PoolAt() + s.activeSize() + i*nodeSize }

func (s *Segment) active(probe uint32) *uint32 { return s.Word32(s.PoolAt() + 4*int(probe)) }

func (s *Segment) underSlots(probe uint32) (all []Under) {
	for i := range s.Layout.Calls {
		at := s.nodeAt(i)
		if slot := s.Get(at + nodePlace); slot != 0 && atomic.LoadUint32(s.Word32(at+nodeProbe)) == probe {
			all = append(all, Under{Place: int64(slot), Ret: arch.Addr(s.Get(at + NodeRet))})
		}
	}
	return all
}

// Entered is how many calls of a kernel's probe are under way, or seem to be.
func (s *Segment) Entered(probe uint32) uint32 { return atomic.LoadUint32(s.active(probe)) }

// Reclaim gives up those for which over is true: their tasks have ended. No CPU is in a detour. It tells how many
// they were.
func (s *Segment) Reclaim(probe uint32, over func(Under) bool) (n int) {
	n = s.dropSlots(probe, over)
	for range n {
		s.add(0, int(probe)+LostExited)
	}
	return n
}

// purgeSlots takes a probe's calls out of the table. No CPU is in a routine.
func (s *Segment) purgeSlots(probe uint32) {
	s.dropSlots(probe, func(Under) bool { return true })
}

// dropSlots does it for those that over is true for, and tells how many.
func (s *Segment) dropSlots(probe uint32, over func(Under) bool) (n int) {
	for i := range s.Layout.Calls {
		at := s.nodeAt(i)
		u := Under{Place: int64(s.Get(at + nodePlace)), Ret: arch.Addr(s.Get(at + NodeRet))}
		if u.Place == 0 || atomic.LoadUint32(s.Word32(at+nodeProbe)) != probe || !over(u) {
			continue
		}
		atomic.StoreUint32(s.Word32(at+nodeProbe), ^uint32(0))
		s.Put(at+nodePlace, 0)
		atomic.AddUint32(s.active(probe), ^uint32(0))
		n++
	}
	return n
}
