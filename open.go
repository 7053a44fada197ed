package kprobe

import (
	"context"
	"syscall"

	"kprobe/internal/engine"
	"kprobe/target"
)

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
	s, err := newSession(t, o, engine.New)
	if err != nil {
		target.Free(t)
		return nil, err
	}
	if err := s.e.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Look makes a session that only plans: Plan and BlackList work, everything that
// would change the target is refused with EPERM. The target is only read.
func Look(t target.Target, o *Options) (*Session, error) { return newSession(t, o, engine.Look) }

func newSession(t target.Target, o *Options, begin func(target.Target, engine.Options) (*engine.Engine, error)) (s *Session, err error) {
	s = new(Session)
	if o != nil {
		s.opts = *o
	}
	opts := engine.Options{
		Concurrent: s.opts.Concurrent,
		BlackList:  s.opts.BlackList,
		Unlisted:   s.opts.Unlisted,
		Report:     s.opts.Report,
		View:       s.view,
		Family:     s.opts.family,
	}
	if s.opts.Mapped != nil {
		opts.Mapped = func() { s.opts.Mapped(s) }
	}
	if s.opts.Follow != nil {
		opts.Follow = s.follow
	}
	if s.e, err = begin(t, opts); err != nil {
		return nil, err
	}
	s.opts.family = s.e.Family()
	return s, nil
}

// follow gives a child a session with the same options.
func (s *Session) follow(t target.Target) (child *engine.Engine, begin func(), err error) {
	c, err := Open(t, &s.opts)
	if err != nil {
		return nil, nil, err
	}
	return c.e, func() { s.opts.Follow(c) }, nil
}
