// Package view draws what was traced, and writes it in forms that others read. Its writers
// take calls (graph.Span), in the order of their ends, and events that are no calls; they know
// nothing of where these come from.
//
//	calls.go     events of entries and returns to calls
//	tree.go      calls that lie in each other, added up: the base of the next three
//	folded.go    a line for each stack, as flamegraph.pl and speedscope read it
//	flame.go     a flame graph, one HTML file
//	pprof.go     a profile for go tool pprof
//	perfetto.go  a trace for ui.perfetto.dev
//	heat.go      latency over time, one HTML file
//	about.go     what both pages say of themselves, and how they look
//	proto.go     the wire format of the two before
package view

import (
	"cmp"

	"kprobe/event"
)

// thread tells threads apart.
type thread struct{ pid, tid int }

func (t thread) compare(o thread) int {
	return cmp.Or(cmp.Compare(t.pid, o.pid), cmp.Compare(t.tid, o.tid))
}

// label is what an event that is no call is called.
func label(e *event.Event) string {
	if e.Func == "" {
		return e.Name
	}
	return e.Func
}
