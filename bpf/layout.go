package bpf

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// Maps live in one shared segment: the target has it mapped at its base, the
// controller somewhere else, and both work on the same bytes at the same time.
// Three readers agree on what follows: Map here (the controller, the
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
// all other maps, whose HdrSlotStride is 0, so that one formula fits both. Two slots
// share no cache line. A slot that changes hands keeps its values: they are counts,
// added up when read.
//
// # Hash
//
// The index is HdrBuckets buckets of one cache line:
//
//	0   u32 lock        1 while somebody inserts, replaces or deletes a key whose home this is
//	4   u32 hand        LRU: where the search for a victim goes on
//	8   u32 tag[8]      of element bucket*8+i: TagFree, TagBusy, or its key's tag
//	40  u8  used[8]     LRU: 1 since the element was looked up
//
// A key of hash h may lie in either of two buckets, its home and its other (see
// hashKey): elements never move, and nothing has to be marked as deleted. There are
// twice as many elements as MaxEntries, rounded up, and with a choice of two
// buckets of eight both are full only in a map that is beyond MaxEntries: a
// map may hold somewhat more than MaxEntries keys before it answers -E2BIG.
//
// Lookup takes no lock: it compares tags, home first, then keys, and gives the value's
// address. As with the kernel's preallocated maps, the element may be deleted
// and taken by another key while the value is in use.
//
// Update and delete take the home's lock, LockTries attempts of cmpxchg 0 to 1, else
// -EBUSY: a thread that was stopped inside, or that a signal handler interrupted,
// makes others fail, never wait. One key has one home, so no key is ever twice in the
// map. Under the lock:
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
// Tags change by cmpxchg, except that who set TagBusy stores what follows. An
// LRU hash has as many elements as MaxEntries, rounded up to whole buckets: it
// evicts when both of a key's buckets are full.
//
// # Ring buffer and perf event array
//
// Each thread slot has a ring of its own: HdrSlotStride bytes of RingHead and
// HdrRingSize bytes (a power of two) of data. The thread alone writes, the controller alone
// reads; nothing is locked and nobody waits. Pages that no thread wrote to do not exist.
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
// What takes more than half of a ring may not fit even in an empty one.
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
// A trace of hash h (see hashTrace) lies in the first of elements
// (h+i) mod MaxEntries, i = 0..TraceProbes-1, that is free (taken by cmpxchg to TraceBusy;
// the count is stored last) or has the same count, hash and addresses. None:
// -EEXIST, or, with the flag to reuse, element h mod MaxEntries is taken by
// cmpxchg and overwritten.
//
// # Global data
//
// .rodata, .data and .bss are arrays of one element.

// MapType is a map's kind; the numbers are the kernel's (enum bpf_map_type).
type MapType uint32

const (
	Hash           MapType = 1
	Array          MapType = 2
	PerfEventArray MapType = 4
	PerCPUHash     MapType = 5
	PerCPUArray    MapType = 6
	StackTrace     MapType = 7
	LRUHash        MapType = 9
	LRUPerCPUHash  MapType = 10
	RingBuf        MapType = 27
)

// A map's header.
const (
	HdrType        = 0  // u32: a MapType
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

	LockTries = 4096
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

	MinRing = 4096
	MaxRing = 1 << 28

	// PerfRing is the size of a perf event array's rings, whose definition names none.
	PerfRing = 64 << 10
)

// A stack trace map's index.
const (
	TraceCount     = 0
	TraceHash      = 4
	TraceIndexSize = 8
	TraceBusy      = 1<<32 - 1
	TraceProbes    = 8
	MaxTrace       = 127 // addresses of one trace
)

// What trace_printk and trace_vprintk write into the trace ring (TraceMap): the values, the format's
// bytes, padded to 8, and for each %s the text that its value points to. It is put into words when
// read.
const (
	PrintkThread = 0  // u32: the tid
	PrintkLen    = 4  // u32: of the format, its NUL included
	PrintkCount  = 8  // u32: of values
	PrintkTexts  = 12 // u32: of texts
	PrintkArgs   = 16 // u64[PrintkCount]

	PrintkText  = 128 // bytes of each text, its NUL included; what could not be read is a NUL and a 1
	MaxPrintk   = 512 // a longer format is cut
	MaxPrintkOf = 12  // values
)

// TraceMap is the ring that trace_printk writes to in the target. Who arranges a
// segment for programs that use it adds one.
func TraceMap() *MapSpec { return &MapSpec{Name: ".trace", Type: RingBuf, MaxEntries: 64 << 10} }

// Flags of a map's definition that mean something here.
const (
	FlagNoPrealloc  = 1 << 0 // ignored: everything is preallocated
	FlagReadOnly    = 1 << 7 // BPF_F_RDONLY_PROG
	FlagWriteOnly   = 1 << 8 // BPF_F_WRONLY_PROG
	FlagMmapable    = 1 << 10
	knownMapFlags   = FlagNoPrealloc | FlagReadOnly | FlagWriteOnly | FlagMmapable
	maxSegment      = 1 << 40
	segmentAlign    = 64
	maxKey          = 16 << 10 // strings are keys
	maxValue        = 1 << 20
	maxHashElements = 1 << 26
)

// HashMul is 2^64 divided by the golden ratio, made odd.
const HashMul = 0x9e3779b97f4a7c15

// hashKey hashes a key: for each 8 bytes, the last padded with zeros, as a
// little-endian word w:
//
//	h = (h ^ w) * HashMul; h ^= h >> 32
//
// The tag is uint32(h) | TagKey. The home bucket is high32(h * buckets'), that is
// (h>>32) * buckets >> 32; the other is the same of h * HashMul.
func hashKey(key []byte) uint64 {
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

// buckets are the two of a hash.
func buckets(h uint64, n uint32) (home, other uint32) {
	at := func(h uint64) uint32 { return uint32(h >> 32 * uint64(n) >> 32) }
	return at(h), at(h * HashMul)
}

// hashTrace hashes a trace's addresses as hashKey does a key of as many words, and
// folds: uint32(h) ^ uint32(h>>32).
func hashTrace(ips []uint64) uint32 {
	var h uint64
	for _, w := range ips {
		h = (h ^ w) * HashMul
		h ^= h >> 32
	}
	return uint32(h) ^ uint32(h>>32)
}

// MapSpec is a map's definition.
type MapSpec struct {
	Name       string
	Type       MapType
	KeySize    uint32
	ValueSize  uint32
	MaxEntries uint32 // of a ring buffer: the bytes of one thread's ring
	Flags      uint32

	// What the object says of their types, nil for nothing.
	Key, Value btf.Type

	// Initial contents: of an array, value by index; of a hash, by key.
	Contents []KeyValue
}

// KeyValue is an element.
type KeyValue struct{ Key, Value []byte }

func (s *MapSpec) hash() bool {
	return s.Type == Hash || s.Type == PerCPUHash || s.lru()
}
func (s *MapSpec) lru() bool   { return s.Type == LRUHash || s.Type == LRUPerCPUHash }
func (s *MapSpec) array() bool { return s.Type == Array || s.Type == PerCPUArray }
func (s *MapSpec) ring() bool  { return s.Type == RingBuf || s.Type == PerfEventArray }
func (s *MapSpec) perCPU() bool {
	return s.Type == PerCPUHash || s.Type == PerCPUArray || s.Type == LRUPerCPUHash
}

// geometry is the header's content: what follows from a definition and the number
// of thread slots alone.
type geometry struct {
	elems, slots, buckets, ringSize uint32
	index, keys, values             uint64
	keyStride, valueStride          uint32
	slotStride                      uint64
	size                            uint64 // of the whole map
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// check says what is wrong with a definition.
func (s *MapSpec) check() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("bpf: map %q (%v): %s", s.Name, s.Type, fmt.Sprintf(format, a...))
	}
	switch {
	case s.Type.String() == "":
		return fmt.Errorf("bpf: map %q: type %d is not supported (array, hash, their per-CPU and LRU kinds, ring buffer, perf event array, stack trace are)", s.Name, uint32(s.Type))
	case s.Flags&^knownMapFlags != 0:
		return bad("unknown flags %#x", s.Flags&^knownMapFlags)
	case s.MaxEntries == 0 && s.Type != PerfEventArray:
		return bad("max_entries is 0: the object leaves it to its loader, so say how many (--entries %s=NUMBER)", s.Name)
	case s.Type == RingBuf && (s.KeySize != 0 || s.ValueSize != 0):
		return bad("a ring buffer has no keys and values (key %d, value %d bytes)", s.KeySize, s.ValueSize)
	case s.Type == RingBuf && (s.MaxEntries < MinRing || s.MaxEntries > MaxRing || s.MaxEntries&(s.MaxEntries-1) != 0):
		return bad("max_entries is the ring's bytes: a power of two from %d to %d, not %d", MinRing, MaxRing, s.MaxEntries)
	case s.ring():
		return nil
	case (s.array() || s.Type == StackTrace) && s.KeySize != 4:
		return bad("key of %d bytes: must be 4", s.KeySize)
	case s.KeySize == 0 || s.KeySize > maxKey:
		return bad("key of %d bytes: must be 1 to %d", s.KeySize, maxKey)
	case s.ValueSize == 0 || s.ValueSize > maxValue:
		return bad("value of %d bytes: must be 1 to %d", s.ValueSize, maxValue)
	case s.Type == StackTrace && (s.ValueSize%8 != 0 || s.ValueSize > 8*MaxTrace):
		return bad("value of %d bytes: must be a multiple of 8, up to %d", s.ValueSize, 8*MaxTrace)
	case s.MaxEntries > maxHashElements:
		return bad("max_entries %d: more than %d", s.MaxEntries, maxHashElements)
	}
	return nil
}

// place works a map's geometry out.
func (s *MapSpec) place(slots int) geometry {
	g := geometry{elems: s.MaxEntries, slots: 1}
	at := uint64(HeaderSize)
	take := func(n uint64) uint64 {
		p := at
		at = roundUp(at+n, segmentAlign)
		return p
	}
	g.index = at
	switch {
	case s.ring():
		g.elems, g.slots, g.ringSize = 0, uint32(slots), s.MaxEntries
		if s.Type == PerfEventArray {
			g.ringSize = PerfRing
		}
		g.keys = at
		g.slotStride = RingData + uint64(g.ringSize)
		g.values = take(g.slotStride * uint64(slots))
		g.size = at
		return g
	case s.hash():
		n := uint64(s.MaxEntries)
		if !s.lru() {
			n *= 2
		}
		g.buckets = uint32(roundUp(n, BucketSlots) / BucketSlots)
		g.elems = g.buckets * BucketSlots
		g.keyStride = uint32(roundUp(uint64(s.KeySize), 8))
		take(uint64(g.buckets) * BucketSize)
	case s.Type == StackTrace:
		take(uint64(g.elems) * TraceIndexSize)
	}
	g.keys = take(uint64(g.elems) * uint64(g.keyStride))
	g.valueStride = uint32(roundUp(uint64(s.ValueSize), 8))
	values := uint64(g.elems) * uint64(g.valueStride)
	if s.perCPU() {
		g.slots = uint32(slots)
		g.slotStride = roundUp(values, segmentAlign)
		values = g.slotStride * uint64(slots)
	}
	g.values = take(values)
	g.size = at
	return g
}

// Layout says where maps lie in a segment.
type Layout struct {
	Maps  []*MapSpec
	Slots int      // thread slots
	Offs  []uint64 // of each map's header in the segment, a multiple of 64
	Size  uint64   // of the whole segment

	geo []geometry
}

// Arrange gives every map its place in one segment, for that many thread slots. It
// depends on nothing else: whoever arranges the same maps gets the same places.
func Arrange(maps []*MapSpec, slots int) (*Layout, error) {
	if slots < 1 {
		return nil, fmt.Errorf("bpf: %d thread slots", slots)
	}
	l := &Layout{Maps: maps, Slots: slots}
	for _, s := range maps {
		if err := s.check(); err != nil {
			return nil, err
		}
		g := s.place(slots)
		l.Offs = append(l.Offs, l.Size)
		l.geo = append(l.geo, g)
		l.Size += g.size
		if g.size > maxSegment || l.Size > maxSegment {
			return nil, fmt.Errorf("bpf: map %q (%v) takes %d bytes with %d thread slots: more than %d", s.Name, s.Type, g.size, slots, uint64(maxSegment))
		}
	}
	return l, nil
}

// Values is where value 0 of slot 0 of a map lies in the segment: for an array's
// inlined lookup, and for loads of global data.
func (l *Layout) Values(m int) uint64 { return l.Offs[m] + l.geo[m].values }

// Keys, Index and Buckets are where key 0 and the index of a map lie in the segment,
// and the number of buckets there: for a hash's inlined lookup.
func (l *Layout) Keys(m int) uint64    { return l.Offs[m] + l.geo[m].keys }
func (l *Layout) Index(m int) uint64   { return l.Offs[m] + l.geo[m].index }
func (l *Layout) Buckets(m int) uint32 { return l.geo[m].buckets }

// ValueStride is the bytes from an element's value to the next one's.
func (l *Layout) ValueStride(m int) uint32 { return l.geo[m].valueStride }

// SlotStride is the bytes from a thread slot's values, or ring, to the next slot's;
// 0 where all threads share them.
func (l *Layout) SlotStride(m int) uint64 { return l.geo[m].slotStride }

var mapTypeNames = map[MapType]string{
	Hash: "hash", Array: "array", PerfEventArray: "perf event array", PerCPUHash: "per-CPU hash",
	PerCPUArray: "per-CPU array", StackTrace: "stack trace", LRUHash: "LRU hash",
	LRUPerCPUHash: "LRU per-CPU hash", RingBuf: "ring buffer",
}

// String is the type's name, "" for one that is not supported.
func (t MapType) String() string { return mapTypeNames[t] }
