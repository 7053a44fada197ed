package kprobe

import (
	"context"
	"errors"
	"maps"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/internal/inside"
	"kprobe/internal/isa"
	"kprobe/internal/later"
	"kprobe/internal/lifeline"
	"kprobe/internal/names"
	"kprobe/internal/patch"
	"kprobe/internal/placing"
	"kprobe/internal/room"
	"kprobe/internal/text"
	"kprobe/target"
)

// pageSize is the unit of memory protection of every machine served so far.
const pageSize = 4096

// Options of a session. Nil and zero values mean the defaults.
type Options struct {
	// Concurrent lets handlers of different threads of the target run at the
	// same time, each on a goroutine of its own; a handler may then take its
	// time without holding up other threads. Each hit costs a hand-over
	// between host threads (some tens of microseconds). By default handlers
	// run one after another on the session's own thread.
	Concurrent bool

	// BlackList are further ranges that must not be probed.
	BlackList []BlackListEntry

	// Unlisted keeps the session out of what List and `kprobe list` show to
	// other processes.
	Unlisted bool

	// Follow makes each child of the target, once it has memory of its own, a
	// target with a session of its own, which has these same options. The child
	// waits until Follow returns: what it registers is there before the child's
	// next instruction. A child of fork is as its parent was; one of vfork or
	// posix_spawn has executed a program, and loaded its libraries. Follow owns
	// the session, is called on a goroutine of its own, and must not close the
	// parent's. Nil lets children go, clean.
	Follow func(child *Session)

	// Report is told, one error at a time, what no call can return: a handler
	// that panicked (a *HandlerPanic), a probe that became [GONE], a pending probe that
	// could not be armed. It may be called on the session's own thread, and then may do
	// what a handler may. Nil discards, but for panics of handlers, of which the first
	// of each probe is printed on standard error.
	Report func(err error)
}

// Session is one target with its probes. All methods may be called from any
// goroutine, but not from handlers where a method says so.
//
// Lock order: mu, then frames.mu, then view (doc.go).
type Session struct {
	t    target.Target
	arch *arch.Arch
	isa  isa.ISA
	opts Options
	cpus int

	alloc   target.Allocator // nil: no slots, only emulation
	beside  besides          // nil: probes are written into the target's memory
	machine target.Machine   // nil: threads are a program's
	vectors target.Vectors
	faulter target.Faulter
	sharer  target.Sharer
	tasks   target.Tasks
	watcher target.Watcher // nil: data cannot be watched

	// mu is held for the whole of a registration or removal, planning
	// included. It makes batches follow one another.
	mu      sync.Mutex
	image   *image.Image
	pending []*Kprobe
	probes  []*Kprobe // registered, in order of registration
	jprobes map[arch.Addr]*Jprobe
	serial  uint64
	walks   bool // watchWalks has been there
	loader  *loader

	// What probes have inside the target; nil until one needs it. Changed by
	// the owner thread with mu and view held.
	inside      *inside.Inside
	ours        []byte // our side of its memory
	shared      patch.Range
	programs    []*Programs
	raised      placing.Semaphores // of static probes
	unoptimized bool               // the switch of optimization is off
	gate        *gate
	gateless    *string     // why there is none, or ""; nil while that was not asked
	waiting     bool        // optimize is about to run
	doubt       *time.Timer // see trust
	doubted     time.Duration

	// view guards what the owner thread changes and others look at. The
	// owner itself reads without it.
	view     sync.RWMutex
	points   points
	text     *text.Writer // what stands at them
	room     *room.Room[*point]
	watches  []*Watchpoint // by debug register; nil: free
	disarmed bool          // the global switch is off

	// What follows belongs to the owner thread.
	stops    []target.Stop // reported by Freeze, not dealt with yet
	taken    map[execution]away
	after    []func()       // what of a change can wait until the target runs again
	executed bool           // another program, and restart has not begun
	watching []target.Watch // what the target watches
	scratch  hit            // of the hit being served, unless Concurrent

	frames  frames
	serving *sync.WaitGroup // hits in handlers, if Concurrent; replaced by each removal

	jobs    chan func()
	queued  atomic.Int64
	over    chan struct{} // closed when the loop has ended
	done    chan struct{} // closed when the children, too, have been handed to Options.Follow
	closed  atomic.Bool
	looking bool // made by Look
	exit    target.Exit
	exited  atomic.Bool

	names names.Names

	children sync.WaitGroup // on their way to Options.Follow

	stats   stats
	shown   atomic.Pointer[shown]
	reports later.Queue[error] // to Options.Report

	reclaiming bool // reclaim is to come
	state      *lifeline.List
}

// execution is one pass through a point. The handlers of those in Session.taken
// ran, and then a signal took the thread away from its slot or detour: it will come again.
type execution struct {
	point *point
	sp    arch.Addr // tells the call from every other one that is under way
}

// away is who is away from such a pass.
type away struct {
	th     target.Thread
	inside bool // what runs inside the target has run too
}

// stats are figures about the session's own work.
type stats struct {
	lastStop atomic.Int64 // ns the target was stopped by the last batch
}

// Open starts a session on a target, which goes on running. A program that was
// just started has loaded its libraries, and waits for Continue with its own
// code still before it. The session owns the target from now on: Close lets
// it go. Errors: EINVAL for no target; EBUSY where it has a session; ESRCH where it has
// ended or was let go; ENOTSUP for its machine.
func Open(t target.Target, o *Options) (*Session, error) {
	return OpenContext(context.Background(), t, o)
}

// OpenContext is Open that waits no longer than a context allows for a program that was just
// started to load its libraries. When it gives up, it lets the program go, and answers the context's
// error.
func OpenContext(ctx context.Context, t target.Target, o *Options) (*Session, error) {
	if !target.Occupy(t) {
		return nil, fail(syscall.EBUSY, "the target has a session, which has not been closed")
	}
	s, err := newSession(t, o)
	if err != nil && t != nil && t.PID() != 0 {
		s, err = newSessionStanding(t, o)
	}
	if err != nil {
		target.Free(t)
		return nil, err
	}
	if !s.opts.Unlisted {
		on := lifeline.Process(t.PID())
		if p, ok := t.(target.Placed); ok {
			on = lifeline.Place(p.Place())
		}
		s.state = lifeline.NewList(on)
	}
	ready := make(chan struct{})
	go func() {
		defer close(s.over)
		t.Run(func() {
			close(ready)
			s.loop()
		})
	}()
	go func() {
		<-s.over
		s.children.Wait()
		close(s.done)
	}()
	select {
	case <-ready:
		err = s.watchLoader(ctx)
	case <-s.over:
		err = fail(syscall.ESRCH, "the target was let go")
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// newSessionStanding is newSession for a process that may have executed another program, or ended, while
// it was looked at: it stands still, and has told us of that.
func newSessionStanding(t target.Target, o *Options) (s *Session, err error) {
	err = target.ErrGone // it was let go
	t.Run(func() {
		var stops []target.Stop
		if stops, err = t.Freeze(); err == nil {
			s, err = newSession(t, o)
		}
		if s != nil {
			s.stops = stops
		}
		for _, st := range stops {
			switch {
			case st.Kind == target.StopExit:
				err = target.ErrGone
			case s != nil:
			case st.Child != nil:
				st.Child.Detach()
				fallthrough
			default:
				t.Resume(st.Thread, st.Signal)
			}
		}
		t.Thaw()
	})
	if errors.Is(err, target.ErrGone) {
		return nil, gone(t)
	}
	return s, err
}

// Look makes a session that only plans: Plan and BlackList work, everything that
// would change the target is refused with EPERM. The target is only read.
func Look(t target.Target, o *Options) (*Session, error) {
	s, err := newSession(t, o)
	if err != nil {
		return nil, err
	}
	s.looking = true
	close(s.over)
	close(s.done)
	return s, nil
}

func newSession(t target.Target, o *Options) (*Session, error) {
	if t == nil {
		return nil, fail(syscall.EINVAL, "no target given")
	}
	s := &Session{
		t: t, cpus: runtime.NumCPU(),
		jprobes: make(map[arch.Addr]*Jprobe),
		taken:   make(map[execution]away),
		jobs:    make(chan func(), 16),
		over:    make(chan struct{}),
		done:    make(chan struct{}),
		serving: new(sync.WaitGroup),
		loader:  &loader{ready: make(chan struct{})},
	}
	if o != nil {
		s.opts = *o
	}
	s.alloc, _ = t.(target.Allocator)
	s.beside, _ = t.(besides)
	s.machine, _ = t.(target.Machine)
	s.vectors, _ = t.(target.Vectors)
	s.faulter, _ = t.(target.Faulter)
	s.sharer, _ = t.(target.Sharer)
	s.tasks, _ = t.(target.Tasks)
	if s.watcher, _ = t.(target.Watcher); s.watcher != nil {
		s.watches = make([]*Watchpoint, s.watcher.Watches())
		s.watching = make([]target.Watch, len(s.watches))
	}
	s.room = room.New[*point](t)
	s.room.Others, s.room.Taken = s.othersPlan, s.tellOthers
	s.text = text.NewWriter(t, s.beside, &s.view, s.report)
	s.frames.init()
	s.shown.Store(new(shown))
	var err error
	if s.image, err = image.New(t, own{s}, s.beside != nil); err != nil {
		return nil, err
	}
	s.learnMachine()
	return s, s.refresh()
}

// learnMachine takes over what the image says of the machine.
func (s *Session) learnMachine() {
	s.view.Lock()
	defer s.view.Unlock()
	s.arch, s.isa = s.image.Arch, s.image.ISA
	s.room.Become(s.arch, s.isa.SlotSize())
}

// Target is what the session probes.
func (s *Session) Target() target.Target { return s.t }

// OnCPUs tells whether the target's threads are CPUs, which run tasks: a kernel's are.
func (s *Session) OnCPUs() bool { return s.machine != nil }

// Arch is the target's machine: that of the program which it executes now.
func (s *Session) Arch() *arch.Arch {
	s.view.RLock()
	defer s.view.RUnlock()
	return s.arch
}

// Done is closed when the target has ended or the session was closed, and every
// child that it has is with Options.Follow.
func (s *Session) Done() <-chan struct{} { return s.done }

// Exited tells whether the target has ended, and how.
func (s *Session) Exited() (target.Exit, bool) {
	if !s.exited.Load() {
		return target.Exit{}, false
	}
	return s.exit, true
}

// LastStop is for how long the last batch had the target stopped.
func (s *Session) LastStop() time.Duration { return time.Duration(s.stats.lastStop.Load()) }

// Close removes every probe, puts every byte and every return address back,
// and lets the target go on. Not from a handler (EDEADLK). A second Close
// returns os.ErrClosed.
func (s *Session) Close() error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.unlock()
	if s.closed.Load() {
		return os.ErrClosed
	}
	defer s.image.Close()
	if s.looking {
		s.closed.Store(true)
		return s.t.Close()
	}
	var err error
	if !s.exited.Load() {
		err = s.removeAll()
	}
	s.closed.Store(true)
	defer target.Free(s.t)
	s.t.Wake()
	for done := false; !done; {
		select {
		case <-s.over:
			done = true
		case <-time.After(time.Millisecond):
			s.t.Wake()
		}
	}
	if l := &s.text.Lifeline; !l.On() || s.exited.Load() || s.executed {
		l.Unguard() // else the guardian has another try when we have let go
	}
	s.serving.Wait()
	s.view.Lock()
	err = errors.Join(err, s.forgetInside())
	s.view.Unlock()
	s.state.Remove()
	return errors.Join(err, s.t.Close())
}

// CloseContext is Close that is waited for no longer than a context allows: a registration may be
// under way, or a handler that takes its time. It answers the context's error then, but the session
// goes on closing, since nothing of ours may be left half way; Done tells when it is over.
func (s *Session) CloseContext(ctx context.Context) error {
	if s.inHandler() {
		return errInHandler
	}
	return later.Wait(ctx, s.Close)
}

// loop is the owner thread's work: requests of other goroutines, and stops.
func (s *Session) loop() {
	defer s.tell()
	for {
		s.tell()
		for s.queued.Load() > 0 {
			f := <-s.jobs
			s.queued.Add(-1)
			f()
		}
		if len(s.stops) > 0 {
			st := s.stops[0]
			s.stops = s.stops[1:]
			s.handle(st)
			continue
		}
		if s.closed.Load() {
			return // not with a signal in hand
		}
		st, err := s.t.Wait()
		if err != nil {
			if err != target.ErrGone {
				s.report(err) // it says why
			}
			s.ended(target.Exit{})
			return
		}
		s.handle(st)
		if s.exited.Load() {
			return
		}
	}
}

// handle deals with one stop.
func (s *Session) handle(st target.Stop) {
	switch st.Kind {
	case target.StopTrap:
		s.trapped(st)
	case target.StopAccess:
		s.accessed(st)
	case target.StopSignal:
		if l, ok := s.t.(target.Lapser); ok && l.Lapsed(st.Thread) {
			s.t.Resume(st.Thread, 0)
			return
		}
		s.signalled(st)
	case target.StopRewrite:
		s.giveWay(st)
	case target.StopFork:
		s.forked(st)
	case target.StopExec:
		s.execed(st)
	case target.StopSpawn:
		s.release(st.Child)
		fallthrough
	case target.StopLoad:
		s.loaderCalled(st.Thread)
	case target.StopThreadExit:
		s.forgetTaken(func(_ *point, th target.Thread) bool { return th == st.Thread && !s.image.Schedules() })
		s.frames.dropThread(st.Thread)
		s.threadGone(st.Thread)
		if s.inside != nil {
			s.inside.Seg.Forget(int(st.Thread))
		}
	case target.StopExit:
		s.ended(st.Status)
	}
}

func (s *Session) ended(e target.Exit) {
	s.exit = e
	s.exited.Store(true)
}

// do runs f on the owner thread, between two stops, and waits for it.
// It answers false where the session is over.
func (s *Session) do(f func()) bool {
	done := make(chan struct{})
	s.queued.Add(1)
	select {
	case s.jobs <- func() { defer close(done); f() }:
	case <-s.over:
		return false
	}
	for {
		s.t.Wake()
		select {
		case <-done:
			return true
		case <-s.over:
			select {
			case <-done:
				return true
			default:
				return false
			}
		case <-time.After(time.Millisecond):
		}
	}
}

// onOwner runs f on the owner thread, from wherever it is called.
func (s *Session) onOwner(f func()) {
	if s.t.OnOwner() {
		f()
		return
	}
	s.do(f)
}

func (s *Session) task(th target.Thread) Task {
	t := Task{PID: s.t.PID(), TID: int(th)}
	if s.tasks != nil {
		t.PID = s.tasks.ThreadPID(th)
	}
	if cpus, ok := s.t.(target.Switcher); ok {
		t.TID = cpus.TaskID(th)
	}
	return t
}

func (s *Session) forgetTaken(over func(*point, target.Thread) bool) {
	maps.DeleteFunc(s.taken, func(e execution, a away) bool { return over(e.point, a.th) })
}

// own is the program's own memory, as ReadMem has it.
type own struct{ *Session }

func (o own) ReadAt(addr arch.Addr, p []byte) error { return o.ReadMem(addr, p) }
