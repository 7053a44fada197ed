package kprobe

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"kprobe/arch"
	"kprobe/target"
)

// HandlerPanic is what Options.Report is told of a handler that panicked.
type HandlerPanic struct {
	Addr    arch.Addr // of the probe
	Handler string    // "handler", "fault-handler"
	Value   any       // that it panicked with
	Stack   []byte    // of the goroutine, as the Go runtime prints it
}

func (e *HandlerPanic) Error() string {
	return fmt.Sprintf("a %s of the probe at %v panicked: %v", e.Handler, e.Addr, e.Value)
}

// reports are on their way to Options.Report. What is to be reported comes up under
// locks and in the middle of a stop, but Report may ask the session things: it is
// called later, where nothing is held, and by one goroutine at a time.
type reports struct {
	mu      sync.Mutex
	queue   []error
	telling bool
}

// report has an error be told.
func (s *Session) report(err error) {
	if err == nil || s.opts.Report == nil {
		return
	}
	s.reports.mu.Lock()
	s.reports.queue = append(s.reports.queue, err)
	s.reports.mu.Unlock()
}

// reportAlive is report for what is no news if the target was killed meanwhile.
func (s *Session) reportAlive(err error) {
	if !errors.Is(err, target.ErrGone) {
		s.report(err)
	}
}

// tell calls Report for all that is waiting, unless somebody does so already.
func (s *Session) tell() {
	r := &s.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.telling {
		return
	}
	r.telling = true
	for len(r.queue) > 0 {
		err := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		s.opts.Report(err)
		r.mu.Lock()
	}
	r.telling = false
}

// panicked tells of a handler's panic; it is called where that was recovered. A session
// that nobody asks for reports says it on standard error, once for each probe: a
// mistake in a handler should not take silence to find.
func (s *Session) panicked(p *Kprobe, handler string, value any) {
	e := &HandlerPanic{p.Addr, handler, value, debug.Stack()}
	if s.opts.Report != nil {
		s.report(e)
		s.tell()
	} else if !p.said.Swap(true) {
		fmt.Fprintf(os.Stderr, "kprobe: %v\nMore panics of this probe are counted (NMissed), and not told.\n\n%s", e, e.Stack)
	}
}
