package kprobe

import (
	"fmt"
	"os"
	"runtime/debug"

	"kprobe/arch"
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

// panicked tells of a handler's panic; it is called where that was recovered. A session
// that nobody asks for reports says it on standard error, once for each probe: a
// mistake in a handler should not take silence to find.
func (s *Session) panicked(p *Kprobe, handler string, value any) {
	e := &HandlerPanic{p.Addr, handler, value, debug.Stack()}
	if s.opts.Report != nil {
		s.e.Turns.Report(e)
		s.e.Turns.Tell()
	} else if !p.said.Swap(true) {
		fmt.Fprintf(os.Stderr, "kprobe: %v\nMore panics of this probe are counted (NMissed), and not told.\n\n%s", e, e.Stack)
	}
}
