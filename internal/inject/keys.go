package inject

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
const (
	keyAlign  = 8 // what a thread pointer is a multiple of, to be a key
	oddKey    = 3 // an id's key is 4 times the id, and this
	oddBit    = 62
	baseBit   = 61
	maxShared = 16 // thread pointers that several threads have
)

// BaseKey is the key of the kind FSBase for a thread pointer: no address has this bit alone, so none
// is taken for a free entry.
func BaseKey(pointer uint64) uint64 { return pointer | 1<<baseBit }

// IDKey is the key of a thread that is known by its id.
func (s *Segment) IDKey(tid int) uint64 {
	key := uint64(uint32(tid))<<2 | oddKey
	if !s.machine.narrow() {
		key |= 1 << oddBit
	}
	return key
}

// KeyOf is the key of the kind FSSelf of a thread. proven tells that the word that its thread
// pointer points to is the thread pointer.
func (s *Segment) KeyOf(pointer uint64, proven bool, tid int) uint64 {
	known := s.ReadsBase() || proven && !s.careful
	if !known || pointer == 0 || pointer%keyAlign != 0 || s.shared(pointer) {
		return s.IDKey(tid)
	}
	return pointer
}

// ReadsBase tells whether threads of the target may read their fs base.
func (s *Segment) ReadsBase() bool { return s.mem[headReadsBase] != 0 }

// SetReadsBase says that they may. Before any detour runs.
func (s *Segment) SetReadsBase() { s.mem[headReadsBase] = 1 }

// Careful tells whether the threads of the target ask who they are where nothing is to be
// trusted. What areas say of it is theirs: see Area.CarefulAt.
func (s *Segment) Careful() bool { return s.careful }

// SetCareful says so for areas that are made from now on, and gives the byte for the others.
func (s *Segment) SetCareful(careful bool) byte {
	s.careful = careful
	return s.carefulByte()
}

func (s *Segment) carefulByte() byte {
	if s.careful {
		return 1
	}
	return 0
}

// Share tells that two threads have one thread pointer and run at the same time, as after a
// clone without CLONE_SETTLS. Both are known by their ids from then on; tid is the one who had it
// alone. It answers false where there are too many such: then no program runs for either, because
// the private stack would be both's. Neither may run meanwhile.
func (s *Segment) Share(pointer uint64, tid int) bool {
	if pointer == 0 || s.shared(pointer) {
		return true
	}
	for i := range maxShared {
		if at := headShared + 8*i; s.get(at) == 0 {
			s.put(at, pointer)
			s.Rekey(pointer, s.IDKey(tid))
			return true
		}
	}
	if i := s.Find(pointer); i >= 0 {
		s.close(i)
	}
	return false
}

// close lets no program run in a state any more.
func (s *Segment) close(i int) {
	at := s.state(i)
	s.mem[at+stateBusy], s.mem[at+stateClosed] = 1, 1
}

func (s *Segment) shared(pointer uint64) bool {
	for i := range maxShared {
		if s.get(headShared+8*i) == pointer {
			return true
		}
	}
	return false
}

// Rekey gives a thread's state another key, with all that is in it. A state that has this key
// already stays. The thread must not run meanwhile.
func (s *Segment) Rekey(from, to uint64) {
	if from == to || s.Find(to) >= 0 {
		return
	}
	start := headTable + hash(from)
	for e := start; e < start+tableWindow*entrySize; e += entrySize {
		if s.get(e) != from {
			continue
		}
		i := s.stateOf(e)
		if s.get(e+8) == 0 || i == s.Threads {
			return
		}
		if to := s.vacant(to); to != 0 {
			s.put(to+8, uint64(s.stateAddr(i)))
			s.put(s.state(i)+stateKey, s.get(to))
			s.put(e+8, 0)
			s.put(e, tombstone)
		}
		return
	}
}

// vacant takes an entry for a key that has no state; 0 where there is none.
func (s *Segment) vacant(key uint64) int {
	start := headTable + hash(key)
	for e := start; e < start+tableWindow*entrySize; e += entrySize {
		if k := s.get(e); k <= tombstone && s.get(e+8) == 0 && atomic.CompareAndSwapUint64(s.word(e), k, key) {
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
	at := s.state(i)
	s.put(at+jit.StatePidTgid, s.get(headTgid)|uint64(uint32(t.TID)))
	s.put(at+stateStackLow, uint64(t.StackLow))
	s.put(at+stateStackHigh, uint64(t.StackHigh))
	s.setComm(i, t.Comm)
}

// Owner tells which thread has a key, by its id.
func (s *Segment) Owner(key uint64) (tid int, ok bool) {
	i := s.Find(key)
	if i < 0 || i >= s.Threads {
		return 0, false
	}
	return int(uint32(s.get(s.state(i) + jit.StatePidTgid))), true
}
