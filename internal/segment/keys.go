package segment

import (
	"sync/atomic"

	"kprobe/internal/jit"
)

// Any thread may have any thread pointer: none before its libc has set it up, one that it was given
// by mistake, another thread's. Its key is
//
//   - the thread pointer, where that is aligned as any libc's is, and is no other thread's;
//   - else its id, by a system call, in a form that no thread pointer has.
//
// What detours do for themselves is the first of these, where the thread pointer points to a
// word with its own value. While one thread is known that has no such word they are Careful and
// leave the question to the routine identify, which trusts no memory: it asks the
// processor for the thread pointer where programs may (ReadsBase), and the kernel for the id
// where that is none.
//
// A thread is known by another key when its pointer turns out to be another's as well, or nobody's. It
// may stand anywhere then, between a look at its key and one at the table, say, or it runs. So a key
// that was given up leads to the thread's state still, beside the new one, until
// the thread has surely done with it.
const (
	keyAlign  = 8 // what a thread pointer is a multiple of, to be a key
	oddKey    = 3 // an id's key is 4 times the id, and this
	oddBit    = 62
	BaseBit   = 61
	maxShared = 30 // thread pointers that several threads have

	noPointer  = 1          // where such a one was
	anyPointer = ^uint64(0) // behind them: there are more
)

// BaseKey is the key of the kind FSBase for a thread pointer: no address has this bit alone, so none
// is taken for a free entry.
func BaseKey(pointer uint64) uint64 { return pointer | 1<<BaseBit }

// IDKey is the key of a thread that is known by its id.
func (s *Segment) IDKey(tid int) uint64 {
	key := uint64(uint32(tid))<<2 | oddKey
	if !s.machine.Narrow() {
		key |= 1 << oddBit
	}
	return key
}

// KeyOf is the key of the kind FSSelf of a thread. proven tells that the word that its thread
// pointer points to is the thread pointer.
func (s *Segment) KeyOf(pointer uint64, proven bool, tid int) uint64 {
	known := s.ReadsBase() || proven && !s.careful.Load()
	if !known || !Keyed(pointer) || s.shared(pointer) {
		return s.IDKey(tid)
	}
	return pointer
}

// Keyed tells whether a thread pointer can be a key, if it is no other thread's.
func Keyed(pointer uint64) bool { return pointer != 0 && pointer%keyAlign == 0 }

// ReadsBase tells whether threads of the target may read their fs base.
func (s *Segment) ReadsBase() bool { return s.Mem[headReadsBase] != 0 }

// SetReadsBase says that they may. Before any detour runs.
func (s *Segment) SetReadsBase() { s.Mem[headReadsBase] = 1 }

// Careful tells whether the threads of the target ask who they are where nothing is to be
// trusted. It is safe to ask while another thread of this process sets it. What areas say of it is theirs: see Area.CarefulAt.
func (s *Segment) Careful() bool { return s.careful.Load() }

// SetCareful says so. Each area is to be told of it by CarefulByte.
func (s *Segment) SetCareful(careful bool) { s.careful.Store(careful) }

// CarefulByte is what areas have at CarefulAt.
func (s *Segment) CarefulByte() byte {
	if s.careful.Load() {
		return 1
	}
	return 0
}

// Share tells that two threads have one thread pointer and run at the same time, as after a
// clone without CLONE_SETTLS, or with the same garbage. Both are known by their ids from then on; tid is
// the one who had it alone. That one may run meanwhile, and stand wherever it likes: it must be Careful
// since before, and what it finds by either key is the same state. The newcomer must not run.
func (s *Segment) Share(pointer uint64, tid int) {
	if pointer == 0 || s.shared(pointer) {
		return
	}
	for i := range maxShared {
		if at := headShared + 8*i; s.Get(at) <= noPointer {
			s.Rekey(pointer, s.IDKey(tid))
			s.Put(at, pointer) // only now: who reads it looks for the id
			return
		}
	}
	s.ByID()
	s.Put(headAnyShared, anyPointer)
}

// ByID has all threads that have a state be known by their ids, too. They may run meanwhile.
func (s *Segment) ByID() {
	for i := range s.Given() {
		tid := int(uint32(s.Get(s.State(i) + jit.StatePidTgid)))
		if key := s.Get(s.State(i) + StateKey); tid != 0 && s.Find(key) == i {
			s.Rekey(key, s.IDKey(tid))
		}
	}
}

// Settle is for a target that stands still, with no thread in code of ours: what was left of keys that
// threads had before goes, and thread pointers that one thread has now, or none, are keys again. in
// tells how many threads have one.
func (s *Segment) Settle(in func(pointer uint64) int) {
	for e, i := range s.stale {
		if s.Get(s.State(i)+StateKey) != s.Get(e) || len(s.calls(i)) == 0 {
			s.vacate(e)
		}
	}
	for i := range maxShared {
		if at := headShared + 8*i; s.Get(at) > noPointer && in(s.Get(at)) <= 1 {
			s.Put(at, noPointer)
		}
	}
	for i := maxShared - 1; i >= 0 && s.Get(headShared+8*i) <= noPointer; i-- {
		s.Put(headShared+8*i, 0)
	}
	s.Put(headAnyShared, 0)
}

// Settled tells that Settle has nothing to do.
func (s *Segment) Settled() bool { return len(s.stale) == 0 && s.Get(headShared) == 0 }

// Crossed tells that the table leads by a thread pointer of several threads to the state of one of
// them: the careful do not ask it that.
func (s *Segment) Crossed() bool {
	for e := range s.stale {
		if s.shared(s.Get(e)) {
			return true
		}
	}
	return false
}

// Close lets no program run in a state any more.
func (s *Segment) Close(i int) {
	at := s.State(i)
	s.Mem[at+StateBusy], s.Mem[at+StateClosed] = 1, 1
}

func (s *Segment) shared(pointer uint64) bool {
	for i := range maxShared {
		if s.Get(headShared+8*i) == pointer {
			return true
		}
	}
	return s.Get(headAnyShared) == anyPointer
}

// Rekey gives a thread's state another key, with all that is in it. The one before leads there still
// until Settle, or until the thread is gone, since the thread may be on its way by it: it may run meanwhile,
// but not look for the new one. If there is a state already that has the new one, the thread goes on in
// that: calls that began in the other are found there.
func (s *Segment) Rekey(from, to uint64) {
	e := s.entry(from)
	if from == to || e == 0 || s.Get(e+8) == 0 || s.stateOf(e) == s.Threads {
		return
	}
	i := s.stateOf(e)
	f := s.entry(to)
	if f == 0 {
		if f = s.vacant(to); f == 0 {
			return
		}
		s.Put(f+8, uint64(s.StateAddr(i)))
	} else if s.Get(f+8) != uint64(s.StateAddr(i)) {
		s.stale[e] = i
		return
	}
	s.Put(s.State(i)+StateKey, to)
	delete(s.stale, f)
	s.stale[e] = i
}

// entry is where in the table a key is; 0 for nowhere.
func (s *Segment) entry(key uint64) int {
	start := HeadTable + s.Hash(key)
	for e := start; e < start+TableWindow*EntrySize; e += EntrySize {
		if s.Get(e) == key {
			return e
		}
	}
	return 0
}

// vacate gives up an entry of a key that was given up. Its state stays there for another
// key, unless it has one.
func (s *Segment) vacate(e int) {
	if s.Get(s.State(s.stale[e])+StateKey) != s.Get(e) {
		s.Put(e+8, 0)
	}
	delete(s.stale, e)
	s.Put(e, tombstone)
}

// forsake vacates what is left of keys that a state was known by.
func (s *Segment) forsake(i int) {
	for e, of := range s.stale {
		if of == i {
			s.vacate(e)
		}
	}
}

// vacant takes an entry for a key that has no state; 0 where there is none. The state that a dead
// thread has left there is spare then.
func (s *Segment) vacant(key uint64) int {
	const ours = tombstone + 1 // a key that no thread has: keeps others off
	start := HeadTable + s.Hash(key)
	for _, spare := range []bool{false, true} {
		for e := start; e < start+TableWindow*EntrySize; e += EntrySize {
			k := s.Get(e)
			if k > tombstone || s.Get(e+8) != 0 && !spare || !atomic.CompareAndSwapUint64(s.Word(e), k, ours) {
				continue
			}
			if s.Get(e+8) != 0 && s.stateOf(e) < s.Threads {
				s.spare = append(s.spare, s.stateOf(e))
			}
			s.Put(e+8, 0)
			s.Put(e, key)
			return e
		}
	}
	return 0
}

// Acquaint tells of a thread that has its state perhaps, but has entered itself. What it is at goes on.
func (s *Segment) Acquaint(t Thread) {
	i := s.Find(t.Key)
	if i < 0 || i >= s.Threads {
		s.Assign(t)
		return
	}
	at := s.State(i)
	s.Put(at+jit.StatePidTgid, s.Get(headTgid)|uint64(uint32(t.TID)))
	s.setTID(i, uint32(t.TID))
	s.Put(at+StateStackLow, uint64(t.StackLow))
	s.Put(at+stateStackHigh, uint64(t.StackHigh))
	s.setComm(i, t.Comm)
}

// Owner tells which thread has a key, by its id.
func (s *Segment) Owner(key uint64) (tid int, ok bool) {
	i := s.Find(key)
	if i < 0 || i >= s.Threads {
		return 0, false
	}
	return int(uint32(s.Get(s.State(i) + jit.StatePidTgid))), true
}
