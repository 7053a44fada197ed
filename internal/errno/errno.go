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

// Is reports whether target is the error's errno.
func (e *Error) Is(target error) bool { return target == e.Errno }

// As lets errors.As find the errno.
func (e *Error) As(target any) bool {
	p, ok := target.(*syscall.Errno)
	if ok = ok && e.Errno != 0; ok {
		*p = e.Errno
	}
	return ok
}

func (e *Error) Unwrap() error { return e.Err }
