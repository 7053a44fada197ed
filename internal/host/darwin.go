//go:build darwin

package host

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Thread is the number of the calling thread (thread_selfid). It means something only
// while the goroutine is locked to the thread.
func Thread() int64 {
	id, _, _ := unix.Syscall(unix.SYS_THREAD_SELFID, 0, 0, 0)
	return int64(id)
}

// Peer is the process at the other end of a unix socket (unix(4), LOCAL_PEERPID).
func Peer(fd uintptr) (pid int, err error) {
	return unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
}

// Unread is how many bytes sent on a socket the other end has not read yet (sys/socket.h, SO_NWRITE).
func Unread(fd uintptr) (int, error) {
	return unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NWRITE)
}

// DieWithParent does nothing: the system has no such thing. A machine that was started
// is ended by hand when its parent was killed.
func DieWithParent(*syscall.SysProcAttr) {}

// Terminal tells whether a file is a terminal (tty(4)).
func Terminal(fd uintptr) bool {
	_, err := unix.IoctlGetTermios(int(fd), unix.TIOCGETA)
	return err == nil
}

// The requests for a terminal's settings.
const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA

// Signal sends a signal to a process; the system has no such thing for a thread of another
// process (ENOTSUP).
func Signal(pid, tid int, sig syscall.Signal) error {
	if tid == 0 {
		return syscall.Kill(pid, sig)
	}
	return syscall.ENOTSUP
}
