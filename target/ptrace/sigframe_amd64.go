//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// A signal frame of x86-64, as the kernel's rt_sigreturn reads it (arch/x86's
// asm/sigframe.h, asm/sigcontext.h): the return address, a ucontext, a siginfo,
// and elsewhere the vector registers.
const (
	frameUC     = 8
	frameStack  = frameUC + 16 // uc_stack: address, flags, size
	frameRegs   = frameUC + 40
	frameCS     = frameRegs + 18*8 // and gs, fs, ss
	frameVector = frameRegs + 23*8
	frameMask   = frameRegs + 32*8
	frameNote   = frameMask + 8 // a siginfo, which nobody reads: frameMark
	frameSize   = frameNote + 128

	// uc_flags: vector registers are there, and ss is to be restored as it is.
	frameFlags = 0x1 | 0x2 | 0x4

	// How XSAVE's area is told from FXSAVE's: a mark in its first 512 bytes,
	// where the processor writes nothing, and one behind it.
	vectorNote   = 464
	vectorMagic1 = 0x46505853
	vectorMagic2 = 0x46505845
	vectorHeader = 512
	vectorAlign  = 64
	frameAlign   = vectorAlign
	// Tile registers are behind all others and large. Where they are not in
	// use, a process need not be allowed to have them, and a frame with room for
	// them is then refused.
	vectorTiles   = 1<<17 | 1<<18
	vectorNoTiles = 2696
	ptNoteXState  = 0x202
	mostVector    = 16 << 10
)

// frameForm is what a frame has before the vector registers, and of these before the
// state that XSAVE has.
type frameForm struct {
	frame     func(f *signalFrame, b []byte)
	frameSize int
	vector    func(tid int) ([]byte, error)
}

// signalFrame is what a signal frame gives a task back.
type signalFrame struct {
	regs     registers
	mask     uint64 // of blocked signals
	back     arch.Addr
	vectorAt arch.Addr // its vector registers
}

// frameFor makes the signal frame that gives a stopped task back its registers
// r, all others, and its mask of blocked signals, if it ever returns to back from
// the address that it is written to.
func (a *abi) frameFor(tid int, at, back arch.Addr, r registers, mask uint64) ([]byte, error) {
	vector, err := a.vectorState(tid)
	if err != nil {
		return nil, err
	}
	if int64(r.Orig_rax) >= 0 && interruptedCall(r.Rax) {
		// The kernel would restart the call, and knows nothing of it any more
		// once it has run another. What has a time limit gets it anew.
		r.Rip -= 2
		r.Rax = r.Orig_rax
	}
	const align = vectorAlign - 1
	before := arch.Addr(vector.before)
	f := signalFrame{regs: r, mask: mask, back: back}
	f.vectorAt = (at+arch.Addr(a.frameSize)+before+align)&^align - before
	b := make([]byte, f.vectorAt-at, int(f.vectorAt-at)+len(vector.bytes))
	a.frame(&f, b)
	binary.LittleEndian.PutUint32(b[int(a.note)+copy(b[a.note:], frameMark):], uint32(tid))
	return append(b, vector.bytes...), nil
}

func frame64(f *signalFrame, b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, uint64(f.back))
	le.PutUint64(b[frameUC:], frameFlags)
	le.PutUint32(b[frameStack+8:], altStackIgnored)
	r := &f.regs
	for i, v := range []uint64{
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rdi, r.Rsi,
		r.Rbp, r.Rbx, r.Rdx, r.Rax, r.Rcx, r.Rsp, r.Rip, r.Eflags,
	} {
		le.PutUint64(b[frameRegs+8*i:], v)
	}
	le.PutUint16(b[frameCS:], uint16(r.Cs))
	le.PutUint16(b[frameCS+6:], uint16(r.Ss))
	le.PutUint64(b[frameVector:], uint64(f.vectorAt))
	le.PutUint64(b[frameMask:], f.mask)
}

// interruptedCall tells the kernel's own codes for a call to be restarted.
func interruptedCall(result uint64) bool {
	const restartSys, restartNoIntr, restartNoHand, restartBlock = 512, 513, 514, 516
	switch -result {
	case restartSys, restartNoIntr, restartNoHand, restartBlock:
		return true
	}
	return false
}

// vectors are a task's vector registers as a signal frame has them: the state that
// XSAVE has, and some bytes before.
type vectors struct {
	bytes  []byte
	before int
}

func (a *abi) vectorState(tid int) (vectors, error) {
	before, err := a.vector(tid)
	if err != nil {
		return vectors{}, err
	}
	b := make([]byte, mostVector)
	iov := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	if err := ptraceRequest(unix.PTRACE_GETREGSET, tid, ptNoteXState, uint64(uintptr(unsafe.Pointer(&iov)))); err != nil {
		return vectors{}, regsError(err)
	}
	size := int(iov.Len)
	le := binary.LittleEndian
	features := le.Uint64(b[vectorNote:]) // there the kernel tells the ones it knows
	if le.Uint64(b[vectorHeader:])&vectorTiles == 0 {
		size = min(size, vectorNoTiles)
	}
	clear(b[vectorNote:vectorHeader])
	le.PutUint32(b[vectorNote:], vectorMagic1)
	le.PutUint32(b[vectorNote+4:], uint32(len(before)+size)+4)
	le.PutUint64(b[vectorNote+8:], features)
	le.PutUint32(b[vectorNote+16:], uint32(size))
	return vectors{append(before, le.AppendUint32(b[:size], vectorMagic2)...), len(before)}, nil
}
