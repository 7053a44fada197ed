package bpf

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"kprobe/bpf/layout"
)

// Some kinds of maps are unknown to the engines. Such a map is stored as another kind that they
// have, and its operations are made of instructions that they have (see made.go). The controller
// works on the same bytes in the same way.
//
//	queue, stack   an array of one value: lock, oldest, count, then the cells, a ring
//	bloom filter   an array of one value: the bits
//	LPM trie       a hash by the prefix: its length, and its bits with zeros behind
//	task storage   an LRU hash by the thread's id
//	program array  an array that is not read: a tail call is a choice of calls
//	cgroup array   an array that is not read: tools have one, for a filter that is off
//	map of maps    an array or a hash of numbers: a lookup is a choice of maps (see inner.go)

// Declared is a map as the object declares it, if it is stored as another kind.
type Declared struct {
	Type       MapType
	KeySize    uint32
	ValueSize  uint32
	MaxEntries uint32
	Extra      uint64            // map_extra: of a bloom filter, how many bits a value sets
	Entries    map[uint32]string // by index: of a program array the programs, of a map of maps the maps
	Inner      []string          // names of the maps that may be in a map of maps
	Template   *MapSpec          // the shape of such a map, nil where the object does not give it
}

const (
	progArray   MapType = 3
	cgroupArray MapType = 8
	LPMTrie     MapType = 11
	arrayOfMaps MapType = 12
	hashOfMaps  MapType = 13
	Queue       MapType = 22
	Stack       MapType = 23
	taskStorage MapType = 29
	BloomFilter MapType = 30
)

// A queue's or stack's value: a ring of cells, in use from the oldest on.
const (
	queueLock   = 0  // u32: 1 during a push or a pop
	queueOldest = 8  // u32: the cell
	queueCount  = 16 // u32: of cells in use
	queueCells  = 64

	maxCell    = 512     // bytes of a value in a queue
	maxStored  = 1 << 26 // bytes of all cells, or of a filter
	maxTrie    = 64      // bytes of an LPM trie's data
	maxStorage = 256     // bytes of a thread's value

	taskThreads = 16384 // threads with a value, whose number the object does not say
	bloomHashes = 5     // where the object does not say
)

func cellSize(value uint32) uint32 { return uint32(roundUp(uint64(value), 8)) }

// declare gives a map of such a kind the form in which it is stored; other maps stay as they are.
func (s *MapSpec) declare(extra uint64) error {
	d := &Declared{Type: s.Type, KeySize: s.KeySize, ValueSize: s.ValueSize, MaxEntries: s.MaxEntries, Extra: extra}
	switch s.Type {
	case progArray, cgroupArray, LPMTrie, arrayOfMaps, hashOfMaps, Queue, Stack, taskStorage, BloomFilter:
		s.Declared = d
	}
	return s.store()
}

// wrong says what is wrong with a definition.
func (s *MapSpec) wrong(format string, a ...any) error {
	return fmt.Errorf("bpf: map %q: %s", s.Name, fmt.Sprintf(format, a...))
}

// store works out the form in which a declared map is stored.
func (s *MapSpec) store() error {
	d := s.Declared
	if d == nil {
		return nil
	}
	array := func(size uint64) {
		s.Type, s.KeySize, s.MaxEntries = Array, 4, 1
		s.ValueSize = uint32(min(size, 1<<32-1)) // check refuses it
	}
	name := declaredNames[d.Type]
	switch d.Type {
	case Queue, Stack:
		if d.KeySize != 0 || d.ValueSize == 0 || d.ValueSize > maxCell {
			return s.wrong("a %s has no key, and values of 1 to %d bytes (key %d, value %d)", name, maxCell, d.KeySize, d.ValueSize)
		}
		array(queueCells + uint64(d.MaxEntries)*uint64(cellSize(d.ValueSize)))
	case BloomFilter:
		if d.KeySize != 0 || d.ValueSize == 0 || d.ValueSize > maxCell || d.Extra > 15 {
			return s.wrong("a %s has no key, values of 1 to %d bytes, and up to 15 bits a value (key %d, value %d, bits %d)", name, maxCell, d.KeySize, d.ValueSize, d.Extra)
		}
		array(d.bloomBits() / 8)
	case LPMTrie:
		if d.KeySize <= 4 || d.KeySize > 4+maxTrie {
			return s.wrong("the key of an %s is a length of 4 bytes, then 1 to %d bytes, not %d in all", name, maxTrie, d.KeySize)
		}
		s.Type = Hash
	case taskStorage:
		if d.ValueSize > maxStorage {
			return s.wrong("%s of %d bytes a thread: up to %d", name, d.ValueSize, maxStorage)
		}
		s.Type, s.KeySize, s.MaxEntries = LRUHash, 4, taskThreads
	case arrayOfMaps:
		s.Type, s.ValueSize = Array, 4
	case hashOfMaps:
		s.Type, s.ValueSize = Hash, 4
	case progArray, cgroupArray:
		array(8)
	}
	return nil
}

// bloomBits is the size of a filter with few errors, the kernel's rule: 7 bits of 5 for each that
// is set, rounded up to a power of two.
func (d *Declared) bloomBits() uint64 {
	n := uint64(max(d.MaxEntries, 1)) * d.bloomHashes() * 7 / 5
	return max(64, uint64(1)<<bits.Len64(n-1))
}

func (d *Declared) bloomHashes() uint64 {
	if d.Extra == 0 {
		return bloomHashes
	}
	return d.Extra
}

// is tells whether a map was declared as one of the kinds.
func (s *MapSpec) is(kinds ...MapType) bool {
	if s.Declared != nil {
		for _, k := range kinds {
			if s.Declared.Type == k {
				return true
			}
		}
	}
	return false
}

// Inside tells whether the map's array has no keys for its users.
func (s *MapSpec) Inside() bool {
	return s.is(Queue, Stack, BloomFilter, progArray, cgroupArray, arrayOfMaps, hashOfMaps)
}

// key is the key that an element is kept under, false if the bytes cannot be one.
func (m *Map) key(key []byte) ([]byte, bool) {
	switch {
	case m.Spec.Inside() || len(key) != int(m.Spec.KeySize):
		return nil, false
	case m.Spec.is(LPMTrie):
		return m.Spec.Declared.prefix(key, binary.LittleEndian.Uint32(key))
	}
	return key, true
}

// cells goes over the values of a queue or a stack.
func (m *Map) cells(yield func([]byte, [][]byte) bool) {
	if !m.Spec.is(Queue, Stack) {
		return
	}
	var all [][]byte
	m.locked(func(oldest, count *uint32) errno {
		for i := range *count {
			value := make([]byte, m.Spec.Declared.ValueSize)
			m.mem.read(m.cell((*oldest+i)%m.Spec.Declared.MaxEntries), value)
			all = append(all, value)
		}
		return 0
	})
	for _, value := range all {
		if !yield(nil, [][]byte{value}) {
			return
		}
	}
}

var declaredNames = map[MapType]string{Queue: "queue", Stack: "stack", BloomFilter: "bloom filter", LPMTrie: "LPM trie",
	taskStorage: "task storage", progArray: "program array", cgroupArray: "cgroup array", arrayOfMaps: "map of maps", hashOfMaps: "map of maps"}

// Push adds a value to a queue, a stack or a bloom filter. Flags are UpdateAny and, of the first
// two, UpdateExist: the oldest value makes room. Errors: ErrFull, ErrBusy, ErrInvalid.
func (m *Map) Push(value []byte, flags uint64) error {
	d := m.Spec.Declared
	switch {
	case !m.Spec.is(Queue, Stack, BloomFilter) || len(value) != int(d.ValueSize), flags != UpdateAny && flags != UpdateExist:
		return m.failed("push", EINVAL)
	case d.Type == BloomFilter:
		for bit := range d.bloom(value) {
			atomic.OrUint64(m.mem.u64(m.values+bit/64*8), 1<<(bit%64))
		}
		return nil
	}
	return m.failed("push", m.locked(func(oldest, count *uint32) errno {
		n := d.MaxEntries
		if *count >= n {
			if flags != UpdateExist {
				return E2BIG
			}
			*oldest, *count = (*oldest+1)%n, n-1
		}
		m.mem.write(m.cell((*oldest+*count)%n), value)
		*count++
		return 0
	}))
}

// Pop takes the next value out of a queue or a stack: its oldest, or its newest.
// Errors: ErrNotExist, ErrBusy, ErrInvalid.
func (m *Map) Pop() ([]byte, error) { return m.takeOut("pop", true) }

// Peek answers what Pop would, and leaves it there. Errors: those of Pop.
func (m *Map) Peek() ([]byte, error) { return m.takeOut("peek", false) }

func (m *Map) takeOut(what string, out bool) (value []byte, err error) {
	if !m.Spec.is(Queue, Stack) {
		return nil, m.failed(what, EINVAL)
	}
	d := m.Spec.Declared
	value = make([]byte, d.ValueSize)
	err = m.failed(what, m.locked(func(oldest, count *uint32) errno {
		if *count == 0 {
			return ENOENT
		}
		at := *oldest
		if d.Type == Stack {
			at = (*oldest + *count - 1) % d.MaxEntries
		}
		m.mem.read(m.cell(at), value)
		if out {
			if *count--; d.Type == Queue {
				*oldest = (*oldest + 1) % d.MaxEntries
			}
		}
		return 0
	}))
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Has tells whether a bloom filter may have had a value: false is certain. Errors: ErrInvalid.
func (m *Map) Has(value []byte) (bool, error) {
	d := m.Spec.Declared
	if !m.Spec.is(BloomFilter) || len(value) != int(d.ValueSize) {
		return false, m.failed("has", EINVAL)
	}
	for bit := range d.bloom(value) {
		if atomic.LoadUint64(m.mem.u64(m.values+bit/64*8))>>(bit%64)&1 == 0 {
			return false, nil
		}
	}
	return true, nil
}

func (m *Map) cell(i uint32) uint64 {
	return m.values + queueCells + uint64(i)*uint64(cellSize(m.Spec.Declared.ValueSize))
}

// locked does something with a queue under its lock. Numbers that the target may have changed there
// are not believed.
func (m *Map) locked(do func(oldest, count *uint32) errno) errno {
	lock := m.mem.u32(m.values + queueLock)
	for range layout.LockTries {
		if !atomic.CompareAndSwapUint32(lock, 0, 1) {
			continue
		}
		oldest, count := atomic.LoadUint32(m.mem.u32(m.values+queueOldest)), atomic.LoadUint32(m.mem.u32(m.values+queueCount))
		e := errno(EINVAL)
		if n := m.Spec.Declared.MaxEntries; oldest < n && count <= n {
			e = do(&oldest, &count)
			atomic.StoreUint32(m.mem.u32(m.values+queueOldest), oldest)
			atomic.StoreUint32(m.mem.u32(m.values+queueCount), count)
		}
		atomic.StoreUint32(lock, 0)
		return e
	}
	return EBUSY
}

// bloom are the bits that a value sets.
func (d *Declared) bloom(value []byte) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		var h uint64
		for _, b := range value {
			h = (h ^ uint64(b)) * layout.HashMul
			h ^= h >> 32
		}
		step := h*layout.HashMul | 1
		for range d.bloomHashes() {
			if !yield(h & (d.bloomBits() - 1)) {
				return
			}
			h += step
		}
	}
}

// prefix is the key that an LPM trie keeps a prefix under, false where its length is none.
func (d *Declared) prefix(key []byte, length uint32) ([]byte, bool) {
	data := d.KeySize - 4
	if length > 8*data {
		return nil, false
	}
	k := append(binary.LittleEndian.AppendUint32(nil, length), key[4:]...)
	for i := range data {
		switch {
		case length <= 8*i:
			k[4+i] = 0
		case length < 8*i+8:
			k[4+i] &= 0xff << (8*i + 8 - length)
		}
	}
	return k, true
}

// longest finds the longest prefix of an LPM trie that a key begins with.
func (m *Map) longest(key []byte) (elem uint32, ok bool) {
	for n := int64(binary.LittleEndian.Uint32(key)); n >= 0; n-- {
		k, valid := m.Spec.Declared.prefix(key, uint32(n))
		if !valid {
			return 0, false
		}
		home, other, tag := m.places(k)
		if elem, ok = m.search(k, home, other, tag); ok {
			return elem, true
		}
	}
	return 0, false
}

// entries takes the object's entries of a program array or a map of maps.
func (s *MapSpec) entries(spec *ebpf.MapSpec) error {
	d := s.Declared
	d.Entries = map[uint32]string{}
	for _, kv := range spec.Contents {
		index, ok := kv.Key.(uint32)
		name, isName := kv.Value.(string)
		switch {
		case !ok || !isName:
			return s.wrong("initial contents of type %T: names of programs and maps are supported", kv.Value)
		case index >= d.MaxEntries && d.MaxEntries > 0:
			return s.wrong("its .values have an element %d, and max_entries is %d", index, d.MaxEntries)
		}
		d.Entries[index] = name
	}
	if spec.InnerMap == nil || !s.OfMaps() {
		return nil
	}
	var err error
	d.Template, err = mapSpec(spec.InnerMap)
	return err
}

// SetTail puts a program into a program array that the object leaves to its loader, before the
// programs are loaded. Errors: no such map, no such program, an index that the array does not have.
func (c *Collection) SetTail(array string, index uint32, program string) error {
	m := c.Map(array)
	switch {
	case m == nil || !m.is(progArray):
		return fmt.Errorf("bpf: no program array %q", array)
	case c.Program(program) == nil:
		return fmt.Errorf("bpf: no program %q", program)
	case index >= m.Declared.MaxEntries:
		return fmt.Errorf("bpf: program array %q has %d places, none of index %d", array, m.Declared.MaxEntries, index)
	}
	m.Declared.Entries[index] = program
	return c.lower()
}

// Unfit says that a helper does not work on this kind of map, and which helpers do.
func (s *MapSpec) Unfit() string {
	use := ""
	switch {
	case s.is(BloomFilter):
		use = ": bpf_map_push_elem adds to it, bpf_map_peek_elem asks it"
	case s.is(Queue, Stack):
		use = ": bpf_map_push_elem, bpf_map_pop_elem and bpf_map_peek_elem do"
	}
	return fmt.Sprintf("does not work on map %q, which is a %s%s", s.Name, s.KindName(), use)
}

// KindName is the name of the map's kind as the object's author wrote it.
func (s *MapSpec) KindName() string {
	if s.Declared != nil {
		return declaredNames[s.Declared.Type]
	}
	return s.Type.String()
}
