//go:build linux && (amd64 || arm64 || ppc64le || riscv64)

package tracee

import (
	"golang.org/x/sys/unix"
)

// What machines have in common whose processor stands at an instruction that faults, and whose calls take all
// arguments in registers.

// FrameArgs is no place in a signal frame.
const FrameArgs = 0

// behind tells the signals of faults after which a task stands behind the instruction: none.
func behind(unix.Signal) bool { return false }
