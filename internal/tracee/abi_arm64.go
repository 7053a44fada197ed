//go:build linux && arm64

package tracee

import (
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
var abiARM64 = generic(ABI{
	Machine: arch.ARM64, Lifeline: lifeline.ARM64, Name: "64-bit arm64",
	Audit: 0xc00000b7, // AUDIT_ARCH_AARCH64

	Entries: []entry{
		{"\x01\x00\x00\xd4\xc0\x03\x5f\xd6", 0}, // svc #0; ret
		{"\x01\x00\x00\xd4", 0},
	},
	Back: []string{"\x68\x11\x80\xd2\x01\x00\x00\xd4"}, // mov x8, #139; svc #0: the vDSO has it

	ActionSize: len(target.Action{}),
	Pack:       func(a target.Action) []byte { return a[:] },
	Unpack:     func(b []byte) target.Action { return target.Action(b) },
})
