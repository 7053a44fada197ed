package machine

import (
	"debug/elf"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/internal/isa/mips"
	"kprobe/internal/isa/ppc64le"
)

// The machines whose programs are probed behind a stub alone, in place.
var (
	mips64leMachine = &Machine{Arch: arch.MIPS64LE, ELF: elf.EM_MIPS, ISA: mips.MIPS64LE, CPU: cpu.MIPS64LE}
	mipsleMachine   = &Machine{Arch: arch.MIPSLE, ELF: elf.EM_MIPS, ISA: mips.MIPSLE, CPU: cpu.MIPSLE}
	ppcMachine      = &Machine{Arch: arch.PPC, ELF: elf.EM_PPC, ISA: ppc64le.PPC, CPU: cpu.PPC}
)
