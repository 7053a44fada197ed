package machine

import (
	"debug/elf"
	"slices"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/cpu"
	"kprobe/internal/goabi"
	"kprobe/internal/isa/riscv64"
	"kprobe/internal/jit"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// riscv64Machine is RV64 with compressed instructions.
var riscv64Machine = &Machine{
	Arch: arch.RISCV64, ELF: elf.EM_RISCV, ISA: riscv64.ISA,
	CPU: cpu.RISCV64,
	C:   &cabi.Machine{Floats: cabi.InRow(10, 8), FloatsAsInt: true, Structs: cabi.LP64D},
	Go: &goabi.Machine{
		Ints:   arch.RISCV64.GoArgs,
		Floats: slices.Concat(cabi.InRow(10, 8), cabi.InRow(8, 2), cabi.InRow(18, 6)), G: 27, Frame: 8,
	},
	Sigreturns: untouchable.Sigreturns{
		{0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0}, // li a7, 139; ecall
	},
	Lifeline: lifeline.RISCV64,
	Code:     jit.RISCV64,
}
