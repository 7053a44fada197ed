package graph

import (
	"cmp"
	"slices"
	"time"

	"kprobe/event"
)

// Entry is the beginning of a call.
type Entry struct {
	Span // but for Depth, End, Ended and Result

	// Place is where the return address lies on the stack. It only has to be right in relation to
	// other calls of its thread or goroutine: where stacks move, it may be counted from their end.
	Place uint64

	// Swapped tells that where it will return to was a probe's trampoline when it began: if that of the call
	// that is at the same place was not, the function was not called but jumped to, and that call
	// goes on as long as it does.
	Swapped bool
}

// Return is the end of one. SP is the stack pointer behind the return, or before it: the
// address of the return address.
type Return struct {
	PID, TID  int
	Goroutine uint64
	Stack     uint64
	Name      string
	Time      time.Duration
	SP        uint64
	Result    []event.Value
}

// Nest makes spans of beginnings and ends of calls, which it must get in the order of their time, at least
// those of each thread or goroutine. Began and Over may be nil; a span is the same at both, and
// is not touched any more after Over.
type Nest struct {
	Began func(*Span)
	Over  func(*Span)

	Lost int // ends of calls whose beginning was never told

	Calls uint64 // that were begun

	stacks map[stackKey][]open

	unwound func(s *Span, place uint64) // told of each; may be nil
}

// stackKey tells stacks apart: of a goroutine, of a thread, or one of a kernel's.
type stackKey struct {
	pid int
	id  uint64
	g   bool
}

func keyOf(pid, tid int, goroutine, stack uint64) stackKey {
	switch {
	case goroutine != 0:
		return stackKey{pid, goroutine, true}
	case stack != 0: // whoever is on it: an interrupt has a stack of its own, and idle CPUs have one number
		return stackKey{0, stack, false}
	}
	return stackKey{pid, uint64(tid), false}
}

// open is a call under way.
type open struct {
	*Span
	place   uint64
	swapped bool
}

// pops is the size of a return address, in bytes, which a return takes from the stack.
const pops = 8

// is tells whether it is the call whose return is told of.
func (o *open) is(name string, sp uint64) bool {
	return o.Name == name && (o.place == sp || o.place+pops == sp)
}

// Enter takes the beginning of a call. What lies deeper on its stack is over; so is what lies at
// the same place, unless the function was jumped to. A goroutine's function that begins at its own place again is
// the same call.
func (n *Nest) Enter(e Entry) *Span {
	if n.stacks == nil {
		n.stacks = make(map[stackKey][]open)
	}
	k := keyOf(e.PID, e.TID, e.Goroutine, e.Stack)
	calls := n.stacks[k]
	keep := len(calls)
	// Go's runtime begins a function anew that had no room on its stack, or was to stop: that is the same call.
	if last := keep - 1; k.g && last >= 0 && calls[last].place == e.Place && calls[last].Name == e.Name {
		return calls[last].Span
	}
	for keep > 0 && calls[keep-1].place < e.Place {
		keep--
	}
	first := keep // of those at its place
	for first > 0 && calls[first-1].place == e.Place {
		first--
	}
	if first < keep && (!e.Swapped || calls[first].swapped) {
		keep = first
	}
	calls = n.unwind(calls, keep, e.Start)
	s := e.Span
	s.Depth, s.End, s.Ended, s.Result, s.over = len(calls), 0, Running, nil, false
	n.Calls++
	n.stacks[k] = append(calls, open{&s, e.Place, e.Swapped})
	if n.Began != nil {
		n.Began(&s)
	}
	return &s
}

// Leave takes the end of a call. Calls above it on the stack are over: those at the same place were
// jumped to from it and have returned with it, deeper ones were unwound.
func (n *Nest) Leave(r Return) *Span {
	k := keyOf(r.PID, r.TID, r.Goroutine, r.Stack)
	calls := n.stacks[k]
	at := len(calls) - 1
	for ; at >= 0; at-- {
		c := calls[at]
		if c.is(r.Name, r.SP) {
			break
		}
		if c.place > r.SP { // all the others lie further out
			at = -1
			break
		}
	}
	if at < 0 {
		n.Lost++
		return nil
	}
	s, place := calls[at].Span, calls[at].place
	same := at + 1
	for same < len(calls) && calls[same].place == place {
		same++
	}
	calls = n.unwind(calls, same, r.Time)
	for len(calls) > at+1 {
		calls = n.end(calls, r.Time, Returned)
	}
	s.Result = r.Result
	n.stacks[k] = n.end(calls, r.Time, Returned)
	return s
}

// Exit tells that a thread has ended, and its calls with it.
func (n *Nest) Exit(pid, tid int, at time.Duration) {
	k := keyOf(pid, tid, 0, 0)
	n.unwind(n.stacks[k], 0, at)
	delete(n.stacks, k)
}

// Close ends all: calls that are under way are told of as Running, up to now.
func (n *Nest) Close(now time.Duration) {
	keys := make([]stackKey, 0, len(n.stacks))
	for k := range n.stacks {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b stackKey) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.id, b.id)) })
	for _, k := range keys {
		for calls := n.stacks[k]; len(calls) > 0; {
			calls = n.end(calls, now, Running)
		}
	}
	clear(n.stacks)
}

// unwind ends calls until keep are left.
func (n *Nest) unwind(calls []open, keep int, at time.Duration) []open {
	for len(calls) > keep {
		calls = n.end(calls, at, Unwound)
	}
	return calls
}

// end ends the last call.
func (n *Nest) end(calls []open, at time.Duration, how Ended) []open {
	last := len(calls) - 1
	s := calls[last].Span
	if how == Unwound && n.unwound != nil {
		n.unwound(s, calls[last].place)
	}
	calls[last] = open{}
	s.End, s.Ended, s.over = at, how, true
	if n.Over != nil {
		n.Over(s)
	}
	return calls[:last]
}
