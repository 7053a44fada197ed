// Package engine does the work of a session: it has one target and its probes. It knows probes by package
// roles, and calls the API by its Options alone.
//
//	engine.go    the parts of a session, from its begin to its end
//	loop.go      the owner thread's work
//	handlers.go  what the server of stops has run
//	register.go  probes come
//	walk.go      hidden ones, for programs that walk their own stacks
//	remove.go    probes go, and are switched off and on
//	update.go    a program for another one
//	switch.go    all of them are switched off and on, by traps or by jumps
//	plan.go      what would be
//	list.go      what there is, for others
//	libraries.go libraries come and go, and probes with them
//	linker.go    how we hear of that
//	exec.go      another program is executed
//	fork.go      children
//	tracers.go   processes that are let go for another tracer
//	leave.go     the target is left as it was found
package engine

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/ground"
	"kprobe/internal/later"
	"kprobe/internal/lifeline"
	"kprobe/internal/links"
	"kprobe/internal/listing"
	"kprobe/internal/names"
	"kprobe/internal/optimize"
	"kprobe/internal/owner"
	"kprobe/internal/parts"
	"kprobe/internal/placing"
	"kprobe/internal/roles"
	"kprobe/internal/standing"
	"kprobe/internal/stops"
	"kprobe/internal/traced"
	"kprobe/internal/turns"
	"kprobe/internal/within"
	"kprobe/target"
)

// Options of a session. Nil and zero values mean the defaults.
type Options struct {
	Concurrent bool           // handlers run aside
	BlackList  []arch.Blocked // further ranges that must not be probed
	Unlisted   bool           // other processes are not told
	Report     func(error)    // is told what no call can return

	// View makes what handlers see of a thread.
	View func() *roles.View

	// Mapped is called when the target has mapped libraries, or has executed another program: its thread waits.
	Mapped func()

	// Follow makes a child of the target one of a session of its own, and answers what that is to
	// begin with. Nil lets children go.
	Follow func(t target.Target) (child *Engine, begin func(), err error)

	// Family has the processes that are followed together; nil makes a new one with the target in it.
	Family *traced.Family
}

// Engine is one target with its probes. Its methods may be called from any goroutine, but not from handlers where
// a method says so. Those that are said to be called in a turn leave the turn to the caller.
//
// Lock order: turns, then the calls', then view.
type Engine struct {
	*roles.Home
	Turns turns.Turns

	opts    Options
	probes  []*roles.Probe // registered, in order of registration
	pending []*roles.Probe // those of them that wait for their files
	walks   bool           // watchWalks has been there
	loader  loader
	tracers traced.Search
	raised  placing.Semaphores // of static probes

	kit       *parts.Kit
	optimizer *optimize.Optimizer
	reclaimer *within.Reclaimer
	threads   *standing.Threads
	server    *stops.Server[*roles.View, *roles.Instance]
	scratch   *roles.View // of the hit being served, unless Concurrent

	done     chan struct{} // closed when the children, too, have been handed to Options.Follow
	looks    atomic.Bool   // a look at the libraries is to come
	left     atomic.Bool   // it has closed itself, and Close was not called yet
	exit     target.Exit
	children sync.WaitGroup // on their way to Options.Follow

	tasks target.Tasks // nil: threads have no names
	names names.Names
	shown atomic.Pointer[listing.Shown]
	state *lifeline.List // nil: other processes are not told
}

// New makes a session of a target, which may have executed another program, or ended, while it was looked at: it
// is looked at again then, while it stands still. Nothing is changed before Start. Errors: EINVAL for no target; ESRCH, ENOTSUP.
func New(t target.Target, o Options) (*Engine, error) {
	e, err := look(t, o)
	if err == nil || t == nil || t.PID() == 0 {
		return e, err
	}
	err = owner.Standing(t, func() (*owner.Owner, error) {
		if e, err = look(t, o); err != nil {
			return nil, err
		}
		return e.On.Owner, nil
	})
	if errors.Is(err, target.ErrGone) {
		return nil, errno.Gone(t.PID())
	}
	return e, err
}

// Look makes a session that only plans: it is over before it begins. Errors: those of New.
func Look(t target.Target, o Options) (*Engine, error) {
	e, err := look(t, o)
	if err != nil {
		return nil, err
	}
	e.Turns.Looking = true
	e.On.Owner.End()
	close(e.done)
	return e, nil
}

func look(t target.Target, o Options) (*Engine, error) {
	if t == nil {
		return nil, errno.New(syscall.EINVAL, "no target given")
	}
	e := &Engine{opts: o, done: make(chan struct{}), loader: loader{ready: make(chan struct{})}}
	e.Turns.To = o.Report
	on, err := ground.New(t, o.Concurrent, e.handle, rules{e}, e.Turns.Report)
	if err != nil {
		return nil, err
	}
	e.opts.Family = o.Family.With(t.PID(), e.goWithout)
	on.BlackList = o.BlackList
	e.Turns.On = on
	e.tasks, _ = t.(target.Tasks)
	e.Home = roles.NewHome(on, rules{e})
	e.kit = &parts.Kit{On: on, Within: e.Within, Calls: e.Calls}
	e.Links = links.New(e.kit)
	e.threads = standing.New(on, e.Within, e.Calls)
	e.server = stops.New(stops.Parts[*roles.View, *roles.Instance]{
		On: on, Within: e.Within, Threads: e.threads, Calls: e.Calls, Watched: e.Watches,
		Handlers: handlers{e}, Concurrent: o.Concurrent,
	})
	e.scratch = o.View()
	e.optimizer = optimize.New(e.kit, e.Turns.Changing, e.listChanged)
	e.reclaimer = within.NewReclaimer(e.Within, e.Turns.Changing)
	e.shown.Store(new(listing.Shown))
	e.Calls.Become(on.Arch)
	return e, e.refresh()
}

// Family has the processes that are followed together, this one among them.
func (e *Engine) Family() *traced.Family { return e.opts.Family }

// Start has the target served. A program that was just started runs as far as its libraries being mapped, as long
// as a context allows. Where that fails, the session is over. Errors: ESRCH; the context's.
func (e *Engine) Start(ctx context.Context) error {
	t := e.On.T
	if !e.opts.Unlisted {
		on := lifeline.Process(t.PID())
		if p, ok := t.(target.Placed); ok {
			on = lifeline.Place(p.Place())
		}
		e.state = lifeline.NewList(on)
	}
	first := target.StartOf(t)
	e.Turns.Report(first.Withheld)
	ready := make(chan struct{})
	go func() {
		defer e.On.Owner.End()
		t.Run(func() {
			close(ready)
			e.loop()
		})
	}()
	go func() {
		<-e.On.Owner.Over()
		e.opts.Family.Leave(t.PID())
		e.children.Wait()
		close(e.done)
	}()
	var err error
	select {
	case <-ready:
		err = e.watchLoader(ctx, first)
	case <-e.On.Owner.Over():
		err = errno.Gone(t.PID())
	}
	if err != nil {
		e.Close()
	}
	return err
}

// Done is closed when the target has ended or the session was closed, and every child that it has is followed.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Exited tells whether the target has ended, and how.
func (e *Engine) Exited() (target.Exit, bool) {
	if !e.Turns.Exited.Load() {
		return target.Exit{}, false
	}
	return e.exit, true
}

// Close removes every probe, puts every byte and every return address back,
// and lets the target go on. A registration that is being planned is given up. Not from a handler. Errors:
// EDEADLK; a second Close returns os.ErrClosed.
func (e *Engine) Close() error {
	e.On.End()
	if err := e.Turns.Begin(); err != nil {
		return err
	}
	defer e.Turns.Unlock()
	if e.Turns.Closed.Load() {
		if e.left.CompareAndSwap(true, false) {
			return nil
		}
		return os.ErrClosed
	}
	defer e.On.Image.Close()
	if e.Turns.Looking {
		e.Turns.Closed.Store(true)
		return e.On.T.Close()
	}
	var err error
	if !e.Turns.Exited.Load() {
		err = e.removeAll()
	}
	e.Turns.Closed.Store(true)
	defer target.Free(e.On.T)
	e.On.Owner.Finish()
	if l := &e.On.Text.Lifeline; !l.On() || e.Turns.Exited.Load() || e.On.Owner.Executed {
		l.Unguard() // else the guardian has another try when we have let go
	}
	e.On.Owner.Served()
	e.On.View.Lock()
	e.optimizer.Forget()
	err = errors.Join(err, e.Within.Forget())
	e.On.View.Unlock()
	e.state.Remove()
	for _, ps := range e.Programs {
		ps.Unlock()
	}
	return errors.Join(err, e.On.T.Close())
}

// CloseContext is Close that is waited for no longer than a context allows: the session goes on closing then.
// Errors: EDEADLK; the context's.
func (e *Engine) CloseContext(ctx context.Context) error {
	if e.On.Owner.InHandler() {
		return turns.ErrInHandler
	}
	return later.Wait(ctx, e.Close)
}

// Comm is the name of a thread of the target, or was when it was last seen; ""
// where threads have none.
func (e *Engine) Comm(tid int) string {
	if e.tasks == nil {
		return ""
	}
	return e.names.Last(tid, e.tasks.Comm(target.Thread(tid)))
}
