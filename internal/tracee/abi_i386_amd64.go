//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// abi32 is that of i386 programs: arch/x86's asm/ia32.h, entry_32 and
// kernel/signal_32.c for what is not said here. Call numbers are those of
// arch/x86/entry/syscalls/syscall_32.tbl.
var abi32 = &ABI{
	Machine: arch.I386, Lifeline: lifeline.I386, Name: "32-bit i386", callLen: 2,
	Audit: 0x40000003, // AUDIT_ARCH_I386

	Mmap: 192 /* mmap2, whose offset is in pages */, Munmap: 91, Madvise: 219, Sigaction: 174,
	MemfdCreate: 356, Close: 6, Shmat: 397, sigreturn: 173,
	Args: func(r *Registers) [6]*uint64 {
		return [6]*uint64{&r.Rbx, &r.Rcx, &r.Rdx, &r.Rsi, &r.Rdi, &r.Rbp}
	},
	Entries: []entry{
		{"\xcd\x80\xc3", 0},             // int $0x80; ret
		{"\xcd\x80\x5d\x5a\x59\xc3", 3}, // of the vDSO, which pops ebp, edx and ecx before
		{"\xcd\x80", 0},
	},
	Back:        []string{"\xb8\xad\x00\x00\x00\xcd\x80"}, // mov $173, %eax; int $0x80
	interrupted: interrupted32,

	restart:  0,
	restarts: []uint64{168, 162, 240, 267, 407, 422}, // poll, nanosleep, futex, clock_nanosleep, and with 64-bit times

	frameForm: frameForm{frame32, frame32Size, floatState32}, Note: frame32Info, top: frame32At,

	ActionSize: 20, // handler, flags, restorer, a word each; mask
	Pack: func(a target.Action) []byte {
		le := binary.LittleEndian
		var b []byte
		for _, v := range []uint64{le.Uint64(a[0:]), le.Uint64(a[8:]), le.Uint64(a[16:])} {
			b = le.AppendUint32(b, uint32(v))
		}
		return append(b, a[24:32]...)
	},
	Unpack: func(b []byte) (a target.Action) {
		le := binary.LittleEndian
		for i := range 3 {
			le.PutUint64(a[8*i:], uint64(le.Uint32(b[4*i:])))
		}
		copy(a[24:], b[12:20])
		return a
	},

	loop: func(l *Loop) []byte {
		le, r := binary.LittleEndian, &l.Real
		mov := func(b []byte, reg byte, v uint64) []byte { return le.AppendUint32(append(b, 0xb8+reg), uint32(v)) }
		const eax, ecx, edx, ebx, esi = 0, 1, 2, 3, 6
		const call, size = 175, 5 + 4 + 5*5 + 2 + 5*5 + 5 // rt_sigprocmask; the code's
		b := mov(nil, ecx, loopRounds)
		b = append(b,
			0xf3, 0x90, // pause
			0xe2, 0xfc, // loop back to it; it leaves the flags alone, as all does here
		)
		b = mov(mov(mov(mov(mov(b, eax, call), ebx, sigSetMask), ecx, l.Page+size), edx, 0), esi, 8)
		b = append(b, 0xcd, 0x80) // int 0x80
		b = mov(mov(mov(mov(mov(b, eax, r.Rax), ebx, r.Rbx), ecx, r.Rcx), edx, r.Rdx), esi, r.Rsi)
		b = le.AppendUint32(append(b, 0xe9), uint32(r.Rip-l.Page)-size) // jmp rel32
		return le.AppendUint64(b, l.Mask)
	},
}

func interrupted32(r *Registers) bool {
	switch r.Orig_rax {
	case 256, 319, 441, // epoll_wait, epoll_pwait, epoll_pwait2
		420,      // semtimedop_time64
		177, 421, // rt_sigtimedwait, and with 64-bit times
		247, 385, 416, // io_getevents, io_pgetevents, and with 64-bit times
		401, 400, // msgrcv, msgsnd
		3, 371, 372, // read, recvfrom, recvmsg
		364, 337, 417, // accept4, recvmmsg, and with 64-bit times
		369, 370: // sendto, sendmsg
		return true
	case 102: // socketcall, by what it calls
		return socketCallInterrupted(uint64(uint32(r.Rbx)))
	case 117: // ipc, by what it calls; above it a version
		switch uint16(r.Rbx) {
		case 1, 4, 11, 12: // semop, semtimedop, msgsnd, msgrcv
			return true
		}
	}
	return false
}

// The frame of a signal handler with siginfo, struct rt_sigframe_ia32: the address
// to return to, the handler's three arguments, siginfo, struct ucontext_ia32. Before
// it is room for the words that are popped on the way back.
const (
	frame32At    = 3 * 4
	frame32Info  = frame32At + 16 // a siginfo, which nobody reads: FrameMark
	frame32UC    = frame32Info + 128
	frame32Stack = frame32UC + 8
	frame32Regs  = frame32UC + 20
	frame32Mask  = frame32Regs + 22*4
	frame32Size  = frame32Mask + 8
)

func frame32(f *signalFrame, b []byte) {
	const xstate = 0x1 // uc_flags: the state that XSAVE has is there
	le := binary.LittleEndian
	le.PutUint32(b[frame32At:], uint32(f.back))
	le.PutUint32(b[frame32UC:], xstate)
	le.PutUint32(b[frame32Stack+4:], altStackIgnored)
	r := &f.regs
	for i, v := range []uint64{
		r.Gs, r.Fs, r.Es, r.Ds, r.Rdi, r.Rsi, r.Rbp, r.Rsp, r.Rbx, r.Rdx, r.Rcx, r.Rax,
		0, 0, r.Rip, r.Cs, r.Eflags, r.Rsp, r.Ss, uint64(f.vectorAt), f.mask, 0,
	} {
		le.PutUint32(b[frame32Regs+4*i:], uint32(v))
	}
	le.PutUint64(b[frame32Mask:], f.mask)
}

// floatState32 reads a task's x87 registers as FSAVE has them (struct fregs_state of
// the kernel, with a status word behind): in the frame of an i386 program they
// stand before what FXSAVE and XSAVE have.
func floatState32(tid int) ([]byte, error) {
	const ptNoteFloat, size, status = 2, 108, 4
	b := make([]byte, size+status)
	iov := unix.Iovec{Base: &b[0], Len: size}
	if err := requestAt(unix.PTRACE_GETREGSET, tid, ptNoteFloat, unsafe.Pointer(&iov)); err != nil {
		return nil, RegsError(err)
	}
	return b, nil
}
