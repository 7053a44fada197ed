//go:build linux && arm64

package ptrace

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

var abis = map[*arch.Arch]*abi{arch.ARM64: abiARM64}

// What can be probed here.
const (
	thisMachine = "arm64"
	programsOf  = "64-bit arm64"
)

// abiARM64 is that of AArch64: the call's number in x8, arguments from x0 on, the result in x0.
var abiARM64 = &abi{
	machine: arch.ARM64, name: "64-bit arm64", callLen: 4,
	audit: 0xc00000b7, // AUDIT_ARCH_AARCH64

	mmap: unix.SYS_MMAP, munmap: unix.SYS_MUNMAP, madvise: unix.SYS_MADVISE, sigaction: unix.SYS_RT_SIGACTION,
	memfdCreate: unix.SYS_MEMFD_CREATE, close: unix.SYS_CLOSE, sigreturn: unix.SYS_RT_SIGRETURN,
	args: func(r *registers) [6]*uint64 {
		return [6]*uint64{&r.x[0], &r.x[1], &r.x[2], &r.x[3], &r.x[4], &r.x[5]}
	},
	entries: []entry{
		{"\x01\x00\x00\xd4\xc0\x03\x5f\xd6", 0}, // svc #0; ret
		{"\x01\x00\x00\xd4", 0},
	},
	back:        []string{"\x68\x11\x80\xd2\x01\x00\x00\xd4"}, // mov x8, #139; svc #0: the vDSO has it
	interrupted: func(r *registers) bool { return interruptedGeneric[r.number()] },

	note: 0, // in a siginfo, which nobody reads
	top:  0,

	actionSize: len(target.Action{}),
	pack:       func(a target.Action) []byte { return a[:] },
	unpack:     func(b []byte) target.Action { return target.Action(b) },
}
