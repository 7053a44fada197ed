//go:build linux && (arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"kprobe/target"
)

// Data of processes is not watched on these machines, so Process is no target.Watcher there.
// arm64's kernel has watchpoint registers for each thread (Arm ARM, D2.10), but under QEMU threads
// are stopped for accesses near the watched data, too, and nothing tells a read from a write: a
// wrong count is worse than none. On riscv64 Linux offers no debug registers to a tracer
// (PTRACE_GETHBPREGS is EIO, up to 7.2). s390x has one range for each thread (program event
// recording), of stores only, and QEMU (7.2) reports none to a program.
//
// The rest of this file is the part that the package asks of every machine.

// debugRegisters are the registers of a thread that we have set: none.
type debugRegisters struct{}

func (p *Process) setDebugRegisters(*thread) error { return nil }

func (p *Process) askAccess(*target.Stop) {}

func (p *Process) accessPending(*thread) bool { return false }

func (p *Process) unwatch() {}

func (p *Process) unwatchLeft() error { return nil }
