// Package graph tells which function called which, with what, what came of it and how long it
// took: calls as spans, nested by the stacks that they were made on.
//
//	span.go  a call: what pictures and files are made of
//	nest.go  beginnings and ends of calls to spans
//	calls.go the definitions that tell of these, and their events
//	draw.go  calls as lines of text
//
// Nesting goes by the stack pointer, not by counting: a tail call, longjmp or an exception leaves
// no call behind that is over.
package graph

import (
	"time"

	"kprobe/event"
)

// Span is one call of a function.
type Span struct {
	PID, TID  int    // the process, and the thread that the call began on
	Comm      string // the thread's name; "" where it is not known
	Goroutine uint64 // in Go; 0 elsewhere
	Stack     uint64 // which of a kernel's it lies on; the number of one of a process's that is no thread's own; else 0

	Name  string // of the function
	Depth int    // how many calls of this thread, goroutine or stack it lies in that are known

	// CLOCK_MONOTONIC. End of a call that did not return is when that was noticed.
	Start, End time.Duration
	Ended      Ended

	Args   []event.Value // as they were when it began
	Result []event.Value // of a call that has returned

	over bool // no more is told of it
}

// running tells that its end has not been told.
func (s *Span) running() bool { return !s.over }

// Ended is how a call came to its end.
type Ended uint8

const (
	Running  Ended = iota // it has not, as far as is known
	Returned              // also by way of a function that it ended in a jump to
	Unwound               // longjmp, an exception, a panic or the thread's end left it
)

// Took is how long the call took.
func (s *Span) Took() time.Duration { return s.End - s.Start }
