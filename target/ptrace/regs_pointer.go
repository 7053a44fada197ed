//go:build linux && (arm64 || s390x)

package ptrace

import (
	"kprobe/internal/tracee"
	"kprobe/target"
)

// ThreadPointer is the register by which programs find a thread's own data, of a stopped thread.
func (p *Process) ThreadPointer(th target.Thread) (pointer uint64, err error) {
	return tracee.ThreadPointer(int(th))
}
