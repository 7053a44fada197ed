package bpf

import (
	"runtime"
	"sync/atomic"

	"kprobe/bpf/layout"
)

// The hash maps of layout.go. Everything here may run at the same time as the
// target's machine code that does the same.

func (m *Map) bucketOff(b uint32) uint64 { return m.index + uint64(b)*layout.BucketSize }

func (m *Map) tagOff(elem uint32) uint64 {
	return m.bucketOff(elem/layout.BucketSlots) + layout.BucketTags + 4*uint64(elem%layout.BucketSlots)
}

func (m *Map) usedOff(elem uint32) uint64 {
	return m.bucketOff(elem/layout.BucketSlots) + layout.BucketUsed + uint64(elem%layout.BucketSlots)
}

func (m *Map) keyOff(elem uint32) uint64 { return m.keys + uint64(elem)*uint64(m.keyStride) }

// places returns the two buckets where a key may lie, and its tag.
func (m *Map) places(key []byte) (home, other, tag uint32) {
	h := layout.Key(key)
	home, other = layout.Buckets(h, m.buckets)
	return home, other, uint32(h) | layout.TagKey
}

// search is the lookup.
func (m *Map) search(key []byte, home, other, tag uint32) (elem uint32, ok bool) {
	for _, b := range [...]uint32{home, other} {
		for i := range uint32(layout.BucketSlots) {
			elem := b*layout.BucketSlots + i
			if atomic.LoadUint32(m.mem.u32(m.tagOff(elem))) == tag && m.mem.equal(m.keyOff(elem), key) {
				if m.Spec.lru() {
					m.use(elem, true)
				}
				return elem, true
			}
		}
	}
	return 0, false
}

// use marks an element as used or not. The mark is a byte; a neighbour's that is lost
// because two threads write the same word costs an eviction that is not ideal.
func (m *Map) use(elem uint32, yes bool) {
	off := m.usedOff(elem)
	word, bit := m.mem.u64(off&^7), uint64(1)<<(off&7*8)
	v := atomic.LoadUint64(word)
	if yes && v&bit == 0 {
		atomic.StoreUint64(word, v|bit)
	} else if !yes && v&bit != 0 {
		atomic.StoreUint64(word, v&^bit)
	}
}

func (m *Map) used(elem uint32) bool {
	off := m.usedOff(elem)
	return atomic.LoadUint64(m.mem.u64(off&^7))>>(off&7*8)&1 != 0
}

// lock takes a bucket's lock, or gives up.
func (m *Map) lock(bucket uint32) bool {
	word := m.mem.u32(m.bucketOff(bucket) + layout.BucketLock)
	for i := range layout.LockTries {
		if atomic.CompareAndSwapUint32(word, 0, layout.LockController) {
			return true
		}
		// A lock's holder of this process is let run; a holder in the
		// target does not need it.
		if i%64 == 63 {
			runtime.Gosched()
		}
	}
	return false
}

func (m *Map) unlock(bucket uint32) {
	atomic.StoreUint32(m.mem.u32(m.bucketOff(bucket)+layout.BucketLock), 0)
}

// Unlock gives up the locks that a process held when it was killed. An element that it was about to
// store there may be half stored.
func (m *Map) Unlock(pid int) {
	for b := range m.buckets {
		word := m.mem.u32(m.bucketOff(b) + layout.BucketLock)
		if holder := atomic.LoadUint32(word); holder>>layout.LockSlotBits == uint32(pid) && holder != layout.LockController {
			atomic.CompareAndSwapUint32(word, holder, 0)
		}
	}
}

func (m *Map) updateHash(key, value []byte, flags uint64, slot int, total bool) errno {
	home, other, tag := m.places(key)
	if !m.lock(home) {
		return EBUSY
	}
	defer m.unlock(home)
	elem, ok := m.search(key, home, other, tag)
	switch {
	case ok && flags == UpdateNoExist:
		return EEXIST
	case ok:
		m.store(elem, value, slot, total)
		return 0
	case flags == UpdateExist:
		return ENOENT
	}
	elem, e := m.claim(home, other)
	if e != 0 {
		return e
	}
	m.mem.write(m.keyOff(elem), key)
	m.store(elem, value, slot, true)
	if m.Spec.lru() {
		m.use(elem, false)
	}
	atomic.StoreUint32(m.mem.u32(m.tagOff(elem)), tag)
	return 0
}

// claim finds an element for a new key and marks it busy. The home is locked.
func (m *Map) claim(home, other uint32) (elem uint32, e errno) {
	for i := range uint32(layout.BucketSlots) {
		for _, b := range [...]uint32{home, other} {
			elem = b*layout.BucketSlots + i
			if atomic.CompareAndSwapUint32(m.mem.u32(m.tagOff(elem)), layout.TagFree, layout.TagBusy) {
				return elem, 0
			}
		}
	}
	if !m.Spec.lru() {
		return 0, E2BIG
	}
	hand := m.mem.u32(m.bucketOff(home) + layout.BucketHand)
	for range 2 * layout.BucketSlots {
		i := atomic.LoadUint32(hand) % layout.BucketSlots
		atomic.StoreUint32(hand, (i+1)%layout.BucketSlots)
		elem = home*layout.BucketSlots + i
		if m.used(elem) {
			m.use(elem, false)
			continue
		}
		word := m.mem.u32(m.tagOff(elem))
		if tag := atomic.LoadUint32(word); tag != layout.TagBusy && atomic.CompareAndSwapUint32(word, tag, layout.TagBusy) {
			return elem, 0
		}
	}
	return 0, EBUSY
}

func (m *Map) removeHash(key []byte) errno {
	home, other, tag := m.places(key)
	if !m.lock(home) {
		return EBUSY
	}
	defer m.unlock(home)
	elem, ok := m.search(key, home, other, tag)
	if !ok || !atomic.CompareAndSwapUint32(m.mem.u32(m.tagOff(elem)), tag, layout.TagFree) {
		return ENOENT
	}
	return 0
}

func (m *Map) traceOff(elem uint32) uint64 { return m.index + uint64(elem)*layout.TraceIndexSize }

// Flags of get_stackid. Skipping frames is the low byte; the others of the kernel
// that are accepted make no difference here.
const (
	stackSkip  = 0xff
	stackUser  = 1 << 8
	stackFast  = 1 << 9
	stackReuse = 1 << 10
)

// StackEntry is a flag of get_stackid that no kernel has: the probe is where a function begins.
// There the function has no frame of its own yet, and its return address is at the stack pointer.
// Without the flag its caller would be left out, and the caller's caller taken for it.
const StackEntry = 1 << 12

// trace is get_stackid behind the walk: it finds or makes the element of a trace.
func (m *Map) trace(ips []uint64, flags uint64) (id uint32, e errno) {
	h := layout.Trace(ips)
	same := func(elem uint32) bool {
		if atomic.LoadUint32(m.mem.u32(m.traceOff(elem)+layout.TraceHash)) != h {
			return false
		}
		for i, ip := range ips {
			if atomic.LoadUint64(m.mem.u64(m.valueOff(elem, 0)+8*uint64(i))) != ip {
				return false
			}
		}
		return true
	}
	for i := range uint32(layout.TraceProbes) {
		elem := uint32((uint64(h) + uint64(i)) % uint64(m.elems))
		word := m.mem.u32(m.traceOff(elem))
		if atomic.CompareAndSwapUint32(word, 0, layout.TraceBusy) {
			m.storeTrace(elem, h, ips)
			return elem, 0
		}
		if atomic.LoadUint32(word) == uint32(len(ips)) && same(elem) {
			return elem, 0
		}
	}
	if flags&stackReuse == 0 {
		return 0, EEXIST
	}
	elem := h % m.elems
	word := m.mem.u32(m.traceOff(elem))
	if n := atomic.LoadUint32(word); n == layout.TraceBusy || !atomic.CompareAndSwapUint32(word, n, layout.TraceBusy) {
		return 0, EBUSY
	}
	m.storeTrace(elem, h, ips)
	return elem, 0
}

func (m *Map) storeTrace(elem, hash uint32, ips []uint64) {
	for i := range uint64(m.Spec.ValueSize / 8) {
		var ip uint64
		if i < uint64(len(ips)) {
			ip = ips[i]
		}
		atomic.StoreUint64(m.mem.u64(m.valueOff(elem, 0)+8*i), ip)
	}
	atomic.StoreUint32(m.mem.u32(m.traceOff(elem)+layout.TraceHash), hash)
	atomic.StoreUint32(m.mem.u32(m.traceOff(elem)), uint32(len(ips)))
}
