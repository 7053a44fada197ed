package recording

import (
	"cmp"
	"slices"
	"time"

	"kprobe/bpf"
	"kprobe/event"
	"kprobe/internal/gen"
)

// Merge puts the records of many rings, and events that were made without, in order of time. While
// one ring is read, others get records older than those that it will have by then. So records that
// are newer than the whole of one look at the rings wait for the next: all older ones have been
// recorded by then. It allocates nothing for an event but texts that are new.
type Merge struct {
	sink  func(*event.Event)
	keys  []key
	data  []byte // the records
	spare []byte
	made  []*event.Event
	seen  time.Duration // the newest of all
	sure  time.Duration // the newest of all looks before this one

	event event.Event
	texts map[string]string
}

// key is a record, or an event, that waits.
type key struct {
	at     time.Duration
	stream *Stream // nil: made[off]
	off, n int     // in data
}

// never is before all times.
const never = time.Duration(-1 << 63)

// NewMerge makes one that hands events to sink, which must not keep them: they are used again.
func NewMerge(sink func(*event.Event)) *Merge {
	return &Merge{sink: sink, seen: never, sure: never, texts: make(map[string]string)}
}

// Add adds a block of records: see bpf.Reader.Drain. It keeps none of it.
func (m *Merge) Add(s *Stream, block []byte) {
	var h gen.Hit
	for rec := range bpf.Records(block) {
		if !s.Head(rec, &h) {
			continue // the target has written over it
		}
		m.add(key{at: time.Duration(h.Time), stream: s, off: len(m.data), n: len(rec)})
		m.data = append(m.data, rec...)
	}
}

// AddEvent adds an event that was made without a record. It becomes the merge's own.
func (m *Merge) AddEvent(e *event.Event) {
	m.add(key{at: e.Time, off: len(m.made)})
	m.made = append(m.made, e)
}

func (m *Merge) add(k key) {
	m.keys = append(m.keys, k)
	m.seen = max(m.seen, k.at)
}

// Emit ends a look at the rings: it hands over all events that no older record can come before, and
// in the end everything.
func (m *Merge) Emit(last bool) {
	order := func(a, b key) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.off, b.off)) }
	if !slices.IsSortedFunc(m.keys, order) { // it is, of one thread
		slices.SortFunc(m.keys, order)
	}
	n := len(m.keys)
	if !last {
		n, _ = slices.BinarySearchFunc(m.keys, m.sure, func(k key, sure time.Duration) int {
			if k.at <= sure {
				return -1
			}
			return 1
		})
	}
	for _, k := range m.keys[:n] {
		m.emit(k)
	}
	m.keep(m.keys[n:])
	m.sure = m.seen
}

// keep moves what waits on to the front.
func (m *Merge) keep(keys []key) {
	data, waiting := m.spare[:0], m.made[:0:0]
	for i := range keys {
		k := &keys[i]
		if k.stream == nil {
			waiting = append(waiting, m.made[k.off])
			k.off = len(waiting) - 1
			continue
		}
		rec := m.data[k.off : k.off+k.n]
		k.off = len(data)
		data = append(data, rec...)
	}
	m.data, m.spare, m.made = data, m.data, waiting
	m.keys = m.keys[:copy(m.keys, keys)]
}

// emit makes the event of a record.
func (m *Merge) emit(k key) {
	s := k.stream
	if s == nil {
		m.sink(m.made[k.off])
		return
	}
	h := &s.hit
	if s.Decode(m.data[k.off:k.off+k.n], h, m.text) != nil {
		return
	}
	p := s.Place(h.Cookie)
	if p == nil {
		return
	}
	e := &m.event
	args := e.Args[:0]
	*e = event.Event{
		Time: time.Duration(h.Time), CPU: int(h.CPU), PID: int(h.Thread >> 32), TID: int(uint32(h.Thread)),
		Group: p.Group, Name: p.Name, Return: p.Return, Addr: p.Addr, Func: p.Func, Off: p.Off, Size: p.Size,
	}
	comm, ok := s.Task(h)
	if !ok {
		comm = s.Comm(e.TID)
	}
	e.Comm = comm
	if p.Return {
		e.RetAddr, _ = s.Caller(h)
		e.RetSym = s.Symbol(e.RetAddr)
	}
	e.Args = s.AppendTo(args, h, s.Symbol)
	if s.Faulty != nil {
		for i := range e.Args {
			if e.Args[i].Fault {
				s.Faulty(h.Cookie)
				break
			}
		}
	}
	m.sink(e)
}

// mostTexts are remembered at once.
const mostTexts = 4096

// text makes a string of bytes, the same one of the same.
func (m *Merge) text(b []byte) string {
	if s, ok := m.texts[string(b)]; ok {
		return s
	}
	if len(m.texts) >= mostTexts {
		clear(m.texts)
	}
	s := string(b)
	m.texts[s] = s
	return s
}
