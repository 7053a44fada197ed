//go:build linux && amd64

package ptrace

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/symbol"
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
	// Tile registers are behind all others and large. Where they are not in
	// use, a process need not be allowed to have them, and a frame with room for
	// them is then refused.
	vectorTiles     = 1<<17 | 1<<18
	vectorNoTiles   = 2696
	ptNoteXState    = 0x202
	mostVector      = 16 << 10
	altStackIgnored = 0x1234 // no such flags: the call leaves the alternate stack as it is
)

// frameMark tells a frame of ours, which a call that nobody saw the end of may have
// left, from memory that is in use. The thread that it is for follows.
const frameMark = "kprobe's signal frame for thread"

// signalFrame is what a signal frame gives a task back.
type signalFrame struct {
	regs     unix.PtraceRegs
	mask     uint64 // of blocked signals
	back     arch.Addr
	vectorAt arch.Addr // its vector registers
}

// frameFor makes the signal frame that gives a stopped task back its registers
// r, all others, and its mask of blocked signals, if it ever returns to back from
// the address that it is written to.
func (a *abi) frameFor(tid int, at, back arch.Addr, r unix.PtraceRegs, mask uint64) ([]byte, error) {
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

// frameRoom is what a frame takes at most, in whole pages.
const frameRoom = mostVector + 4096

// frameAt is where a call's frame goes; 0 where there is no place. While threads
// run, only memory of our own will do. A frozen process has some that is dead, and
// what is our own may be what the call unmaps.
func (p *Process) frameAt() arch.Addr {
	if p.frozen {
		return p.deadMemory()
	}
	if p.guardian == nil {
		return 0
	}
	return p.guardian.journal.Base + lifeline.CallRoomAt
}

// deadMemory finds memory of the frozen process that nobody uses, for a frame:
// at the far end of the first thread's stack, which the kernel maps in advance and
// most programs never reach. It must lie below every stack pointer, and hold
// zeros only: who has been there and is away, on another stack, left something. If
// there is none such, a frame of ours whose thread has done with it will do. It is
// 0 where there is none at all.
func (p *Process) deadMemory() arch.Addr {
	b := make([]byte, frameRoom)
	if p.dead != 0 && p.isUnused(p.dead, b) && isZero(b) {
		return p.dead
	}
	maps, _ := p.Maps()
	p.dead = 0
	for _, m := range maps {
		if !isStack(m) {
			continue
		}
		// Always the same places, however far the stack has grown, so that what a
		// frame has left is found whole.
		for at := arch.Addr(m.Start + (m.End-m.Start)%frameRoom); at < arch.Addr(m.End); at += frameRoom {
			switch {
			case !p.isUnused(at, b):
			case isZero(b):
				p.dead = at
				return at
			case p.dead == 0 && p.isDoneWith(b):
				p.dead = at
			}
		}
	}
	return p.dead
}

func isStack(m symbol.Mapping) bool { return m.Path == "[stack]" && m.Read }

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// isUnused reads a frame's place, and tells whether it lies below every stack that
// it may be part of.
func (p *Process) isUnused(at arch.Addr, b []byte) bool {
	if p.ReadAt(at, b) != nil {
		return false
	}
	for _, t := range p.threads {
		var r unix.PtraceRegs
		if t.state == running || getRegs(t.tid, &r) != nil {
			continue
		}
		const stackRoom = 64 << 20 // no other stack is so near below
		sp, end := arch.Addr(r.Rsp), at+frameRoom+arch.Addr(p.arch.RedZone)
		if sp < end && end-sp < stackRoom {
			return false
		}
	}
	return true
}

// isDoneWith tells what a frame has left. Its thread may be away on another stack,
// in the handler of a signal that came before it returned to the frame; but then it
// still has nearly all signals blocked, as during a call.
func (p *Process) isDoneWith(b []byte) bool {
	note, ok := bytes.CutPrefix(b[p.abi().note:], []byte(frameMark))
	if !ok {
		return false
	}
	tid := int(binary.LittleEndian.Uint32(note))
	for _, t := range p.threads {
		if t.tid != tid {
			continue
		}
		const never = 1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)
		mask, err := signalMask(unix.PTRACE_GETSIGMASK, tid, 0)
		return err == nil && bits.OnesCount64(^(mask|never)) > 1
	}
	return true
}
