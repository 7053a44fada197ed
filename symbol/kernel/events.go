package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
)

// Event is one of the kernel's trace events, /sys/kernel/tracing/events/SYSTEM/NAME: a tracepoint,
// and how a record is made of its arguments.
type Event struct {
	System, Name string
	Record       string    // the structure of its records: trace_event_raw_CLASS
	File         arch.Addr // its struct trace_event_file of the trace that there is in any case
	On           bool      // it was switched on there
}

// EventBuffer says where struct trace_event_buffer, which trace_event_buffer_commit is called with
// for each record, has the event's File and the record: bytes from its beginning.
type EventBuffer struct{ File, Entry int }

const (
	recordMaker  = "trace_event_raw_event_" // and then the class
	recordType   = "trace_event_raw_"
	maxEvents    = 1 << 16
	maxEventName = 128
)

// Events lists them, by system and name: of the kernel and of its modules, those that are
// tracepoints. Errors: ErrNoTypes; no symbols of data.
func (k *Kernel) Events() (all []Event, b EventBuffer, err error) {
	types, err := k.Types()
	if err != nil {
		return nil, b, err
	}
	var events, list, call, flags, class, maker, system, tp, tpName int
	err = errors.Join(
		types.offsets("trace_event_buffer", map[string]*int{"trace_file": &b.File, "entry": &b.Entry}),
		types.offsets("trace_array", map[string]*int{"events": &events}),
		types.offsets("trace_event_file", map[string]*int{"list": &list, "event_call": &call, "flags": &flags}),
		types.offsets("trace_event_call", map[string]*int{"class": &class, "tp": &tp}),
		types.offsets("trace_event_class", map[string]*int{"system": &system, "probe": &maker}),
		types.offsets("tracepoint", map[string]*int{"name": &tpName}))
	if err != nil {
		return nil, b, err
	}
	trace, ok := k.table.Addr("global_trace")
	if !ok {
		return nil, b, errors.New("the kernel has no trace events, or no symbols of data (global_trace)")
	}
	v := k.view()
	v.list(trace+arch.Addr(events), 2*k.arch.PtrSize, maxEvents, func(at arch.Addr, _ []byte) {
		file := at - arch.Addr(list)
		of := v.ptr(file + arch.Addr(call))
		classAt := v.ptr(of + arch.Addr(class))
		s, off, ok := k.At(v.ptr(classAt + arch.Addr(maker)))
		name, made := strings.CutPrefix(s.Name, recordMaker)
		if v.err != nil || !ok || off != 0 || !made {
			return // of a system call, or of ftrace's own
		}
		const enabled = 1 // EVENT_FILE_FL_ENABLED
		all = append(all, Event{
			System: v.cstring(v.ptr(classAt+arch.Addr(system)), maxEventName),
			Name:   v.cstring(v.ptr(v.ptr(of+arch.Addr(tp))+arch.Addr(tpName)), maxEventName),
			Record: recordType + name, File: file, On: v.u32(file+arch.Addr(flags))&enabled != 0,
		})
	})
	if v.err != nil {
		return nil, b, fmt.Errorf("reading the list of trace events: %w", v.err)
	}
	slices.SortFunc(all, func(a, b Event) int {
		return strings.Compare(a.System+":"+a.Name, b.System+":"+b.Name)
	})
	return all, b, nil
}
