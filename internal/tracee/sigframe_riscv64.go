//go:build linux && riscv64

package tracee

import (
	"encoding/binary"

	"kprobe/arch"
)

// A signal frame of riscv64, as the kernel's rt_sigreturn reads it (arch/riscv/kernel/signal.c, and the headers
// asm/sigcontext.h and asm/ucontext.h): a siginfo, a ucontext, in which the general registers are, and room for the
// largest floating point state, of which double precision takes the first part. Its end, all zeros, says that no
// record of vector registers follows: a system call gives these up anyway.
const (
	frameUC      = 128
	frameStack   = frameUC + 16 // uc_stack: address, flags, size
	frameMask    = frameUC + 40
	frameContext = frameUC + 176 // pc, x1 to x31
	frameFloat   = frameContext + 256
	frameLen     = frameFloat + 528
	FrameAlign   = 16
	MostVector   = 4 << 10
)

// FrameFor makes the signal frame that gives a stopped task back its registers
// r, those of floating point, and its mask of blocked signals, if it ever returns with the stack pointer at the address
// that the frame is written to.
func (a *ABI) FrameFor(tid int, _, _ arch.Addr, r Registers, mask uint64) ([]byte, error) {
	var s floatState
	if err := getFloat(tid, &s); err != nil {
		return nil, err
	}
	if r[regNumber] == a.restart {
		r[regNumber] = a.restarted(tid, arch.Addr(r[regPC]))
	}
	le := binary.LittleEndian
	b := make([]byte, frameLen)
	le.PutUint32(b[copy(b, FrameMark):], uint32(tid))
	le.PutUint32(b[frameStack+8:], altStackIgnored)
	le.PutUint64(b[frameMask:], mask)
	for i, x := range r {
		le.PutUint64(b[frameContext+8*i:], x)
	}
	for i, x := range s.f {
		le.PutUint64(b[frameFloat+8*i:], x)
	}
	le.PutUint32(b[frameFloat+8*len(s.f):], s.fcsr)
	return b, nil
}
