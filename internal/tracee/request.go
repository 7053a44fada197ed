//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/faults"
	"kprobe/internal/proc"
	"kprobe/target"
)

// Request makes one ptrace call. These never block, and the owner
// thread makes several per hit, so they go past the scheduler's bookkeeping.
func Request(req, tid int, addr, data uint64) error {
	if err := faults.At("ptrace", req); err != nil {
		return err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), uintptr(addr), uintptr(data), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// requestAt is Request whose data is memory of ours. It is a pointer up to the call itself: a stack may move before.
func requestAt(req, tid int, addr uint64, data unsafe.Pointer) error {
	if err := faults.At("ptrace", req); err != nil {
		return err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), uintptr(addr), uintptr(data), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// Insist asks once more for what must not be refused: a task that does not get
// back what it had, or does not go on, is lost.
func Insist(request func() error) error {
	if request() == nil {
		return nil
	}
	return request()
}

// EventMessage is the number that an event came with (PTRACE_GETEVENTMSG): a child's, say.
func EventMessage(tid int) (int, error) {
	var msg uint64
	err := requestAt(unix.PTRACE_GETEVENTMSG, tid, 0, unsafe.Pointer(&msg))
	return int(msg), err
}

// OpenFile, Open and ReadFile are how everything below /proc is opened.
func OpenFile(name string, flag int) (*os.File, error) {
	if err := faults.At("open", 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.OpenFile(name, flag, 0)
}

// Open opens such a file for reading, for the calling thread alone.
func Open(name string) (fd int, err error) {
	if err := faults.At("open", 0); err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// ReadFile reads such a file.
func ReadFile(name string) ([]byte, error) {
	if err := faults.At("read", 0); err != nil {
		return nil, &os.PathError{Op: "read", Path: name, Err: err}
	}
	return proc.ReadFile(name, 2<<10)
}

// Fork starts a program that is traced by the calling thread and stops
// at its exec.
func Fork(path string, argv []string, a *os.ProcAttr) (int, error) {
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

// RegsError turns the kernel's "no such process", which also means "not
// stopped", into what the caller needs to know.
func RegsError(err error) error {
	if err == unix.ESRCH {
		return target.ErrGone
	}
	return err
}

// SignalMask reads or writes the mask of blocked signals.
func SignalMask(req, tid int, mask uint64) (uint64, error) {
	if err := requestAt(req, tid, uint64(unsafe.Sizeof(mask)), unsafe.Pointer(&mask)); err != nil {
		return 0, err
	}
	return mask, nil
}

// Block has a stopped task block the signals of a mask, and no others. It insists.
func Block(tid int, mask uint64) error {
	return Insist(func() error { _, err := SignalMask(unix.PTRACE_SETSIGMASK, tid, mask); return err })
}

// ErrnoResult is what a system call that fails leaves in its result.
func ErrnoResult(e unix.Errno) uint64 { return -uint64(e) }

// TaskFile reads what the kernel tells about a task. A vfork child is a process
// of its own and not in the target's list.
func TaskFile(pid, tid int, name string) ([]byte, error) {
	b, err := ReadFile(proc.Process(pid).ThreadFile(tid, name))
	if err != nil {
		b, err = ReadFile(proc.Thread(tid).File(name))
	}
	return b, err
}
