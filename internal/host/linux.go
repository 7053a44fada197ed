//go:build linux

package host

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Thread is the number of the calling thread (gettid(2)). It means something only
// while the goroutine is locked to the thread.
func Thread() int64 { return int64(unix.Gettid()) }

// Peer is the process at the other end of a unix socket (unix(7), SO_PEERCRED).
func Peer(fd uintptr) (pid int, err error) {
	cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// Unread is how many bytes sent on a unix socket the other end has not read yet (unix(7), SIOCOUTQ).
func Unread(fd uintptr) (int, error) { return unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }

// DieWithParent has a process that is started with these attributes killed when the
// thread that started it ends (prctl(2), PR_SET_PDEATHSIG).
func DieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// Terminal tells whether a file is a terminal (ioctl_tty(2)).
func Terminal(fd uintptr) bool {
	_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
	return err == nil
}

// The requests for a terminal's settings.
const getTermios, setTermios = unix.TCGETS, unix.TCSETS

// Signal sends a signal to a thread of a process (tgkill(2)), to the process where tid is 0.
func Signal(pid, tid int, sig syscall.Signal) error {
	if tid == 0 {
		return syscall.Kill(pid, sig)
	}
	return unix.Tgkill(pid, tid, sig)
}
