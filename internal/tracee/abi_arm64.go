//go:build linux && arm64

package tracee

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// ABIs are the records of the programs that this machine runs.
var ABIs = []*ABI{abiARM64}

// What can be probed here.
const (
	ThisMachine = "arm64"
	ProgramsOf  = "64-bit arm64"
)

// abiARM64 is that of AArch64: the call's number in x8, arguments from x0 on, the result in x0.
var abiARM64 = &ABI{
	Machine: arch.ARM64, Lifeline: lifeline.ARM64, Name: "64-bit arm64", callLen: 4,
	Audit: 0xc00000b7, // AUDIT_ARCH_AARCH64

	Mmap: unix.SYS_MMAP, Munmap: unix.SYS_MUNMAP, Madvise: unix.SYS_MADVISE, Sigaction: unix.SYS_RT_SIGACTION,
	MemfdCreate: unix.SYS_MEMFD_CREATE, Close: unix.SYS_CLOSE, Shmat: unix.SYS_SHMAT, sigreturn: unix.SYS_RT_SIGRETURN,
	Args: func(r *Registers) [6]*uint64 {
		return [6]*uint64{&r.x[0], &r.x[1], &r.x[2], &r.x[3], &r.x[4], &r.x[5]}
	},
	Entries: []entry{
		{"\x01\x00\x00\xd4\xc0\x03\x5f\xd6", 0}, // svc #0; ret
		{"\x01\x00\x00\xd4", 0},
	},
	Back:        []string{"\x68\x11\x80\xd2\x01\x00\x00\xd4"}, // mov x8, #139; svc #0: the vDSO has it
	interrupted: interruptedBut((*Registers).number, unix.SYS_SEMOP, unix.SYS_ACCEPT),

	restart:  unix.SYS_RESTART_SYSCALL,
	restarts: []uint64{unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP},

	Note: 0, // in a siginfo, which nobody reads
	top:  0,

	ActionSize: len(target.Action{}),
	Pack:       func(a target.Action) []byte { return a[:] },
	Unpack:     func(b []byte) target.Action { return target.Action(b) },
}
