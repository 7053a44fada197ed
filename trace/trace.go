// Package trace puts definitions in the language of the kernel's kprobe_events to
// work on a session: each hit becomes an event. It stands on the engine's own
// API, as any program could; see spec for the language and event for the lines.
package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
	"kprobe/recording"
	"kprobe/spec"
	"kprobe/symbol"
)

// Tracer is a set of definitions (kprobe_events) at work on a session: each
// hit becomes an event. Its methods are not safe for concurrent use, but for Remap.
type Tracer struct {
	// Inside lets definitions be captured by programs inside the target, where
	// that can be done: a hit then costs some nanoseconds, and no stop. Events
	// come a few milliseconds later, from a goroutine of the tracer's own.
	Inside bool

	// Patient tells Add to wait for functions that the program does not have, as
	// it waits for files that are not mapped: a program that it executes may.
	Patient bool

	// Strict refuses a definition if one of the functions that its pattern matches cannot
	// be probed. Otherwise LeftOut tells of these.
	Strict bool

	// OutOfLine leaves out the inlined copies of functions, which are probed otherwise.
	OutOfLine bool

	// Calls tells that definitions are about calls: the probe of a function is at its first instruction, also where the
	// definition asks for parameters, and $arg* and a $retval without a type are what debug data knows of them.
	Calls bool

	// Buffer is how many bytes each thread can record before they are read: a power of two from
	// bpf.MinRing to bpf.MaxRing; 0, and what the target has no room for, is the usual.
	Buffer int

	// Lossy is called once, when the first event has found no room.
	Lossy func()

	// Depth limits the frames of a stack in an event, inlined ones not counted; 0: MaxStack.
	Depth int

	// Record takes what is recorded instead of the sink; nil for none.
	Record *recording.Space

	leftOut []LeftOut
	losses  []recording.Loss // of what is over

	mu      sync.Mutex   // Remap comes at any time
	waiting []*spec.Spec // for their files
	loads   loads

	s      *kprobe.Session
	space  *symbol.Space
	sink   func(*event.Event)
	parser spec.Options
	specs  []*spec.Spec
	probes []*traced

	names     stackNames
	entered   entered
	recorders []*recorder // of the definitions that are captured inside the target
	refused   bool        // the target takes no programs
	gather    *gather
}

// traced is one definition at one place.
type traced struct {
	tr      *Tracer
	spec    *spec.Spec
	group   string
	name    string
	place   symbol.Loc                 // zero while pending
	seen    atomic.Pointer[symbol.Loc] // where it was found after that
	at0     located                    // how it was found
	several bool                       // the definition has more places
	capture atomic.Pointer[capture]
	work    sync.Pool // of *work
	faults  atomic.Uint64
	kp      *kprobe.Kprobe     // of a p line
	rp      *kprobe.Kretprobe  // of an r line
	wp      *kprobe.Watchpoint // of a w line
	later   bool               // which waits for memory
	timed   int                // of a Stat: which of its histograms
	times   *bpf.Map           // and in which map
	latency []uint64           // what was read of it last
	asks    string             // what it has in common with those that share its program
	merged  []*traced          // see surplus
	bound   string             // what it asks for, with the names of variables bound
}

// work is what making one event needs: reused, for there are many.
type work struct {
	ctx   event.Context
	args  []event.Value
	entry arch.Regs // when the function was entered, for $argN at its return
}

// capture is a definition's arguments as one machine has them.
type capture struct {
	of *arch.Arch
	*event.Capture
}

// compile makes the capture for the machine that the session is on now.
func (t *traced) compile(at symbol.Loc) ([]spec.Arg, error) {
	a := t.tr.s.Arch()
	args, err := t.tr.bindArgs(t.spec, at, t.at0.at, t.several)
	if err != nil {
		return nil, err
	}
	if args, err = t.conventional(args, at); err != nil {
		return nil, err
	}
	c, args, err := t.captureOf(args, a, at)
	t.bound = t.boundTo(args, at)
	var refused *spec.SyntaxError
	switch {
	case errors.As(err, &refused):
		return nil, err
	case err != nil:
		return nil, t.spec.ErrorAt(spec.BadProbeAddr, spec.PartPlace, err)
	}
	t.capture.Store(&capture{a, c})
	return args, nil
}

// captureOf compiles arguments, and the condition with what it looks at, which it adds to them.
func (t *traced) captureOf(args []spec.Arg, a *arch.Arch, at symbol.Loc) (*event.Capture, []spec.Arg, error) {
	r := resolver{t.tr.space, t.spec.Place.Module, at.Module}
	if t.spec.If == nil {
		c, err := event.Compile(args, a, r)
		return c, args, err
	}
	all, cond, err := t.conditional(args, at)
	if err != nil {
		return nil, nil, err
	}
	if all, err = t.conventional(all, at); err != nil {
		return nil, nil, err
	}
	c, err := event.CompileIf(all, len(args), cond, a, r)
	if err != nil {
		return nil, nil, t.spec.ErrorAt(spec.BadCondition, spec.PartIf, err)
	}
	return c, all, nil
}

// probe is the one that does the work.
func (t *traced) probe() kprobe.Probe {
	switch {
	case t.rp != nil:
		return t.rp
	case t.wp != nil:
		return t.wp
	}
	return t.kp
}

// kprobe is where it sits.
func (t *traced) kprobe() *kprobe.Kprobe {
	switch {
	case t.rp != nil:
		return &t.rp.Kp
	case t.wp != nil:
		return &t.wp.Kp
	}
	return t.kp
}

// New makes a tracer. sink is called with each event on the thread that
// the hit is served on: it must be quick, and must not keep the event.
func New(s *kprobe.Session, sink func(*event.Event)) *Tracer {
	return &Tracer{s: s, space: s.Symbols(), names: newStackNames(s), sink: sink, parser: parser(s)}
}

func parser(s *kprobe.Session) spec.Options {
	_, types := s.Target().(binder)
	return spec.Options{
		Types:    types,
		Source:   !types,
		IsReg:    func(name string) bool { _, ok := s.Arch().RegByName(name); return ok },
		WordSize: s.Arch().PtrSize,
	}
}

// Add puts definitions to work, all of them in one stop of the target or none.
// Deletions ("-:EVENT") are of what was defined before them, here or earlier;
// they too take effect only if nothing is refused. Errors: *spec.SyntaxError,
// with the position in the definition.
func (tr *Tracer) Add(defs ...string) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err := tr.s.Refresh(); err != nil {
		return err
	}
	specs, waiting := slices.Clone(tr.specs), slices.Clone(tr.waiting)
	named := byName(specs)
	var fresh []*traced
	var left []LeftOut
	for _, def := range defs {
		sp, err := parse(tr.parser, def)
		if err != nil {
			return err
		}
		if sp == nil {
			continue
		}
		if sp.Kind == spec.Delete {
			if specs, err = spec.Remove(specs, sp); err != nil {
				return err
			}
			fresh = slices.DeleteFunc(fresh, without(specs))
			named = byName(specs)
			continue
		}
		name := nameOfSpec(sp)
		if err := spec.Append(named[name], sp); err != nil {
			return err
		}
		named[name] = append(named[name], sp)
		ps, without, err := tr.prepare(sp)
		if errors.Is(err, errPending) {
			waiting, err = append(waiting, sp), nil
		}
		if err != nil {
			return err
		}
		left = append(left, without...)
		specs = append(specs, sp)
		fresh = append(fresh, ps...)
	}
	if len(fresh) > 0 {
		if !tr.Strict {
			tr.optional(fresh)
		}
		tr.settleAll(fresh)
		if err := tr.register(fresh); err != nil {
			return err
		}
		var out []LeftOut
		fresh, out = takeOut(fresh)
		tr.leftOut = append(tr.leftOut, append(left, out...)...)
	}
	var going []*traced
	deleted := without(specs)
	tr.probes = slices.DeleteFunc(tr.probes, func(t *traced) bool {
		if deleted(t) {
			going = append(going, t)
			return true
		}
		return false
	})
	tr.specs, tr.probes = specs, append(tr.probes, fresh...)
	tr.loads.look(tr.space)
	tr.waiting = slices.DeleteFunc(waiting, func(sp *spec.Spec) bool { return !slices.Contains(specs, sp) })
	if len(tr.waiting) > 0 {
		tr.startGather() // before there are handlers
	}
	return tr.unregister(going)
}

// specName is the name that definitions share which must agree about their fields.
type specName struct{ group, event string }

func nameOfSpec(sp *spec.Spec) specName {
	group, event := sp.Names()
	return specName{group, event}
}

func byName(specs []*spec.Spec) map[specName][]*spec.Spec {
	named := make(map[specName][]*spec.Spec, len(specs))
	for _, sp := range specs {
		named[nameOfSpec(sp)] = append(named[nameOfSpec(sp)], sp)
	}
	return named
}

// without tells the probes whose definitions are not among specs.
func without(specs []*spec.Spec) func(*traced) bool {
	kept := make(map[*spec.Spec]bool, len(specs))
	for _, sp := range specs {
		kept[sp] = true
	}
	return func(t *traced) bool { return !kept[t.spec] }
}

// LeftOut are the places of patterns that have no probe, for they cannot be probed.
func (tr *Tracer) LeftOut() []LeftOut { return tr.leftOut }

// Definitions prints what is at work, as reading kprobe_events does.
func (tr *Tracer) Definitions() []string {
	var lines []string
	for _, sp := range tr.specs {
		c := *sp
		for _, t := range tr.probes {
			if t.spec == sp && t.rp != nil && tr.s.OnCPUs() {
				c.MaxActive = t.rp.MaxActive // the default, if none was given
			}
		}
		lines = append(lines, c.String())
	}
	return lines
}

// Close takes all definitions out of work. Every event has been handed over then.
func (tr *Tracer) Close() error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	err := tr.unregister(tr.probes)
	tr.flush()
	tr.specs, tr.probes, tr.waiting = nil, nil, nil
	return err
}

func (tr *Tracer) unregister(ts []*traced) error {
	if len(ts) == 0 {
		return nil
	}
	return tr.s.Unregister(probesOf(ts)...)
}

func probesOf(ts []*traced) []kprobe.Probe {
	ps := make([]kprobe.Probe, len(ts))
	for i, t := range ts {
		ps[i] = t.probe()
	}
	return ps
}

// prepare turns one definition into probes: one, or as many as its glob finds. Errors: errPending where it waits for its file,
// which may be unmapped in the middle of this.
func (tr *Tracer) prepare(sp *spec.Spec) (ts []*traced, left []LeftOut, err error) {
	if !pending(tr.s, sp) {
		ts, left, err = tr.prepareNow(sp)
	}
	if pending(tr.s, sp) {
		return nil, nil, errPending
	}
	return ts, left, err
}

// prepareNow does it for a definition that does not wait.
func (tr *Tracer) prepareNow(sp *spec.Spec) (ts []*traced, left []LeftOut, err error) {
	locs, err := tr.locate(sp)
	if tr.Patient && errors.Is(err, syscall.ENOENT) {
		locs, err = nil, nil
		if full := fullName(sp.Place); full != "" && !sp.Place.IsGlob() {
			locs = []located{{name: full, off: sp.Place.Offset}}
		}
	}
	if err != nil {
		return nil, nil, syntax(sp, err)
	}
	for _, at := range locs {
		if at.doubt != "" {
			if tr.Strict {
				return nil, nil, syntax(sp, fail(syscall.ENOTSUP, "%s: %s", placeOf(at.loc), at.doubt))
			}
			left = append(left, LeftOut{sp.Text(), at.loc, errors.New(at.doubt)})
			continue
		}
		t, err := tr.traced(sp, at, len(locs) > 1)
		switch {
		case err == nil:
			ts = append(ts, t)
		case isPattern(sp) && !tr.Strict:
			left = append(left, LeftOut{sp.Text(), at.loc, err})
		default:
			return nil, nil, err
		}
	}
	if len(ts) == 0 && len(left) > 0 {
		return nil, nil, left[0].Err
	}
	return ts, left, nil
}

// traced makes the probe of a definition at a place.
func (tr *Tracer) traced(sp *spec.Spec, at located, several bool) (*traced, error) {
	t := &traced{tr: tr, spec: sp, place: at.loc, at0: at, several: several}
	t.work.New = func() any { return &work{ctx: event.Context{Mem: memoryOf(tr.s)}} }
	t.group, t.name = sp.Names()
	if sp.Event == "" && at.name == "" && sp.Place.IsGlob() {
		named := *sp
		named.Place.Symbol = at.loc.Func.Label()
		_, t.name = named.Names()
	}
	args, err := t.compile(at.loc)
	if err != nil {
		return nil, err
	}
	switch p := at.probe(sp, maxActive(tr.s, sp)).(type) {
	case *kprobe.Kprobe:
		t.kp = p
		p.PreHandler = t.hit
	case *kprobe.Watchpoint:
		t.wp = p
		t.later = p.Later && tr.s.ReadMem(p.Kp.Addr, make([]byte, 1)) != nil
		p.Handler = t.accessed
	case *kprobe.Kretprobe:
		t.rp = p
		t.atReturn(args)
	}
	t.kprobe().Patient = tr.Patient || t.wp == nil // what was found waits again when its file is unmapped
	return t, nil
}

// memoryOf is a session's memory, with that of programs where the target tells it
// from its own.
func memoryOf(s *kprobe.Session) arch.Reader {
	type user interface {
		ReadUser(addr arch.Addr, p []byte) error
	}
	if u, ok := s.Target().(user); ok {
		return struct {
			memory
			user
		}{memory{s}, u}
	}
	return memory{s}
}

// memory is the program's own.
type memory struct{ *kprobe.Session }

func (m memory) ReadAt(addr arch.Addr, p []byte) error { return m.ReadMem(addr, p) }

// binder is a target with type information. Bind is kernel.Types.Bind: arguments
// by name become loads.
type binder interface {
	Bind(sp *spec.Spec, at symbol.Loc) ([]spec.Arg, error)
}

// atReturn gives a return probe its handlers.
func (t *traced) atReturn(args []spec.Arg) {
	t.rp.Handler = t.returned
	if readArgs(args) {
		t.rp.DataSize = int(unsafe.Sizeof(arch.Regs{}))
		t.rp.EntryHandler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
			binary.Encode(ri.Data, binary.NativeEndian, regs.Raw())
			return 0
		}
	}
}

// readArgs tells whether something of it is an argument as it was at the function's entry.
func readArgs(args []spec.Arg) bool {
	return slices.ContainsFunc(args, func(a spec.Arg) bool {
		return a.Fetch.Any(func(f *spec.Fetch) bool { return f.Op == spec.ArgN })
	})
}

// register registers probes of all kinds in one batch and points its error at
// the definition.
func (tr *Tracer) register(ts []*traced) error {
	err := tr.s.Register(probesOf(ts)...)
	var b *kprobe.BatchError
	if errors.As(err, &b) {
		return syntax(ts[b.Index].spec, b.Err)
	}
	for _, t := range ts {
		if t.wp != nil {
			t.place = t.at() // which no handler asks for
		}
	}
	return err
}

// syntax gives an error of resolving or registering the kernel's code and the
// place in the definition.
func syntax(sp *spec.Spec, err error) error {
	code, part := spec.FailRegProbe, spec.PartData
	watch := sp.Kind == spec.Watch
	var notFound *symbol.NotFoundError
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		code = spec.NonUniqSymbol
	case watch && errors.Is(err, syscall.ENOTSUP):
		code, part = spec.BadAccessType, spec.PartPlace
	case watch && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EINVAL)):
		code = spec.BadAccessAddr
	case errors.As(err, &notFound), errors.Is(err, syscall.ENOENT):
		code = spec.BadProbeAddr
	case errors.Is(err, syscall.EILSEQ):
		code = spec.BadInsnBndry
	case sp.Kind == spec.Return && errors.Is(err, syscall.EINVAL) && sp.Place.Offset != 0:
		code = spec.BadRetprobe
	case errors.Is(err, syscall.ESRCH):
		return err
	}
	return sp.ErrorAt(code, part, err)
}

// hit is the pre-handler of a p line.
func (t *traced) hit(p *kprobe.Kprobe, regs *kprobe.Regs) int {
	e := t.event(regs, t.at())
	e.Addr = p.Addr
	w := t.work.Get().(*work)
	t.emit(e, regs, w)
	t.work.Put(w)
	return 0
}

// returned is the handler of an r line.
func (t *traced) returned(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
	e := t.event(regs, t.at())
	e.Return = true
	e.Addr, e.RetAddr = ri.Entry, ri.RetAddr
	e.RetSym = nameOf(t.tr.space, ri.RetAddr)
	w := t.work.Get().(*work)
	if len(ri.Data) > 0 {
		binary.Decode(ri.Data, binary.NativeEndian, &w.entry)
		w.ctx.Entry = &w.entry
	}
	w.ctx.Tail = ri.Tail
	t.emit(e, regs, w)
	t.work.Put(w)
	return 0
}

// accessed is the handler of a w line. Its events are where the access was made.
func (t *traced) accessed(p *kprobe.Watchpoint, regs *kprobe.Regs) {
	at, _ := t.tr.space.At(regs.PC())
	e := t.event(regs, at)
	e.Access = true
	e.Addr = regs.PC()
	w := t.work.Get().(*work)
	w.ctx.Data = p.Kp.Addr
	t.emit(e, regs, w)
	t.work.Put(w)
}

// at is the probe's place. Of one that was pending when the definition was made,
// it is known once it is armed.
func (t *traced) at() symbol.Loc {
	if t.place.Addr != 0 {
		return t.place
	}
	addr, seen := t.kprobe().PlacedAt(), t.seen.Load()
	if seen != nil && (addr == 0 || addr == seen.Addr) {
		return *seen
	}
	loc, known := t.tr.space.At(addr)
	if known {
		t.seen.Store(&loc)
	}
	return loc
}

// where is the place in tables.
func (t *traced) where() string {
	if at := t.at(); at.Addr != 0 {
		if which := t.tr.copyOf(at); which != "" {
			at.Module = nil
			return which + placeOf(at)
		}
		return placeOf(at)
	}
	return unmapped(t.spec)
}

func (t *traced) event(regs *kprobe.Regs, at symbol.Loc) *event.Event {
	task := regs.Task()
	return &event.Event{
		Time: t.tr.now(regs), CPU: max(0, regs.CPU()), PID: task.PID, TID: task.TID, Comm: regs.Comm(),
		Group: t.group, Name: t.name,
		Func: t.tr.function(at), Off: at.Off, Size: at.Size,
	}
}

// emit reads the arguments and hands the event over.
func (t *traced) emit(e *event.Event, regs *kprobe.Regs, w *work) {
	if t.capture.Load().of != t.tr.s.Arch() { // the process has executed a program of another machine
		if _, err := t.compile(t.at()); err != nil {
			t.faults.Add(1) // which has no such registers
			return
		}
	}
	w.ctx.Regs, w.ctx.Comm, w.ctx.TID, w.ctx.PID = regs.Raw(), e.Comm, e.TID, e.PID
	w.ctx.Vector = regs.Vector
	w.ctx.Entered = t.tr.entered.at(t.tr.s, regs, &w.ctx)
	w.ctx.Stack = func() ([]uint64, string) {
		pcs, end, err := regs.Stack(cmp.Or(t.tr.Depth, MaxStack))
		if err != nil {
			end = err.Error()
		}
		return pcs, end
	}
	c := t.capture.Load()
	w.args = c.AppendTo(w.args[:0], &w.ctx)
	if !c.Holds(w.args, &w.ctx) {
		return
	}
	e.Args = w.args[:c.Shown()]
	t.note(e)
	if !t.tr.keep(e) {
		t.tr.sink(e)
	}
}

// note counts what an event has not.
func (t *traced) note(e *event.Event) {
	if slices.ContainsFunc(e.Args, func(v event.Value) bool { return v.Fault }) {
		t.faults.Add(1)
	}
	for i := range e.Args {
		if v := &e.Args[i]; v.Base == spec.Trace {
			v.Frames = t.tr.names.frames(v.Frames, e.Return)
		}
	}
}

// now is when a handler was called. Where events are recorded inside a kernel, it is the
// kernel's own clock, as theirs is.
func (tr *Tracer) now(regs *kprobe.Regs) time.Duration {
	if tr.gather != nil {
		if at, ok := regs.Time(); ok {
			return at
		}
	}
	return Now()
}

// Now is the kernel's trace clock, which events have their time from: time since boot.
func Now() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// Counts tells what became of every probe's hits so far.
func (tr *Tracer) Counts() []event.Count {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var cs []event.Count
	for _, t := range tr.probes {
		c := event.Count{Name: t.name, Place: t.where()}
		for _, o := range t.all() {
			n := o.count()
			c.Hits += n.Hits
			for i := range n.Missed {
				c.Missed[i] += n.Missed[i]
			}
		}
		cs = append(cs, c)
	}
	return append(cs, notMapped(tr.waiting)...)
}
