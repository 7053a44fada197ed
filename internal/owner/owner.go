// Package owner is the one thread that a target is served on, as the others see it: work is
// handed to it, and it has the target stand still for changes.
//
//	owner.go     what is handed to the owner thread, and the target that stands still
//	handlers.go  handlers on goroutines of their own
//
// Whoever waits for the owner thread must not hold what that thread may want: see
// the root package for the locks.
package owner

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/internal/errno"
	"kprobe/target"
)

// Owner is the owner thread of one target. Its fields are that thread's.
type Owner struct {
	// Stops were reported while the target was made to stand still, and are not dealt with yet.
	Stops []target.Stop

	// Executed tells that the target executes another program, which nobody has looked at yet.
	Executed bool

	t       target.Target
	serve   func(target.Stop)
	jobs    chan func()
	queued  atomic.Int64
	over    chan struct{}
	after   []func() // what of a change can wait until the target runs again
	stopped atomic.Int64

	concurrent bool            // handlers run aside
	serving    *sync.WaitGroup // hits in handlers that do; replaced by each Grace
}

var (
	// ErrClosed is answered when the owner thread has ended.
	ErrClosed = &errno.Error{Errno: syscall.ESRCH, Reason: "the session is closed"}

	// ErrExecuted is answered where what was planned is about a program that is no more.
	ErrExecuted = errno.New(syscall.ESRCH, "the process is executing another program just now")
)

// New is a target's owner thread before it begins. serve deals with the birth of a child at once,
// when that is met while the target is made to stand still: the child's copy of the memory is
// the one before the change.
func New(t target.Target, concurrent bool, serve func(target.Stop)) *Owner {
	return &Owner{
		t: t, serve: serve, concurrent: concurrent,
		jobs: make(chan func(), 16), over: make(chan struct{}), serving: new(sync.WaitGroup),
	}
}

// Over is closed when the thread has ended: End does that.
func (o *Owner) Over() <-chan struct{} { return o.over }

// End tells that the thread has ended.
func (o *Owner) End() { close(o.over) }

// Finish waits until the owner thread's work is over, which has been told to end.
func (o *Owner) Finish() {
	o.t.Wake()
	<-o.over
}

// Work does what was handed over. It is called by the owner thread.
func (o *Owner) Work() {
	for o.queued.Load() > 0 {
		f := <-o.jobs
		o.queued.Add(-1)
		f()
	}
}

// Next takes the first of Stops; ok is false where there is none.
func (o *Owner) Next() (st target.Stop, ok bool) {
	if len(o.Stops) == 0 {
		return st, false
	}
	st, o.Stops = o.Stops[0], o.Stops[1:]
	return st, true
}

// Wake lets the thread of one of Stops go on as if it had not stopped.
func (o *Owner) Wake(i int) {
	o.Stops[i].Kind = target.StopWoken
	o.t.Resume(o.Stops[i].Thread, 0)
}

// Do runs f on the owner thread, between two stops, and waits for it. It answers false where
// that has ended.
func (o *Owner) Do(f func()) bool {
	done := make(chan struct{})
	o.queued.Add(1)
	select {
	case o.jobs <- func() { defer close(done); f() }:
	case <-o.over:
		return false
	}
	o.t.Wake()
	select {
	case <-done:
		return true
	case <-o.over:
	}
	select { // both may be
	case <-done:
		return true
	default:
		return false
	}
}

// On runs f on the owner thread, from wherever it is called.
func (o *Owner) On(f func()) {
	if o.t.OnOwner() {
		f()
		return
	}
	o.Do(f)
}

// Frozen runs f on the owner thread with every thread of the target stopped, and one of them ready to make
// calls for us. Where none is, they are let have their signals first, for a while: the owner does that
// in between. Errors: f's; the target's; ErrExecuted, ErrClosed.
func (o *Owner) Frozen(f func() error) error {
	l, ok := o.t.(target.Lapser)
	tries := 50
	if o.t.OnOwner() {
		tries = 0
	}
	for ; ; tries-- {
		err, ready := error(ErrClosed), true
		o.On(func() {
			err = o.Freeze(func() error {
				if ready = !ok || tries == 0 || o.t.Stuck() > 0 || l.Ready(); !ready {
					return nil
				}
				return f()
			})
		})
		if ready || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// Freeze is Frozen for the owner thread, whether or not a thread is ready for calls.
func (o *Owner) Freeze(f func() error) error {
	start := time.Now()
	stops, err := o.t.Freeze()
	for _, st := range stops {
		if st.Child != nil {
			o.serve(st)
			continue
		}
		o.Stops = append(o.Stops, st)
	}
	if err == nil && (o.Executed || slices.ContainsFunc(o.Stops, func(st target.Stop) bool { return st.Kind == target.StopExec })) {
		err = ErrExecuted
	}
	if err == nil {
		err = f()
	}
	if e := o.t.Thaw(); err == nil {
		err = e
	}
	o.stopped.Store(int64(time.Since(start)))
	for _, f := range o.after {
		f()
	}
	o.after = nil
	return err
}

// Together has all system calls that f has the frozen target make for us made in one go, where it can.
func (o *Owner) Together(f func() error) error {
	if c, ok := o.t.(target.Caller); ok {
		return c.Together(f)
	}
	return f()
}

// Afford tells whether the target can have memory that is needed. Errors: ENOMEM, in numbers.
func (o *Owner) Afford(n target.Need) error {
	if t, ok := o.t.(target.Limited); ok {
		if err := t.Afford(n); err != nil {
			return &errno.Error{Errno: syscall.ENOMEM, Err: err}
		}
	}
	return nil
}

// AtRest runs f on the owner thread if the target stands, all of its threads waiting for us: there is nothing to serve meanwhile, and
// what f would hand over to that thread, one thing after the other, it does there itself. It answers false where it has not run f.
func (o *Owner) AtRest(f func()) (ran bool) {
	t, ok := o.t.(target.Stander)
	if !ok || o.concurrent || !t.MayStand() {
		return false
	}
	l, lapses := o.t.(target.Lapser)
	o.On(func() {
		if ran = t.Stands() && len(o.Stops) == 0 && !o.Executed && (!lapses || l.Ready()); ran {
			f()
		}
	})
	return ran
}

// After has f wait until the target, which is frozen, runs again.
func (o *Owner) After(f func()) { o.after = append(o.after, f) }

// LastStop is for how long the last Freeze had the target stopped.
func (o *Owner) LastStop() time.Duration { return time.Duration(o.stopped.Load()) }

// Meanwhile runs f on the owner thread while the target runs. Nothing is written into a
// program that was planned for the one before it: that thread would know. Errors: f's;
// ErrExecuted, ErrClosed.
func (o *Owner) Meanwhile(f func() error) error {
	err := error(ErrClosed)
	o.On(func() {
		if err = ErrExecuted; !o.Executed {
			err = f()
		}
	})
	return err
}

// Standing runs f while a target stands still that is not served yet. What the target has reported on the way is
// for the owner thread that f makes; where it makes none, the target's threads go on. Errors: f's; the target's;
// target.ErrGone, where it has ended or was let go.
func Standing(t target.Target, f func() (*Owner, error)) error {
	err := target.ErrGone // it was let go
	t.Run(func() {
		var stops []target.Stop
		var o *Owner
		if stops, err = t.Freeze(); err == nil {
			o, err = f()
		}
		if o != nil {
			o.Stops = stops
		}
		for _, st := range stops {
			switch {
			case st.Kind == target.StopExit:
				err = target.ErrGone
			case o != nil:
			case st.Child != nil:
				st.Child.Detach()
				fallthrough
			default:
				t.Resume(st.Thread, st.Signal)
			}
		}
		t.Thaw()
	})
	return err
}
