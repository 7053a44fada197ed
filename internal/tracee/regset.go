//go:build linux && (arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// What machines have in common whose registers are read in sets (PTRACE_GETREGSET), and that nothing steps through.

// regset reads or writes a register set, and answers its length in bytes.
func regset(req, tid, set int, at unsafe.Pointer, size int) (int, error) {
	iov := unix.Iovec{Base: (*byte)(at), Len: uint64(size)}
	err := requestAt(req, tid, uint64(set), unsafe.Pointer(&iov))
	return int(iov.Len), err
}

// Unstep has nothing to undo: the kernel forgets steps with their tracer, where it has any.
func Unstep(int) {}

// TrapFlag is none: no register has a flag for steps.
const TrapFlag = 0

// LoopSize is what a loop takes: code, and behind it the signal frame that ends it.
func LoopSize() int {
	page := os.Getpagesize()
	return page + (frameLen+page-1)&^(page-1)
}

// Enter makes the code of a loop, and a task's registers to begin it with. It ends in rt_sigreturn.
func (l *Loop) Enter(tid int, a *ABI) (code []byte, r Registers, err error) {
	at := arch.Addr(l.Page) + arch.Addr(os.Getpagesize())
	frame, err := a.FrameFor(tid, at, 0, l.Real, l.Mask)
	if err != nil {
		return nil, r, err
	}
	code = make([]byte, os.Getpagesize())
	copy(code, loopCode())
	r = l.Real
	r.SetPC(l.Page)
	r.noCall()
	r.setSP(uint64(at))
	return append(code, frame...), r, nil
}
