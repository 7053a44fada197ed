package machine

import (
	"debug/elf"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/cpu"
	"kprobe/internal/goabi"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/jit"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// amd64Machine has every part.
var amd64Machine = &Machine{
	Arch: arch.AMD64, ELF: elf.EM_X86_64, ISA: amd64.ISA,
	CPU: cpu.AMD64,
	C:   &cabi.Machine{Floats: cabi.InRow(0, 8), Structs: cabi.Eightbytes},
	Go: &goabi.Machine{
		Ints:   arch.AMD64.GoArgs,
		Floats: cabi.InRow(0, 15), G: arch.R14, Apart: true,
	},
	Sigreturns: untouchable.Sigreturns{
		{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, // mov $15,%rax; syscall
		{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},             // mov $15,%eax; syscall
	},
	Lifeline: lifeline.AMD64,
	Code:     jit.AMD64,
	Detours:  x86code.AMD64,
}
