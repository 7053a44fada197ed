package segment

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/jit"
)

// Magic begins the segment.
const Magic = "KPROBE\x00\x02"

// The segment's head: offsets from its start, in bytes.
const (
	// headAlive is a robust futex that the controller's tracing thread owns: the
	// thread's id while it lives. When it dies, the kernel puts FUTEX_OWNER_DIED in
	// it before it lets the target go: the word's top byte, which no thread id
	// reaches, is not 0 any more. 4 bytes.
	headAlive     = 8
	HeadDead      = headAlive + 3
	headNext      = 16 // the first state that was never given out; 4 bytes
	headMax       = 20 // how many may be given out; 4 bytes: see Allow
	headStates    = 24 // address of the sink; state 0 is the next one
	headStride    = 32 // from one state of a group to the next
	headTgid      = 40 // the process's id in the upper half
	headUIDGID    = 48 // the group's id in the upper half
	headTrace     = 56 // address of the map that trace_printk writes to, 0 if there is none
	headClock     = 64 // a jit.Clock: Base, Mult, Shift; and what CLOCK_BOOTTIME is ahead
	headCalls     = 96 // a callPool
	headSink      = 128
	headOther     = 144                          // see SetOther
	headReadsBase = 152                          // see ReadsBase; 1 byte
	headHeld      = 156                          // slots of threads that maps have memory for, or more than there are; 4 bytes
	headProof     = 160                          // a word that is nowhere else
	HeadReadText  = 168                          // of what reads text in a kernel, 0 in processes: see Area.ReadsText
	headCurrent   = 176                          // Task.Current, and behind it Cred, 0 in processes; 4 bytes each
	headUID       = 184                          // Task.UID, and behind it GID; 4 bytes each
	headSpan      = 248                          // from one group of states to the next
	headShared    = 256                          // keys that are of several threads, and then 0
	headAnyShared = headShared + 8*(maxShared+1) // anyPointer where there are more
	headSlots     = 192                          // see slots.go
	headAway      = 224                          // see away.go
	headGo        = 512                          // two words of pool.go
	HeadCPUs      = 528                          // addresses of states, by the numbers of CPUs
	headFiles     = 4096                         // see SetFiles
	HeadTable     = headFiles + 16*(maxFiles+1)
)

// The table finds a thread's state by its key, which is one word that is no other
// live thread's: see ThreadKey. Open addressing without removal: a key that is gone
// leaves a tombstone, and the next thread that comes that way takes the entry and its
// state over. Three of four entries are free when as many states are given out as any segment has, so that hardly any key finds none in
// its window.
const (
	TableWindow = 32 // how far from its place an entry may be; as many extra ones are at the end
	EntrySize   = 16 // the key, the state's address
	tombstone   = 1
	KeyFactor   = 0x4d658221 // below 2^31, so that it is the same number for all instructions; found by trial: see TestTableHasRoom
	TableBits   = 16         // of a hash
	HashShift32 = 32 - TableBits - 4
	HashShift64 = 48 - TableBits - 4 // addresses have 48 bits, and stacks may be as far apart as those above 32 say
	HashMask    = (1<<TableBits - 1) * EntrySize

	// MaxThreads is the largest number of states in a segment.
	MaxThreads = 1<<(TableBits-2) - 1
)

// tableSize is the number of entries in the table, without the extra ones at its end.
func (l Layout) tableSize() int {
	if l.Slots {
		return 0 // CPUs are not looked for
	}
	return 1 << TableBits
}

// TableEnd is the offset behind the table, which is the last part of the head.
func (l Layout) TableEnd() int { return HeadTable + (l.tableSize()+TableWindow)*EntrySize }

// StackSize is a thread's private stack for programs, in bytes.
const StackSize = 16 << 10

// A thread's state, from the address that programs have in jit.ABI.State. Its first
// words are those of internal/jit's contract. The private stack is below it, and
// on top of that stack the frame of the program's registers: what programs get
// for their context.
const (
	StateKey       = jit.StateFree
	StateBusy      = jit.StateFree + 8  // a program of this thread runs: 1 byte
	StateClosed    = jit.StateFree + 9  // none may, so that busy it stays: 1 byte
	StateOverride  = jit.StateFree + 16 // override_return was called: 1 byte
	StateValue     = jit.StateFree + 24 // with this value
	StateCalls     = jit.StateFree + 32 // address of the first free instance
	StateStackLow  = jit.StateFree + 40 // the thread's own stack, as far as it is known
	stateStackHigh = jit.StateFree + 48
	stateBack      = jit.StateFree + 56 // where a program returns to whose return address is TrapExit
	StateCall      = jit.StateFree + 64 // the call in the pool that a return probe's programs are about
	stateRandom    = jit.StateFree + 72 // of get_prandom_u32, 0 at first
	StateComm      = jit.StateComm      // CommSize bytes
	StateRSP       = jit.StateFree + 96 // the program's, while a routine is on the private stack
	stateFree      = jit.StateFree + 104
	stateFrees     = jit.StateFree + 112 // how many these are; 4 bytes
	StateAsked     = jit.StateFree + 120 // of enter_call and leave_call: 4 words of 4 bytes
	stateOwner     = jit.StateFree + 136 // of StateCall
	stateOwn       = jit.StateFree + 144 // an owner: the thread itself

	// What is jit's on i386, and what its helpers remember there. They end before StateCallsAt.
	StateScratch = jit.StateRegs + jit.StateRegsSize
	scratchSize  = 112

	StateCallsAt  = 512
	StateTrace    = StateCallsAt + MaxCalls*CallSize // get_stackid's, while it works
	StateCounters = StateTrace + 8*(bpf.MaxTrace+1)
	CommSize      = 16
	PageSize      = 4096

	_ = uint(jit.StateTask - (stateOwn + ownerSize)) // no two have one place
	_ = uint(jit.StateRounds - (StateScratch + scratchSize))
	_ = uint(StateCallsAt - (jit.StateContext + 8))

	MaxCalls  = 128 // instances of one thread, with the sentinel, and one that is for moments; those beyond are away
	CallSize  = 1 << callShift
	callShift = 6
)

// An instance is a call whose return is probed: one element of the thread's stack of
// them, or one that is away (away.go). Slots on that stack descend. Its sentinel has the end of the thread's own stack
// for a slot, 0 where that is not known.
const (
	CallSlot  = 0  // the address of the stack slot with the return address; 0 for a hole
	CallRet   = 8  // the real return address
	CallProbe = 16 // Return.ID, the sentinel's is noProbe; 4 bytes
	CallMark  = 20 // 0, or markLeft; 4 bytes
	CallData  = 24 // the call in the pool whose private data is this one's, 0 for none
	CallBack  = 32 // what is in the slot instead
	callOwner = 40 // address of the state whose call it is that is away

	noProbe = ^uint64(0) // all of the word

	markLeft = 1 // it was on the thread's stack of instances, and another call showed that it may be over
)

// ThreadKey is how code in the target knows which thread it runs on, without a
// system call and without libc.
type ThreadKey struct {
	Kind   KeyKind
	Offset int32 // CPU: from gs
	Task   Task  // CPU
}

// Task is where code in a kernel finds the task that its CPU runs, for those who ask
// what a program would ask of its own thread.
type Task struct {
	Current         int32 // offset from gs of the task's address
	TID, TGID, Comm int   // offsets in it: two words of 4 bytes, and CommSize bytes
	Cred, UID, GID  int   // offset in it of an address, or 0; offsets there of 4 bytes each
}

// KeyKind is where the key is read.
type KeyKind uint8

const (
	FSSelf KeyKind = iota // fs:0, where it holds its own address: glibc, musl, any ELF TLS; of i386 gs:0. See KeyOf for the others
	FSBase                // rdfsbase, where AT_HWCAP2 bit 1 says that programs may: BaseKey
	CPU                   // the number that a kernel has in 4 bytes of each CPU's own: see "Kernels" in the package's description
)

// RoundUp is the next multiple.
func RoundUp(n, to int) int { return (n + to - 1) / to * to }

// HashFactor is of the other tables' hashes.
const HashFactor = 0x9e3779b1

// Segment is the shared memory of one target as its controller sees it. All
// methods may be called while threads of the target run.
type Segment struct {
	Layout
	Addr    arch.Addr // in the target
	machine *Machine
	Mem     []byte // the controller's mapping of it

	goroutines bool // may be owners
	careful    atomic.Bool
	stale      map[int]int // entries of keys that were given up, and the states that they lead to
	spare      []int       // states that no entry leads to
	freed      []int       // entries whose thread has ended, and that have its state perhaps
	tids       []uint32    // of states that were assigned, by number; 0 where only the state itself knows
	allow      func(states, lanes int) bool
	widen      func(states, lanes int) error
	agreed     int // states that it has agreed to
	tight      int // so many times it is not asked for spare ones: there was no memory for them
	lanes      int // that are there
	held       int // see Hold
}

// New prepares a fresh (zeroed) mapping that the target has at addr, but for the states of
// threads, which are made when they are given out. tgid is
// the target's id as its programs shall see it. Errors: a mapping that is too small.
func New(m *Machine, l Layout, addr arch.Addr, mem []byte, tgid int) (*Segment, error) {
	if len(mem) < l.Size() {
		return nil, fmt.Errorf("a segment of %d bytes in %d", l.Size(), len(mem))
	}
	s := &Segment{Layout: l, Addr: addr, machine: m, Mem: mem, lanes: 1, stale: make(map[int]int)}
	copy(mem, Magic)
	s.Put(headStates, uint64(s.StateAddr(l.Threads)))
	s.Put(headStride, uint64(l.Stride()))
	s.Put(headSpan, uint64(l.span()))
	s.Put(headTgid, uint64(tgid)<<32)
	s.limit(l.Threads)
	s.Put(headSink+8, uint64(s.StateAddr(l.Threads)))
	s.Put(headProof, rand.Uint64())
	s.initAway()
	s.initPool()
	s.initCPUs()
	s.initState(l.Threads)
	// The last state is where hits of threads go that have none: no program runs
	// there, and what is counted there is lost.
	s.Close(l.Threads)
	return s, nil
}

// initState makes a state of zeros, when it is given out: here, or by the routine find in the
// target. One that is not made yet, to those who go over all that were given out, has no first free
// instance.
func (s *Segment) initState(i int) {
	at, addr := s.State(i), s.StateAddr(i)
	s.Put(at+jit.StatePidTgid, s.Get(headTgid))
	s.Put(at+jit.StateSlot, uint64(i))
	s.Put(at+StateCallsAt+CallProbe, noProbe)
	for w, v := range s.machine.Fixed {
		s.Put(at+s.machine.WordAt(w), v)
	}
	s.Put(at+StateCalls, uint64(addr)+StateCallsAt+CallSize)
}

// Open gives out the state that hits are counted in of all threads together (Together).
func (s *Segment) Open() { s.newState() }

// Everyone is the address of a counter in that state.
func (s *Segment) Everyone(n int) arch.Addr { return s.StateAddr(0) + arch.Addr(Counter(n)) }

// Count counts a hit in that state, and Uncount takes one back, beside threads that do.
func (s *Segment) Count(n int) { atomic.AddUint64(s.Word(s.State(0)+Counter(n)), 1) }

// Uncount is for a thread that is put back before its instruction, which it will be counted at once more.
func (s *Segment) Uncount(n int) { atomic.AddUint64(s.Word(s.State(0)+Counter(n)), ^uint64(0)) }

// Lose counts a hit as one of a thread that there is no state for, as threads of the target may at the same time.
func (s *Segment) Lose(n int) { atomic.AddUint64(s.Word(s.State(s.Threads)+Counter(n)), 1) }

// newState gives out the next state that never was, and makes it; the sink where there is none.
func (s *Segment) newState() int {
	for s.Reserve(1) {
		next := atomic.LoadUint32(s.Word32(headNext))
		if int(next) >= s.Allowed() {
			return s.Threads
		}
		if atomic.CompareAndSwapUint32(s.Word32(headNext), next, next+1) {
			s.initState(int(next))
			return int(next)
		}
	}
	return s.Threads
}

// State is the offset of state i, StateAddr its address in the target. The sink has the number behind the last one.
func (s *Segment) State(i int) int {
	if i == s.Threads {
		i = -1
	}
	return s.Place(i+1) + StackSize
}

// NumberOf is the number of the state at an address.
func (s *Segment) NumberOf(addr uint64) int {
	if at := s.offset(addr) - s.StatesAt(); at >= s.Stride() {
		return at/s.span()<<groupShift + at%s.span()/s.Stride() - 1
	}
	return s.Threads
}

// StateAddr is where the target has state i.
func (s *Segment) StateAddr(i int) arch.Addr { return s.Addr + arch.Addr(s.State(i)) }

// Extra is the memory for maps and rings, and ExtraAddr its address in the target.
func (s *Segment) Extra() []byte { return s.Mem[s.ExtraAt():][:s.Layout.Extra] }

// ExtraAddr is where the target has Extra.
func (s *Segment) ExtraAddr() arch.Addr { return s.Addr + arch.Addr(s.ExtraAt()) }

// SetClock says how the routines tell the time; boot is what CLOCK_BOOTTIME is ahead of
// CLOCK_MONOTONIC, in nanoseconds. Before any program runs.
func (s *Segment) SetClock(c jit.Clock, boot uint64) {
	s.Put(headClock, c.Base)
	s.Put(headClock+8, c.Mult)
	s.Put(headClock+16, uint64(c.Shift))
	s.Put(headClock+24, boot)
}

// SetUser says whose process it is.
func (s *Segment) SetUser(uid, gid uint32) { s.Put(headUIDGID, uint64(gid)<<32|uint64(uid)) }

// SetTask says where in a kernel is whose the task is that a CPU runs.
func (s *Segment) SetTask(t Task) {
	s.Put(headCurrent, uint64(uint32(t.Current))|uint64(t.Cred)<<32)
	s.Put(headUID, uint64(t.UID)|uint64(t.GID)<<32)
}

// SetTrace gives the address of a map as bpf.TraceMap defines it, for trace_printk.
func (s *Segment) SetTrace(m arch.Addr) { s.Put(headTrace, uint64(m)) }

// Alive is where the robust futex of the controller's tracing thread is, as an
// offset into the mapping. Until the thread's id is in it, programs run.
func (s *Segment) Alive() int { return headAlive }

// Word is a word of 8 bytes at an offset, for atomic operations.
func (s *Segment) Word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&s.Mem[off])) }

// Word32 is one of 4 bytes.
func (s *Segment) Word32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&s.Mem[off])) }

// Get reads a word of 8 bytes.
func (s *Segment) Get(off int) uint64 { return atomic.LoadUint64(s.Word(off)) }

// Put writes one.
func (s *Segment) Put(off int, v uint64) { atomic.StoreUint64(s.Word(off), v) }

// Thread is what the controller knows of a thread.
type Thread struct {
	Key  uint64 // its ThreadKey's value
	TID  int
	Comm string

	// The thread's own stack, if it is known: the mapping that its stack pointer is in
	// when it is born, and for the first thread all that its stack may grow to. Calls on
	// it lie in each other and cost least; those on others are found by their slots.
	StackLow, StackHigh arch.Addr
}

// Assign gives a thread its state. The controller calls it for each thread that it
// attaches to, for each that is born (at PTRACE_EVENT_CLONE the newborn has its fs base
// already and has not run yet), and whenever a thread's key changes. A state that the key
// has already, left by a dead thread whose memory a new one got, starts anew. It returns the state's
// number; -1 where none is free: hits of the thread are lost then, and counted.
//
// The thread must not run meanwhile.
func (s *Segment) Assign(t Thread) int {
	i := s.claim(t.Key)
	if i < 0 {
		return -1
	}
	s.forsake(i) // whoever it was
	at := s.State(i)
	s.Put(at+jit.StatePidTgid, s.Get(headTgid)|uint64(uint32(t.TID)))
	s.setTID(i, uint32(t.TID))
	s.Put(at+StateKey, t.Key)
	s.exited(i)
	for _, c := range s.nested(i) {
		s.Drop(c)
	}
	s.Put(at+StateStackLow, uint64(t.StackLow))
	s.Put(at+stateStackHigh, uint64(t.StackHigh))
	s.Put(at+StateCallsAt+CallSlot, uint64(t.StackHigh))
	s.Put(at+StateOverride, 0)
	s.setComm(i, t.Comm)
	s.Mem[at+StateBusy], s.Mem[at+StateClosed] = 0, 0
	return i
}

// setComm sets the name that get_current_comm gives: 15 bytes at most.
func (s *Segment) setComm(i int, comm string) {
	at := s.State(i) + StateComm
	clear(s.Mem[at : at+CommSize])
	copy(s.Mem[at:at+CommSize-1], comm)
}

// claim finds or takes the entry of a key, as the code in the target does.
func (s *Segment) claim(key uint64) int {
again:
	free := -1
	start := s.Hash(key)
	for e := start; e < start+TableWindow*EntrySize; e += EntrySize {
		k := s.Get(HeadTable + e)
		if k == key {
			return s.bound(HeadTable + e)
		}
		if k <= tombstone && free < 0 {
			free = HeadTable + e
		}
		if k == 0 {
			break
		}
	}
	if free < 0 {
		return -1
	}
	if old := s.Get(free); old > tombstone || !atomic.CompareAndSwapUint64(s.Word(free), old, key) {
		goto again
	}
	return s.bound(free)
}

// bound is the state of an entry, which gets one with its first key.
func (s *Segment) bound(e int) int {
	if last := len(s.spare) - 1; s.Get(e+8) == 0 && last >= 0 {
		s.Put(e+8, uint64(s.StateAddr(s.spare[last])))
		s.spare = s.spare[:last]
	}
	if s.Get(e+8) == 0 {
		n := s.reclaim()
		if n == s.Threads {
			n = s.newState()
		}
		s.Put(e+8, uint64(s.StateAddr(n)))
	}
	if i := s.stateOf(e); i < s.Threads {
		return i
	}
	return -1
}

// stateOf is the number of the state that an entry has.
func (s *Segment) stateOf(e int) int { return s.NumberOf(s.Get(e + 8)) }

// reclaim takes a state from an entry that has no key any more; the sink where
// there is none. Memory of states stays bounded so by the threads that there are at a time.
func (s *Segment) reclaim() int {
	const ours = tombstone + 1 // a key that no thread has: keeps others off
	for len(s.freed) > 0 {
		last := len(s.freed) - 1
		e := s.freed[last]
		s.freed = s.freed[:last]
		if !atomic.CompareAndSwapUint64(s.Word(e), tombstone, ours) {
			continue // another thread has come that way
		}
		i := s.Threads
		if s.Get(e+8) != 0 {
			i = s.stateOf(e)
		}
		s.Put(e+8, 0)
		s.Put(e, tombstone)
		if i < s.Threads {
			return i
		}
	}
	return s.Threads
}

// Hash is the offset in the table where the search for a key begins.
func (s *Segment) Hash(key uint64) int {
	if s.machine.Narrow() {
		return int(uint32(key) * KeyFactor >> HashShift32 & HashMask)
	}
	return int(key * KeyFactor >> HashShift64 & HashMask)
}

// Find is the number of the state of a key, or -1.
func (s *Segment) Find(key uint64) int {
	start := s.Hash(key)
	for e := start; e < start+TableWindow*EntrySize; e += EntrySize {
		if s.Get(HeadTable+e) == key {
			return s.bound(HeadTable + e)
		}
	}
	return -1
}

// Release takes a thread's key away when it has exited, so that its state can
// be another's. Its counters stay, and go on counting from there.
func (s *Segment) Release(key uint64) {
	start := HeadTable + s.Hash(key)
	for e := start; e < start+TableWindow*EntrySize; e += EntrySize {
		if s.Get(e) != key {
			continue
		}
		if s.Get(e+8) != 0 && s.stateOf(e) == s.Threads {
			s.Put(e+8, 0) // whoever comes next may have more luck
		}
		s.Put(e, tombstone)
		s.leave(e)
		return
	}
}

// Forget is Release for whom only the thread's id is left. A key that another thread
// was given meanwhile stays.
func (s *Segment) Forget(tid int) {
	for i := range s.Given() {
		if known := s.tid(i); known != 0 && known != uint32(tid) {
			continue // most are, and their memory is far apart
		}
		at := s.State(i)
		if uint32(s.Get(at+jit.StatePidTgid)) == uint32(tid) {
			s.Put(at+jit.StatePidTgid, s.Get(headTgid))
			s.setTID(i, 0)
			s.exited(i)
			s.forsake(i)
			s.Release(s.Get(at + StateKey))
		}
	}
}

// Counter adds up one counter over all threads, and says how much of it was lost:
// hits of threads that had no state.
func (s *Segment) Counter(n int) (sum, lost uint64) {
	for i := range s.Given() {
		sum += s.Get(s.State(i) + Counter(n))
	}
	return sum, s.Get(s.State(s.Threads) + Counter(n))
}

// SetOther tells what somebody else, the controller, swaps return addresses for: where that is in
// a call's slot, the call is still the one that it was, or one that it ended in.
func (s *Segment) SetOther(at arch.Addr) { s.Put(headOther, uint64(at)) }

// Files are where code of files is: a start and an end each, and then 0.
const (
	maxFiles  = 255
	fileAlign = 16 // of functions there
)

// SetFiles adds to where code of files is mapped: see the routine called. What is gone stays, since threads are
// reading; where there are too many, the nearest ones are taken for one, with what is between them.
func (s *Segment) SetFiles(rs []arch.Range) {
	for _, r := range rs {
		s.addFile(uint64(r.Start), uint64(r.End))
	}
}

func (s *Segment) addFile(start, end uint64) {
	nearest, gap := 0, ^uint64(0)
	at := headFiles
	for ; s.Get(at) != 0; at += 16 {
		from, to := s.Get(at), s.Get(at+8)
		switch {
		case start <= to && from <= end: // one, or the one goes on in the other
			nearest, gap = at, 0
		case start > to && start-to < gap:
			nearest, gap = at, start-to
		case end < from && from-end < gap:
			nearest, gap = at, from-end
		}
	}
	if at < headFiles+16*maxFiles && gap > 0 {
		s.Put(at+8, end)
		s.Put(at, start) // it is there from now on
		return
	}
	s.Put(nearest, min(start, s.Get(nearest)))
	s.Put(nearest+8, max(end, s.Get(nearest+8)))
}

// Other is what SetOther was told.
func (s *Segment) Other() arch.Addr { return arch.Addr(s.Get(headOther)) }

// ClearCounters sets counters to 0 that no detour refers to any more.
func (s *Segment) ClearCounters(ns ...int) {
	clear := func(state int) {
		for _, n := range ns {
			s.Put(state+Counter(n), 0)
		}
	}
	for i := range s.Given() {
		clear(s.State(i))
	}
	clear(s.State(s.Threads))
}

// Given is how many states were given out. What is other states', in maps as well, was never
// written to.
func (s *Segment) Given() int {
	return int(min(atomic.LoadUint32(s.Word32(headNext)), atomic.LoadUint32(s.Word32(headMax))))
}

// Counter is a counter's offset from the state.
func Counter(n int) int { return StateCounters + 8*n }
