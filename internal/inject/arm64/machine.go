package arm64

import (
	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// ARM64 has detours that count, run programs, and watch calls at functions' exits.
var ARM64 = &inject.Machine{
	Machine: segment.Machine{Arch: arch.ARM64, Code: jit.ARM64, BackAt: a64BackAt},
	Build:   buildARM64, Join: joinARM64, Status: StatusReg,
	Leaving: leavesARM64, CountsTogether: true, Returns: true, Depth: 160,
	Runtime: arm64Runtime, Routines: arm64Routines, Faults: arm64Faults, Pairs: pairs,
	Names: map[string]int64{"SYS_GETTID": 178, "CONTEXT_IP": int64(arch.ARM64.PC), "CONTEXT_FP": int64(arch.ARM64.FP), "CONTEXT_LINK": int64(arch.ARM64.LR)},
}
