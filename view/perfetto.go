package view

import (
	"bufio"
	"io"
	"strings"
	"time"

	"kprobe/event"
	"kprobe/graph"
	"kprobe/spec"
)

// Field numbers of perfetto.protos.Trace (protos/perfetto/trace of github.com/google/perfetto).
const (
	tracePacket = 1

	packetTimestamp  = 8
	packetSequence   = 10
	packetTrackEvent = 11
	packetTrack      = 60

	trackUUID    = 1
	trackName    = 2
	trackProcess = 3
	trackThread  = 4
	trackParent  = 5
	trackCounter = 8

	processPID  = 1
	processName = 6
	threadPID   = 1
	threadTID   = 2
	threadName  = 5

	eventAnnotation   = 4
	eventType         = 9
	eventTrack        = 11
	eventName         = 23
	eventCounterValue = 30

	annotationUint = 3
	annotationInt  = 4
	annotationText = 6
	annotationName = 10

	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3
	counter    = 4
)

// Perfetto writes a trace for ui.perfetto.dev, as calls end and events come: calls are slices of
// their threads, events are instants, and their decimal arguments counters. It is whole after
// each of them, so that it needs no end but Flush.
type Perfetto struct {
	w        *bufio.Writer
	threads  map[thread]uint64 // their tracks
	process  map[int]uint64
	counters map[counterKey]uint64
	tracks   uint64
	err      error
}

type counterKey struct {
	pid        int
	event, arg string
}

// NewPerfetto begins a trace.
func NewPerfetto(to io.Writer) *Perfetto {
	return &Perfetto{w: bufio.NewWriterSize(to, 256<<10), threads: make(map[thread]uint64), process: make(map[int]uint64), counters: make(map[counterKey]uint64)}
}

// Add adds a call that is over.
func (p *Perfetto) Add(s *graph.Span) {
	track := p.thread(thread{s.PID, s.TID}, s.Comm)
	begin := trackEvent(sliceBegin, track)
	begin.text(eventName, s.Name)
	annotate(&begin, s.Args)
	p.event(s.Start, begin)
	end := trackEvent(sliceEnd, track)
	annotate(&end, s.Result)
	p.event(s.End, end)
}

// Mark adds an event that is no call.
func (p *Perfetto) Mark(e *event.Event) {
	m := trackEvent(instant, p.thread(thread{e.PID, e.TID}, e.Comm))
	m.text(eventName, e.Name)
	annotate(&m, e.Args)
	p.event(e.Time, m)
	for i := range e.Args {
		v := &e.Args[i]
		if strings.Contains(v.Name, spec.PartSep) || (v.Base != spec.Signed && v.Base != spec.Unsigned) || v.Array || v.Fault {
			continue
		}
		c := trackEvent(counter, p.counter(counterKey{e.PID, e.Name, v.Name}))
		c.number(eventCounterValue, uint64(v.Int()))
		p.event(e.Time, c)
	}
}

// Flush writes what is held back, and tells whether all could be written.
func (p *Perfetto) Flush() error {
	if err := p.w.Flush(); p.err == nil {
		p.err = err
	}
	return p.err
}

func trackEvent(kind, track uint64) (m message) {
	m.number(eventType, kind)
	m.number(eventTrack, track)
	return m
}

// annotate adds arguments.
func annotate(m *message, args []event.Value) {
	args = event.Fold(args)
	for i := range args {
		annotateOne(m, &args[i])
	}
}

func annotateOne(m *message, v *event.Value) {
	var a message
	a.text(annotationName, v.Name)
	switch {
	case v.Array || v.Fault || v.Parts != nil || v.Size > 8:
		a.text(annotationText, string(v.AppendText(nil)))
	case v.Base == spec.Signed:
		a.number(annotationInt, uint64(v.Int()))
	case v.Base == spec.Unsigned:
		a.number(annotationUint, v.Bits)
	case v.Base == spec.String || v.Base == spec.UString:
		a.text(annotationText, v.Text)
	default:
		a.text(annotationText, string(v.AppendText(nil)))
	}
	m.bytes(eventAnnotation, a)
}

// event writes one at its time.
func (p *Perfetto) event(at time.Duration, m message) {
	var packet message
	packet.number(packetTimestamp, uint64(at))
	packet.number(packetSequence, 1)
	packet.bytes(packetTrackEvent, m)
	p.packet(packet)
}

func (p *Perfetto) packet(m message) {
	var whole message
	whole.bytes(tracePacket, m)
	if p.err == nil {
		_, p.err = p.w.Write(whole)
	}
}

// track writes a track's description, and gives its number. fill adds what it is about.
func (p *Perfetto) track(fill func(*message)) uint64 {
	p.tracks++
	var track, packet message
	track.number(trackUUID, p.tracks)
	fill(&track)
	packet.number(packetSequence, 1)
	packet.bytes(packetTrack, track)
	p.packet(packet)
	return p.tracks
}

func (p *Perfetto) thread(th thread, comm string) uint64 {
	id, ok := p.threads[th]
	if !ok {
		p.ofProcess(th.pid, comm)
		id = p.track(func(m *message) {
			var d message
			d.number(threadPID, uint64(th.pid))
			d.number(threadTID, uint64(th.tid))
			d.text(threadName, comm)
			m.bytes(trackThread, d)
		})
		p.threads[th] = id
	}
	return id
}

func (p *Perfetto) ofProcess(pid int, comm string) uint64 {
	id, ok := p.process[pid]
	if !ok {
		id = p.track(func(m *message) {
			var d message
			d.number(processPID, uint64(pid))
			d.text(processName, comm)
			m.bytes(trackProcess, d)
		})
		p.process[pid] = id
	}
	return id
}

func (p *Perfetto) counter(k counterKey) uint64 {
	id, ok := p.counters[k]
	if !ok {
		parent := p.ofProcess(k.pid, "")
		id = p.track(func(m *message) {
			m.text(trackName, k.event+" "+k.arg)
			m.number(trackParent, parent)
			m.bytes(trackCounter, nil)
		})
		p.counters[k] = id
	}
	return id
}
