//go:build linux && (arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// The report of a trap tells where that is, and so where the processor stands at it: there, on s390x behind it. So it needs no
// mark to see that a trap has been dealt with: the thread stands somewhere else by now, or
// it was set back there, to meet the trap once more. What s390x emulates of two bytes may leave the thread where it
// was, and can be done once more (package isa/s390x).

// MarkDealt needs no mark.
func (r *Registers) MarkDealt() {}

// Unmark has none to take off.
func (r *Registers) Unmark() {}

// IsDealt tells whether the trap that its task is reported for has been dealt with; back, that it was set back to it.
func (r *Registers) IsDealt(tid int, back bool) bool {
	var info Siginfo
	if back {
		return true
	}
	return TransferSiginfo(unix.PTRACE_GETSIGINFO, tid, &info) == nil && unix.Signal(info.Signo) == unix.SIGTRAP &&
		info.Code == TrapBrkpt && info.Addr+uint64(Programs[0].Arch.BreakPC) != r.PC()
}

// Functions return by a register, too.

// ReturnTo makes the return of a call lead to a frame.
func (r *Registers) ReturnTo(_ *ABI, frame, back arch.Addr, _ int) {
	r.setSP(uint64(frame))
	*r.linkReg() = uint64(back)
}

// Returns answers the frame that ReturnTo was told, and where that leads.
func (r *Registers) Returns(*ABI, arch.Memory, int) (frame, to arch.Addr) {
	return arch.Addr(r.SP()), arch.Addr(*r.linkReg())
}
