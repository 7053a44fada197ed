//go:build linux && amd64

package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

var abis = map[*arch.Arch]*abi{arch.AMD64: abi64, arch.I386: abi32}

// archRegs and userRegs carry registers between the kernel's order and ours.
func (a *abi) archRegs(u *registers, r *arch.Regs) {
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

func (a *abi) userRegs(r *arch.Regs, u *registers) {
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
	machine: arch.AMD64, name: "64-bit x86-64", callLen: 2,
	audit: 0xc000003e, // AUDIT_ARCH_X86_64

	mmap: unix.SYS_MMAP, munmap: unix.SYS_MUNMAP, madvise: unix.SYS_MADVISE, sigaction: unix.SYS_RT_SIGACTION,
	memfdCreate: unix.SYS_MEMFD_CREATE, close: unix.SYS_CLOSE, sigreturn: unix.SYS_RT_SIGRETURN,
	args: func(r *registers) [6]*uint64 {
		return [6]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}
	},
	entries: []entry{{"\x0f\x05\xc3", 0}, {"\x0f\x05", 0}}, // syscall; ret
	back: []string{
		"\xb8\x0f\x00\x00\x00\x0f\x05",         // mov $15, %eax; syscall
		"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", // mov $15, %rax; syscall
	},
	interrupted: func(r *registers) bool { return interrupted64[r.Orig_rax] },

	frameForm: frameForm{frame64, frameSize, func(int) ([]byte, error) { return nil, nil }}, note: frameNote,

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
