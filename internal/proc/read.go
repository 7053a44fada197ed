package proc

import (
	"os"
	"slices"
	"syscall"
)

// ReadFile is os.ReadFile for the small files of /proc, of which there are many. It leaves out the
// Go runtime's preparations to wait for a file that is opened, for /proc never waits. Most have
// less than most bytes.
func ReadFile(name string, most int) ([]byte, error) {
	return ReadInto(make([]byte, 0, most), name)
}

// ReadInto is ReadFile into a buffer's room, or a larger one's.
func ReadInto(b []byte, name string) ([]byte, error) {
	fd, err := uninterrupted(func() (int, error) { return syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer syscall.Close(fd)
	for b = slices.Grow(b[:0], 1); ; b = slices.Grow(b, 1) {
		n, err := uninterrupted(func() (int, error) { return syscall.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			return b, nil
		}
		b = b[:len(b)+n]
	}
}

// uninterrupted makes a system call again that a signal came before.
func uninterrupted(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != syscall.EINTR {
			return n, err
		}
	}
}
