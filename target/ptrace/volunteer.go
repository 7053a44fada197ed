//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

// A controller may die at any moment of a call that a thread makes for it (see call).
// What the thread was about to be told of then must not be lost, nor told otherwise than
// it was. So the thread is chosen by how little there is to lose.

// readiness is how well a thread can make a call for us, the best first.
type readiness int

const (
	free      readiness = iota // stands in its program's code
	inCall                     // of its own, which is restarted
	faulting                   // is to be told of a fault that happens again by itself
	signalled                  // is to be given a signal, which has to wait
	unfit
)

// volunteer picks the thread that makes a system call for a process and us.
func (p *Process) volunteer(pid int) (best *thread) {
	least := unfit
	for _, t := range p.threads {
		if t.state == running || t.tgid != pid {
			continue
		}
		if r := p.readiness(t); r < least {
			best, least = t, r
		}
		if least == free {
			break
		}
	}
	return best
}

// nobody is ErrNotNow, with the reason where that may last: a thread in vfork goes on when its child has executed a
// program or ended, and no signal wakes it before.
func (p *Process) nobody() error {
	for _, t := range p.threads {
		if t.tgid == p.pid && t.vfork != 0 {
			return fmt.Errorf("%w: thread %d waits in vfork for its child %d", target.ErrNotNow, t.tid, t.vfork)
		}
	}
	return target.ErrNotNow
}

func (p *Process) readiness(t *thread) readiness {
	var r registers
	var info siginfo
	is, err := reportedFor(t.tid, &info)
	switch {
	case err != nil || getRegs(t.tid, &r) != nil:
		return signalled // whatever it is, the call will tell
	case !is && !r.inCall(p):
		return free
	case !is || info.trapIsOver(t.dealt || r.isDealt(t.tid, t.back)):
		return inCall
	case info.happensAgain(&r, p):
		return faulting
	case !p.frozen && !info.raised():
		return unfit // another thread could take what waits
	}
	return signalled
}

// reportedFor tells whether a stopped thread is about to be given a signal, and reads
// what there is to know of that.
func reportedFor(tid int, info *siginfo) (bool, error) {
	err := insist(func() error {
		err := transferSiginfo(unix.PTRACE_GETSIGINFO, tid, info)
		if errors.Is(err, unix.EINVAL) { // in a group stop
			*info = siginfo{code: unix.PTRACE_EVENT_STOP << 8}
			err = nil
		}
		return err
	})
	return err == nil && !info.notice(), err
}

// notice tells what looks like a signal's report, and is none: the kernel's own word for a tracer, that of an
// event, of a system call or of a step into a handler. No signal is lost with it, and none can be given.
func (s *siginfo) notice() bool {
	return s.code>>8 != 0 && s.code > 0 || unix.Signal(s.signo) == unix.SIGTRAP && s.code&0x7f == int32(unix.SIGTRAP)
}

// raised tells whether the thread itself raised the signal, rather than somebody sent it: the codes of
// senders are zero or negative.
func (s *siginfo) raised() bool {
	switch unix.Signal(s.signo) {
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGTRAP, unix.SIGSYS:
		return s.code > 0
	}
	return false
}

// happensAgain tells whether a signal is for a fault of the instruction that a thread with
// registers r stands at: one that has not been executed, and would fault again. Not so
// sure is what has the kernel's code (siKernel): a stack that had no room for a signal's frame is told by
// that, too. What comes out of a system call was sent, whatever its code says.
func (s *siginfo) happensAgain(r *registers, m arch.Memory) bool {
	const busMachineCheck = 5 // BUS_MCEERR_AO: of memory that nobody has asked for
	switch unix.Signal(s.signo) {
	case unix.SIGBUS:
		if s.code == busMachineCheck {
			return false
		}
	case unix.SIGSEGV, unix.SIGILL, unix.SIGFPE:
	default:
		return false
	}
	return s.code > 0 && s.code < siKernel && !r.inCall(m)
}

// trapIsOver tells whether a signal is a trap's that has been dealt with, or needs nothing but the
// report.
func (s *siginfo) trapIsOver(dealt bool) bool {
	return unix.Signal(s.signo) == unix.SIGTRAP && (dealt || s.code == trapHWBreakpoint)
}

// enterGroupStop lets a volunteer that is about to be given a SIGSTOP have it: no thread can
// block that, so it could not wait. The thread makes the call from the group stop.
func (p *Process) enterGroupStop(t *thread) error {
	var info siginfo
	is, err := reportedFor(t.tid, &info)
	if err != nil || !is || unix.Signal(info.signo) != unix.SIGSTOP {
		return err
	}
	c := call{tid: t.tid, tgid: t.tgid}
	err = c.next(unix.PTRACE_CONT, unix.SIGSTOP, 0)
	if c.ended != nil {
		p.ended(t, *c.ended)
		return err
	}
	if err == nil {
		t.group = int(c.last)>>16 == unix.PTRACE_EVENT_STOP && c.last.StopSignal() != unix.SIGTRAP
		p.stopped = p.stopped || t.group
		t.asked, t.lapsed, t.signal = false, true, 0
	}
	return err
}

// ahead queues a real-time signal, which a thread was reported for, as the thread's own: these come before the
// process's, in the order in which they were sent. false: others of its number are there already, or
// the kernel queues none with what is told of this one (rt_tgsigqueueinfo(2)). Should we die before the thread is let
// go on without it, it gets the signal twice.
func ahead(t *thread, signo int, info *siginfo) bool {
	if waits(t.tid, signo) {
		return false
	}
	_, _, e := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(t.tgid), uintptr(t.tid), uintptr(signo), uintptr(unsafe.Pointer(info)), 0, 0)
	return e == 0
}

// waits tells whether a signal of a number waits for this very thread, which stands.
func waits(tid, signo int) bool {
	var all [64]siginfo
	for from := uint64(0); ; from += uint64(len(all)) {
		ask := struct {
			from         uint64
			queue, count uint32 // 0: the thread's, not the process's
		}{from, 0, uint32(len(all))}
		n, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKSIGINFO, uintptr(tid), uintptr(unsafe.Pointer(&ask)), uintptr(unsafe.Pointer(&all)), 0, 0)
		if e != 0 || n == 0 {
			return false
		}
		if slices.ContainsFunc(all[:n], func(s siginfo) bool { return int(s.signo) == signo }) {
			return true
		}
	}
}

// Ready implements target.Lapser.
func (p *Process) Ready() bool {
	for _, t := range p.threads {
		if t.state != running && t.tgid == p.pid && p.readiness(t) <= faulting {
			return true
		}
	}
	return false
}

// Lapsed implements target.Lapser.
func (p *Process) Lapsed(th target.Thread) bool {
	t := p.threads[int(th)]
	return t != nil && t.lapsed
}
