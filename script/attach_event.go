package script

import "kprobe/script/point"

// Attach points at trace events of a kernel: tracepoint and rawtracepoint.

// atEvent is where the kernel hands on a record, of whichever event, or where it makes one of this event.
func atEvent(pt *point.Point) []spot {
	name := point.EventCommit
	if pt.Raw {
		name = pt.Event.Maker()
	}
	return []spot{{name: name, text: pt.Text}}
}
