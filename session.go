package kprobe

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/errno"
	"kprobe/internal/ground"
	"kprobe/internal/later"
	"kprobe/internal/lifeline"
	"kprobe/internal/links"
	"kprobe/internal/names"
	"kprobe/internal/optimize"
	"kprobe/internal/owner"
	"kprobe/internal/parts"
	"kprobe/internal/placing"
	"kprobe/internal/standing"
	"kprobe/internal/traced"
	"kprobe/internal/turns"
	"kprobe/internal/unwind"
	"kprobe/internal/watched"
	"kprobe/internal/within"
	"kprobe/target"
)

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
	// parent's. Nil lets children go, clean. A process that is to have another tracer
	// is let go: its session is Done without having Exited, and Report is told.
	Follow func(child *Session)

	// Mapped is called when the target has mapped libraries, or has executed another program, on a goroutine of its own, before the
	// thread that did so goes on: what it registers is there before a library's constructors run. It must not close the session.
	Mapped func(s *Session)

	// Report is told, one error at a time, what no call can return: a handler
	// that panicked (a *HandlerPanic), a probe that became [GONE], a pending probe that
	// could not be armed. It may be called on the session's own thread, and then may do
	// what a handler may. Nil discards, but for panics of handlers, of which the first
	// of each probe is printed on standard error.
	Report func(err error)

	family *traced.Family // of those who are followed
}

// Session is one target with its probes. All methods may be called from any
// goroutine, but not from handlers where a method says so.
//
// Lock order: turns, then the calls', then view (doc.go).
type Session struct {
	on   *ground.Ground
	opts Options
	cpus int

	vectors target.Vectors
	tasks   target.Tasks

	turns   turns.Turns
	pending []*Kprobe
	probes  []*Kprobe // registered, in order of registration
	jprobes map[arch.Addr]*Jprobe
	serial  uint64
	walks   bool // watchWalks has been there
	stacks  unwind.Indexes
	loader  *loader
	tracers traced.Search

	within    *within.Within
	kit       *parts.Kit
	links     *links.Links
	programs  []*Programs
	raised    placing.Semaphores // of static probes
	optimizer *optimize.Optimizer

	watches *watched.Registers[*Watchpoint]

	// What follows belongs to the owner thread.
	threads *standing.Threads
	server  *server
	scratch Regs // of the hit being served, unless Concurrent

	calls *calls.UnderWay[*KretprobeInstance]

	done chan struct{} // closed when the children, too, have been handed to Options.Follow
	left atomic.Bool   // it has closed itself, and nobody has called Close yet
	exit target.Exit

	names names.Names

	children sync.WaitGroup // on their way to Options.Follow

	shown atomic.Pointer[shown]

	reclaimer *within.Reclaimer
	state     *lifeline.List
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
	first := target.StartOf(t)
	s.turns.Report(first.Withheld)
	ready := make(chan struct{})
	go func() {
		defer s.on.Owner.End()
		t.Run(func() {
			close(ready)
			s.loop()
		})
	}()
	go func() {
		<-s.on.Owner.Over()
		s.opts.family.Leave(t.PID())
		s.children.Wait()
		close(s.done)
	}()
	select {
	case <-ready:
		err = s.watchLoader(ctx, first)
	case <-s.on.Owner.Over():
		err = errno.Gone(t.PID())
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
	err = owner.Standing(t, func() (*owner.Owner, error) {
		if s, err = newSession(t, o); err != nil {
			return nil, err
		}
		return s.on.Owner, nil
	})
	if errors.Is(err, target.ErrGone) {
		return nil, errno.Gone(t.PID())
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
	s.turns.Looking = true
	s.on.Owner.End()
	close(s.done)
	return s, nil
}

func newSession(t target.Target, o *Options) (*Session, error) {
	if t == nil {
		return nil, fail(syscall.EINVAL, "no target given")
	}
	s := &Session{
		cpus:    runtime.NumCPU(),
		jprobes: make(map[arch.Addr]*Jprobe),
		done:    make(chan struct{}),
		loader:  &loader{ready: make(chan struct{})},
	}
	if o != nil {
		s.opts = *o
	}
	s.turns.To = s.opts.Report
	s.opts.family = s.opts.family.With(t.PID(), s.goWithout)
	var err error
	if s.on, err = ground.New(t, s.opts.Concurrent, s.handle, rules{s}, s.turns.Report); err != nil {
		return nil, err
	}
	s.turns.On = s.on
	s.on.BlackList = s.opts.BlackList
	s.vectors, _ = t.(target.Vectors)
	s.tasks, _ = t.(target.Tasks)
	s.watches = watched.New(t, s.on.Owner, &s.on.View, watchRules{s})
	s.calls = calls.New[*KretprobeInstance](within.TargetOf(s.on, func() *within.Within { return s.within }), t.Arch())
	s.within = within.New(s.on, s.calls, rules{s})
	s.kit = &parts.Kit{On: s.on, Within: s.within, Calls: s.calls}
	s.links = links.New(s.kit)
	s.threads = standing.New(s.on, s.within, s.calls)
	s.server = newServer(s)
	s.optimizer = optimize.New(s.kit, s.turns.Changing, s.listChanged)
	s.reclaimer = within.NewReclaimer(s.within, s.turns.Changing)
	s.shown.Store(new(shown))
	s.calls.Become(s.on.Arch)
	return s, s.refresh()
}

// Target is what the session probes.
func (s *Session) Target() target.Target { return s.on.T }

// OnCPUs tells whether the target's threads are CPUs, which run tasks: a kernel's are.
func (s *Session) OnCPUs() bool { return s.on.Kind.OnCPUs() }

// Arch is the target's machine: that of the program which it executes now.
func (s *Session) Arch() *arch.Arch {
	s.on.View.RLock()
	defer s.on.View.RUnlock()
	return s.on.Arch
}

// Done is closed when the target has ended or the session was closed, and every
// child that it has is with Options.Follow.
func (s *Session) Done() <-chan struct{} { return s.done }

// Exited tells whether the target has ended, and how.
func (s *Session) Exited() (target.Exit, bool) {
	if !s.turns.Exited.Load() {
		return target.Exit{}, false
	}
	return s.exit, true
}

// LastStop is for how long the last batch had the target stopped.
func (s *Session) LastStop() time.Duration { return s.on.Owner.LastStop() }

// Close removes every probe, puts every byte and every return address back,
// and lets the target go on. A registration that is being planned is given up (ESRCH).
// Not from a handler (EDEADLK). A second Close returns os.ErrClosed.
func (s *Session) Close() error {
	s.on.End()
	if err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.Unlock()
	if s.turns.Closed.Load() {
		if s.left.CompareAndSwap(true, false) {
			return nil
		}
		return os.ErrClosed
	}
	defer s.on.Image.Close()
	if s.turns.Looking {
		s.turns.Closed.Store(true)
		return s.on.T.Close()
	}
	var err error
	if !s.turns.Exited.Load() {
		err = s.removeAll()
	}
	s.turns.Closed.Store(true)
	defer target.Free(s.on.T)
	s.on.Owner.Finish()
	if l := &s.on.Text.Lifeline; !l.On() || s.turns.Exited.Load() || s.on.Owner.Executed {
		l.Unguard() // else the guardian has another try when we have let go
	}
	s.on.Owner.Served()
	s.on.View.Lock()
	s.optimizer.Forget()
	err = errors.Join(err, s.within.Forget())
	s.on.View.Unlock()
	s.state.Remove()
	for _, ps := range s.programs {
		ps.unlock()
	}
	return errors.Join(err, s.on.T.Close())
}

// CloseContext is Close that is waited for no longer than a context allows: a registration may be
// under way, or a handler that takes its time. It answers the context's error then, but the session
// goes on closing, since nothing of ours may be left half way; Done tells when it is over.
func (s *Session) CloseContext(ctx context.Context) error {
	if s.on.Owner.InHandler() {
		return turns.ErrInHandler
	}
	return later.Wait(ctx, s.Close)
}

// loop is the owner thread's work: requests of other goroutines, and stops.
func (s *Session) loop() {
	defer s.turns.Tell()
	for {
		s.turns.Tell()
		s.on.Owner.Work()
		if st, ok := s.on.Owner.Next(); ok {
			s.handle(st)
			continue
		}
		if s.turns.Closed.Load() {
			return // not with a signal in hand
		}
		st, err := s.on.T.Wait()
		if err != nil {
			if err != target.ErrGone {
				s.turns.Report(err) // it says why
			}
			s.ended(target.Exit{})
			return
		}
		s.handle(st)
		if s.turns.Exited.Load() {
			return
		}
	}
}

// handle deals with one stop.
func (s *Session) handle(st target.Stop) {
	switch st.Kind {
	case target.StopTrap:
		s.server.Trapped(st)
	case target.StopAccess:
		s.server.Accessed(st)
	case target.StopSignal:
		if l, ok := s.on.T.(target.Lapser); ok && l.Lapsed(st.Thread) {
			s.on.T.Resume(st.Thread, 0)
			return
		}
		s.server.Signalled(st)
	case target.StopRewrite:
		s.optimizer.GiveWay(st.Thread)
	case target.StopFork:
		s.forked(st)
	case target.StopExec:
		s.turns.Report(st.Withheld)
		s.execed(st)
	case target.StopSpawn:
		s.turns.Report(st.Withheld)
		s.release(st.Child)
		fallthrough
	case target.StopLoad:
		go s.librariesChanged(st.Thread)
	case target.StopThreadExit:
		s.threads.Ended(st.Thread)
		s.calls.ThreadExited(st.Thread)
		if s.within.Some() {
			s.within.Seg.Forget(int(st.Thread))
		}
	case target.StopExit:
		s.ended(st.Status)
	}
}

func (s *Session) ended(e target.Exit) {
	s.exit = e
	s.turns.Exited.Store(true)
}

func (s *Session) task(th target.Thread) Task {
	t := Task{PID: s.on.T.PID(), TID: int(th)}
	if s.tasks != nil {
		t.PID = s.tasks.ThreadPID(th)
	}
	if cpus, ok := s.on.T.(target.Switcher); ok {
		t.TID, t.Addr = cpus.TaskID(th), cpus.TaskAt(th)
	}
	return t
}
