package bpf

import (
	"fmt"
	"sync/atomic"
)

// ringOff is where a thread slot's ring lies from the header.
func (m *Map) ringOff(slot int) uint64 { return m.values + uint64(slot)*m.slotStride }

// reserve is ringbuf_reserve by the thread that owns the slot: the offset of n
// bytes from the map's header, behind a record word that says busy.
func (m *Map) reserve(slot int, n uint64) (off uint64, ok bool) {
	ring, size := m.ringOff(slot), uint64(m.ringSize)
	head, tail := atomic.LoadUint64(m.mem.u64(ring+RingHead)), atomic.LoadUint64(m.mem.u64(ring+RingTail))
	need := RecordHeader + roundUp(n, 8)
	at, fill := head%size, uint64(0)
	if n <= size && at+need > size {
		fill = size - at
	}
	if n > size || head+fill+need-tail > size {
		atomic.AddUint64(m.mem.u64(ring+RingLost), 1)
		return 0, false
	}
	data := ring + RingData
	if fill > 0 {
		m.setRecord(data+at, uint32(fill-RecordHeader)|RecordDiscard)
		at = 0
	}
	m.setRecord(data+at, uint32(n)|RecordBusy)
	atomic.StoreUint64(m.mem.u64(ring+RingHead), head+fill+need)
	return data + at + RecordHeader, true
}

func (m *Map) setRecord(off uint64, word uint32) { atomic.StoreUint64(m.mem.u64(off), uint64(word)) }

// finish is ringbuf_submit, or ringbuf_discard, of what reserve gave.
func (m *Map) finish(off uint64, discard bool) {
	word := uint32(atomic.LoadUint64(m.mem.u64(off-RecordHeader))) &^ RecordBusy
	if discard {
		word |= RecordDiscard
	}
	m.setRecord(off-RecordHeader, word)
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
	m    *Map
	next int // the slot to look at first
}

// Record is what a program wrote.
type Record struct {
	Slot int // of the thread that wrote it
	Data []byte
}

// NewReader reads the map's records. Errors: ErrInvalid where it is no ring.
func NewReader(m *Map) (*Reader, error) {
	if !m.Spec.ring() {
		return nil, m.fail("read records", EINVAL)
	}
	return &Reader{m: m}, nil
}

// Read takes the next record, of any thread: each thread's in order, the threads in
// turn. ok is false where there is none now. An error says that the target wrote over
// its ring: what that ring held is skipped and counted as lost once.
func (r *Reader) Read() (rec Record, ok bool, err error) {
	for range r.m.slots {
		slot := r.next
		if data, ok, err := r.m.take(slot); ok || err != nil {
			return Record{slot, data}, ok, err
		}
		r.next = (r.next + 1) % int(r.m.slots)
	}
	return Record{}, false, nil
}

// take reads one record of a slot's ring. Every number in it is looked at before it
// is believed.
func (m *Map) take(slot int) ([]byte, bool, error) {
	ring, size := m.ringOff(slot), uint64(m.ringSize)
	tailWord := m.mem.u64(ring + RingTail)
	for {
		head, tail := atomic.LoadUint64(m.mem.u64(ring+RingHead)), atomic.LoadUint64(tailWord)
		if head == tail {
			return nil, false, nil
		}
		at := tail % size
		word := uint32(0)
		sane := head-tail <= size && tail%8 == 0 && head%8 == 0
		if sane {
			word = uint32(atomic.LoadUint64(m.mem.u64(ring + RingData + at)))
			if word&RecordBusy != 0 {
				return nil, false, nil
			}
		}
		n := uint64(word &^ RecordDiscard)
		next := RecordHeader + roundUp(n, 8)
		if !sane || at+next > size || next > head-tail {
			atomic.StoreUint64(tailWord, head)
			atomic.AddUint64(m.mem.u64(ring+RingLost), 1)
			return nil, false, fmt.Errorf("bpf: map %q: the ring of thread slot %d was overwritten by the target: its records are lost", m.Spec.Name, slot)
		}
		var data []byte
		if word&RecordDiscard == 0 {
			data = make([]byte, n)
			m.mem.read(ring+RingData+at+RecordHeader, data)
		}
		atomic.StoreUint64(tailWord, tail+next)
		if data != nil {
			return data, true, nil
		}
	}
}

// Lost counts the records that found no room, of all threads together.
func (r *Reader) Lost() (n uint64) {
	for slot := range int(r.m.slots) {
		n += atomic.LoadUint64(r.m.mem.u64(r.m.ringOff(slot) + RingLost))
	}
	return n
}

// cString is what stands before the NUL.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
