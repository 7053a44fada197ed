//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/faults"
	"kprobe/internal/proc"
)

// Wait4 blocks, so it is an ordinary system call. pid -1 means any task that
// this very thread traces.
func Wait4(pid int, ws *unix.WaitStatus, options int) (int, error) {
	if err := faults.At("wait4", 0); err != nil {
		return 0, err
	}
	var status int32
	r, _, e := unix.Syscall6(unix.SYS_WAIT4, uintptr(pid), uintptr(unsafe.Pointer(&status)), uintptr(options), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	*ws = unix.WaitStatus(status)
	return int(r), nil
}

// WaitReport waits for a task that this very thread traces, any one or a certain
// one (unix.P_ALL, unix.P_PID), and leaves the report with the kernel.
func WaitReport(which, tid int) (int, unix.WaitStatus, error) {
	got, ws, err := WaitReportBy(which, tid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
	if err == unix.EINTR && which == unix.P_PID {
		if ws, ok := StolenReport(tid); ok {
			return tid, ws, nil
		}
	}
	return got, ws, err
}

// WaitReportBy does it by other options of waitid than those.
func WaitReportBy(which, tid, options int) (int, unix.WaitStatus, error) {
	if err := faults.At("waitid", 0); err != nil {
		return 0, 0, err
	}
	// What siginfo says of a child.
	var info struct {
		signo, errno, code, _ int32
		pid, uid, status      int32
		_                     [100]byte
	}
	options |= unix.WALL | unix.WNOTHREAD
	wait := unix.Syscall6
	if options&unix.WNOHANG != 0 {
		wait = unix.RawSyscall6
	}
	_, _, e := wait(unix.SYS_WAITID, uintptr(which), uintptr(tid), uintptr(unsafe.Pointer(&info)), uintptr(options), 0, 0)
	if e != 0 {
		return 0, 0, e
	}
	const cldExited, cldKilled, cldDumped = 1, 2, 3
	ws := unix.WaitStatus(uint32(info.status)<<8 | 0x7f)
	switch info.code {
	case cldExited:
		ws = unix.WaitStatus(info.status << 8)
	case cldKilled, cldDumped:
		ws = unix.WaitStatus(info.status)
	}
	return int(info.pid), ws, nil
}

// StolenReport is the report of a task that has stopped, where another wait of this program has taken it: what the signal's
// siginfo says. A task that listens in a group stop (PTRACE_LISTEN) has none to ask for.
func StolenReport(tid int) (unix.WaitStatus, bool) {
	stat := proc.Thread(tid).Stat()
	if len(stat) == 0 || stat[0] != "t" {
		return 0, false
	}
	if got, _, err := WaitReportBy(unix.P_PID, tid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG); err != nil || got != 0 {
		return 0, false
	}
	var info Siginfo
	if TransferSiginfo(unix.PTRACE_GETSIGINFO, tid, &info) != nil {
		return 0, false
	}
	why := info.Signo
	if info.notice() {
		why = info.Code // the event's, too
	}
	return unix.WaitStatus(uint32(why)<<8 | 0x7f), true
}
