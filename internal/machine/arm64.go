package machine

import (
	"debug/elf"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/cpu"
	"kprobe/internal/goabi"
	arm64code "kprobe/internal/inject/arm64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/jit"
	"kprobe/internal/lifeline"
)

// arm64Machine is AArch64: all of its instructions have four bytes.
var arm64Machine = &Machine{
	Arch: arch.ARM64, ELF: elf.EM_AARCH64, ISA: arm64.ISA,
	CPU: cpu.ARM64,
	C:   &cabi.Machine{Floats: cabi.InRow(0, 8), Structs: cabi.AAPCS64},
	Go: &goabi.Machine{
		Ints:   arch.ARM64.GoArgs,
		Floats: cabi.InRow(0, 16), G: 28, Frame: 8, // for the link register
	},
	Lifeline: lifeline.ARM64,
	Code:     jit.ARM64,
	Detours:  arm64code.ARM64,
}
