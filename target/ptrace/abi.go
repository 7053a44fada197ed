//go:build linux && amd64

package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

// abi is how programs of one machine and the kernel speak to each other. The kernel
// of an x86-64 runs those of i386 too, and shows us their registers in the order of
// x86-64: what differs is here.
type abi struct {
	machine *arch.Arch
	audit   uint32 // the machine's number in seccomp's input

	// System calls: their numbers, and the registers of their arguments.
	mmap, munmap, madvise, sigaction, memfdCreate, close, sigreturn uint64
	args                                                            func(*unix.PtraceRegs) [6]*uint64

	entries []entry  // instructions that make a call and return, the best first
	back    []string // instructions that make sigreturn

	// interrupted tells the calls that fail with EINTR after a stop instead of
	// going on (signal(7), "Interruption of system calls and library functions by
	// stop signals"), although no handler ran.
	interrupted func(*unix.PtraceRegs) bool

	// A signal frame: what stands before the vector registers, and of these before the
	// state that XSAVE has; where frameMark goes; and where the stack pointer is when
	// the frame is returned to, without words that are popped before.
	frame     func(f *signalFrame, b []byte)
	frameSize int
	vector    func(tid int) ([]byte, error)
	note, top int

	// A signal action as the kernel takes it, and as target.Action has it.
	actionSize int
	pack       func(target.Action) []byte
	unpack     func([]byte) target.Action

	// loop is code, for an address, that passes some time and leads to another.
	loop func(at, next uint64) []byte
}

// entry is code that makes a system call, and takes words off the stack before it
// returns.
type entry struct {
	code string
	pops int
}

var abis = map[*arch.Arch]*abi{arch.AMD64: abi64, arch.I386: abi32}

func (p *Process) abi() *abi { return abis[p.arch] }

// word is a value as a register of the machine holds it.
func (a *abi) word(v uint64) uint64 {
	if a.machine.PtrSize == 4 {
		return uint64(uint32(v))
	}
	return v
}

// archRegs and userRegs carry registers between the kernel's order and ours.
func (a *abi) archRegs(u *unix.PtraceRegs, r *arch.Regs) {
	r[arch.AX], r[arch.BX], r[arch.CX], r[arch.DX] = u.Rax, u.Rbx, u.Rcx, u.Rdx
	r[arch.SI], r[arch.DI], r[arch.BP], r[arch.SP] = u.Rsi, u.Rdi, u.Rbp, u.Rsp
	r[arch.R8], r[arch.R9], r[arch.R10], r[arch.R11] = u.R8, u.R9, u.R10, u.R11
	r[arch.R12], r[arch.R13], r[arch.R14], r[arch.R15] = u.R12, u.R13, u.R14, u.R15
	r[arch.IP], r[arch.FLAGS], r[arch.CS], r[arch.SS] = u.Rip, u.Eflags, u.Cs, u.Ss
	r[arch.DS], r[arch.ES], r[arch.FS], r[arch.GS] = u.Ds, u.Es, u.Fs, u.Gs
	r[arch.FSBase], r[arch.GSBase], r[arch.OrigAX] = u.Fs_base, u.Gs_base, u.Orig_rax
	if a.machine.PtrSize == 4 {
		for i := range r {
			r[i] = uint64(uint32(r[i]))
		}
		clear(r[arch.R8 : arch.R15+1])
	}
}

func (a *abi) userRegs(r *arch.Regs, u *unix.PtraceRegs) {
	u.Rax, u.Rbx, u.Rcx, u.Rdx = r[arch.AX], r[arch.BX], r[arch.CX], r[arch.DX]
	u.Rsi, u.Rdi, u.Rbp, u.Rsp = r[arch.SI], r[arch.DI], r[arch.BP], r[arch.SP]
	u.R8, u.R9, u.R10, u.R11 = r[arch.R8], r[arch.R9], r[arch.R10], r[arch.R11]
	u.R12, u.R13, u.R14, u.R15 = r[arch.R12], r[arch.R13], r[arch.R14], r[arch.R15]
	u.Rip, u.Eflags, u.Cs, u.Ss = r[arch.IP], r[arch.FLAGS], r[arch.CS], r[arch.SS]
	u.Ds, u.Es, u.Fs, u.Gs = r[arch.DS], r[arch.ES], r[arch.FS], r[arch.GS]
	u.Fs_base, u.Gs_base, u.Orig_rax = r[arch.FSBase], r[arch.GSBase], r[arch.OrigAX]
	if a.machine.PtrSize == 4 {
		// Where a call's number and result are negative, the kernel has them so in 64 bits.
		u.Rax, u.Orig_rax = uint64(int32(u.Rax)), uint64(int32(u.Orig_rax))
	}
}

// abi64 is x86-64's own.
var abi64 = &abi{
	machine: arch.AMD64,
	audit:   0xc000003e, // AUDIT_ARCH_X86_64

	mmap: unix.SYS_MMAP, munmap: unix.SYS_MUNMAP, madvise: unix.SYS_MADVISE, sigaction: unix.SYS_RT_SIGACTION,
	memfdCreate: unix.SYS_MEMFD_CREATE, close: unix.SYS_CLOSE, sigreturn: unix.SYS_RT_SIGRETURN,
	args: func(r *unix.PtraceRegs) [6]*uint64 {
		return [6]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}
	},
	entries: []entry{{"\x0f\x05\xc3", 0}, {"\x0f\x05", 0}}, // syscall; ret
	back: []string{
		"\xb8\x0f\x00\x00\x00\x0f\x05",         // mov $15, %eax; syscall
		"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", // mov $15, %rax; syscall
	},
	interrupted: func(r *unix.PtraceRegs) bool { return interrupted64[r.Orig_rax] },

	frame: frame64, frameSize: frameSize, note: frameNote,
	vector: func(int) ([]byte, error) { return nil, nil },

	actionSize: len(target.Action{}),
	pack:       func(a target.Action) []byte { return a[:] },
	unpack:     func(b []byte) target.Action { return target.Action(b) },

	loop: func(_, next uint64) []byte {
		b := []byte{
			0x48, 0x8d, 0x64, 0x24, 0x80, // lea rsp, [rsp-128]: over the red zone
			0x51,             // push rcx
			0xb9, 0, 0, 0, 0, // mov ecx, loopRounds
			0xf3, 0x90, // pause
			0xe2, 0xfc, // loop back to it; it leaves the flags alone
			0x59,                                           // pop rcx
			0x48, 0x8d, 0xa4, 0x24, 0x80, 0x00, 0x00, 0x00, // lea rsp, [rsp+128]
			0xff, 0x25, 0x00, 0x00, 0x00, 0x00, // jmp [rip]
		}
		binary.LittleEndian.PutUint32(b[7:], loopRounds)
		return binary.LittleEndian.AppendUint64(b, next)
	},
}

var interrupted64 = map[uint64]bool{
	unix.SYS_EPOLL_WAIT: true, unix.SYS_EPOLL_PWAIT: true, unix.SYS_EPOLL_PWAIT2: true,
	unix.SYS_SEMOP: true, unix.SYS_SEMTIMEDOP: true,
	unix.SYS_RT_SIGTIMEDWAIT: true,
	unix.SYS_IO_GETEVENTS:    true, unix.SYS_IO_PGETEVENTS: true,
	unix.SYS_MSGRCV: true, unix.SYS_MSGSND: true,
	unix.SYS_READ: true, unix.SYS_RECVFROM: true, unix.SYS_RECVMSG: true, // inotify; sockets with a timeout
	unix.SYS_ACCEPT: true, unix.SYS_ACCEPT4: true, unix.SYS_RECVMMSG: true,
	unix.SYS_SENDTO: true, unix.SYS_SENDMSG: true,
}
