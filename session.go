package kprobe

import (
	"context"
	"time"

	"kprobe/arch"
	"kprobe/internal/engine"
	"kprobe/internal/mem"
	"kprobe/internal/traced"
	"kprobe/internal/unwind"
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

// BlackListEntry is a range that must not be probed (kprobes.txt 5; 002
// section 1.5). Registering in it is EINVAL.
type BlackListEntry = arch.Blocked

// Session is one target with its probes. All methods may be called from any
// goroutine, but not from handlers where a method says so.
//
// Lock order: turns, then the calls', then view (doc.go).
type Session struct {
	e      *engine.Engine
	opts   Options
	stacks unwind.Indexes
}

// Target is what the session probes.
func (s *Session) Target() target.Target { return s.e.On.T }

// OnCPUs tells whether the target's threads are CPUs, which run tasks: a kernel's are.
func (s *Session) OnCPUs() bool { return s.e.On.Kind.OnCPUs() }

// Arch is the target's machine: that of the program which it executes now.
func (s *Session) Arch() *arch.Arch {
	s.e.On.View.RLock()
	defer s.e.On.View.RUnlock()
	return s.e.On.Arch
}

// Done is closed when the target has ended or the session was closed, and every
// child that it has is with Options.Follow.
func (s *Session) Done() <-chan struct{} { return s.e.Done() }

// Exited tells whether the target has ended, and how.
func (s *Session) Exited() (target.Exit, bool) { return s.e.Exited() }

// LastStop is for how long the last batch had the target stopped.
func (s *Session) LastStop() time.Duration { return s.e.On.Owner.LastStop() }

// Continue lets a program that was just started run. On any other target it
// does nothing. Errors: EDEADLK.
func (s *Session) Continue() error { return s.e.Continue() }

// Close removes every probe, puts every byte and every return address back,
// and lets the target go on. A registration that is being planned is given up (ESRCH).
// Not from a handler (EDEADLK). A second Close returns os.ErrClosed.
func (s *Session) Close() error { return s.e.Close() }

// CloseContext is Close that is waited for no longer than a context allows: a registration may be
// under way, or a handler that takes its time. It answers the context's error then, but the session
// goes on closing, since nothing of ours may be left half way; Done tells when it is over.
func (s *Session) CloseContext(ctx context.Context) error { return s.e.CloseContext(ctx) }

// ReadMem reads the target's memory as the program wrote it: where probes have
// put breakpoints, the original bytes are seen. Errors: EFAULT.
func (s *Session) ReadMem(addr arch.Addr, p []byte) error { return s.e.On.Read(addr, p) }

func (s *Session) word(addr arch.Addr) (uint64, error) { return mem.Word(s.e.On.T, s.e.On.Arch, addr) }

func (s *Session) putWord(addr arch.Addr, v uint64) error {
	return mem.PutWord(s.e.On.T, s.e.On.Arch, addr, v)
}

// Comm is the name of a thread of the target, or was when it was last seen; ""
// where threads have none.
func (s *Session) Comm(tid int) string { return s.e.Comm(tid) }
