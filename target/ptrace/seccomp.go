//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/faults"
	"kprobe/internal/seccomp"
	"kprobe/internal/tracee"
)

// A seccomp filter may kill its process for a system call that the program never
// makes. Calls of ours are made in such a process only where the filter, read from
// the kernel and run here on the very arguments, allows them. To read it takes
// CAP_SYS_ADMIN (ptrace(2), PTRACE_SECCOMP_GET_FILTER).

// filtersAllow refuses calls that the filters of a stopped task do not allow. none tells that it
// has no filters: it gets none while the whole process stands still.
func filtersAllow(tid int, calls ...*seccomp.Input) (none bool, err error) {
	for index := 0; ; index++ {
		filter, err := readFilter(tid, index)
		if index > 0 && err == unix.ENOENT {
			return false, nil
		}
		if err != nil {
			// There is none, or that of the strict mode, or this user may not read it.
			mode, e := statusField(tid, tid, "Seccomp")
			if e != nil || mode == "0" {
				return e == nil, nil // or gone
			}
			return false, fmt.Errorf("thread %d has a seccomp filter (mode %s), which may kill it for a system call of ours, and to read what it allows takes CAP_SYS_ADMIN: %w", tid, mode, unix.EACCES)
		}
		for _, in := range calls {
			if !filter.Allows(in) {
				return false, fmt.Errorf("the seccomp filter of thread %d does not allow system call %d, which would have to be made in it: %w", tid, in.Word[seccomp.Call], unix.EACCES)
			}
		}
	}
}

// sleepOn keeps a stopped task from being killed for restart_syscall(2). The program does not make
// that call: by it the kernel goes on with a call that has a time limit, when a stop has
// interrupted it. A filter may not know of it, and then ends the process after any stop. So where
// it does not allow the call, or cannot be read, the interrupted one is made anew, with its time
// limit anew.
func (p *Process) sleepOn(t *thread, r *tracee.Registers) {
	in := p.abi().RestartInput(*r)
	if in == nil {
		return
	}
	if _, err := filtersAllow(t.tid, in); err != nil {
		p.abi().MakeAnew(t.tid, r)
	}
}

// readFilter reads the one of a stopped task's filters that has an index, the
// newest first. Errors: ENOENT, there are no more; EINVAL, there is none; EACCES.
func readFilter(tid, index int) (seccomp.Filter, error) {
	if err := faults.At("ptrace", unix.PTRACE_SECCOMP_GET_FILTER); err != nil {
		return nil, err
	}
	n, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), uintptr(index), 0, 0, 0)
	if e != 0 {
		return nil, e
	}
	f := make(seccomp.Filter, n) // one that is not empty, and does not change
	n, _, e = unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), uintptr(index), uintptr(unsafe.Pointer(&f[0])), 0, 0)
	if e != 0 {
		return nil, e
	}
	return f[:n], nil
}
