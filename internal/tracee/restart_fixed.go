//go:build linux && (arm64 || riscv64)

package tracee

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// What machines have in common whose calls are loaded by an instruction of four bytes. On ppc64le a second interruption leaves nothing of the
// call's first argument either, and on s390x the instruction has the number.

// restarted is the call that a task makes once more by restart_syscall(2), if its PC is at the instruction of a call: it was
// interrupted before, and the number was forgotten. The return from a frame forgets what is left of its time, too, so that
// restart_syscall would fail. It is what the code before loads (loadsNumber), which is one of few; else restart_syscall.
func (a *ABI) restarted(tid int, pc arch.Addr) uint64 {
	const back = 24 // bytes
	if insn, ok := peek(tid, pc); !ok || !isCall(insn) {
		return a.restart
	}
	shortest := arch.Addr(a.Machine.MinInsn) // riscv64 has some of two bytes between
	for at := pc - 4; at >= pc-back; at -= shortest {
		insn, ok := peek(tid, at)
		if nr, loads := loadsNumber(insn); ok && loads && slices.Contains(a.restarts, nr) {
			return nr
		}
	}
	return a.restart
}

// ForgetsCall tells of a stopped task in a call whether a frame would make that fail: it goes on by restart_syscall(2), and
// nothing tells with what.
func (a *ABI) ForgetsCall(tid int, r Registers) bool {
	return r.number() == a.restart && a.restarted(tid, arch.Addr(r.PC())) == a.restart
}

// peek reads an instruction.
func peek(tid int, at arch.Addr) (insn uint32, ok bool) {
	var word uint64
	err := requestAt(unix.PTRACE_PEEKTEXT, tid, uint64(at), unsafe.Pointer(&word))
	return uint32(word), err == nil
}
