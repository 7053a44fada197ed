//go:build linux

// Package futex has a thread wait for a word in memory (futex(2)). That costs neither a signal, nor a timer of the Go
// runtime's, which would wake another thread.
package futex

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is asked of futex(2). Nobody but this process has the word.
const (
	private = 128
	wait    = 0 | private
	wake    = 1 | private
)

// Wait has the calling thread wait until a word is not 0, but no longer than most. It answers whether it is not 0.
func Wait(word *atomic.Uint32, most time.Duration) bool {
	for end := time.Now().Add(most); word.Load() == 0; {
		left := unix.NsecToTimespec(int64(time.Until(end)))
		if left.Nano() <= 0 {
			return false
		}
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wait, 0, uintptr(unsafe.Pointer(&left)), 0, 0)
	}
	return true
}

// Wake wakes who waits for a word, which is not 0 any more.
func Wake(word *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wake, 1, 0, 0, 0)
}
