//go:build linux && amd64

package tracee

import (
	"bytes"
	"encoding/binary"
	"slices"
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
	frameNote   = frameMask + 8 // a siginfo, which nobody reads: FrameMark
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
	FrameAlign   = vectorAlign
	// Tile registers are behind all others and large. Where they are not in
	// use, a process need not be allowed to have them, and a frame with room for
	// them is then refused.
	vectorTiles   = 1<<17 | 1<<18
	vectorNoTiles = 2696
	ptNoteXState  = 0x202
	MostVector    = 16 << 10
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
	regs     Registers
	mask     uint64 // of blocked signals
	back     arch.Addr
	vectorAt arch.Addr // its vector registers
}

// FrameFor makes the signal frame that gives a stopped task back its registers
// r, all others, and its mask of blocked signals, if it ever returns to back from
// the address that it is written to.
func (a *ABI) FrameFor(tid int, at, back arch.Addr, r Registers, mask uint64) ([]byte, error) {
	vector, err := a.vectorState(tid)
	if err != nil {
		return nil, err
	}
	a.anew(tid, &r)
	const align = vectorAlign - 1
	before := arch.Addr(vector.before)
	f := signalFrame{regs: r, mask: mask, back: back}
	f.vectorAt = (at+arch.Addr(a.frameSize)+before+align)&^align - before
	b := make([]byte, f.vectorAt-at, int(f.vectorAt-at)+len(vector.bytes))
	a.frame(&f, b)
	binary.LittleEndian.PutUint32(b[int(a.Note)+copy(b[a.Note:], FrameMark):], uint32(tid))
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

// anew makes a call that the kernel would restart be made anew. It knows nothing of it any more once it has run another. What has
// a time limit gets it anew.
func (a *ABI) anew(tid int, r *Registers) {
	if int64(r.Orig_rax) >= 0 && interruptedCall(r.Rax) {
		r.Rip -= 2
		r.Rax = r.Orig_rax
	}
	if r.Rax == a.restart {
		r.Rax = a.restarted(tid, arch.Addr(r.Rip))
	}
}

// ForgetsCall tells of a stopped task in a call whether a frame would make that fail: it goes on by restart_syscall(2), and
// nothing tells with what.
func (a *ABI) ForgetsCall(tid int, r Registers) bool {
	if int64(r.Orig_rax) < 0 || !interruptedCall(r.Rax) {
		return false
	}
	a.anew(tid, &r)
	return r.Rax == a.restart
}

// restarted is the call that a task makes once more by restart_syscall(2), if its PC is at the instruction of a call: it was
// interrupted before, and the number was forgotten. The return from a frame forgets what is left of its time, too, so that
// restart_syscall would fail. It is what the code before loads, which is one of few; else restart_syscall.
func (a *ABI) restarted(tid int, pc arch.Addr) uint64 {
	const movEAX, back = 0xb8, 24
	var code [back + 8]byte
	for at := 0; at < len(code); at += 8 {
		var word uint64
		if requestAt(unix.PTRACE_PEEKTEXT, tid, uint64(pc)-back+uint64(at), unsafe.Pointer(&word)) != nil {
			return a.restart
		}
		binary.LittleEndian.PutUint64(code[at:], word)
	}
	if !slices.ContainsFunc(a.Entries, func(e entry) bool { return bytes.HasPrefix(code[back:], []byte(e.Code[:a.callLen])) }) {
		return a.restart
	}
	for at := back - 5; at >= 0; at-- {
		nr := uint64(binary.LittleEndian.Uint32(code[at+1:]))
		if code[at] == movEAX && slices.Contains(a.restarts, nr) {
			return nr
		}
	}
	return a.restart
}

// vectors are a task's vector registers as a signal frame has them: the state that
// XSAVE has, and some bytes before.
type vectors struct {
	bytes  []byte
	before int
}

func (a *ABI) vectorState(tid int) (vectors, error) {
	before, err := a.vector(tid)
	if err != nil {
		return vectors{}, err
	}
	b := make([]byte, MostVector)
	iov := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	if err := requestAt(unix.PTRACE_GETREGSET, tid, ptNoteXState, unsafe.Pointer(&iov)); err != nil {
		return vectors{}, RegsError(err)
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
