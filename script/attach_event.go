package script

import "kprobe/script/point"

// Attach points at trace events of a kernel: tracepoint and rawtracepoint.

// atEvent gives the function that hands on the records of all events, or for a raw point the one
// that makes the records of this event.
func atEvent(pt *point.Point) []spot {
	name := point.EventCommit
	if pt.Raw {
		name = pt.Event.Maker()
	}
	return []spot{{name: name, text: pt.Text}}
}
