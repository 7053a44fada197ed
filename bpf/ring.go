package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"kprobe/bpf/layout"
)

// ringOff is the offset of a thread slot's ring from the header.
func (m *Map) ringOff(slot int) uint64 { return m.values + m.slotOff(slot) }

// reserve is ringbuf_reserve by the thread that owns the slot: the offset of n
// bytes from the map's header, behind a record word that says busy.
func (m *Map) reserve(slot int, n uint64) (off uint64, ok bool) {
	ring, size := m.ringOff(slot), uint64(m.ringSize)
	head, tail := atomic.LoadUint64(m.mem.u64(ring+layout.RingHead)), atomic.LoadUint64(m.mem.u64(ring+layout.RingTail))
	need := layout.RecordHeader + roundUp(n, 8)
	at, fill := head%size, uint64(0)
	if n <= size && at+need > size {
		fill = size - at
	}
	if n > size || head+fill+need-tail > size {
		atomic.AddUint64(m.mem.u64(ring+layout.RingLost), 1)
		return 0, false
	}
	data := ring + layout.RingData
	if fill > 0 {
		m.setRecord(data+at, uint32(fill-layout.RecordHeader)|layout.RecordDiscard)
		at = 0
	}
	m.setRecord(data+at, uint32(n)|layout.RecordBusy)
	atomic.StoreUint64(m.mem.u64(ring+layout.RingHead), head+fill+need)
	return data + at + layout.RecordHeader, true
}

func (m *Map) setRecord(off uint64, word uint32) { atomic.StoreUint64(m.mem.u64(off), uint64(word)) }

// finish is ringbuf_submit, or ringbuf_discard, of what reserve gave.
func (m *Map) finish(off uint64, discard bool) {
	word := uint32(atomic.LoadUint64(m.mem.u64(off-layout.RecordHeader))) &^ layout.RecordBusy
	if discard {
		word |= layout.RecordDiscard
	}
	m.setRecord(off-layout.RecordHeader, word)
}

// output is ringbuf_output.
func (m *Map) output(slot int, data []byte) bool {
	off, ok := m.reserve(slot, uint64(len(data)))
	if ok {
		m.mem.write(off, data)
		m.finish(off, false)
	}
	return ok
}

// Reader takes records out of a ring buffer or perf event array. There is one
// reader of a map at a time. It never waits: ask again later.
type Reader struct {
	m     *Map
	next  int    // the slot to look at first
	block []byte // room for Drain
}

// Record is one record that a program wrote.
type Record struct {
	Slot int // of the thread that wrote it
	Data []byte
}

// NewReader reads the map's records. Errors: ErrInvalid where it is no ring.
func NewReader(m *Map) (*Reader, error) {
	if !m.Spec.ring() {
		return nil, m.failed("read records", EINVAL)
	}
	return &Reader{m: m}, nil
}

// Read takes the next record, of any thread: each thread's in order, the threads in turn. ok is
// false where there is none now. An error says that the target wrote over its ring. That ring's
// content is skipped and counted as lost once.
func (r *Reader) Read() (rec Record, ok bool, err error) {
	for _, wrapped := range [...]bool{false, true} {
		for slot := range r.m.writtenSlots() {
			if (slot < r.next) != wrapped {
				continue
			}
			if data, ok, err := r.m.take(slot); ok || err != nil {
				r.next = slot
				return Record{slot, data}, ok, err
			}
		}
	}
	return Record{}, false, nil
}

// take reads one record of a slot's ring. Every number in it is looked at before it
// is believed.
func (m *Map) take(slot int) ([]byte, bool, error) {
	ring, size := m.ringOff(slot), uint64(m.ringSize)
	tailWord := m.mem.u64(ring + layout.RingTail)
	for {
		head, tail := atomic.LoadUint64(m.mem.u64(ring+layout.RingHead)), atomic.LoadUint64(tailWord)
		if head == tail {
			return nil, false, nil
		}
		at := tail % size
		word := uint32(0)
		sane := head-tail <= size && tail%8 == 0 && head%8 == 0
		if sane {
			word = uint32(atomic.LoadUint64(m.mem.u64(ring + layout.RingData + at)))
			if word&layout.RecordBusy != 0 {
				return nil, false, nil
			}
		}
		n := uint64(word &^ layout.RecordDiscard)
		next := layout.RecordHeader + roundUp(n, 8)
		if !sane || at+next > size || next > head-tail {
			atomic.StoreUint64(tailWord, head)
			atomic.AddUint64(m.mem.u64(ring+layout.RingLost), 1)
			return nil, false, fmt.Errorf("bpf: map %q: the ring of thread slot %d was overwritten by the target: its records are lost", m.Spec.Name, slot)
		}
		var data []byte
		if word&layout.RecordDiscard == 0 {
			data = make([]byte, n)
			m.mem.read(ring+layout.RingData+at+layout.RecordHeader, data)
		}
		atomic.StoreUint64(tailWord, tail+next)
		if data != nil {
			return data, true, nil
		}
	}
}

// Drain gives all records that there are now, of one thread after the other: of each as one
// block, which is each's until it returns. A record in it is a little-endian 8-byte word with
// the record's length, then the record, and zeros or rubbish up to a multiple of 8. An error
// is as Read's; the other threads' records are given nevertheless.
func (r *Reader) Drain(each func(slot int, records []byte)) error {
	var errs []error
	for slot := range r.m.writtenSlots() {
		var err error
		if r.block, err = r.m.drain(slot, r.block[:0]); err != nil {
			errs = append(errs, err)
		}
		if len(r.block) > 0 {
			each(slot, r.block)
		}
	}
	return errors.Join(errs...)
}

// drain appends a slot's finished records to dst and gives their room back, all at once.
func (m *Map) drain(slot int, dst []byte) ([]byte, error) {
	ring, size := m.ringOff(slot), uint64(m.ringSize)
	tailWord := m.mem.u64(ring + layout.RingTail)
	head, tail := atomic.LoadUint64(m.mem.u64(ring+layout.RingHead)), atomic.LoadUint64(tailWord)
	if head == tail {
		return dst, nil
	}
	sane := head-tail <= size && tail%8 == 0 && head%8 == 0
	from := tail
	for sane && tail != head {
		at := tail % size
		word := uint32(atomic.LoadUint64(m.mem.u64(ring + layout.RingData + at)))
		if word&layout.RecordBusy != 0 {
			break
		}
		n := uint64(word &^ layout.RecordDiscard)
		next := layout.RecordHeader + roundUp(n, 8)
		if sane = at+next <= size && next <= head-tail; !sane {
			break
		}
		if word&layout.RecordDiscard == 0 {
			dst = binary.LittleEndian.AppendUint64(dst, n)
			start := ring + layout.RingData + at + layout.RecordHeader
			dst = append(dst, m.mem[start:start+next-layout.RecordHeader]...) // finished: it is not written any more
		}
		tail += next
	}
	if !sane {
		atomic.StoreUint64(tailWord, head)
		atomic.AddUint64(m.mem.u64(ring+layout.RingLost), 1)
		return dst, fmt.Errorf("bpf: map %q: the ring of thread slot %d was overwritten by the target: its records are lost", m.Spec.Name, slot)
	}
	if tail != from {
		atomic.StoreUint64(tailWord, tail)
	}
	return dst, nil
}

// Records goes over the records of a block of Drain's. It ends where the bytes are no block.
func Records(block []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(block) >= layout.RecordHeader {
			n := binary.LittleEndian.Uint64(block)
			block = block[layout.RecordHeader:]
			if n > uint64(len(block)) || !yield(block[:n]) {
				return
			}
			block = block[min(uint64(len(block)), roundUp(n, 8)):]
		}
	}
}

// Size is the bytes of a thread's ring.
func (r *Reader) Size() int { return int(r.m.ringSize) }

// Lost counts the records that found no room, of all threads together.
func (r *Reader) Lost() (n uint64) {
	for slot := range r.m.writtenSlots() {
		n += atomic.LoadUint64(r.m.mem.u64(r.m.ringOff(slot) + layout.RingLost))
	}
	return n
}
