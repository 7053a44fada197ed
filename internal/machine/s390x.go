package machine

import (
	"debug/elf"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/cpu"
	"kprobe/internal/isa/s390x"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// s390xMachine is z/Architecture, with the most significant byte first.
var s390xMachine = &Machine{
	Arch: arch.S390X, ELF: elf.EM_S390, ISA: s390x.ISA,
	CPU: cpu.S390X,
	C:   &cabi.Machine{Floats: []int{0, 2, 4, 6}, Structs: cabi.ZELF},
	Sigreturns: untouchable.Sigreturns{
		{0x0a, 0xad}, // svc 173
	},
	Lifeline: lifeline.S390X,
}
