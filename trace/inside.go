package trace

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/internal/gen"
	"kprobe/spec"
)

// recorder is a definition that is captured inside the target: by a program, at
// all of its places, whose records become the events that a handler would have made.
type recorder struct {
	*gen.Tracer
	ring *bpf.Reader
	at   []*traced // by the cookie that is in their records
}

// settle lets a definition's program do its probes' work, if there can be one, and
// the target can have it. Whatever stands in the way, handlers do it as well, slower.
func (tr *Tracer) settle(sp *spec.Spec, ts []*traced) *recorder {
	if len(ts) == 0 || ts[0].wp != nil || tr.refused {
		return nil
	}
	kind := bpf.Kprobe
	if sp.Kind == spec.Return {
		kind = bpf.Kretprobe
	}
	g, err := gen.Compile("trace", kind, tr.s.Arch(), ts[0].capture.Load().Capture, gen.Options{
		Fields: bpf.FieldTime | bpf.FieldThread | bpf.FieldCookie | bpf.FieldCPU,
		PC:     kind == bpf.Kretprobe,
		Comm:   tr.s.OnCPUs(), // tasks come and go behind our back
		Ring:   tr.Buffer,
	})
	if err != nil {
		return nil
	}
	ps, err := tr.s.Load(&bpf.Collection{Programs: []*bpf.Program{g.Program}, Maps: g.Program.Maps})
	if err != nil {
		tr.refused = true // the next would be, too
		return nil
	}
	program, err := ps.Program(g.Program.Name)
	if err != nil {
		return nil
	}
	m, err := ps.Map(g.Program.Maps[bpf.RingIndex].Name)
	if err != nil {
		return nil
	}
	ring, err := bpf.NewReader(m)
	if err != nil {
		return nil
	}
	r := &recorder{Tracer: g, ring: ring}
	for _, t := range ts {
		if t.useProgram(program, uint64(len(r.at))) {
			r.at = append(r.at, t)
		}
	}
	return r
}

// useProgram puts the program in the handlers' place. A return that is not seen by a
// swapped return address, and a function that cannot be told, keep theirs.
func (t *traced) useProgram(p *kprobe.Program, cookie uint64) bool {
	kp := t.kprobe()
	kp.Cookie = cookie
	if t.rp == nil {
		t.kp.Program, t.kp.PreHandler = p, nil
		if t.tr.s.Plan(t.kp).Verdict != "refuse" {
			return true
		}
		t.kp.Program, t.kp.PreHandler = nil, t.hit
		return false
	}
	handler, entry := t.rp.Handler, t.rp.EntryHandler
	t.rp.Program, t.rp.Handler, t.rp.EntryHandler = p, nil, nil
	if t.tr.s.Plan(t.rp).Verdict != "refuse" {
		return true
	}
	t.rp.Program, t.rp.Handler, t.rp.EntryHandler = nil, handler, entry
	return false
}

// gather reads what the programs have recorded, until it is told to end.
type gather struct {
	over, done chan struct{}
	mu         sync.Mutex // held while records are read

	kept []*event.Event // read, and perhaps newer than what is to be read
	told bool           // that events are lost

	queue sync.Mutex
	made  []*event.Event // by handlers, since the last look
}

// pollEvery is how often records are looked for. A thread's ring holds those of
// many times that.
const pollEvery = 5 * time.Millisecond

// lossEvery is after how many looks at records it is asked whether some were lost.
const lossEvery = 4

// tellLoss calls Lossy when events have been lost for the first time.
func (tr *Tracer) tellLoss() {
	g := tr.gather
	if g.told || tr.Lossy == nil {
		return
	}
	g.mu.Lock()
	lost := slices.ContainsFunc(tr.recorders, func(r *recorder) bool { return r.ring.Lost() > 0 })
	g.mu.Unlock()
	if lost {
		g.told = true
		tr.Lossy()
	}
}

func (tr *Tracer) startGather() {
	if tr.gather != nil || len(tr.recorders) == 0 {
		return
	}
	over, done := make(chan struct{}), make(chan struct{})
	tr.gather = &gather{over: over, done: done}
	go func() {
		defer close(done)
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for looks := 1; ; looks++ {
			select {
			case <-tick.C:
				tr.read(false)
				if looks%lossEvery == 0 {
					tr.tellLoss()
				}
			case <-over:
				tr.read(true)
				return
			case <-tr.s.Done(): // the memory may be another session's soon
				tr.read(true)
				return
			}
		}
	}()
}

// Flush hands over the events of everything that was recorded inside the target. It is
// for when the session, or the target, has ended: no more come.
func (tr *Tracer) Flush() {
	if tr.gather != nil {
		close(tr.gather.over)
		<-tr.gather.done
		tr.gather = nil
	}
}

// read hands over events in order of time: those of records, and those that handlers have
// made meanwhile. While one ring is read, others get records older than those that it will
// have by then. So what is newer than all of a first look is kept for the next time: what is
// older than that has been recorded by a second one. In the end no more come.
func (tr *Tracer) read(end bool) {
	g := tr.gather
	g.mu.Lock()
	defer g.mu.Unlock()
	events := tr.look(g.kept)
	sure := time.Duration(math.MinInt64)
	for _, e := range events {
		sure = max(sure, e.Time)
	}
	events = tr.look(events)
	slices.SortStableFunc(events, func(a, b *event.Event) int { return cmp.Compare(a.Time, b.Time) })
	n := len(events)
	if !end {
		n, _ = slices.BinarySearchFunc(events, sure, func(e *event.Event, sure time.Duration) int { return cmp.Compare(e.Time, sure+1) })
	}
	for _, e := range events[:n] {
		tr.sink(e)
	}
	g.kept = slices.Clone(events[n:])
}

// look adds all events that there are now.
func (tr *Tracer) look(events []*event.Event) []*event.Event {
	g := tr.gather
	g.queue.Lock()
	events = append(events, g.made...)
	g.made = nil
	g.queue.Unlock()
	for _, r := range tr.recorders {
		for {
			rec, ok, err := r.ring.Read()
			if err != nil || !ok {
				break
			}
			if h, err := r.Decode(rec.Data); err == nil && h.Cookie < uint64(len(r.at)) {
				events = append(events, r.at[h.Cookie].recorded(r, h))
			}
		}
	}
	return events
}

// keep puts an event of a handler's where it comes in its turn. It answers false where
// nothing is recorded: then it need not wait.
func (tr *Tracer) keep(e *event.Event) bool {
	g := tr.gather
	if g == nil {
		return false
	}
	e.Args = slices.Clone(e.Args)
	g.queue.Lock()
	defer g.queue.Unlock()
	g.made = append(g.made, e)
	return true
}

// recorded makes an event of a record.
func (t *traced) recorded(r *recorder, h bpf.Hit) *event.Event {
	at, pid, tid := t.at(), int(h.Thread>>32), int(uint32(h.Thread))
	comm, ok := r.Comm(h)
	if !ok {
		comm = t.tr.s.Comm(tid)
	}
	e := &event.Event{
		Time: time.Duration(h.Time), CPU: int(h.CPU), PID: pid, TID: tid, Comm: comm,
		Group: t.group, Name: t.name, Func: at.Func.Label(), Off: at.Off, Size: at.Size, Addr: arch.Addr(at.Addr),
	}
	if t.rp != nil {
		e.Return, e.RetAddr = true, r.PC(h)
		e.RetSym = nameOf(t.tr.space, e.RetAddr)
	}
	e.Args = r.Values(h)
	t.note(e)
	return e
}

// settleAll does it for all definitions that have fresh probes.
func (tr *Tracer) settleAll(fresh []*traced) {
	if !tr.Inside {
		return
	}
	if tr.gather != nil {
		tr.gather.mu.Lock()
		defer tr.gather.mu.Unlock()
	}
	for ts := range byDefinition(tr.together(fresh)) {
		if r := tr.settle(ts[0].spec, ts); r != nil {
			tr.recorders = append(tr.recorders, r)
		}
	}
	tr.startGather()
}

// many definitions, such as a file of addresses has, share a program and its rings where they ask for the
// same.
const many = 64

// together sorts probes so that those stand together that one program serves: of each
// definition or, where there are many, of all that ask for the same arguments.
func (tr *Tracer) together(ts []*traced) []*traced {
	definitions := 0
	for range byDefinition(ts) {
		definitions++
	}
	if _, types := tr.s.Target().(binder); types || definitions < many {
		return ts // of types, each place has its own
	}
	var order []string
	alike := make(map[string][]*traced)
	for _, t := range ts {
		sp := *t.spec
		sp.Group, sp.Event, sp.Place, sp.MaxActive = "", "", spec.Place{HasAddr: true}, 0
		if len(sp.Args) > 0 {
			sp.Place.Module = t.spec.Place.Module // "same file" of @+OFFSET
		}
		t.asks = sp.String()
		if alike[t.asks] == nil {
			order = append(order, t.asks)
		}
		alike[t.asks] = append(alike[t.asks], t)
	}
	var sorted []*traced
	for _, asks := range order {
		sorted = append(sorted, alike[asks]...)
	}
	return sorted
}

// byDefinition gives the probes that one program serves, which stand together.
func byDefinition(ts []*traced) iter.Seq[[]*traced] {
	return func(yield func([]*traced) bool) {
		for len(ts) > 0 {
			n := slices.IndexFunc(ts, func(t *traced) bool { return t.asks != ts[0].asks || t.asks == "" && t.spec != ts[0].spec })
			if n < 0 {
				n = len(ts)
			}
			if !yield(ts[:n]) {
				return
			}
			ts = ts[n:]
		}
	}
}

// lost are the events that found no room in the ring; its definition's first probe has
// them all.
func (t *traced) lost() uint64 {
	for _, r := range t.tr.recorders {
		if len(r.at) > 0 && r.at[0] == t {
			return r.ring.Lost()
		}
	}
	return 0
}
