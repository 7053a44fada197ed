package engine

import (
	"errors"
	"syscall"

	"kprobe/internal/errno"
	"kprobe/target"
)

// forked cleans a child that was born with our breakpoints and trampoline
// addresses in its copy of the memory, and lets it go. It has not run yet.
func (e *Engine) forked(st target.Stop) {
	c := st.Child
	e.threads.CleanChild(c, func(err error) {
		if err != nil {
			e.Turns.Report(errno.New(0, "clean child %d: %v", c.PID(), err))
		}
	})
	e.release(c)
	e.On.T.Resume(st.Thread, 0)
}

// release lets a clean child go, or gives it a session of its own.
func (e *Engine) release(c target.Child) {
	if f, ok := c.(target.Follower); ok && e.opts.Follow != nil {
		attach, err := f.Follow()
		if err == nil {
			e.opts.Family.Expect(c.PID())
			e.children.Go(func() { e.follow(c.PID(), attach) })
			return
		}
		e.notFollowed(c.PID(), err)
	}
	if err := c.Detach(); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have been killed
		e.Turns.Report(errno.New(0, "let go of child %d: %v", c.PID(), err))
	}
}

func (e *Engine) follow(pid int, attach func() (target.Target, error)) {
	var child *Engine
	var begin func()
	t, err := attach()
	if err == nil {
		if l, ok := t.(target.Latecomer); ok && l.Late() {
			e.Turns.Report(errno.New(0, "child %d is followed late: what it did before is not seen", pid))
		}
		if child, begin, err = e.opts.Follow(t); err != nil {
			t.Close() // closed already, where its session came far enough
		}
	}
	if err != nil {
		e.opts.Family.Join(pid, nil)
		e.notFollowed(pid, err)
		e.Turns.Tell()
		return
	}
	begin()
	e.opts.Family.Join(pid, child.goWithout)
	child.Continue()
}

// notFollowed reports what is no news if the child was killed.
func (e *Engine) notFollowed(pid int, err error) {
	if !errors.Is(err, target.ErrGone) && !errors.Is(err, syscall.ESRCH) {
		e.Turns.Report(errno.New(0, "child %d is not followed: %v", pid, err))
	}
}
