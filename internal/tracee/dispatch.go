//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// Dispatch says whose system calls a task has the kernel hand back to it, by SIGSYS, instead of making them (prctl(2),
// PR_SET_SYSCALL_USER_DISPATCH): all but those of a range of code, while a byte of its memory, the selector, says so.
// It is laid out as the kernel's ptrace_sud_config.
type Dispatch struct {
	mode     uint64
	selector uint64
	start    uint64 // of the range whose calls are made, and its length; it may lead through the end of memory to the beginning
	length   uint64
}

// dispatchWithin is the mode in which calls of a range are handed back (since Linux 6.16). The kernel reports it in the words of
// the other mode: the calls of all other memory are made.
const dispatchWithin = 2

// DispatchOf reads a stopped task's. Errors: EIO, the kernel does not tell (before Linux 6.4); EINVAL, it has none on this
// machine.
func DispatchOf(tid int) (d Dispatch, err error) {
	err = requestAt(unix.PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, uint64(unsafe.Sizeof(d)), unsafe.Pointer(&d))
	return d, err
}

// On tells whether the task has any system calls handed back to it.
func (d Dispatch) On() bool { return d.mode != 0 }

// Set makes it a stopped task's.
func (d Dispatch) Set(tid int) error {
	if d.start+d.length < d.start {
		d.mode, d.start, d.length = dispatchWithin, d.start+d.length, -d.length
	}
	return requestAt(unix.PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG, tid, uint64(unsafe.Sizeof(d)), unsafe.Pointer(&d))
}

// Makes tells whether system calls that are made by the instructions of a range are made, whatever the selector says.
func (d Dispatch) Makes(code arch.Range) bool {
	from := uint64(code.Start) - d.start
	return d.mode == 0 || from < d.length && d.length-from > code.Size()
}

// Making returns d with a range of calls that are made which has some code in it, too: the shortest such.
func (d Dispatch) Making(code arch.Range) Dispatch {
	if d.Makes(code) {
		return d
	}
	// The kernel looks at the address behind the instruction.
	start, end := uint64(code.Start), uint64(code.End)+1
	if d.length == 0 {
		d.start, d.length = start, end-start
		return d
	}
	ahead, back := end-d.start, d.length+d.start-start
	if ahead == 0 || ahead < d.length {
		ahead = math.MaxUint64
	}
	if back < d.length {
		back = math.MaxUint64
	}
	if back < ahead {
		d.start = start
	}
	d.length = min(ahead, back)
	return d
}
