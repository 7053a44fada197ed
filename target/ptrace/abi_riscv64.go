//go:build linux && riscv64

package ptrace

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

var abis = map[*arch.Arch]*abi{arch.RISCV64: abiRISCV64}

// What can be probed here.
const (
	thisMachine = "riscv64"
	programsOf  = "64-bit riscv64"
)

// abiRISCV64 is that of RV64: the call's number in a7, arguments from a0 on, the result in a0.
var abiRISCV64 = &abi{
	machine: arch.RISCV64, name: "64-bit riscv64", callLen: 4,
	audit: 0xc00000f3, // AUDIT_ARCH_RISCV64

	mmap: unix.SYS_MMAP, munmap: unix.SYS_MUNMAP, madvise: unix.SYS_MADVISE, sigaction: unix.SYS_RT_SIGACTION,
	memfdCreate: unix.SYS_MEMFD_CREATE, close: unix.SYS_CLOSE, sigreturn: unix.SYS_RT_SIGRETURN,
	args: func(r *registers) [6]*uint64 {
		return [6]*uint64{r.x(10), r.x(11), r.x(12), r.x(13), r.x(14), r.x(15)}
	},
	entries: []entry{
		{"\x73\x00\x00\x00\x82\x80", 0},         // ecall; c.ret
		{"\x73\x00\x00\x00\x67\x80\x00\x00", 0}, // ecall; ret
		{"\x73\x00\x00\x00", 0},
	},
	back:        []string{"\x93\x08\xb0\x08\x73\x00\x00\x00"}, // li a7, 139; ecall: the vDSO has it
	interrupted: func(r *registers) bool { return interruptedGeneric[r.number()] },

	note: 0, // in a siginfo, which nobody reads
	top:  0,

	// The kernel's struct sigaction has no restorer here, which target.Action has in its third word.
	actionSize: 24,
	pack:       func(a target.Action) []byte { return append(append([]byte{}, a[:16]...), a[24:]...) },
	unpack: func(b []byte) (a target.Action) {
		copy(a[:16], b)
		copy(a[24:], b[16:24])
		return a
	},
}
