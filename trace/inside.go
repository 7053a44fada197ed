package trace

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/internal/gen"
	"kprobe/recording"
	"kprobe/source/bind"
	"kprobe/spec"
	"kprobe/symbol"
)

// recorder is a definition that is captured inside the target: by a program, at
// all of its places, whose records become the events that a handler would have made.
type recorder struct {
	stream *recording.Stream
	ring   *bpf.Reader
	at     []*traced          // by the cookie that is in their records
	places []*recording.Place // of at, once they are known
	lost   uint64             // when it was last asked
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
	g, ps := tr.load(kind, ts[0].capture.Load().Capture)
	if ps == nil {
		return nil
	}
	program, err := ps.Program(g.Program.Name)
	if err != nil {
		return nil
	}
	var entry *kprobe.Program
	if g.Entry != nil {
		if entry, err = ps.Program(g.Entry.Name); err != nil {
			return nil
		}
	}
	m, err := ps.Map(g.Program.Maps[gen.RingIndex].Name)
	if err != nil {
		return nil
	}
	ring, err := bpf.NewReader(m)
	if err != nil {
		return nil
	}
	r := &recorder{ring: ring, at: slices.Clone(ts)}
	for cookie, t := range ts {
		t.usePrograms(program, entry, g.Data(), uint64(cookie))
	}
	r.places = make([]*recording.Place, len(r.at))
	names := &names{tr, r}
	if r.stream = (&recording.Stream{Format: g.Format(), Names: names, Faulty: r.faulty}); tr.Record != nil {
		r.stream = tr.Record.Stream(r.stream.Format, names)
	}
	return r
}

// load makes a definition's program, and loads it with rings of the size that is asked for or,
// where these cannot be had, of the usual. Nil where there can be none.
func (tr *Tracer) load(kind bpf.Kind, c *event.Capture) (*gen.Tracer, *kprobe.Programs) {
	for _, size := range []int{tr.Buffer, 0} {
		g, err := gen.Compile("trace", kind, tr.s.Arch(), c, gen.Options{
			Fields: gen.FieldTime | gen.FieldThread | gen.FieldCookie | gen.FieldCPU,
			PC:     kind == bpf.Kretprobe,
			Comm:   tr.s.OnCPUs(), // tasks come and go behind our back
			Ring:   size,
		})
		if err != nil {
			continue
		}
		ps, err := tr.s.Load(&bpf.Collection{Programs: g.Programs(), Maps: g.Program.Maps})
		if err == nil {
			return g, ps
		}
		tr.refused = size == 0 && kind == bpf.Kprobe // the next would be, too
	}
	return nil, nil
}

// names are what records of a definition have as numbers.
type names struct {
	tr *Tracer
	r  *recorder
}

// Place implements recording.Names. A probe that is pending has none yet.
func (n *names) Place(cookie uint64) *recording.Place {
	if cookie >= uint64(len(n.r.at)) {
		return nil
	}
	p := n.r.places[cookie]
	if p == nil || p.Addr == 0 {
		t := n.r.at[cookie]
		at := t.at()
		p = &recording.Place{Group: t.group, Name: t.name, Return: t.rp != nil,
			Addr: at.Addr, Func: t.tr.function(at), Off: at.Off, Size: at.Size}
		n.r.places[cookie] = p
	}
	return p
}

// Symbol implements recording.Names.
func (n *names) Symbol(a arch.Addr) string {
	g := n.tr.gather
	name, ok := g.symbols[a]
	if !ok {
		name = nameOf(n.tr.space, a)
		g.symbols[a] = name
	}
	return name
}

// Comm implements recording.Names.
func (n *names) Comm(tid int) string {
	g := n.tr.gather
	name, ok := g.comms[tid]
	if !ok {
		name = n.tr.s.Comm(tid)
		g.comms[tid] = name
	}
	return name
}

func (r *recorder) faulty(cookie uint64) { r.at[cookie].faults.Add(1) }

// usePrograms puts the programs in the handlers' place. Where registering finds that they cannot run, these come back.
func (t *traced) usePrograms(p, entry *kprobe.Program, data int, cookie uint64) {
	t.kprobe().Cookie = cookie
	if rp := t.rp; rp != nil {
		handler, atEntry, size := rp.Handler, rp.EntryHandler, rp.DataSize
		rp.Program, rp.EntryProgram, rp.Handler, rp.EntryHandler, rp.DataSize = p, entry, nil, nil, data
		rp.Kp.Otherwise = func(error) {
			rp.Program, rp.EntryProgram, rp.Handler, rp.EntryHandler, rp.DataSize = nil, nil, handler, atEntry, size
		}
		return
	}
	t.kp.Program, t.kp.PreHandler = p, nil
	t.kp.Otherwise = func(error) { t.kp.Program, t.kp.PreHandler = nil, t.hit }
}

// gather reads what the programs have recorded, until it is told to end.
type gather struct {
	over, done chan struct{}
	mu         sync.Mutex // held while records are read

	merge  *recording.Merge
	told   bool          // that events are lost
	looked time.Duration // when it was last asked whether events are lost
	losses []recording.Loss

	// Names, asked for once in a look: they change.
	symbols map[arch.Addr]string
	comms   map[int]string

	queue sync.Mutex
	made  []*event.Event // by handlers, since the last look
}

// pollEvery is how often records are looked for, where few come: a ring that is nearly full when
// it is looked at is looked at again at once.
const pollEvery = 5 * time.Millisecond

// lossEvery is after how many looks at records it is asked whether some were lost.
const lossEvery = 4

// tellLoss notes what was lost since it was last asked, and calls Lossy for the first. g.mu is held.
func (tr *Tracer) tellLoss() {
	g := tr.gather
	now := Now()
	some := false
	for _, r := range tr.recorders {
		n := r.ring.Lost()
		if n == r.lost || len(r.at) == 0 {
			continue
		}
		some = true
		l := recording.Loss{Name: r.at[0].name, N: n - r.lost, From: g.looked, To: now}
		r.lost = n
		if tr.Record != nil {
			tr.Record.Lost(l)
		}
		g.losses = recording.AppendLoss(g.losses, l)
	}
	g.looked = now
	if some && !g.told && tr.Lossy != nil {
		g.told = true
		tr.Lossy()
	}
}

// Losses tell when events were lost, by definition; after Flush, all of them.
func (tr *Tracer) Losses() []recording.Loss {
	if g := tr.gather; g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		return slices.Clone(g.losses)
	}
	return tr.losses
}

func (tr *Tracer) startGather() {
	if tr.gather != nil || len(tr.recorders) == 0 && tr.Record == nil && (!tr.Inside || len(tr.waiting) == 0) {
		return
	}
	tr.gather = &gather{
		over: make(chan struct{}), done: make(chan struct{}),
		merge: recording.NewMerge(tr.sink), looked: Now(),
		symbols: make(map[arch.Addr]string), comms: make(map[int]string),
	}
	go tr.poll(tr.gather)
}

// poll looks at the rings until the end.
func (tr *Tracer) poll(g *gather) {
	defer close(g.done)
	wait := time.NewTimer(pollEvery)
	defer wait.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-wait.C:
		case <-g.over:
			tr.read(true)
			return
		case <-tr.s.Done(): // the memory may be another session's soon
			tr.read(true)
			return
		}
		next := pollEvery
		if tr.read(false) {
			next = 0
		}
		if looks%lossEvery == 0 {
			g.mu.Lock()
			tr.tellLoss()
			g.mu.Unlock()
		}
		wait.Reset(next)
	}
}

// Flush hands over the events of everything that was recorded inside the target. It is
// for when the session, or the target, has ended: no more come.
func (tr *Tracer) Flush() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.flush()
}

func (tr *Tracer) flush() {
	if g := tr.gather; g != nil {
		close(g.over)
		<-g.done
		tr.losses = append(tr.losses, g.losses...)
		tr.gather = nil
	}
}

// forgetNames has what comes from now on named by what is mapped now.
func (tr *Tracer) forgetNames() {
	g := tr.gather
	if g == nil {
		return
	}
	tr.read(false)
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.symbols)
	for _, r := range tr.recorders {
		clear(r.places)
	}
}

// read looks at the rings, and hands over events, or all that there are in the recording's
// form. It tells whether more should be looked for at once.
func (tr *Tracer) read(end bool) (busy bool) {
	g := tr.gather
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue.Lock()
	made := g.made
	g.made = nil
	g.queue.Unlock()
	for _, e := range made {
		if tr.Record != nil {
			tr.Record.Event(e)
		} else {
			g.merge.AddEvent(e)
		}
	}
	for _, r := range tr.recorders {
		// An error says that the target has written over a ring: what it held is among the lost.
		_ = r.ring.Drain(func(_ int, block []byte) {
			busy = busy || len(block) > r.ring.Size()/8
			if tr.Record != nil {
				tr.Record.Records(r.stream, block)
			} else {
				g.merge.Add(r.stream, block)
			}
		})
	}
	if end {
		tr.tellLoss()
	}
	if tr.Record != nil {
		tr.Record.Look(end)
	} else {
		g.merge.Emit(end)
	}
	clear(g.symbols)
	clear(g.comms)
	return busy
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

// settleAll does it for all definitions that have fresh probes.
func (tr *Tracer) settleAll(fresh []*traced) {
	if !tr.Inside {
		tr.startGather()
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
// definition or, where there are many, of all that ask for the same arguments. What debug data tells is
// something else at each place; those where it is the same share, whatever their definition is.
func (tr *Tracer) together(ts []*traced) []*traced {
	definitions := 0
	for range byDefinition(ts) {
		definitions++
	}
	if _, types := tr.s.Target().(binder); types { // each place has its own
		for i, t := range ts {
			if bind.Needs(t.spec) {
				t.asks = fmt.Sprint("place ", i)
			}
		}
		return ts
	}
	var order []string
	alike := make(map[string][]*traced)
	for _, t := range ts {
		var key string
		switch {
		case tr.Calls || bind.Needs(t.spec) || bind.Plain(t.spec) || t.place.Go(): // the result has a type at each place; arguments of Go are elsewhere
			t.asks = t.bound
			key = t.asks
		case definitions < many:
			key = fmt.Sprintf("definition %p", t.spec)
		default:
			sp := *t.spec
			sp.Group, sp.Event, sp.Place, sp.MaxActive = "", "", spec.Place{HasAddr: true}, 0
			if len(sp.Args) > 0 {
				sp.Place.Module = t.spec.Place.Module // "same file" of @+OFFSET
			}
			t.asks = sp.String()
			key = t.asks
		}
		if alike[key] == nil {
			order = append(order, key)
		}
		alike[key] = append(alike[key], t)
	}
	var sorted []*traced
	for _, key := range order {
		sorted = append(sorted, alike[key]...)
	}
	return sorted
}

// boundTo is what a definition asks for at a place, without names of variables: the same at two places where one
// program can serve both.
func (t *traced) boundTo(args []spec.Arg, at symbol.Loc) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%c %p", t.spec.Kind, at.Module)
	if t.spec.If != nil && at.Go() {
		b.WriteString(" Go") // where the condition has arguments elsewhere
	}
	for i := range args {
		a := &args[i]
		fmt.Fprintf(&b, " %s=%v:%v", a.Name, &a.Fetch, a.Type)
		if e := a.Type.Enum; e != nil {
			fmt.Fprintf(&b, "(%s %d)", e.Name, len(e.Values))
			if len(e.Values) < many { // else they are the types of the module's Go
				fmt.Fprint(&b, e.Values)
			}
		}
	}
	if t.spec.If != nil {
		b.WriteString(" if " + t.spec.If.Text)
	}
	return b.String()
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
