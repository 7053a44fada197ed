//go:build linux && ppc64le

package tracee

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// A signal frame of ppc64le, as the kernel's rt_sigreturn reads it (arch/powerpc/kernel/signal_64.c, and the headers
// asm/sigcontext.h and asm/ucontext.h): a ucontext, in which the registers are; those of vectors lie behind the others, and are
// pointed to.
const (
	frameStack   = 16 // uc_stack: address, flags, size
	frameMask    = 40
	frameContext = 168
	frameRegs    = frameContext + 64 // as PTRACE_GETREGSET has them
	frameFloat   = frameRegs + 48*8
	framePointer = frameFloat + 33*8 // to the vectors
	frameVectors = (framePointer + 8 + 15) &^ 15
	frameHalves  = frameVectors + 34*16 // of the vectors that begin with a floating point register, the other half
	frameLen     = framePointer + 8 + 101*8
	FrameAlign   = 16
	MostVector   = 0
)

// What the frame has, by the bits of the machine state register.
const frameHas = 1<<13 | 1<<23 | 1<<25 // floating point, VSX, vectors

// FrameFor makes the signal frame that gives a stopped task back its registers
// r, those of floating point and of vectors, and its mask of blocked signals, if it ever returns with the stack
// pointer at the address at that the frame is written to.
func (a *ABI) FrameFor(tid int, at, _ arch.Addr, r Registers, mask uint64) ([]byte, error) {
	b := make([]byte, frameLen)
	for _, s := range []struct{ set, at, size int }{
		{setFloat, frameFloat, 33 * 8}, {setVectors, frameVectors, 34 * 16}, {setHalves, frameHalves, 32 * 8},
	} {
		if _, err := regset(unix.PTRACE_GETREGSET, tid, s.set, unsafe.Pointer(&b[s.at]), s.size); err != nil {
			return nil, RegsError(err)
		}
	}
	r.restarts(a)
	r.msr |= frameHas
	le := binary.LittleEndian
	le.PutUint32(b[int(a.Note)+copy(b[a.Note:], FrameMark):], uint32(tid))
	le.PutUint32(b[frameStack+8:], altStackIgnored)
	le.PutUint64(b[frameMask:], mask)
	le.PutUint64(b[framePointer:], uint64(at)+frameVectors)
	copy(b[frameRegs:], unsafe.Slice((*byte)(unsafe.Pointer(&r)), sizeRegs))
	return b, nil
}

// ForgetsCall tells of a stopped task in a call whether a frame would make that fail: it goes on by restart_syscall(2), and
// nothing tells with what.
func (a *ABI) ForgetsCall(_ int, r Registers) bool { return r.number() == unix.SYS_RESTART_SYSCALL }
