package point

import (
	"path"
	"strings"

	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Trace events of a kernel, which are tracepoints with a record of what they tell. Once an event is switched on, the kernel makes a record at
// each, and hands it on by one function for all: that is where programs run.

// EventCommit is that function. Its one argument is a struct trace_event_buffer *. Source: Linux, include/linux/trace_events.h.
const EventCommit = "trace_event_buffer_commit"

// Event is one of them.
type Event struct {
	System, Name string
	Record       string // the structure of its records, without "struct"
	File         uint64 // what says in a trace_event_buffer that the record is this event's
	On           bool   // somebody else has switched it on

	In *TraceEvents
}

// TraceEvents are a kernel's.
type TraceEvents struct {
	All []Event

	File, Entry int // where a trace_event_buffer has the event's File, and the record
}

// String is its name as an attach point.
func (e *Event) String() string { return "tracepoint:" + e.System + ":" + e.Name }

// Match are those that a pattern of system and name matches.
func (e *TraceEvents) Match(system, name string) (all []*Event) {
	for i := range e.All {
		one := &e.All[i]
		okS, _ := path.Match(system, one.System)
		okN, _ := path.Match(name, one.Name)
		if okS && okN {
			one.In = e
			all = append(all, one)
		}
	}
	return all
}

// event reads SYSTEM:NAME of a kernel.
func (r *Reader) event(at syntax.Point, pt *Point) *Point {
	var events *TraceEvents
	var err error
	if r.Events != nil {
		events, err = r.Events()
	}
	switch {
	case err != nil:
		r.Errorf(at, "%s: the kernel's trace events are not known: %v", at.Text, err)
		return nil
	case events == nil: // only checked
		pt.Event = &Event{System: pt.Target, Name: pt.Function, Record: "trace_event_raw_" + pt.Function, In: new(TraceEvents)}
		return pt
	}
	found := events.Match(pt.Target, pt.Function)
	if len(found) == 0 {
		r.noProbes(at, "the kernel has no such trace event")
		return nil
	}
	for i, e := range found {
		one := *pt
		one.Event, one.Target, one.Function = e, e.System, e.Name
		if one.Text = e.String(); pt.Raw {
			one.Text = "rawtracepoint:" + e.Name
		}
		if i == len(found)-1 {
			return &one
		}
		r.more = append(r.more, &one)
	}
	return nil
}

// Maker is the function that makes an event's records: it is called with what says which event it is, and then with what
// the tracepoint tells.
func (e *Event) Maker() string {
	return "trace_event_raw_event_" + strings.TrimPrefix(e.Record, "trace_event_raw_")
}

// raw reads [MODULE:]NAME of rawtracepoint: the tracepoint of a trace event.
func (r *Reader) raw(at syntax.Point, pt *Point, args []string) *Point {
	switch {
	case len(args) == 0 || len(args) > 2 || args[len(args)-1] == "":
		r.Errorf(at, "rawtracepoint probe type requires 1 or 2 arguments, found %d", len(args))
		return nil
	case r.Program != "":
		r.Errorf(at, "rawtracepoint:%s: a process has no tracepoints of a kernel's", args[len(args)-1])
		return nil
	}
	pt.Target, pt.Function, pt.Raw = "*", args[len(args)-1], true
	return r.event(at, pt)
}

// First is which of the function's parameters the point's first is.
func (p *Point) First() int {
	if p.Raw {
		return 1
	}
	return 0
}

// field tells whether a member of a record is the event's own, and its name: that of a text or an array behind the record says where it is.
func field(name string) (own string, behind, ok bool) {
	if name == "ent" || name == "__data" || name == "" {
		return "", false, false
	}
	own, behind = strings.CutPrefix(name, "__data_loc_")
	return own, behind, true
}

// Fields gives the point the members of its record for parameters.
func (p *Point) Fields(members []Param) {
	for _, m := range members {
		name, behind, ok := field(m.Name)
		if !ok {
			continue
		}
		m.Name, m.Behind, m.Record = name, behind, true
		if behind {
			m.Type = types.PointerTo(types.Int8)
		}
		p.Params = append(p.Params, m)
	}
}
