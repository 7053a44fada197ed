//go:build linux && (arm64 || riscv64)

package ptrace

import "kprobe/target"

// Data of processes is not watched on these machines, so Process is no target.Watcher there.
//
// arm64's kernel has watchpoint registers for each thread (Arm ARM, D2.10), but under QEMU threads are stopped for
// accesses near what is watched, too, and nothing tells a read from a write: what counts wrong is worse than what is
// not there. On riscv64 Linux offers no debug registers to a tracer (PTRACE_GETHBPREGS is EIO, up to 7.2).
//
// The rest of this file is what the package asks of every machine.

// trapHWBreakpoint is si_code TRAP_HWBKPT.
const trapHWBreakpoint = 4

// debugRegisters are those of a thread that we have set: none.
type debugRegisters struct{}

func (p *Process) setDebugRegisters(*thread) error { return nil }

func (p *Process) askAccess(*target.Stop) {}

func (p *Process) accessPending(*thread) bool { return false }

func (p *Process) unwatch() {}

func (p *Process) unwatchLeft() error { return nil }
