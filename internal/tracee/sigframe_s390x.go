//go:build linux && s390x

package tracee

import (
	"encoding/binary"

	"kprobe/arch"
)

// A signal frame of s390x, as the kernel's rt_sigreturn reads it (arch/s390/kernel/signal.c, and the headers
// asm/sigcontext.h and asm/ucontext.h): room for the registers of whoever is called, a siginfo, a ucontext, in which the
// registers are. Its flags do not tell of vector registers: a system call leaves these as they are.
const (
	FrameArgs    = 64 // of a call that takes them in memory, behind the note
	frameUC      = 160 + 8 + 128
	frameStack   = frameUC + 16 // uc_stack: address, flags, size
	frameContext = frameUC + 40 // the program status word, r0 to r15, a0 to a15, the floating point control, f0 to f15
	frameFloat   = frameContext + 16 + 128 + 64
	frameMask    = frameFloat + 8 + 128
	frameLen     = frameMask + 128
	FrameAlign   = 16
	MostVector   = 0
)

// FrameFor makes the signal frame that gives a stopped task back its registers
// r, those of floating point, and its mask of blocked signals, if it ever returns with the stack pointer at the address
// that the frame is written to.
func (a *ABI) FrameFor(tid int, _, _ arch.Addr, r Registers, mask uint64) ([]byte, error) {
	var s floatState
	if err := getFloat(tid, &s); err != nil {
		return nil, err
	}
	r.restarts(a)
	be := binary.BigEndian
	b := make([]byte, frameLen)
	be.PutUint32(b[copy(b, FrameMark):], uint32(tid))
	be.PutUint32(b[frameStack+8:], altStackIgnored)
	be.PutUint64(b[frameMask:], mask)
	at := b[frameContext:]
	for _, v := range append([]uint64{r.mask, r.program}, r.gpr[:]...) {
		be.PutUint64(at, v)
		at = at[8:]
	}
	for _, v := range r.access {
		be.PutUint32(at, v)
		at = at[4:]
	}
	be.PutUint32(at, s.fpc)
	for i, v := range s.f {
		be.PutUint64(at[8+8*i:], v)
	}
	return b, nil
}

// ForgetsCall tells that a frame would make a task's call fail: never here, as the instruction has the call's number, or a
// register that is kept.
func (a *ABI) ForgetsCall(int, Registers) bool { return false }
