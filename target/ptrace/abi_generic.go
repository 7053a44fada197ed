//go:build linux && (arm64 || riscv64)

package ptrace

import "golang.org/x/sys/unix"

// frameForm is empty: a signal frame is the same for all programs.
type frameForm struct{}

// interruptedGeneric are the calls that fail with EINTR after a stop, of the table that machines share which came late
// (the kernel's asm-generic/unistd.h).
var interruptedGeneric = map[uint64]bool{
	unix.SYS_EPOLL_PWAIT: true, unix.SYS_EPOLL_PWAIT2: true,
	unix.SYS_SEMOP: true, unix.SYS_SEMTIMEDOP: true,
	unix.SYS_RT_SIGTIMEDWAIT: true,
	unix.SYS_IO_GETEVENTS:    true, unix.SYS_IO_PGETEVENTS: true,
	unix.SYS_MSGRCV: true, unix.SYS_MSGSND: true,
	unix.SYS_READ: true, unix.SYS_RECVFROM: true, unix.SYS_RECVMSG: true, // inotify; sockets with a timeout
	unix.SYS_ACCEPT: true, unix.SYS_ACCEPT4: true, unix.SYS_RECVMMSG: true,
	unix.SYS_SENDTO: true, unix.SYS_SENDMSG: true,
}
