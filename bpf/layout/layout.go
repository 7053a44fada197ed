// Package layout says where everything lies in the memory of maps.
//
// Maps live in one shared segment: the target has it mapped at its base, the
// controller somewhere else, and both work on the same bytes at the same time.
// Three readers agree on what follows: bpf.Map (the controller, the
// interpreter), the compiler's inlined lookups, and the runtime's machine code in
// the target. All words are little-endian; offsets in a header count from the
// header, so that nothing in the segment is an address.
//
// # A map
//
// A map is a header of HeaderSize bytes, then an index (hashes and stack traces
// only), then keys, then values. The address of the header is what a program holds
// as a pointer to the map. Element i of thread slot s is at
//
//	key    header + [HdrKeys] + i*[HdrKeyStride]
//	value  header + [HdrValues] + s*[HdrSlotStride] + i*[HdrValueStride]
//
// Per-CPU maps are per thread: one value per thread slot, the slot being the
// index of the thread's state (internal/inject). HdrSlots is their number and 1 for
// all other maps, whose HdrSlotStride is 0, so that one formula fits both. The last slot is no
// thread's: its values are in front of slot 0's. All maps of a segment have one HdrSlotStride. So one
// slot's values of all of them lie together, and the memory behind the last slot in use need not
// exist. Two slots share no cache line. A slot that changes hands keeps its values: they are counts,
// added up when read.
//
// # Hash
//
// The index is HdrBuckets buckets of one cache line:
//
//	0   u32 lock        the thread that inserts, replaces or deletes a key whose home this is:
//	                    the process's id << LockSlotBits | slot + 1
//	4   u32 hand        LRU: where the search for a victim goes on
//	8   u32 tag[8]      of element bucket*8+i: TagFree, TagBusy, or its key's tag
//	40  u8  used[8]     LRU: 1 since the element was looked up
//
// A key of hash h may lie in either of two buckets, its home and its other (see
// Key): elements never move, and nothing has to be marked as deleted. There are
// twice as many elements as MaxEntries, rounded up, and with a choice of two
// buckets of eight both are full only in a map that is beyond MaxEntries: a
// map may hold somewhat more than MaxEntries keys before it answers -E2BIG.
//
// Lookup takes no lock: it compares tags, home first, then keys, and gives the value's
// address. As with the kernel's preallocated maps, the element may be deleted
// and taken by another key while the value is in use.
//
// Update and delete take the home's lock, LockTries attempts of cmpxchg from 0, some milliseconds,
// else -EBUSY: a thread that is stopped inside for longer makes others fail, never wait; one that a
// signal's handler has interrupted inside fails at once in the handler. A process that was killed
// under the lock has its id there. One key has one home, so no key is ever twice in the map. Under
// the lock:
//
//   - the key is there: replace the value in place, or delete: cmpxchg its tag to
//     TagFree (a failure means that it was evicted just now: -ENOENT).
//   - it is not: for i = 0..7, for home and other: cmpxchg tag[i] from TagFree to
//     TagBusy. Taking the lowest i first keeps the two buckets level. Then write key and value,
//     used = 0, and last the tag. The new value's other thread slots are zeroed.
//   - no free element: -E2BIG; an LRU map evicts one of the home: hand goes round, an
//     element with used = 1 gets 0 and another chance, the first with 0 is taken by
//     cmpxchg of its tag to TagBusy. After 2*BucketSlots steps without one: -EBUSY.
//
// Tags change by cmpxchg, except that the thread that set TagBusy stores the tag that follows. An
// LRU hash has as many elements as MaxEntries, rounded up to whole buckets: it
// evicts when both of a key's buckets are full.
//
// # Ring buffer and perf event array
//
// Each thread slot has a ring of its own: HdrSlotStride bytes of RingHead and
// HdrRingSize bytes (a power of two) of data. The thread alone writes, the controller alone
// reads; nothing is locked and no side waits. Pages that no thread wrote to do not exist.
//
//	0   u64 head    bytes ever reserved: written by the thread
//	8   u64 lost    records that found no room: written by the thread
//	64  u64 tail    bytes ever read: written by the controller
//	128 data
//
// A record is a word and HdrRingSize-bounded bytes, 8-aligned, never wrapped:
//
//	0   u32 length, RecordBusy, RecordDiscard
//	4   u32 unused, 0
//	8   length bytes
//
// Reserving n bytes takes need = 8 + round up n to 8. Where the rest of the ring up to
// its end is too small, it is filled with a discarded record of (rest - 8) bytes and
// the new one starts at the ring's begin. Where head + fill + need - tail is more than
// HdrRingSize, nothing is written but lost+1, and the answer is NULL (output: -EAGAIN;
// perf: -ENOSPC). Order: record word with RecordBusy, then head. Submit and discard store the
// record's word without RecordBusy. A reader stops at head or at a busy record.
// A record of more than half of a ring may not fit even in an empty one.
//
// The order of records of different threads is not told; put a time into the record.
//
// # Stack traces
//
// Element i is trace id i: its value is ValueSize/8 addresses, innermost first, the
// rest 0. The index has 8 bytes an element:
//
//	0   u32 count   of addresses; 0: free; TraceBusy: being written
//	4   u32 hash
//
// A trace of hash h (see Trace) lies in the first of elements
// (h+i) mod MaxEntries, i = 0..TraceProbes-1, that is free (taken by cmpxchg to TraceBusy;
// the count is stored last) or has the same count, hash and addresses. None:
// -EEXIST, or, with the flag to reuse, element h mod MaxEntries is taken by
// cmpxchg and overwritten.
//
// # Global data
//
// .rodata, .data and .bss are arrays of one element.
package layout

// A map's header.
const (
	HdrType        = 0  // u32: a bpf.MapType
	HdrKeySize     = 4  // u32
	HdrValueSize   = 8  // u32
	HdrMaxEntries  = 12 // u32: as defined; the bound of an array's index
	HdrElems       = 16 // u32: elements there are
	HdrSlots       = 20 // u32: thread slots there are values for
	HdrBuckets     = 24 // u32: hash: buckets of the index; else 0
	HdrRingSize    = 28 // u32: rings: bytes of data of one; else 0
	HdrIndex       = 32 // u64: offset of the index
	HdrKeys        = 40 // u64: offset of key 0
	HdrValues      = 48 // u64: offset of value 0 of slot 0, or of ring 0
	HdrKeyStride   = 56 // u32: bytes from key to key, a multiple of 8
	HdrValueStride = 60 // u32: bytes from value to value, a multiple of 8
	HdrSlotStride  = 64 // u64: bytes from a slot's values, or ring, to the next slot's
	HeaderSize     = 128
)

// A hash's bucket.
const (
	BucketLock  = 0
	BucketHand  = 4
	BucketTags  = 8
	BucketUsed  = 40
	BucketSize  = 64
	BucketSlots = 8

	TagFree = 0
	TagBusy = 1
	TagKey  = 2 // set in every key's tag

	LockTries      = 1 << 19 // 20 ms where a pause takes 140 cycles
	LockSlotBits   = 10
	LockController = 1 << LockSlotBits // no thread's
)

// A ring.
const (
	RingHead     = 0
	RingLost     = 8
	RingTail     = 64
	RingData     = 128
	RecordHeader = 8

	RecordBusy    = 1 << 31
	RecordDiscard = 1 << 30
)

// A stack trace map's index.
const (
	TraceCount     = 0
	TraceHash      = 4
	TraceIndexSize = 8
	TraceBusy      = 1<<32 - 1
	TraceProbes    = 8
)

// HashMul is 2^64 divided by the golden ratio, made odd.
const HashMul = 0x9e3779b97f4a7c15

// Key hashes a key: for each 8 bytes, the last padded with zeros, as a
// little-endian word w:
//
//	h = (h ^ w) * HashMul; h ^= h >> 32
//
// The tag is uint32(h) | TagKey. The home bucket is high32(h * buckets'), that is
// (h>>32) * buckets >> 32; the other is the same of h * HashMul.
func Key(key []byte) uint64 {
	var h uint64
	for len(key) > 0 {
		var w uint64
		for i := 0; i < 8 && i < len(key); i++ {
			w |= uint64(key[i]) << (8 * i)
		}
		h = (h ^ w) * HashMul
		h ^= h >> 32
		key = key[min(8, len(key)):]
	}
	return h
}

// Buckets are the two of a hash, of n.
func Buckets(h uint64, n uint32) (home, other uint32) {
	at := func(h uint64) uint32 { return uint32(h >> 32 * uint64(n) >> 32) }
	return at(h), at(h * HashMul)
}

// Trace hashes a trace's addresses as Key does a key of as many words, and
// folds: uint32(h) ^ uint32(h>>32).
func Trace(ips []uint64) uint32 {
	var h uint64
	for _, w := range ips {
		h = (h ^ w) * HashMul
		h ^= h >> 32
	}
	return uint32(h) ^ uint32(h>>32)
}
