//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/faults"
)

// ptraceRequest makes one ptrace call. These never block, and the owner
// thread makes several per hit, so they go past the scheduler's bookkeeping.
func ptraceRequest(req, tid int, addr, data uint64) error {
	if err := faults.At("ptrace", req); err != nil {
		return err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), uintptr(addr), uintptr(data), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// insist asks once more for what must not be refused: a task that does not get
// back what it had, or does not go on, is lost.
func insist(request func() error) error {
	if request() == nil {
		return nil
	}
	return request()
}

// wait4 blocks, so it is an ordinary system call. pid -1 means any task that
// this very thread traces.
func wait4(pid int, ws *unix.WaitStatus, options int) (int, error) {
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

// waitReport waits for a task that this very thread traces, any one or a certain
// one (unix.P_ALL, unix.P_PID), and leaves the report with the kernel.
func waitReport(which, tid int) (int, unix.WaitStatus, error) {
	return waitReportBy(which, tid, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT)
}

// waitReportBy does it by other options of waitid than those.
func waitReportBy(which, tid, options int) (int, unix.WaitStatus, error) {
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
	_, _, e := unix.Syscall6(unix.SYS_WAITID, uintptr(which), uintptr(tid), uintptr(unsafe.Pointer(&info)), uintptr(options), 0, 0)
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

func eventMessage(tid int) (int, error) {
	if err := faults.At("ptrace", unix.PTRACE_GETEVENTMSG); err != nil {
		return 0, err
	}
	var msg uint64
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETEVENTMSG, uintptr(tid), 0, uintptr(unsafe.Pointer(&msg)), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(msg), nil
}

// openFile and readFile are how everything below /proc is opened.
func openFile(name string, flag int) (*os.File, error) {
	if err := faults.At("open", 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.OpenFile(name, flag, 0)
}

func readFile(name string) ([]byte, error) {
	if err := faults.At("read", 0); err != nil {
		return nil, &os.PathError{Op: "read", Path: name, Err: err}
	}
	return readAll(name, 2<<10)
}

// readAll is os.ReadFile for the small files of /proc, of which there are many: it does without what
// makes a file one that may be waited for. Most have less than most bytes.
func readAll(name string, most int) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, most)
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

func ignoringEINTR(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); err != unix.EINTR {
			return n, err
		}
	}
}

func lookPath(name string) (string, error) { return exec.LookPath(name) }

// forkTraced starts a program that is traced by the calling thread and stops
// at its exec.
func forkTraced(path string, argv []string, a *os.ProcAttr) (int, error) {
	files := []uintptr{0, 1, 2}
	if a.Files != nil {
		files = files[:0]
		for _, f := range a.Files {
			files = append(files, f.Fd())
		}
	}
	env := a.Env
	if env == nil {
		env = os.Environ()
	}
	sys := syscall.SysProcAttr{}
	if a.Sys != nil {
		sys = *a.Sys
	}
	sys.Ptrace = true
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Dir: a.Dir, Env: env, Files: files, Sys: &sys})
}
