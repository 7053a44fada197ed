//go:build !(linux && (amd64 || arm64 || ppc64le || riscv64 || s390x))

// Package ptrace is the live Linux process as a target. On this system it can
// only say so.
package ptrace

import (
	"errors"
	"fmt"
	"os"

	"kprobe/internal/lifeline"
	"kprobe/target"
)

// Process is a live process.
type Process struct{ target.Target }

// Attach is not possible on this system.
func Attach(pid int) (*Process, error) {
	return nil, fmt.Errorf("attach to process %d: needs Linux on x86-64, arm64, ppc64le, riscv64 or s390x: %w", pid, errors.ErrUnsupported)
}

// Look is not possible on this system.
func Look(pid int) (*Process, error) { return Attach(pid) }

// Start is not possible on this system.
func Start(argv []string, attr *os.ProcAttr) (*Process, error) {
	return nil, fmt.Errorf("start: needs Linux on x86-64, arm64, ppc64le, riscv64 or s390x: %w", errors.ErrUnsupported)
}

// DiagnoseHost says why nothing can be probed here but targets behind a stub.
func DiagnoseHost() Diagnosis { return Diagnose(0) }

// Diagnose says why nothing can be probed here.
func Diagnose(pid int) Diagnosis {
	return Diagnosis{{Name: "system", Says: "processes can be probed on Linux on x86-64, arm64, ppc64le, riscv64 and s390x only"}}
}

// ErrNothing is Recover's error for a process that has nothing to restore.
var ErrNothing = lifeline.ErrNothing

// Recovered is the result of Recover for one process.
type Recovered struct {
	PID int
	Err error // nil where its text was restored

	Stays string // the memory that stays mapped then, and why; "" where nothing that is large does
}

// Recover finds nothing on a system where no process can have been probed.
func Recover(pid int) ([]Recovered, error) { return nil, nil }
