//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/tracee"
	"kprobe/target"
)

// A controller may die at any moment of a call that a thread makes for it (see call). A report that
// the thread was about to get must not be lost then, nor come in other words. So the thread is
// chosen by how little there is to lose.

// readiness says how well a thread can make a call for us, the best first.
type readiness int

const (
	free      readiness = iota // stands in its program's code
	inCall                     // of its own, which is restarted
	faulting                   // is to be given a fault that happens again by itself
	signalled                  // is to be given a signal, which has to wait
	forgetful                  // in a call that would fail (see tracee.ABI.ForgetsCall)
	unfit
)

// volunteer picks the thread that makes a system call for a process and us.
func (p *Process) volunteer(pid int) (best *thread) {
	if p.away != nil && p.away.tgid == pid {
		return p.away
	}
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

// nobody is the error that no thread can act now: ErrNotNow, with the reason where that may last. A
// thread in vfork goes on when its child has executed a program or ended, and no signal wakes it
// before.
func (p *Process) nobody() error {
	for _, t := range p.threads {
		if t.tgid == p.pid && t.vfork != 0 {
			return fmt.Errorf("%w: thread %d waits in vfork for its child %d", target.ErrNotNow, t.tid, t.vfork)
		}
	}
	for _, t := range p.threads {
		if t.tgid == p.pid && t.state == running && taskState(t.tgid, t.tid) == 'D' {
			return fmt.Errorf("%w: thread %d cannot be stopped where it sleeps, as in a control group that is frozen", target.ErrNotNow, t.tid)
		}
	}
	return target.ErrNotNow
}

// heldError is the error that the kernel does not let a thread act now.
func heldError(tid int) error {
	return fmt.Errorf("%w: the kernel keeps thread %d from running, as in a control group that is frozen", target.ErrNotNow, tid)
}

func (p *Process) readiness(t *thread) readiness {
	var r tracee.Registers
	var info tracee.Siginfo
	is, err := tracee.ReportedFor(t.tid, &info)
	switch {
	case err != nil || tracee.GetRegs(t.tid, &r) != nil:
		return signalled // whatever it is, the call will show it
	case !is && !r.InCall(p):
		return free
	case !is || info.TrapIsOver(t.tid, p, t.dealt || r.IsDealt(t.tid, t.back)):
		if r.InCall(p) && p.abi().ForgetsCall(t.tid, r) {
			return forgetful
		}
		return inCall
	case info.HappensAgain(&r, p):
		return faulting
	case !p.frozen && !info.Raised():
		return unfit // another thread could take what waits
	}
	return signalled
}

// enterGroupStop lets a volunteer that is about to be given a SIGSTOP have it: no thread can
// block that, so it could not wait. The thread makes the call from the group stop.
func (p *Process) enterGroupStop(t *thread) error {
	var info tracee.Siginfo
	is, err := tracee.ReportedFor(t.tid, &info)
	if err != nil || !is || unix.Signal(info.Signo) != unix.SIGSTOP {
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

// ahead queues a real-time signal, which a thread was reported for, as the thread's own: these come
// before the process's, in the order in which they were sent. false: others of its number are there
// already, or the kernel queues none with the details of this one (rt_tgsigqueueinfo(2)). Should we
// die before the thread is let go on without it, it gets the signal twice.
func ahead(t *thread, signo int, info *tracee.Siginfo) bool {
	if waits(t.tid, signo) {
		return false
	}
	_, _, e := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(t.tgid), uintptr(t.tid), uintptr(signo), uintptr(unsafe.Pointer(info)), 0, 0)
	return e == 0
}

// waits tells whether a signal of a number waits for this very thread, which stands.
func waits(tid, signo int) bool {
	var all [64]tracee.Siginfo
	for from := uint64(0); ; from += uint64(len(all)) {
		ask := struct {
			from         uint64
			queue, count uint32 // 0: the thread's, not the process's
		}{from, 0, uint32(len(all))}
		n, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKSIGINFO, uintptr(tid), uintptr(unsafe.Pointer(&ask)), uintptr(unsafe.Pointer(&all)), 0, 0)
		if e != 0 || n == 0 {
			return false
		}
		if slices.ContainsFunc(all[:n], func(s tracee.Siginfo) bool { return int(s.Signo) == signo }) {
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
