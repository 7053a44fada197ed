package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"kprobe/event"
)

const (
	// backlog is how many bytes of events may wait for a slow reader before
	// events are lost. The target must never wait for one.
	backlog = 64 << 20

	// pause is how long events are gathered before they are written: few
	// system calls, and still at once for an eye. Where they are many bytes it is
	// not waited for.
	pause = 20 * time.Millisecond
	many  = 256 << 10
)

// create makes the file that a command writes to; standard output, for no name. end closes it, and joins what that says to a
// command's error.
func create(file string) (to *os.File, end func(*error), err error) {
	if file == "" {
		return os.Stdout, func(*error) {}, nil
	}
	to, err = os.Create(file)
	return to, func(said *error) {
		if failed := to.Close(); failed != nil {
			*said = errors.Join(*said, failed)
		}
	}, err
}

// output takes events on the hit path, where only a copy into memory may
// happen, and writes them from a goroutine of its own.
type output struct {
	w      io.Writer
	append func(e *event.Event, dst []byte) []byte
	most   uint64 // events; 0 for no limit

	mu    sync.Mutex
	buf   []byte // what waits to be written
	taken uint64
	lost  map[string]uint64 // by event name
	err   error             // of the writer

	wait *sync.Cond // nil: what finds no room is lost. Otherwise the target waits, until hurry

	filled chan struct{} // buf is not empty any more
	plenty chan struct{} // buf has many bytes
	last   chan struct{} // closed: no event comes any more
	ended  chan struct{} // closed: the goroutine is done
	full   chan struct{} // closed: enough events, or nobody to take them
	fill   sync.Once
}

func newOutput(w io.Writer, format func(*event.Event, []byte) []byte, most uint64) *output {
	o := &output{
		w: w, append: format, most: most,
		lost:   make(map[string]uint64),
		filled: make(chan struct{}, 1),
		plenty: make(chan struct{}, 1),
		last:   make(chan struct{}),
		ended:  make(chan struct{}),
		full:   make(chan struct{}),
	}
	go o.write()
	return o
}

// sink takes one event. Sessions call it from their own threads.
func (o *output) sink(e *event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.wait != nil && o.err == nil && len(o.buf) >= backlog {
		o.wait.Wait()
	}
	if o.most > 0 && o.taken == o.most {
		return // not lost: not asked for
	}
	if o.err != nil || len(o.buf) >= backlog {
		o.lost[e.Name]++
		return
	}
	if len(o.buf) == 0 {
		signalTo(o.filled)
	}
	before := len(o.buf)
	o.buf = append(o.append(e, o.buf), '\n')
	if before < many && len(o.buf) >= many {
		signalTo(o.plenty)
	}
	if o.taken++; o.taken == o.most {
		o.stop()
	}
}

// signalTo leaves word in a channel that has room for one.
func signalTo(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// patient makes the target wait where events find no room. It is called before the first one.
func (o *output) patient() { o.wait = sync.NewCond(&o.mu) }

// hurry ends all waiting: from now on events that find no room are lost.
func (o *output) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wait != nil {
		o.wait.Broadcast()
		o.wait = nil
	}
}

// stop asks for the end of tracing.
func (o *output) stop() { o.fill.Do(func() { close(o.full) }) }

// write writes what has gathered, until close.
func (o *output) write() {
	defer close(o.ended)
	var spare []byte
	for over := false; !over; {
		select {
		case <-o.filled:
			select {
			case <-time.After(pause):
			case <-o.plenty:
			case <-o.last:
			}
		case <-o.last:
			over = true
		}
		o.mu.Lock()
		lines := o.buf
		o.buf = spare[:0]
		if o.wait != nil {
			o.wait.Broadcast()
		}
		o.mu.Unlock()
		if _, err := o.w.Write(lines); err != nil {
			o.mu.Lock()
			o.err = err
			if o.wait != nil {
				o.wait.Broadcast()
			}
			o.mu.Unlock()
			o.stop()
			return
		}
		spare = lines
	}
}

// close writes what is left and tells whether all could be written. No event
// may come any more.
func (o *output) close() error {
	close(o.last)
	<-o.ended
	return o.err
}

// count adds what was lost here to what the engine counted. An event is known
// by its name; where a name stands for several probes, its first one has all.
func (o *output) count(counts []event.Count) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, n := range o.lost {
		if i := slices.IndexFunc(counts, func(c event.Count) bool { return c.Name == name }); i >= 0 {
			counts[i].Missed[event.Lost] += n
		}
	}
}
