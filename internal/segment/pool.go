package segment

import (
	"kprobe/arch"
)

// The pool is for calls of functions whose exits are probed, and for the private data of
// all calls that have any. Its memory is behind the states:
//
//	owners   a table of goroutines: who has made calls that are under way
//	calls    callNode bytes each
//	data     MaxData bytes for each call
//
// A call is on the list of its owner, the newest first; or on a list of free ones, of which
// every thread has its own. So a call costs no locked instruction, and a goroutine's is
// found on whatever thread it returns. A thread on which more calls end than begin gives
// away some of its free ones, PoolBatch at a time, to a list that all take from.
const (
	poolNext       = headCalls      // the first call that was never used; 4 bytes
	poolMax        = headCalls + 4  // how many there are; 4 bytes
	PoolCalls      = headCalls + 8  // their address
	PoolGiven      = headCalls + 16 // batches: the first one's first call, by its number plus 1; above that a count of changes
	PoolData       = headCalls + 24 // address of their data
	poolGoroutines = headGo         // address of the table of goroutines
	poolGoid       = headGo + 8     // where a goroutine's id is in its descriptor, 0 for unknown; 4 bytes

	PoolBatch = 64
)

// MaxData is the most private data that a call can have, in bytes.
const MaxData = 4096

// An owner: a goroutine, or a thread for what is on no goroutine's stack.
const (
	ownerKey   = 0  // the goroutine's descriptor
	ownerTop   = 8  // its newest call
	ownerID    = 16 // the goroutine's id when that was made: descriptors are used again
	ownerAgain = 24 // it is about to begin a function anew: the lower half of its place, above the probe
	ownerCount = 32 // of its calls; 4 bytes
	ownerSize  = 64
)

// The table of goroutines works as that of threads does, but that a descriptor's entry
// is for ever, as descriptors are.
const (
	ownersBits   = 16
	ownersWindow = 16
	ownersHash   = HashFactor
	ownersShift  = 32 - ownersBits - 6
	ownersMask   = (1<<ownersBits - 1) * ownerSize
	OwnersSize   = (1<<ownersBits + ownersWindow) * ownerSize
)

// A call of the pool.
const (
	nodeNext  = 0  // on its list
	nodePlace = 8  // of its return address: from the end of the goroutine's stack, or the address
	NodeRet   = 16 // the return address
	nodeProbe = 24 // Enter.ID; 4 bytes
	nodeBatch = 28 // of the first of a batch: the next batch; 4 bytes
	nodeSize  = 32
	nodeShift = 5
	DataShift = 12 - nodeShift
)

// runtime.g begins with the bounds of the goroutine's stack.
const (
	goStackLo = 0
	goStackHi = 8
)

func (l Layout) poolSize() int {
	calls := l.Calls
	switch {
	case calls == 0:
		return 0
	case l.Slots:
		return l.slotsSize()
	}
	size := RoundUp(OwnersSize+calls*nodeSize, PageSize)
	if !l.Grouped {
		size += calls * MaxData
	}
	return size
}

func (s *Segment) initPool() {
	at, calls := s.PoolAt(), s.Layout.Calls
	switch {
	case calls == 0:
		return
	case s.Slots:
		s.initSlots()
		return
	}
	s.Put(poolGoroutines, uint64(s.Addr)+uint64(at))
	s.Put(PoolCalls, uint64(s.Addr)+uint64(at+OwnersSize))
	s.Put(PoolData, uint64(s.Addr)+uint64(s.dataAt()))
	s.Put(poolNext, uint64(calls)<<32)
}

// SetGoroutines says where a goroutine has its id, as an offset into its descriptor; 0 where
// that is not known. Before anything leads to a detour.
func (s *Segment) SetGoroutines(id int) {
	s.goroutines = true
	s.Put(poolGoid, uint64(id))
}

// Lost are the counters of calls that never returned, by why; of a return probe in the target
// they follow one another from its ID on.
const (
	LostUnwound = iota // another call, or a return further out, showed that it was over
	LostGoexit         // its goroutine has ended
	LostExited         // its thread has ended

	Losses
)

// owner is a list of calls as the controller sees it.
type owner struct {
	state int // of the thread, or of any for a goroutine's
	at    int // in mem
}

// owners lists those that have calls under way.
func (s *Segment) owners() (all []owner) {
	for i := range s.Given() {
		if at := s.State(i) + stateOwn; s.Get(at+ownerTop) != 0 {
			all = append(all, owner{i, at})
		}
	}
	for at := s.PoolAt(); s.goroutines && at < s.PoolAt()+OwnersSize; at += ownerSize {
		if s.Get(at+ownerTop) != 0 {
			all = append(all, owner{0, at})
		}
	}
	return all
}

// offset is where in mem an address of the target's is.
func (s *Segment) offset(addr uint64) int { return int(arch.Addr(addr) - s.Addr) }

// Under is a call of the pool that is under way.
type Under struct {
	Goroutine arch.Addr // the descriptor; 0 for a thread's
	ID        uint64    // the goroutine's, where that is known
	Place     int64     // of the return address: from the end of the goroutine's stack, or the address
	Ret       arch.Addr // the return address
}

// Under lists a probe's calls that are under way, of those in the pool. Its threads may
// run; then each was there at some moment.
func (s *Segment) Under(probe uint32) (all []Under) {
	if s.Slots {
		return s.underSlots(probe)
	}
	for _, o := range s.owners() {
		left := int(uint32(s.Get(o.at + ownerCount))) // lists change meanwhile
		for c := s.Get(o.at + ownerTop); c != 0 && left > 0; c = s.Get(s.offset(c) + nodeNext) {
			at := s.offset(c)
			if uint32(s.Get(at+nodeProbe)) == probe {
				all = append(all, Under{arch.Addr(s.Get(o.at + ownerKey)), s.Get(o.at + ownerID), int64(s.Get(at + nodePlace)), arch.Addr(s.Get(at + NodeRet))})
			}
			left--
		}
	}
	return all
}

// Active is how many there are.
func (s *Segment) Active(probe uint32) int { return len(s.Under(probe)) }

// Redirect tells that the calls in the pool at a stack slot that would return to one address now
// return to another. No thread is in a routine.
func (s *Segment) Redirect(slot, from, to arch.Addr) {
	if s.Slots {
		return // nothing swaps return addresses there
	}
	for _, o := range s.owners() {
		for c := s.Get(o.at + ownerTop); c != 0; c = s.Get(s.offset(c) + nodeNext) {
			at := s.offset(c)
			if s.Get(o.at+ownerKey) == 0 && s.Get(at+nodePlace) == uint64(slot) && s.Get(at+NodeRet) == uint64(from) {
				s.Put(at+NodeRet, uint64(to))
			}
		}
	}
}

// Purge takes a probe's calls off the lists, uncounted. No thread is in a routine.
func (s *Segment) Purge(probe uint32) {
	if s.Slots {
		s.purgeSlots(probe)
		return
	}
	for _, o := range s.owners() {
		link := o.at + ownerTop
		for c := s.Get(link); c != 0; c = s.Get(link) {
			at := s.offset(c)
			if uint32(s.Get(at+nodeProbe)) != probe {
				link = at + nodeNext
				continue
			}
			s.Put(link, s.Get(at+nodeNext))
			s.Put(o.at+ownerCount, s.Get(o.at+ownerCount)-1)
			s.free(o.state, c)
		}
	}
}

// free gives a call back to a thread, which may not be in a routine.
func (s *Segment) free(state int, call uint64) {
	at := s.State(state)
	s.Put(s.offset(call)+nodeNext, s.Get(at+stateFree))
	s.Put(at+stateFree, call)
	s.Put(at+stateFrees, s.Get(at+stateFrees)+1)
}

// add counts one on a state whose thread cannot.
func (s *Segment) add(state, n int) {
	at := s.State(state) + Counter(n)
	s.Put(at, s.Get(at)+1)
}

// exited gives up the calls of a thread that has ended, or whose state another gets:
// those on its stack.
func (s *Segment) exited(i int) {
	at := s.State(i)
	own := at + stateOwn
	for c := s.Get(own + ownerTop); c != 0; c = s.Get(own + ownerTop) {
		s.Put(own+ownerTop, s.Get(s.offset(c)+nodeNext))
		s.add(i, int(uint32(s.Get(s.offset(c)+nodeProbe)))+LostExited)
		s.free(i, c)
	}
	s.Put(own+ownerCount, 0)
	s.Put(own+ownerAgain, 0)
	s.leaveOwn(i)
}
