package recording

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/event"
	"kprobe/internal/gen"
)

const (
	chunkSize = 1 << 20 // bytes that are written at once
	waiting   = 32      // chunks that may wait for the disk: then the rings fill up
	idle      = 100 * time.Millisecond
	parts     = 16 // of the records that are kept: so much goes at once
)

// Options make a recording other than a file of everything.
type Options struct {
	// Keep is about how many bytes of records are kept, the newest, which are written by
	// Close; 0 writes all of them as they come.
	Keep int
	// Trigger is the name of the event that closes Triggered; "" for none.
	Trigger string
}

// Writer writes a recording. Its methods, and those of its spaces, may be called by any
// goroutine.
type Writer struct {
	opts      Options
	w         io.Writer
	triggered chan struct{} // closed by the trigger
	failed    chan struct{} // closed by the first error of the file

	mu     sync.Mutex
	spaces uint32
	ids    uint32 // of streams
	meta   []byte // blocks that records need to be read; in a file they stand between them
	chunk  []byte
	handed time.Time // when the last chunk was handed over
	kept   [][]byte  // chunks, the oldest first
	fired  bool
	closed bool

	full, free chan []byte
	done       chan struct{}
	err        error // of the file; for the others once failed or done is closed
}

// NewWriter begins a recording.
func NewWriter(w io.Writer, head Head, o Options) *Writer {
	rec := &Writer{
		opts: o, w: w, triggered: make(chan struct{}), failed: make(chan struct{}), handed: time.Now(),
		full: make(chan []byte, waiting), free: make(chan []byte, waiting), done: make(chan struct{}),
	}
	rec.meta = append(rec.meta, magic...)
	rec.value(kindHead, head)
	go rec.write()
	return rec
}

// Triggered closes when the event of Options.Trigger has come.
func (w *Writer) Triggered() <-chan struct{} { return w.triggered }

// Failed closes when the file cannot be written. Close tells why.
func (w *Writer) Failed() <-chan struct{} { return w.failed }

// write writes chunks, until there is no more to come.
func (w *Writer) write() {
	defer close(w.done)
	for chunk := range w.full {
		if w.err == nil {
			if _, w.err = w.w.Write(chunk); w.err != nil {
				close(w.failed)
			}
		}
		select {
		case w.free <- chunk[:0]:
		default:
		}
	}
}

// Close writes the records that are held back, and the account. No more may come then.
func (w *Writer) Close(end End) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	last := w.chunk
	w.chunk = nil
	w.handOver()
	for _, c := range w.kept {
		w.full <- c
	}
	if len(last) > 0 {
		w.full <- last
	}
	w.value(kindEnd, end)
	w.handOver()
	close(w.full)
	w.mu.Unlock()
	<-w.done
	return w.err
}

// value adds a block of one value. w.mu is held, here and below.
func (w *Writer) value(k kind, v any) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		panic(fmt.Sprintf("recording: %T: %v", v, err)) // a mistake in its type
	}
	w.block(k, b.Bytes())
}

// block adds a block.
func (w *Writer) block(k kind, payload []byte) {
	to := &w.meta
	if k == kindEvents || k == kindLook || k == kindLoss {
		to = &w.chunk
	}
	if w.opts.Keep == 0 && len(w.meta) > 0 && to == &w.chunk {
		w.chunk, w.meta = append(w.chunk, w.meta...), w.meta[:0]
	}
	*to = append(blockHead(*to, k, len(payload)), payload...)
}

func blockHead(dst []byte, k kind, n int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	return binary.LittleEndian.AppendUint32(dst, uint32(k))
}

// records adds a block of records; where only the newest are kept, in pieces that can go one by
// one.
func (w *Writer) records(id uint32, block []byte) {
	if w.opts.Keep == 0 {
		w.chunk, w.meta = append(w.chunk, w.meta...), w.meta[:0]
		w.piece(id, block)
		return
	}
	for len(block) > 0 {
		n := fitting(block, w.opts.Keep/parts)
		w.piece(id, block[:n])
		block = block[n:]
	}
}

func (w *Writer) piece(id uint32, block []byte) {
	w.chunk = blockHead(w.chunk, kindRecords, 4+len(block))
	w.chunk = binary.LittleEndian.AppendUint32(w.chunk, id)
	w.chunk = append(w.chunk, block...)
	w.cut(chunkSize)
}

// fitting is the length of the first records of a block that together have at most so many bytes;
// of one record at least.
func fitting(block []byte, most int) (n int) {
	for rec := range bpf.Records(block) {
		next := n + layout.RecordHeader + (len(rec)+7)&^7
		if n > 0 && next > most {
			return n
		}
		n = next
	}
	return len(block)
}

// cut ends the chunk where it has so many bytes.
func (w *Writer) cut(most int) {
	if w.opts.Keep == 0 {
		if len(w.chunk) >= most {
			w.handOver()
		}
		return
	}
	if len(w.chunk) < w.opts.Keep/parts {
		return
	}
	w.kept = append(w.kept, w.chunk)
	w.chunk = nil
	held := 0
	for _, c := range w.kept {
		held += len(c)
	}
	for len(w.kept) > 1 && held > w.opts.Keep {
		held -= len(w.kept[0])
		w.chunk, w.kept = w.kept[0][:0], slices.Delete(w.kept, 0, 1)
	}
}

// handOver gives the file the records that have gathered.
func (w *Writer) handOver() {
	w.handed = time.Now()
	w.chunk, w.meta = append(w.chunk, w.meta...), w.meta[:0]
	if len(w.chunk) == 0 {
		return
	}
	w.full <- w.chunk
	select {
	case w.chunk = <-w.free:
	default:
		w.chunk = make([]byte, 0, chunkSize+chunkSize/4)
	}
}

// fire closes Triggered where this is the event.
func (w *Writer) fire(name string) {
	if w.opts.Trigger != "" && name == w.opts.Trigger && !w.fired {
		w.fired = true
		close(w.triggered)
	}
}

// Space gives names their meaning in one process, or one kernel.
type Space struct {
	w  *Writer
	id uint32

	symbols, comms table
	made           []event.Event
	some           bool // something was recorded since the last look
}

// table is the names that a file has.
type table struct {
	written map[uint64]string
	asked   map[uint64]bool // since the last look: names change
	last    uint64          // of asked, plus 1
}

func newTable() table {
	return table{written: make(map[uint64]string), asked: make(map[uint64]bool)}
}

// Space makes one.
func (w *Writer) Space() *Space {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spaces++
	return &Space{w: w, id: w.spaces, symbols: newTable(), comms: newTable()}
}

// Stream makes a stream, and has the file know it.
func (s *Space) Stream(f *gen.Format, n Names) *Stream {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.ids++
	st := &Stream{Format: f, Names: n, id: s.w.ids, placed: make(map[uint64]bool)}
	st.named = namedArgs(f)
	s.w.value(kindStream, stream{ID: st.id, Space: s.id, Format: *f})
	return st
}

// namedArgs are the indexes of the elements of records that are addresses with names.
func namedArgs(f *gen.Format) (at []int) {
	first := make([]int, len(f.Args)+1)
	for k, a := range f.Args {
		first[k+1] = first[k] + max(1, a.Count)
	}
	for i := range f.Form {
		if k := f.At[i]; k >= 0 && f.Form[i].Names() {
			for e := first[k]; e < first[k+1]; e++ {
				at = append(at, e)
			}
		}
	}
	return at
}

// Records adds a block of records: see bpf.Reader.Drain. It keeps none of it. The file gets
// the names that the records need.
func (s *Space) Records(st *Stream, block []byte) {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	var h gen.Hit
	last := ^uint64(0)
	for rec := range bpf.Records(block) {
		if !st.Head(rec, &h) {
			continue
		}
		if h.Cookie != last {
			s.place(st, h.Cookie)
			last = h.Cookie
		}
		if st.CommArg < 0 {
			if tid := uint64(uint32(h.Thread)); tid+1 != s.comms.last {
				s.name(&s.comms, kindComm, tid, func() string { return st.Names.Comm(int(tid)) })
			}
		}
		if st.PCArg >= 0 || len(st.named) > 0 {
			s.addresses(st, rec)
		}
	}
	s.some = true
	w.records(st.id, block)
}

// place has the file know a cookie's.
func (s *Space) place(st *Stream, cookie uint64) {
	if st.placed[cookie] && s.w.opts.Trigger == "" {
		return
	}
	p := st.Place(cookie)
	if p == nil {
		return
	}
	s.w.fire(p.Name)
	if !st.placed[cookie] {
		st.placed[cookie] = true
		s.w.value(kindPlace, placed{st.id, cookie, *p})
	}
}

// addresses has the file know the names of a record's.
func (s *Space) addresses(st *Stream, rec []byte) {
	if len(st.named) == 0 {
		k := 0
		for _, a := range st.Args[:st.PCArg] {
			k += max(1, a.Count)
		}
		s.address(st, binary.LittleEndian.Uint64(rec[st.Values+8*k:]))
		return
	}
	h := &st.hit
	if st.Decode(rec, h, func([]byte) string { return "" }) != nil {
		return
	}
	if at, ok := st.Caller(h); ok {
		s.address(st, uint64(at))
	}
	st.values = st.AppendTo(st.values[:0], h, func(a arch.Addr) string {
		s.address(st, uint64(a))
		return ""
	})
}

func (s *Space) address(st *Stream, a uint64) {
	if a+1 != s.symbols.last {
		s.name(&s.symbols, kindSymbol, a, func() string { return st.Symbol(arch.Addr(a)) })
	}
}

// name has the file know a name, as it is now.
func (s *Space) name(t *table, k kind, n uint64, name func() string) {
	t.last = n + 1
	if t.asked[n] {
		return // also of the one address whose successor is 0
	}
	t.asked[n] = true
	text := name()
	if known, ok := t.written[n]; !ok && text != "" || known != text {
		t.written[n] = text
		s.w.value(k, named{s.id, n, text})
	}
}

// Event adds an event that was made without a record.
func (s *Space) Event(e *event.Event) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	own := *e
	own.Args = slices.Clone(e.Args)
	for i := range own.Args {
		own.Args[i].Elems = slices.Clone(own.Args[i].Elems)
	}
	s.made = append(s.made, own)
	s.w.fire(e.Name)
}

// Look ends a look at the rings: see Merge.Emit.
func (s *Space) Look(last bool) {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if len(s.made) > 0 {
		w.value(kindEvents, made{s.id, s.made})
		s.made, s.some = s.made[:0], true
	}
	if s.some || last {
		b := append(binary.LittleEndian.AppendUint32(nil, s.id), 0)
		if last {
			b[4] = 1
		}
		w.block(kindLook, b)
		s.some = false
	}
	clear(s.symbols.asked)
	clear(s.comms.asked)
	s.symbols.last, s.comms.last = 0, 0
	if w.opts.Keep == 0 && time.Since(w.handed) > idle {
		w.handOver()
	}
	w.cut(chunkSize)
}

// Lost tells that records found no room.
func (s *Space) Lost(l Loss) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if !s.w.closed {
		s.w.value(kindLoss, l)
	}
}
