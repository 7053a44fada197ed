package bpf

import (
	"fmt"

	"github.com/cilium/ebpf/btf"

	"kprobe/bpf/layout"
	"kprobe/bpf/printk"
)

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

// The words of trace_printk's records, and the bounds of a record: text and values beyond them are
// left out.
const (
	PrintkThread = printk.Thread
	PrintkLen    = printk.Len
	PrintkCount  = printk.Count
	PrintkTexts  = printk.Texts
	PrintkArgs   = printk.Args
	PrintkText   = printk.Text

	MaxPrintk   = 512 // a longer format is cut
	MaxPrintkOf = 12  // values
)

// Printk is a line that a program has printed.
type Printk = printk.Line

// ParsePrintk reads a record of the trace ring.
func ParsePrintk(rec []byte) (Printk, error) { return printk.Parse(rec) }

// TraceMap is the ring that trace_printk writes to in the target. A segment for programs that use
// it needs one more map, this one.
func TraceMap() *MapSpec { return &MapSpec{Name: ".trace", Type: RingBuf, MaxEntries: 64 << 10} }

// Flags of a map's definition that mean something here.
const (
	FlagNoPrealloc  = 1 << 0                                           // ignored: everything is preallocated
	flagsIgnored    = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<6 | 1<<11 | 1<<12 // BPF_F_NO_COMMON_LRU, _NUMA_NODE, _RDONLY, _WRONLY (of loaders), _ZERO_SEED, _PRESERVE_ELEMS, _INNER_MAP
	FlagReadOnly    = 1 << 7                                           // BPF_F_RDONLY_PROG
	FlagWriteOnly   = 1 << 8                                           // BPF_F_WRONLY_PROG
	FlagMmapable    = 1 << 10
	knownMapFlags   = FlagNoPrealloc | flagsIgnored | FlagReadOnly | FlagWriteOnly | FlagMmapable
	maxSegment      = 1 << 43
	segmentAlign    = 64
	maxKey          = 16 << 10 // strings are keys
	MaxValue        = 1 << 20  // bytes of a value
	maxHashElements = 1 << 26
)

// Limits of rings, in bytes, and of traces.
const (
	MinRing = 4096
	MaxRing = 1 << 28

	perfRing = 64 << 10 // a perf event array's, whose definition names none

	MaxTrace = 127 // addresses of one trace
)

// MapSpec is a map's definition.
type MapSpec struct {
	Name       string
	Type       MapType
	KeySize    uint32
	ValueSize  uint32
	MaxEntries uint32 // of a ring buffer: the bytes of one thread's ring
	Flags      uint32

	// The types that the object gives for them, nil for none.
	Key, Value btf.Type

	// Declared is the map as the object declares it, if it is stored as another kind; else nil.
	Declared *Declared

	// Pinned says that a kernel would keep it in a file, for later users. Here it is as any other.
	Pinned bool

	// Apart says that in a pool each target has one of its own all the same.
	Apart bool

	// Initial contents: of an array, value by index; of a hash, by key.
	Contents []KeyValue
}

// KeyValue is an element.
type KeyValue struct{ Key, Value []byte }

func (s *MapSpec) hash() bool {
	return s.Type == Hash || s.Type == PerCPUHash || s.lru()
}
func (s *MapSpec) lru() bool { return s.Type == LRUHash || s.Type == LRUPerCPUHash }

// Indexed tells of maps whose values lie one behind the other, by their keys, which are numbers.
func (s *MapSpec) Indexed() bool { return s.array() || s.Type == StackTrace }

func (s *MapSpec) array() bool { return s.Type == Array || s.Type == PerCPUArray }
func (s *MapSpec) ring() bool  { return s.Type == RingBuf || s.Type == PerfEventArray }
func (s *MapSpec) perCPU() bool {
	return s.Type == PerCPUHash || s.Type == PerCPUArray || s.Type == LRUPerCPUHash
}

// geometry is the header's content. It follows from a definition and the number of thread slots
// alone.
type geometry struct {
	elems, slots, buckets, ringSize uint32
	index, keys, values             uint64
	keyStride, valueStride          uint32
	slotStride                      uint64
	each                            uint64 // this map's part of it
	size                            uint64 // of what all slots share
	end                             uint64 // of the whole map
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// Check says what is wrong with a definition, in a sentence.
func (s *MapSpec) Check() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("bpf: map %q (%v): %s", s.Name, s.Type, fmt.Sprintf(format, a...))
	}
	switch {
	case s.Type.String() == "":
		return fmt.Errorf("bpf: map %q: type %d is not supported (array, hash, their per-CPU and LRU kinds, ring buffer, perf event array, stack trace, queue, stack, bloom filter, LPM trie, task storage, program array, maps of maps are)", s.Name, uint32(s.Type))
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
	case s.Declared != nil && s.ValueSize > maxStored:
		return bad("a %s of %d bytes: up to %d", declaredNames[s.Declared.Type], s.ValueSize, maxStored)
	case s.Declared != nil && s.Declared.MaxEntries == 0 && s.is(Queue, Stack, BloomFilter, LPMTrie):
		return bad("max_entries is 0: the object leaves it to its loader, so say how many (--entries %s=NUMBER)", s.Name)
	case s.ValueSize == 0 || s.ValueSize > MaxValue && s.Declared == nil:
		return bad("value of %d bytes: must be 1 to %d", s.ValueSize, MaxValue)
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
	at := uint64(layout.HeaderSize)
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
			g.ringSize = perfRing
		}
		g.keys = at
		g.each = layout.RingData + uint64(g.ringSize)
		g.size = at
		return g
	case s.hash():
		n := uint64(s.MaxEntries)
		if !s.lru() {
			n *= 2
		}
		g.buckets = uint32(roundUp(n, layout.BucketSlots) / layout.BucketSlots)
		g.elems = g.buckets * layout.BucketSlots
		g.keyStride = uint32(roundUp(uint64(s.KeySize), 8))
		take(uint64(g.buckets) * layout.BucketSize)
	case s.Type == StackTrace:
		take(uint64(g.elems) * layout.TraceIndexSize)
	}
	g.keys = take(uint64(g.elems) * uint64(g.keyStride))
	g.valueStride = uint32(roundUp(uint64(s.ValueSize), 8))
	values := uint64(g.elems) * uint64(g.valueStride)
	if s.perCPU() {
		g.slots, g.each = uint32(slots), roundUp(values, segmentAlign)
	} else {
		g.values = take(values)
	}
	g.size = at
	return g
}

// Layout says where maps lie in a segment. Each thread slot has a part of its own, behind the
// memory that all slots share. These parts follow one another, so that a segment can grow with the
// threads. The last slot is the controller's, and its part comes first.
type Layout struct {
	Maps  []*MapSpec
	Slots int      // thread slots
	Offs  []uint64 // of each map's header in the segment, a multiple of 64
	Size  uint64   // of the whole segment
	Pool  uint64   // of the pool; 0 where there is none

	inPool  []bool // of each map, whether it lies there
	geo     []geometry
	slotted uint64 // where the slots begin
	each    uint64 // how long one is
}

// Arrange gives every map its place in one segment, for that many thread slots. The result depends
// on nothing else: the same maps get the same places wherever they are arranged.
func Arrange(maps []*MapSpec, slots int) (*Layout, error) {
	return arrange(maps, slots, func(*MapSpec) bool { return false })
}

func arrange(maps []*MapSpec, slots int, pooled func(*MapSpec) bool) (*Layout, error) {
	if slots < 1 {
		return nil, fmt.Errorf("bpf: %d thread slots", slots)
	}
	l := &Layout{Maps: maps, Slots: slots}
	for _, s := range maps {
		if err := s.Check(); err != nil {
			return nil, err
		}
		g := s.place(slots)
		size := &l.slotted
		if pooled(s) {
			size = &l.Pool
		}
		l.Offs = append(l.Offs, *size)
		l.inPool = append(l.inPool, size == &l.Pool)
		l.geo = append(l.geo, g)
		*size += g.size
		l.each += g.each
		if all := g.size + g.each*uint64(slots); all > maxSegment || *size > maxSegment || l.each*uint64(slots) > maxSegment {
			return nil, fmt.Errorf("bpf: map %q (%v) takes %d bytes with %d thread slots: more than %d", s.Name, s.Type, all, slots, uint64(maxSegment))
		}
	}
	l.Size = l.slotted + uint64(slots)*l.each
	first := l.slotted
	if slots > 1 {
		first += l.each
	}
	for i := range l.geo {
		g := &l.geo[i]
		g.end = g.size
		if g.each > 0 {
			g.values, g.slotStride, g.end = first-l.Offs[i], l.each, l.Size-l.Offs[i]
			first += g.each
		}
	}
	return l, nil
}

// SizeFor is the size of the part of the segment that so many threads, and the controller, write
// to: the rest need not exist.
func (l *Layout) SizeFor(threads int) uint64 {
	return l.slotted + uint64(min(1+threads, l.Slots))*l.each
}

// holds tells whether the byte at a distance from a map's header is the map's.
func (g *geometry) holds(off uint64) bool {
	return off < g.size || g.each > 0 && off < g.end && off >= g.first() && (off-g.first())%g.slotStride < g.each
}

// first is the offset of the values, or of the rings: those of the last slot are the lowest.
func (g *geometry) first() uint64 { return g.values + g.slotOff(int(g.slots)-1) }

// slotOff tells the distance from slot 0 to another slot: the last one is before it.
func (g *geometry) slotOff(slot int) uint64 {
	if slot > 0 && slot == int(g.slots)-1 {
		slot = -1
	}
	return uint64(slot) * g.slotStride
}

// Values is the offset of a map's value 0, slot 0, in the segment. An array's inlined lookup uses
// it, and loads of global data do.
func (l *Layout) Values(m int) uint64 { return l.Offs[m] + l.geo[m].values }

// Keys is the offset of a map's key 0 in the segment, in bytes. A hash's inlined lookup uses it, as
// it does Index and Buckets.
func (l *Layout) Keys(m int) uint64 { return l.Offs[m] + l.geo[m].keys }

// Index is the offset of a hash's index in the segment, in bytes.
func (l *Layout) Index(m int) uint64 { return l.Offs[m] + l.geo[m].index }

// Buckets is the number of buckets of a hash's index; 0 where the map has none.
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
