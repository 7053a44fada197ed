// Package turns has the calls of one session follow one another, and keeps reports that come up during a
// call until they can be handed over.
//
// A session does one thing after another: a call waits for the calls before it, which may wait for the
// owner thread, or for handlers. Handlers therefore never wait: Begin refuses them, and their questions
// are answered without a turn.
package turns

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"kprobe/internal/errno"
	"kprobe/internal/ground"
	"kprobe/internal/later"
	"kprobe/internal/owner"
	"kprobe/target"
)

// ErrInHandler is answered to handlers: a handler runs while its thread is stopped and, by default, on
// the very thread that a registration needs.
var ErrInHandler = errno.New(syscall.EDEADLK, "handlers must not register, remove or switch probes")

// Turns are those of one session. On and To are set before the first turn.
type Turns struct {
	On      *ground.Ground
	To      func(error) // is told of errors, one at a time; nil: they are dropped
	Looking bool        // the target is read only

	Closed, Exited atomic.Bool // the session, and the target

	mu      sync.Mutex // is held for a whole turn, planning included
	reports later.Queue[error]
}

// Lock begins a turn of the session's own.
func (t *Turns) Lock() { t.mu.Lock() }

// Unlock ends a turn, and then hands over the reports.
func (t *Turns) Unlock() {
	t.mu.Unlock()
	t.Tell()
}

// Begin begins the turn of a user's call. Errors: EDEADLK.
func (t *Turns) Begin() error {
	if t.On.Owner.InHandler() {
		return ErrInHandler
	}
	t.mu.Lock()
	return nil
}

// BeginUse is Begin for a call that needs the target. Errors: EDEADLK, ESRCH.
func (t *Turns) BeginUse() error { return t.beginIf(t.Usable) }

// BeginChange is Begin for a call that changes the target. Errors: EDEADLK, EPERM, ESRCH.
func (t *Turns) BeginChange() error { return t.beginIf(t.Changeable) }

func (t *Turns) beginIf(may func() error) error {
	err := t.Begin()
	if err != nil {
		return err
	}
	if err = may(); err != nil {
		t.Unlock()
	}
	return err
}

// Changing calls f in a turn of its own, unless the target must not be changed any more.
func (t *Turns) Changing(f func()) {
	t.mu.Lock()
	defer t.Unlock()
	if t.Changeable() == nil {
		f()
	}
}

// End ends the turn of a user's call. Whatever the call stumbled over because the target ended
// under it is ESRCH: callers need not know which step that was.
func (t *Turns) End(err *error) {
	t.Unlock()
	if *err != nil && t.hasEnded() {
		*err = errno.Gone(t.On.T.PID())
	}
}

// hasEnded tells whether the target has ended, also where the session has not noticed yet. Another error tells nothing
// of that: this process may have too many files open.
func (t *Turns) hasEnded() bool {
	_, err := t.On.T.Maps()
	return t.Exited.Load() || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT)
}

// Over tells whether the session is closed, or its target has ended.
func (t *Turns) Over() bool { return t.Closed.Load() || t.Exited.Load() }

// Usable tells whether the target can be asked. Errors: ESRCH.
func (t *Turns) Usable() error {
	if t.Closed.Load() {
		return owner.ErrClosed
	}
	if t.Exited.Load() {
		return errno.Gone(t.On.T.PID())
	}
	return nil
}

// Changeable tells whether the target can be changed. Errors: EPERM, ESRCH.
func (t *Turns) Changeable() error {
	if t.Looking {
		return errno.New(syscall.EPERM, "the session only looks")
	}
	return t.Usable()
}

// Report has an error be told. The end of the target, or of one of its threads, is no error; nor is another program
// that it executes meanwhile: all is placed anew there.
func (t *Turns) Report(err error) {
	if err == nil || t.To == nil {
		return
	}
	for _, none := range []error{owner.ErrClosed, owner.ErrExecuted, target.ErrGone} {
		if errors.Is(err, none) {
			return
		}
	}
	t.reports.Add(err)
}

// ReportEnd has the reason of the target's end be told, where it has one: the end itself is seen by it.
func (t *Turns) ReportEnd(why error) {
	if t.To != nil && why != target.ErrGone {
		t.reports.Add(why)
	}
}

// Tell hands the reports over. They came up under locks and in the middle of stops, and To may ask the session
// things: so Tell is called where no lock is held.
func (t *Turns) Tell() { t.reports.Give(t.To) }
