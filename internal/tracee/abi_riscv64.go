//go:build linux && riscv64

package tracee

import (
	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// ABIs are the records of the programs that this machine runs.
var ABIs = []*ABI{abiRISCV64}

// What can be probed here.
const (
	ThisMachine = "riscv64"
	ProgramsOf  = "64-bit riscv64"
)

// abiRISCV64 is that of RV64: the call's number in a7, arguments from a0 on, the result in a0.
var abiRISCV64 = generic(ABI{
	Machine: arch.RISCV64, Lifeline: lifeline.RISCV64, Name: "64-bit riscv64",
	Audit: 0xc00000f3, // AUDIT_ARCH_RISCV64

	Entries: []entry{
		{"\x73\x00\x00\x00\x82\x80", 0},         // ecall; c.ret
		{"\x73\x00\x00\x00\x67\x80\x00\x00", 0}, // ecall; ret
		{"\x73\x00\x00\x00", 0},
	},
	Back: []string{"\x93\x08\xb0\x08\x73\x00\x00\x00"}, // li a7, 139; ecall: the vDSO has it

	// The kernel's struct sigaction has no restorer here, which target.Action has in its third word.
	ActionSize: 24,
	Pack:       func(a target.Action) []byte { return append(append([]byte{}, a[:16]...), a[24:]...) },
	Unpack: func(b []byte) (a target.Action) {
		copy(a[:16], b)
		copy(a[24:], b[16:24])
		return a
	},
})
