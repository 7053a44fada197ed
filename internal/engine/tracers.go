package engine

import (
	"fmt"

	"kprobe/internal/errno"
	"kprobe/internal/traced"
)

// Who of a followed family wants to trace another of it (a debugger, strace, a child that asks for it) could not, since we
// do; and a child that stops itself for such a tracer would stand still for good. So there is a probe of our own on the function
// that they ask with, and who shall be traced is let go before the call is made.

// watchTracers places that probe where the function is mapped. It is called in a turn.
func (e *Engine) watchTracers() {
	places := e.tracers.Places(e.On.Image.Space, e.On.Image.ISA, e.opts.Follow != nil)
	if len(places) > 0 && !e.notifyAt(places, true) {
		e.tracers = traced.Search{}
	}
}

// outlived ends a session whose process faults for ever while it has a tracer, and ends without one.
func (e *Engine) outlived(signal int) {
	if e.left.CompareAndSwap(false, true) {
		go e.goWithout(fmt.Sprintf("is the init process of its namespace, and ends by a fault (signal %d) only when it has no tracer", signal))
	}
}

// goWithout ends a session whose process must not be traced any more.
func (e *Engine) goWithout(why string) {
	e.left.Store(true)
	e.Turns.Report(errno.New(0, "process %d %s: it is let go, without its probes", e.On.T.PID(), why))
	e.Turns.Report(e.Close())
	e.Turns.Tell()
}
