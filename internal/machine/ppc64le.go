package machine

import (
	"debug/elf"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/internal/isa/ppc64le"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// ppc64leMachine is 64-bit Power, with the least significant byte first.
var ppc64leMachine = &Machine{
	Arch: arch.PPC64LE, ELF: elf.EM_PPC64, ISA: ppc64le.ISA,
	CPU: cpu.PPC64LE,
	Sigreturns: untouchable.Sigreturns{
		{0x80, 0x00, 0x21, 0x38, 0xac, 0x00, 0x00, 0x38, 0x02, 0x00, 0x00, 0x44}, // addi r1, r1, 128; li r0, 172; sc
	},
	Lifeline: lifeline.PPC64LE,
}
