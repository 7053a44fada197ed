//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/tracee"
)

// A program may have the kernel hand its system calls back to it, by SIGSYS (prctl(2), PR_SET_SYSCALL_USER_DISPATCH): an
// emulator, whose guest's calls are not Linux's. The return from a handler is such a call, and our handler of SIGTRAP
// must return in any thread, should we die: so a program that does this is not probed.
//
// It may begin to do it while it is probed, and calls of ours would be handed to it, too. Worse, we have signals blocked
// meanwhile, and the kernel takes a signal's handler away when it must raise the signal in a thread that blocks it: the
// program's next call would end it. So while a thread makes calls for us, the kernel makes those of the instructions
// that it makes them with. Should we die just then, that remains.

// noDispatch refuses a stopped thread whose system calls are handed back to it, as far as the kernel tells.
func noDispatch(tid int) error {
	d, err := tracee.DispatchOf(tid)
	if err == nil && d.On() {
		return fmt.Errorf("thread %d has its system calls handed back to it (PR_SET_SYSCALL_USER_DISPATCH), and could not return from a handler of ours: %w", tid, unix.EACCES)
	}
	return nil
}

// dispatch keeps the calls that a thread makes for us from being handed back.
type dispatch struct {
	own     tracee.Dispatch
	changed bool
	untold  bool // this kernel does not tell (before Linux 6.4), and there is a handler
}

// look notes what a stopped task has.
func (d *dispatch) look(tid int) (err error) {
	d.changed, d.untold = false, false
	switch d.own, err = tracee.DispatchOf(tid); {
	case err == unix.EINVAL:
		return nil // this machine's kernel has nothing of the kind
	case err != unix.EIO:
		return err
	}
	set, err := signalSet(tid, tid, "SigCgt")
	d.untold = err == nil && set>>(unix.SIGSYS-1)&1 != 0
	return err
}

// spare has the kernel make the calls of the gadgets.
func (d *dispatch) spare(tid int, g gadgets) error {
	with := d.own.Making(arch.Range{Start: g.call, End: g.call + arch.Addr(len(g.callCode))})
	if g.back != 0 {
		with = with.Making(arch.Range{Start: g.back, End: g.back + arch.Addr(len(g.backCode))})
	}
	if with == d.own {
		return nil
	}
	d.changed = true
	return with.Set(tid)
}

// putBack undoes spare.
func (d *dispatch) putBack(tid int) error {
	if !d.changed {
		return nil
	}
	d.changed = false
	return tracee.Insist(func() error { return d.own.Set(tid) })
}

// held is the mask of the signals that are blocked while a thread makes calls: all, but for one that may come of the
// call itself.
func (d *dispatch) held() uint64 {
	if d.untold {
		return ^uint64(1 << (unix.SIGSYS - 1))
	}
	return ^uint64(0)
}

// dispatched is the error of a call whose thread is reported for SIGSYS: nil, unless that is for the call.
func dispatched(tid int) error {
	var info tracee.Siginfo
	if _, err := tracee.ReportedFor(tid, &info); err != nil || !info.Raised() {
		return err
	}
	return fmt.Errorf("thread %d has its system calls handed back to it (PR_SET_SYSCALL_USER_DISPATCH), and ours with them: %w", tid, refusal{unix.EACCES})
}
