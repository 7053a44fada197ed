//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"golang.org/x/sys/unix"

	"kprobe/internal/tracee"
	"kprobe/target"
)

// await waits for the next report of one task that runs, and leaves it unread. Errors: target.ErrGone.
//
// The end of a process's first thread is not reported before the ends of all others have been taken, and this very thread of ours
// takes them, later. So it looks now and then whether the task has ended.
func await(pid, tid int) (unix.WaitStatus, error) {
	if tid == pid {
		defer kickThisThread()()
	}
	return awaitAnd(pid, tid, nil)
}

// kickThisThread kicks it out of its waits, until it is told to stop.
func kickThisThread() (stop func()) {
	self := unix.Gettid()
	return kickEvery(slowStop, func() error { return unix.Tgkill(unix.Getpid(), self, wakeSignal) })
}

// awaitAnd is await in a thread that is kicked: see is told the task's state each time that it looks.
func awaitAnd(pid, tid int, see func(state byte)) (unix.WaitStatus, error) {
	for {
		_, ws, err := tracee.WaitReport(unix.P_PID, tid)
		switch {
		case err == nil:
			return ws, nil
		case err != unix.EINTR:
			return 0, target.ErrGone
		}
		switch state := taskState(pid, tid); {
		case state == 'Z', state == 'X', state == 0:
			return 0, target.ErrGone
		case see != nil:
			see(state)
		}
	}
}

// awaitAct waits for the next report of a task that was told to go on, and does not sleep unless it is kept from that: in
// a control group that is frozen (cgroup.freeze) it sleeps first. It is interrupted then, and held tells so.
func awaitAct(pid, tid int) (ws unix.WaitStatus, held bool, err error) {
	defer kickThisThread()()
	asleep := 0
	ws, err = awaitAnd(pid, tid, func(state byte) {
		if state != 'S' {
			asleep = 0
			return
		}
		if asleep++; asleep == 2 {
			held = tracee.Request(unix.PTRACE_INTERRUPT, tid, 0, 0) == nil
		}
	})
	return ws, held && err == nil && int(ws)>>16 == unix.PTRACE_EVENT_STOP, err
}
