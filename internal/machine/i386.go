package machine

import (
	"debug/elf"

	"kprobe/arch"
	"kprobe/internal/cabi"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/jit"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// i386Machine has the 32-bit programs that kernels of x86-64 run, too.
var i386Machine = &Machine{
	Arch: arch.I386, ELF: elf.EM_386, ISA: amd64.New(arch.I386),
	C: &cabi.Machine{Structs: cabi.InMemory},
	Sigreturns: untouchable.Sigreturns{
		{0xb8, 0xad, 0, 0, 0, 0xcd, 0x80},       // mov $173,%eax; int $0x80
		{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}, // pop %eax; mov $119,%eax; int $0x80
	},
	Lifeline: lifeline.I386,
	Code:     jit.I386,
	Detours:  x86code.I386,
}
