//go:build linux && amd64

package tracee

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// ABIs are the records of the programs that this machine runs.
var ABIs = []*ABI{ABI64, abi32}

// ArchRegs and UserRegs carry registers between the kernel's order and ours.
func (a *ABI) ArchRegs(u *Registers, r *arch.Regs) {
	r[arch.AX], r[arch.BX], r[arch.CX], r[arch.DX] = u.Rax, u.Rbx, u.Rcx, u.Rdx
	r[arch.SI], r[arch.DI], r[arch.BP], r[arch.SP] = u.Rsi, u.Rdi, u.Rbp, u.Rsp
	r[arch.R8], r[arch.R9], r[arch.R10], r[arch.R11] = u.R8, u.R9, u.R10, u.R11
	r[arch.R12], r[arch.R13], r[arch.R14], r[arch.R15] = u.R12, u.R13, u.R14, u.R15
	r[arch.IP], r[arch.FLAGS], r[arch.CS], r[arch.SS] = u.Rip, u.Eflags, u.Cs, u.Ss
	r[arch.DS], r[arch.ES], r[arch.FS], r[arch.GS] = u.Ds, u.Es, u.Fs, u.Gs
	r[arch.FSBase], r[arch.GSBase], r[arch.OrigAX] = u.Fs_base, u.Gs_base, u.Orig_rax
	if a.Machine.PtrSize == 4 {
		for i := range r {
			r[i] = uint64(uint32(r[i]))
		}
		clear(r[arch.R8 : arch.R15+1])
	}
}

// UserRegs is the other way.
func (a *ABI) UserRegs(r *arch.Regs, u *Registers) {
	u.Rax, u.Rbx, u.Rcx, u.Rdx = r[arch.AX], r[arch.BX], r[arch.CX], r[arch.DX]
	u.Rsi, u.Rdi, u.Rbp, u.Rsp = r[arch.SI], r[arch.DI], r[arch.BP], r[arch.SP]
	u.R8, u.R9, u.R10, u.R11 = r[arch.R8], r[arch.R9], r[arch.R10], r[arch.R11]
	u.R12, u.R13, u.R14, u.R15 = r[arch.R12], r[arch.R13], r[arch.R14], r[arch.R15]
	u.Rip, u.Eflags, u.Cs, u.Ss = r[arch.IP], r[arch.FLAGS], r[arch.CS], r[arch.SS]
	u.Ds, u.Es, u.Fs, u.Gs = r[arch.DS], r[arch.ES], r[arch.FS], r[arch.GS]
	u.Fs_base, u.Gs_base, u.Orig_rax = r[arch.FSBase], r[arch.GSBase], r[arch.OrigAX]
	if a.Machine.PtrSize == 4 {
		// Where a call's number and result are negative, the kernel has them so in 64 bits.
		u.Rax, u.Orig_rax = uint64(int32(u.Rax)), uint64(int32(u.Orig_rax))
	}
}

// ABI64 is x86-64's own.
var ABI64 = &ABI{
	Machine: arch.AMD64, Lifeline: lifeline.AMD64, Name: "64-bit x86-64", callLen: 2,
	Audit: 0xc000003e, // AUDIT_ARCH_X86_64

	Mmap: unix.SYS_MMAP, Munmap: unix.SYS_MUNMAP, Madvise: unix.SYS_MADVISE, Sigaction: unix.SYS_RT_SIGACTION,
	MemfdCreate: unix.SYS_MEMFD_CREATE, Close: unix.SYS_CLOSE, Shmat: unix.SYS_SHMAT, sigreturn: unix.SYS_RT_SIGRETURN,
	Args: func(r *Registers) [6]*uint64 {
		return [6]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9}
	},
	Entries: []entry{{"\x0f\x05\xc3", 0}, {"\x0f\x05", 0}}, // syscall; ret
	Back: []string{
		"\xb8\x0f\x00\x00\x00\x0f\x05",         // mov $15, %eax; syscall
		"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", // mov $15, %rax; syscall
	},
	interrupted: interruptedBut(func(r *Registers) uint64 { return r.Orig_rax }, unix.SYS_EPOLL_WAIT, unix.SYS_SEMOP, unix.SYS_ACCEPT),

	restart:  unix.SYS_RESTART_SYSCALL,
	restarts: []uint64{unix.SYS_POLL, unix.SYS_NANOSLEEP, unix.SYS_FUTEX, unix.SYS_CLOCK_NANOSLEEP},

	frameForm: frameForm{frame64, frameSize, func(int) ([]byte, error) { return nil, nil }}, Note: frameNote,

	ActionSize: len(target.Action{}),
	Pack:       func(a target.Action) []byte { return a[:] },
	Unpack:     func(b []byte) target.Action { return target.Action(b) },

	loop: func(l *Loop) []byte {
		le, r := binary.LittleEndian, &l.Real
		b := le.AppendUint32([]byte{0xb9}, loopRounds) // mov ecx, loopRounds
		b = append(b,
			0xf3, 0x90, // pause
			0xe2, 0xfc, // loop back to it; it leaves the flags alone, as all does here
		)
		if l.MayCall { // it sleeps instead
			b = le.AppendUint32([]byte{
				0xb8, unix.SYS_POLL, 0, 0, 0, // mov eax, poll
				0xbf, 0, 0, 0, 0, // mov edi, 0: nothing
				0xbe, 0, 0, 0, 0, // mov esi, 0
				0xba, // mov edx, its length
			}, uint32(LoopSleep.Milliseconds()))
			b = append(b, 0x0f, 0x05) // syscall
		}
		b = append(b,
			0xb8, unix.SYS_RT_SIGPROCMASK, 0, 0, 0, // mov eax, rt_sigprocmask
			0xbf, sigSetMask, 0, 0, 0, // mov edi, SIG_SETMASK
			0x48, 0x8d, 0x35, 13+6*10+6, 0, 0, 0, // lea rsi, [rip+...]: the mask
			0xba, 0, 0, 0, 0, // mov edx, 0
			0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8
			0x0f, 0x05, // syscall
		)
		for _, own := range []struct {
			mov string
			v   uint64
		}{{"\x48\xb8", r.Rax}, {"\x48\xb9", r.Rcx}, {"\x48\xba", r.Rdx}, {"\x48\xbe", r.Rsi}, {"\x48\xbf", r.Rdi}, {"\x49\xba", r.R10}} {
			b = le.AppendUint64(append(b, own.mov...), own.v)
		}
		b = append(b, 0xff, 0x25, 8, 0, 0, 0) // jmp [rip+8]: over the mask
		return le.AppendUint64(le.AppendUint64(b, l.Mask), r.Rip)
	},
}
