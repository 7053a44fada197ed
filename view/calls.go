package view

import (
	"slices"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/graph"
)

// Calls makes calls of the events of p lines at functions' beginnings and r lines of the same
// functions. They are nested by thread: a return ends the last call of its function. What began
// in a call and has not returned is over with it.
type Calls struct {
	over  func(*graph.Span)
	other func(e *event.Event, depth int)

	returning map[arch.Addr]bool
	open      map[thread][]call
}

type call struct {
	addr arch.Addr
	span *graph.Span
}

// NewCalls makes one. over gets each call at its end; other, which may be nil, gets each event that is
// neither a beginning nor an end of a call, with the number of calls that it lies in. returning are
// the addresses of functions whose returns are events; a function that is not among them is known
// from its first return on.
func NewCalls(over func(*graph.Span), other func(e *event.Event, depth int), returning ...arch.Addr) *Calls {
	c := &Calls{over: over, other: other, returning: make(map[arch.Addr]bool), open: make(map[thread][]call)}
	for _, a := range returning {
		c.returning[a] = true
	}
	return c
}

// Take takes the next event, in order of time. It keeps nothing of it.
func (c *Calls) Take(e *event.Event) {
	th := thread{e.PID, e.TID}
	open := c.open[th]
	switch {
	case e.Return:
		c.returning[e.Addr] = true
		for i := len(open) - 1; i >= 0; i-- {
			if open[i].addr != e.Addr {
				continue
			}
			for k := len(open) - 1; k > i; k-- {
				c.end(open[k].span, e, graph.Unwound)
			}
			s := open[i].span
			s.Result = keep(e.Args)
			c.end(s, e, graph.Returned)
			c.open[th] = slices.Delete(open, i, len(open))
			return
		}
	case !e.Access && e.Off == 0 && c.returning[e.Addr]:
		s := &graph.Span{PID: e.PID, TID: e.TID, Comm: e.Comm, Name: label(e), Depth: len(open), Start: e.Time, Args: keep(e.Args)}
		c.open[th] = append(open, call{e.Addr, s})
		return
	}
	if c.other != nil {
		c.other(e, len(open))
	}
}

func (c *Calls) end(s *graph.Span, e *event.Event, how graph.Ended) {
	s.End, s.Ended = e.Time, how
	c.over(s)
}

// keep copies values, whose room is used again.
func keep(vs []event.Value) []event.Value {
	vs = slices.Clone(vs)
	for i := range vs {
		vs[i].Elems = slices.Clone(vs[i].Elems)
	}
	return vs
}
