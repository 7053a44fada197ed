// Package errno has the error of the engine and of what lies under it: in words what
// was wrong, and by errors.Is the errno that the kernel's kprobes return in the same case.
package errno

import (
	"fmt"
	"syscall"
)

// Error is an errno with its reason.
type Error struct {
	Errno  syscall.Errno
	Reason string // what was wrong, one line
	Err    error  // what was underneath, or nil
}

// New makes one whose reason is formatted.
func New(e syscall.Errno, format string, args ...any) error {
	return &Error{Errno: e, Reason: fmt.Sprintf(format, args...)}
}

// Gone is what is told of a target that has ended, a process if it has a number.
func Gone(pid int) error {
	if pid != 0 {
		return New(syscall.ESRCH, "there is no process %d", pid)
	}
	return New(syscall.ESRCH, "the target is gone")
}

func (e *Error) Error() string {
	s := e.Reason
	if e.Err != nil {
		if s != "" {
			s += ": "
		}
		s += e.Err.Error()
	}
	return s
}

// Unwrap gives the errno and what was underneath, so that errors.Is and errors.As find both.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Errno != 0 {
		all = append(all, e.Errno)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}
