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
		self := unix.Gettid()
		defer kickEvery(slowStop, func() error { return unix.Tgkill(unix.Getpid(), self, wakeSignal) })()
	}
	for {
		_, ws, err := tracee.WaitReport(unix.P_PID, tid)
		switch {
		case err == nil:
			return ws, nil
		case err != unix.EINTR:
			return 0, target.ErrGone
		}
		switch taskState(pid, tid) {
		case 'Z', 'X', 0:
			return 0, target.ErrGone
		}
	}
}
