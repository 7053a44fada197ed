//go:build linux && (arm64 || s390x)

package ptrace

import (
	"kprobe/internal/tracee"
	"kprobe/target"
)

// ThreadPointer is what programs find a thread's own by, of a stopped thread.
func (p *Process) ThreadPointer(th target.Thread) (pointer uint64, err error) {
	return tracee.ThreadPointer(int(th))
}
