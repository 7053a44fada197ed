package returns

import (
	"cmp"
	"slices"
)

// Place is a call's place on a stack: what stays the same from a function's
// first instruction to its return, and what no other call under way has.
type Place struct {
	// Stack tells stacks apart. 0 stands for all stacks of which nothing is
	// known but that their addresses differ (coroutines, signal stacks).
	Stack uint64

	// At orders the calls of one stack: a callee's is below its caller's. It is
	// the address of the return address or, for stacks that move, its distance
	// from the stack's end, negative.
	At int64
}

// Calls are the calls under way: of probes P, with what is kept of each, V. The
// zero value is ready to use. It is not safe for concurrent use.
type Calls[P comparable, V any] struct {
	stacks map[uint64][]call[P, V] // outermost first
	n      int
}

type call[P comparable, V any] struct {
	at    int64
	probe P
	value V
}

// Len is how many calls are under way.
func (c *Calls[P, V]) Len() int { return c.n }

// Put enters a call.
func (c *Calls[P, V]) Put(p Place, probe P, v V) {
	if c.stacks == nil {
		c.stacks = make(map[uint64][]call[P, V])
	}
	calls := c.stacks[p.Stack]
	i, found := search(calls, p.At)
	for found && i < len(calls) && calls[i].at == p.At {
		i++ // newer ones of the same place come last
	}
	c.stacks[p.Stack] = slices.Insert(calls, i, call[P, V]{p.At, probe, v})
	c.n++
}

// Get finds a probe's call at a place.
func (c *Calls[P, V]) Get(p Place, probe P) (v V, ok bool) {
	calls := c.stacks[p.Stack]
	if i := find(calls, p.At, probe); i >= 0 {
		return calls[i].value, true
	}
	return v, false
}

// Take is Get for a call that is over.
func (c *Calls[P, V]) Take(p Place, probe P) (v V, ok bool) {
	calls := c.stacks[p.Stack]
	i := find(calls, p.At, probe)
	if i < 0 {
		return v, false
	}
	v = calls[i].value
	c.keep(p.Stack, slices.Delete(calls, i, i+1), 1)
	return v, true
}

// Below takes the calls that are deeper on the same stack: when a thread is at p,
// they are over, though they have not returned. Of stack 0 that cannot be said.
func (c *Calls[P, V]) Below(p Place) []V {
	calls := c.stacks[p.Stack]
	if p.Stack == 0 || len(calls) == 0 || calls[len(calls)-1].at >= p.At {
		return nil
	}
	i, _ := search(calls, p.At)
	for i < len(calls) && calls[i].at == p.At {
		i++
	}
	gone := values(calls[i:])
	c.keep(p.Stack, slices.Delete(calls, i, len(calls)), len(gone))
	return gone
}

// Outermost is the oldest call on a stack.
func (c *Calls[P, V]) Outermost(stack uint64) (v V, ok bool) {
	if calls := c.stacks[stack]; len(calls) > 0 {
		return calls[0].value, true
	}
	return v, false
}

// DropStack takes all calls of a stack that is gone.
func (c *Calls[P, V]) DropStack(stack uint64) []V {
	gone := values(c.stacks[stack])
	delete(c.stacks, stack)
	c.n -= len(gone)
	return gone
}

// Each tells of every call that is under way.
func (c *Calls[P, V]) Each(tell func(V)) {
	for _, calls := range c.stacks {
		for _, x := range calls {
			tell(x.value)
		}
	}
}

// Drop takes the calls for which gone says so.
func (c *Calls[P, V]) Drop(gone func(Place, P, V) bool) []V {
	var out []V
	for stack, calls := range c.stacks {
		n := len(calls)
		calls = slices.DeleteFunc(calls, func(x call[P, V]) bool {
			if !gone(Place{stack, x.at}, x.probe, x.value) {
				return false
			}
			out = append(out, x.value)
			return true
		})
		c.keep(stack, calls, n-len(calls))
	}
	return out
}

// keep stores what is left of a stack's calls. Stacks come and go by the
// million in a Go program, so empty ones are not kept.
func (c *Calls[P, V]) keep(stack uint64, calls []call[P, V], removed int) {
	c.n -= removed
	if len(calls) == 0 {
		delete(c.stacks, stack)
		return
	}
	c.stacks[stack] = calls
}

// search finds the first call that is not above at.
func search[P comparable, V any](calls []call[P, V], at int64) (int, bool) {
	return slices.BinarySearchFunc(calls, at, func(x call[P, V], at int64) int { return cmp.Compare(at, x.at) })
}

// find is the newest call of a probe at a place, or -1.
func find[P comparable, V any](calls []call[P, V], at int64, probe P) int {
	i, _ := search(calls, at)
	newest := -1
	for ; i < len(calls) && calls[i].at == at; i++ {
		if calls[i].probe == probe {
			newest = i
		}
	}
	return newest
}

func values[P comparable, V any](calls []call[P, V]) []V {
	vs := make([]V, len(calls))
	for i := range calls {
		vs[i] = calls[i].value
	}
	return vs
}
