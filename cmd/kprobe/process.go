package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"kprobe"
	"kprobe/event"
	"kprobe/recording"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// tracing is sessions at work: on running processes, or on one program that
// was started for it, and on their children where those are followed.
type tracing struct {
	sessions []*kprobe.Session // the children's are not among them
	placing  *placing          // while they are opened, and probes are placed
	program  *os.Process       // the one started, nil for none
	defs     []string
	sink     func(*event.Event)
	record   *recording.Writer // takes what is recorded, instead of sink
	stops    bool              // each hit stops the target: no programs inside it
	strict   bool              // all places of a definition, or none
	ownOnly  bool              // no inlined copies
	depth    int               // of stacks; 0 for the usual
	calls    *calls            // it is about calls: these make definitions of its own
	buffer   int               // bytes that a thread can record; 0 for the usual
	lossy    sync.Once

	mu       sync.Mutex
	tracers  []*trace.Tracer
	past     []event.Count            // of children that are over
	lost     []recording.Loss         // of these
	children map[*kprobe.Session]bool // that are not
	coming   map[*kprobe.Session]bool // children that probes are being placed in
	closing  bool
	alive    sync.WaitGroup
	waits    waits
}

// report tells what no call can return; the line is whole, whichever thread it
// comes from. It is not told again when it comes once more, of another definition or by the call.
func report(err error) {
	if reported.first(err.Error()) {
		complain(os.Stderr, err)
	}
}

// reported are the errors that were printed lately.
var reported lately

// lately keeps the last texts, about as many as a terminal shows.
type lately struct {
	mu    sync.Mutex
	texts []string
}

// first tells whether a text is not among them, and takes it in.
func (l *lately) first(text string) bool {
	const most = 64
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.texts, text) {
		return false
	}
	l.texts = append(l.texts[max(0, len(l.texts)-most+1):], text)
	return true
}

// attach opens a session on each process. The first that cannot be had ends it.
func (t *tracing) attach(pids []int, o *kprobe.Options) error {
	for _, pid := range pids {
		p, err := ptrace.Attach(pid)
		if err != nil {
			return err
		}
		s, err := t.placing.open(p, o)
		if err != nil {
			return errors.Join(fmt.Errorf("process %d: %w", pid, err), ignoreClosed(p.Close()))
		}
		t.sessions = append(t.sessions, s)
	}
	return nil
}

// start starts a program, which waits with its libraries loaded.
func (t *tracing) start(argv []string, o *kprobe.Options) error {
	p, err := ptrace.Start(argv, nil)
	if err != nil {
		return err
	}
	// From here on it is known by more than its pid, which may pass to others.
	t.program, err = os.FindProcess(p.PID())
	if err != nil {
		return err
	}
	t.placing.started(t.program)
	s, err := t.placing.open(p, o)
	if err != nil {
		t.program.Kill()
		return errors.Join(fmt.Errorf("start %s: %w", argv[0], err), ignoreClosed(p.Close()))
	}
	t.sessions = append(t.sessions, s)
	return nil
}

// ignoreClosed: a session that could not be opened may have closed its target.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// arm puts the definitions to work in every session.
func (t *tracing) arm() (armed []*trace.Tracer, err error) {
	for _, s := range t.sessions {
		tr := t.tracer(s)
		if err := tr.Add(t.definitions(s)...); err != nil {
			return nil, err
		}
		armed = append(armed, tr)
	}
	return armed, nil
}

// takeIn takes the tracers of all sessions, and tells of probes that they do not have.
func (t *tracing) takeIn(tracers []*trace.Tracer) error {
	for i, tr := range tracers {
		left := tr.LeftOut()
		if t.calls != nil {
			left = t.calls.leftOut(left)
		}
		if err := warnLeftOut(left); err != nil {
			return err
		}
		t.waits.tell(tr.Waiting())
		t.working(t.sessions[i], tr)
	}
	return nil
}

// working takes in a session's tracer. It looks again at what was mapped meanwhile.
func (t *tracing) working(s *kprobe.Session, tr *trace.Tracer) {
	t.mu.Lock()
	t.tracers = append(t.tracers, tr)
	t.mu.Unlock()
	t.waits.add(s, tr)
	t.waits.mapped(s)
}

// definitions are those for a session.
func (t *tracing) definitions(s *kprobe.Session) []string {
	if t.calls != nil {
		return t.calls.definitions(s)
	}
	return t.defs
}

// tracer makes a session's.
func (t *tracing) tracer(s *kprobe.Session) *trace.Tracer {
	tr := trace.New(s, t.sink)
	tr.Calls, tr.Depth = t.calls != nil, t.depth
	tr.Inside, tr.Strict, tr.Buffer, tr.Lossy, tr.OutOfLine = !t.stops, t.strict, t.buffer, t.warnLossy, t.ownOnly
	if _, here := s.Target().(*ptrace.Process); here && t.buffer == 0 {
		tr.Buffer = ringFor(s.Target().PID())
	}
	if t.record != nil {
		tr.Record = t.record.Space()
	}
	return tr
}

// losses tell when events were lost.
func (t *tracing) losses() []recording.Loss {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.lost)
	for _, tr := range t.tracers {
		all = append(all, tr.Losses()...)
	}
	return all
}

// warnLossy says once that events are being lost, while something can still be done about it.
func (t *tracing) warnLossy() {
	t.lossy.Do(func() {
		report(errors.New("events come faster than they are read, and some are lost: --buffer has room for longer bursts, and the table at the end says how many are lost"))
	})
}

// follow puts them to work in a child, which waits for that.
func (t *tracing) follow(s *kprobe.Session) {
	tr := t.tracer(s)
	tr.Patient = true
	t.mu.Lock()
	closing := t.closing
	t.coming[s] = true
	t.mu.Unlock()
	var err error
	if !closing {
		err = tr.Add(t.definitions(s)...)
	}
	t.mu.Lock()
	delete(t.coming, s)
	closing = t.closing
	if !closing {
		t.children[s] = true
		t.tracers = append(t.tracers, tr)
		t.waits.add(s, tr)
		t.alive.Go(func() { t.outlive(s, tr) })
	}
	t.mu.Unlock()
	switch {
	case closing:
		t.end(s) // it has been, perhaps
	case err != nil:
		report(fmt.Errorf("process %d: %w", s.Target().PID(), err))
	}
}

// outlive waits for a child's end. There may be many in the end: nothing is kept of one but
// its counts.
func (t *tracing) outlive(s *kprobe.Session, tr *trace.Tracer) {
	<-s.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.children[s] {
		return // close has it
	}
	delete(t.children, s)
	tr.Flush()
	t.waits.past(s)
	t.past = sum(t.past, tr.Counts())
	for _, l := range tr.Losses() {
		t.lost = recording.AppendLoss(t.lost, l)
	}
	t.tracers = slices.DeleteFunc(t.tracers, func(o *trace.Tracer) bool { return o == tr })
	if err := s.Close(); err != nil {
		report(err)
	}
}

// abort lets processes go as they were. A program that was started for
// definitions that were refused never ran, and does not now.
func (t *tracing) abort() {
	t.waits.forget()
	if t.program != nil {
		t.program.Kill()
		for _, s := range t.sessions {
			<-s.Done()
		}
	}
	if err := t.close(); err != nil && !errors.As(err, new(exitStatus)) {
		report(err)
	}
}

// run lets a program that was started go on, and returns a channel that closes
// when every process has ended.
func (t *tracing) run() <-chan struct{} {
	over := make(chan struct{})
	for _, s := range t.sessions {
		s.Continue()
		t.alive.Go(func() { <-s.Done() })
	}
	go func() {
		t.alive.Wait()
		close(over)
	}()
	return over
}

// close ends every session; the processes go on without probes.
func (t *tracing) close() error {
	t.mu.Lock()
	t.closing = true
	all := slices.Collect(maps.Keys(t.coming)) // first: the parent's end waits for them
	all = slices.AppendSeq(append(all, t.sessions...), maps.Keys(t.children))
	clear(t.children)
	t.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, t.end(s))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tr := range t.tracers {
		tr.Flush()
	}
	return errors.Join(append(errs, t.waits.close())...)
}

// end ends one session, and waits for the children that were on their way.
func (t *tracing) end(s *kprobe.Session) error {
	early := lasted(s)
	err := ignoreClosed(s.Close())
	<-s.Done()
	if err != nil {
		return fmt.Errorf("%v: %w", subject{pid: s.Target().PID()}, err)
	}
	return early
}

// counts are what became of the probes' hits.
func (t *tracing) counts() []event.Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []event.Count
	for _, tr := range t.tracers {
		all = sum(all, tr.Counts())
	}
	return t.waits.rows(sum(all, t.past))
}

// sum adds counts up. One definition may be at the same place in several
// processes: that is one row.
func sum(all, more []event.Count) []event.Count {
	type key struct{ name, place string }
	rows := make(map[key]int, len(all))
	for i, c := range all {
		rows[key{c.Name, c.Place}] = i
	}
	for _, c := range more {
		i, ok := rows[key{c.Name, c.Place}]
		if !ok {
			rows[key{c.Name, c.Place}] = len(all)
			all = append(all, c)
			continue
		}
		all[i].Hits += c.Hits
		for cause, n := range c.Missed {
			all[i].Missed[cause] += n
		}
	}
	return all
}

// exit waits for the program that was started, and is its exit status, as a
// shell tells it. The session is closed.
func (t *tracing) exit() error {
	e, over := t.sessions[0].Exited()
	if !over {
		// It was let go, and runs on as our child.
		st, err := t.program.Wait()
		if err != nil {
			return err
		}
		e = target.Exit{Code: st.ExitCode()}
		if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = int(ws.Signal())
		}
	}
	switch {
	case e.Signal != 0:
		return exitStatus(128 + e.Signal)
	case e.Code != 0:
		return exitStatus(e.Code)
	}
	return nil
}
