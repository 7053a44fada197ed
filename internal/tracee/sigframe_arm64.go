//go:build linux && arm64

package tracee

import (
	"encoding/binary"

	"kprobe/arch"
)

// A signal frame of arm64, as the kernel's rt_sigreturn reads it (arch/arm64/kernel/signal.c, and the headers
// asm/sigcontext.h and asm/ucontext.h): a siginfo, a ucontext, in which the general registers are, and behind them
// records, of which we write that of the vector registers, and the one that ends them.
const (
	frameUC      = 128
	frameStack   = frameUC + 16 // uc_stack: address, flags, size
	frameMask    = frameUC + 40
	frameContext = frameUC + 176 // fault_address, x0 to x30, sp, pc, pstate
	frameRecords = frameContext + 288
	vectorMagic  = 0x46508001
	vectorSize   = 16 + 32*16
	frameLen     = frameRecords + vectorSize + 8
	FrameAlign   = 16
	MostVector   = 4 << 10
)

// FrameFor makes the signal frame that gives a stopped task back its registers
// r, all others, and its mask of blocked signals, if it ever returns with the stack pointer at the address
// that the frame is written to. What SVE's registers have beyond 128 bits is lost then.
func (a *ABI) FrameFor(tid int, _, _ arch.Addr, r Registers, mask uint64) ([]byte, error) {
	var v vectorState
	if err := getVector(tid, &v); err != nil {
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
	at := b[frameContext+8:]
	for _, x := range r {
		le.PutUint64(at, x)
		at = at[8:]
	}
	at = b[frameRecords:]
	le.PutUint32(at, vectorMagic)
	le.PutUint32(at[4:], vectorSize)
	le.PutUint32(at[8:], v.fpsr)
	le.PutUint32(at[12:], v.fpcr)
	for i, reg := range v.v {
		copy(at[16+16*i:], reg[:])
	}
	return b, nil
}
