package kprobe

import (
	"fmt"
	"syscall"

	"kprobe/internal/errno"
)

// Every error of this package is, by errors.Is, the errno that the kernel's
// kprobes return in the same case; its text says what was wrong. The caller
// can do about each:
//
//	EINVAL         the call or the place is wrong for good: see the text
//	ENOENT         no such symbol, event or probe; the text has the nearest names
//	EADDRNOTAVAIL  several symbols have that name: qualify it with MODULE:
//	EILSEQ         not the start of an instruction
//	EBUSY          someone else's breakpoint or change is there
//	EEXIST         one jprobe a function
//	E2BIG          private data over 4096 bytes
//	ENOSPC         no more data can be watched
//	ENOTSUP        this target or function cannot be served by this engine
//	EDEADLK        called from a handler, which must not (un)register probes
//	ESRCH          the target is gone
//
// Errno is that errno, Reason what was wrong, Err what was underneath.
type Error = errno.Error

func fail(e syscall.Errno, format string, args ...any) error { return errno.New(e, format, args...) }

// BatchError tells which probe of a batch failed. Nothing of the batch stays
// registered.
type BatchError struct {
	Index int // in the array given
	Err   error
}

func (e *BatchError) Error() string { return fmt.Sprintf("probe %d: %v", e.Index, e.Err) }
func (e *BatchError) Unwrap() error { return e.Err }
