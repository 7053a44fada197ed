package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"unsafe"

	"kprobe/bpf/layout"
)

// Segment is the shared memory of a Layout as the controller sees it.
type Segment struct {
	*Layout
	Base uint64 // where it is mapped in the target

	// Given tells how many thread slots have been given out so far, the first ones: those of other
	// threads are left alone. Nil for all of them. It may be called at any time, by any goroutine.
	Given func() int

	mem memory

	pool     memory // nil where there is none
	poolBase uint64 // where the target has it
}

// memory is shared with running machine code. So each word that may be written at the same time is
// read and written whole: atomically.
type memory []byte

func (m memory) u32(off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&m[off : off+4][0])) }
func (m memory) u64(off uint64) *uint64 { return (*uint64)(unsafe.Pointer(&m[off : off+8][0])) }

// read copies bytes out of 8-aligned memory that is padded to words.
func (m memory) read(off uint64, to []byte) {
	var w [8]byte
	for ; len(to) > 0; off += 8 {
		binary.LittleEndian.PutUint64(w[:], atomic.LoadUint64(m.u64(off)))
		to = to[copy(to, w[:]):]
	}
}

// write is the reverse of read. The padding of the last word becomes 0.
func (m memory) write(off uint64, from []byte) {
	for ; len(from) > 0; off += 8 {
		var w [8]byte
		from = from[copy(w[:], from):]
		atomic.StoreUint64(m.u64(off), binary.LittleEndian.Uint64(w[:]))
	}
}

func (m memory) zero(off, n uint64) {
	for end := off + n; off < end; off += 8 {
		atomic.StoreUint64(m.u64(off), 0)
	}
}

// equal compares with 8-aligned, zero-padded memory.
func (m memory) equal(off uint64, b []byte) bool {
	for ; len(b) > 0; off += 8 {
		var w [8]byte
		b = b[copy(w[:], b):]
		if atomic.LoadUint64(m.u64(off)) != binary.LittleEndian.Uint64(w[:]) {
			return false
		}
	}
	return true
}

// Bind lays the layout over memory: the controller's mapping of the memory that the target has at
// base. Both must be aligned to 64 bytes, the memory Size bytes long. Init makes its first
// contents.
func (l *Layout) Bind(mem []byte, base uint64) (*Segment, error) {
	switch {
	case uint64(len(mem)) < l.Size:
		return nil, fmt.Errorf("bpf: segment of %d bytes, the layout takes %d", len(mem), l.Size)
	case base%segmentAlign != 0:
		return nil, fmt.Errorf("bpf: segment at %#x: not a multiple of %d", base, segmentAlign)
	case binary.NativeEndian.Uint16([]byte{1, 0}) != 1:
		return nil, errors.New("bpf: this host is big-endian, maps are not")
	}
	return &Segment{Layout: l, Base: base, mem: mem[:l.Size:l.Size]}, nil
}

// Words is n bytes of zeros for a segment of the controller's own. They cost nothing until they are
// touched.
func Words(n uint64) []byte {
	words := make([]uint64, n/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))[:n]
}

// Init writes the maps' headers and initial contents into memory that is all zeros: of those that
// are not in a pool.
func (s *Segment) Init() error {
	return s.init(func(m int) bool { return !s.inPool[m] })
}

func (s *Segment) init(which func(m int) bool) error {
	for i, spec := range s.Maps {
		if !which(i) {
			continue
		}
		m, g := s.Map(i), &s.geo[i]
		for _, w := range []struct {
			off uint64
			v   uint32
		}{
			{layout.HdrType, uint32(spec.Type)}, {layout.HdrKeySize, spec.KeySize}, {layout.HdrValueSize, spec.ValueSize},
			{layout.HdrMaxEntries, spec.MaxEntries}, {layout.HdrElems, g.elems}, {layout.HdrSlots, g.slots},
			{layout.HdrBuckets, g.buckets}, {layout.HdrRingSize, g.ringSize},
			{layout.HdrKeyStride, g.keyStride}, {layout.HdrValueStride, g.valueStride},
		} {
			*m.mem.u32(w.off) = w.v
		}
		*m.mem.u64(layout.HdrIndex), *m.mem.u64(layout.HdrKeys) = g.index, g.keys
		*m.mem.u64(layout.HdrValues), *m.mem.u64(layout.HdrSlotStride) = g.values, g.slotStride
		if spec.OfMaps() {
			if err := m.fillInner(); err != nil {
				return fmt.Errorf("initial contents: %w", err)
			}
		}
		for _, kv := range spec.Contents {
			if err := m.Update(kv.Key, kv.Value, UpdateAny); err != nil {
				return fmt.Errorf("initial contents: %w", err)
			}
		}
	}
	return nil
}

// Map is the map of index i.
func (s *Segment) Map(i int) *Map {
	mem, at := s.room(i)
	return &Map{Spec: s.Maps[i], Addr: s.Base + s.Offs[i], geometry: s.geo[i], given: s.Given, mem: mem[at : at+s.geo[i].end]}
}

// Map is one map in a segment, used by the target at the same time. The geometry is worked out here
// and never read back from shared memory, which the target may have overwritten.
type Map struct {
	Spec *MapSpec
	Addr uint64 // of its header in the target

	geometry
	given func() int
	mem   memory
}

// errno is an error that a helper answers, as a positive number.
type errno int

var errnoText = map[errno]string{
	ENOENT: "no such key", E2BIG: "map is full", EEXIST: "key exists", EINVAL: "invalid argument",
	EBUSY: "map is locked by a thread that does not go on", EAGAIN: "ring is full",
	EFAULT: "bad address", ENOSPC: "ring is full",
}

func (e errno) Error() string { return errnoText[e] }

// The errors of Map's operations, wrapped: test with errors.Is.
const (
	ErrNotExist = errno(ENOENT)
	ErrExist    = errno(EEXIST)
	ErrFull     = errno(E2BIG)
	ErrBusy     = errno(EBUSY)
	ErrInvalid  = errno(EINVAL)
)

// failed is the error of an operation; nil for none.
func (m *Map) failed(what string, e errno) error {
	if e == 0 {
		return nil
	}
	return fmt.Errorf("bpf: map %q: %s: %w", m.Spec.Name, what, e)
}

// valueOff is the offset of an element's value from the header.
func (m *Map) valueOff(elem uint32, slot int) uint64 {
	return m.values + m.slotOff(slot) + uint64(elem)*uint64(m.valueStride)
}

// value copies an element's value of one slot.
func (m *Map) value(elem uint32, slot int) []byte {
	v := make([]byte, m.Spec.ValueSize)
	m.mem.read(m.valueOff(elem, slot), v)
	return v
}

// find is the element of a key: map_lookup_elem without the slot.
func (m *Map) find(key []byte) (elem uint32, ok bool) {
	if m.Spec.hash() {
		home, other, tag := m.places(key)
		elem, ok = m.search(key, home, other, tag)
		return elem, ok
	}
	elem = binary.LittleEndian.Uint32(key)
	return elem, elem < m.elems
}

// update is map_update_elem: the slot's value. The other slots' are zeroed where
// the key is new, and where total.
func (m *Map) update(key, value []byte, flags uint64, slot int, total bool) errno {
	if flags > UpdateExist {
		return EINVAL
	}
	if m.Spec.hash() {
		return m.updateHash(key, value, flags, slot, total)
	}
	elem, ok := m.find(key)
	switch {
	case !m.Spec.array():
		return EINVAL
	case !ok:
		return E2BIG
	case flags == UpdateNoExist:
		return EEXIST
	}
	m.store(elem, value, slot, total)
	return 0
}

// store writes an element's value.
func (m *Map) store(elem uint32, value []byte, slot int, clear bool) {
	slot %= int(m.slots)
	if clear && m.slots > 1 {
		for s := range m.writtenSlots() {
			if s != slot {
				m.mem.zero(m.valueOff(elem, s), uint64(m.valueStride))
			}
		}
	}
	m.mem.write(m.valueOff(elem, slot), value)
}

// Lookup copies the value of a key; of an LPM trie, of the longest prefix that the key begins with.
// The value of a per-CPU map is the threads' added up, as integers of 8 bytes, or of 4 where it is
// no multiple of 8; see Threads for each alone. Errors: ErrNotExist, ErrInvalid.
func (m *Map) Lookup(key []byte) ([]byte, error) {
	elem, err := m.element(key)
	if err != nil {
		return nil, err
	}
	var values [][]byte
	for s := range m.writtenSlots() {
		values = append(values, m.value(elem, s))
	}
	return Sum(values), nil
}

// Threads copies the values of a key, one per thread slot; of a map that is not
// per CPU, the one. Errors: ErrNotExist, ErrInvalid.
func (m *Map) Threads(key []byte) ([][]byte, error) {
	elem, err := m.element(key)
	if err != nil {
		return nil, err
	}
	return m.threads(elem), nil
}

// element finds a key's element.
func (m *Map) element(key []byte) (elem uint32, err error) {
	if m.Spec.ring() || m.Spec.Inside() || len(key) != int(m.Spec.KeySize) {
		return 0, m.failed("lookup", EINVAL)
	}
	elem, ok := m.find(key)
	if m.Spec.is(LPMTrie) {
		elem, ok = m.longest(key)
	}
	if !ok {
		return 0, m.failed("lookup", ENOENT)
	}
	return elem, nil
}

func (m *Map) threads(elem uint32) [][]byte {
	values, size := make([][]byte, m.slots), int(m.Spec.ValueSize)
	all := make([]byte, len(values)*size)
	for s := range values {
		values[s] = all[s*size:][:size:size]
	}
	for s := range m.writtenSlots() {
		m.mem.read(m.valueOff(elem, s), values[s])
	}
	return values
}

// Sum adds up values of threads, member by member: members of 8 bytes, or of 4
// where the size is no multiple of 8, or of 1.
func Sum(values [][]byte) []byte {
	total := append([]byte(nil), values[0]...)
	for _, v := range values[1:] {
		switch {
		case len(v)%8 == 0:
			for i := 0; i < len(v); i += 8 {
				binary.LittleEndian.PutUint64(total[i:], binary.LittleEndian.Uint64(total[i:])+binary.LittleEndian.Uint64(v[i:]))
			}
		case len(v)%4 == 0:
			for i := 0; i < len(v); i += 4 {
				binary.LittleEndian.PutUint32(total[i:], binary.LittleEndian.Uint32(total[i:])+binary.LittleEndian.Uint32(v[i:]))
			}
		default:
			for i := range v {
				total[i] += v[i]
			}
		}
	}
	return total
}

// Update sets the value of a key; of a per-CPU map, the sum: one slot has the
// value, the others 0. Flags are UpdateAny, UpdateNoExist, UpdateExist. Errors:
// ErrNotExist, ErrExist, ErrFull, ErrBusy, ErrInvalid.
func (m *Map) Update(key, value []byte, flags uint64) error {
	key, ok := m.key(key)
	if m.Spec.ring() || !ok || len(value) != int(m.Spec.ValueSize) {
		return m.failed("update", EINVAL)
	}
	return m.failed("update", m.update(key, value, flags, 0, true))
}

// Delete removes a key. Errors: ErrNotExist, ErrBusy; ErrInvalid for a map whose keys do not come
// and go.
func (m *Map) Delete(key []byte) error {
	key, ok := m.key(key)
	if !ok {
		return m.failed("delete", EINVAL)
	}
	return m.failed("delete", m.remove(key))
}

// remove is map_delete_elem.
func (m *Map) remove(key []byte) errno {
	switch {
	case m.Spec.hash():
		return m.removeHash(key)
	case m.Spec.Type == StackTrace:
		if elem, ok := m.find(key); ok && atomic.SwapUint32(m.mem.u32(m.traceOff(elem)), 0) != 0 {
			return 0
		}
		return ENOENT
	}
	return EINVAL
}

// next copies the key of the first element from the given one on, and is that element's
// number and one more; 0 where there is none.
func (m *Map) next(key []byte, from uint64) uint64 {
	for elem := from; elem < uint64(m.elems); elem++ {
		off := m.tagOff(uint32(elem))
		tag := atomic.LoadUint32(m.mem.u32(off))
		if tag&^layout.TagBusy == layout.TagFree {
			continue
		}
		b := make([]byte, m.Spec.KeySize)
		m.mem.read(m.keyOff(uint32(elem)), b)
		if atomic.LoadUint32(m.mem.u32(off)) == tag {
			copy(key, b)
			return elem + 1
		}
	}
	return 0
}

// keyAt copies the key of an element; false where there is none now.
func (m *Map) keyAt(elem uint32, key []byte) bool {
	if m.Spec.hash() {
		tag := atomic.LoadUint32(m.mem.u32(m.tagOff(elem)))
		if tag&^layout.TagBusy == layout.TagFree {
			return false
		}
		m.mem.read(m.keyOff(elem), key)
		return atomic.LoadUint32(m.mem.u32(m.tagOff(elem))) == tag
	}
	binary.LittleEndian.PutUint32(key, elem)
	if m.Spec.Type == StackTrace {
		n := atomic.LoadUint32(m.mem.u32(m.traceOff(elem)))
		return n != 0 && n != layout.TraceBusy
	}
	return true
}

// All goes over the elements: keys, and the values as Threads gives them. Of a stack trace map it
// gives the traces, of a queue or a stack the values, oldest first, without keys. An element that
// comes or goes meanwhile may be missed or seen, never half.
func (m *Map) All() iter.Seq2[[]byte, [][]byte] {
	if m.Spec.Inside() {
		return m.cells
	}
	return func(yield func([]byte, [][]byte) bool) {
		for elem := range m.elems {
			key := make([]byte, m.Spec.KeySize)
			if m.keyAt(elem, key) && !yield(key, m.threads(elem)) {
				return
			}
		}
	}
}

// Words copies elements of an array of words, from the first on, each as Lookup gives it: those of all threads added
// up. Errors: ErrNotExist where the array has not so many, ErrInvalid.
func (m *Map) Words(first uint32, sums []uint64) error {
	if !m.Spec.array() || m.Spec.Inside() || m.Spec.ValueSize != 8 {
		return m.failed("words", EINVAL)
	}
	if n := uint64(len(sums)); n > uint64(m.elems) || uint64(first) > uint64(m.elems)-n {
		return m.failed("words", ENOENT)
	}
	clear(sums)
	for s := range m.writtenSlots() {
		for i := range sums {
			sums[i] += atomic.LoadUint64(m.mem.u64(m.valueOff(first+uint32(i), s)))
		}
	}
	return nil
}
