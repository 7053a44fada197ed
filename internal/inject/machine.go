package inject

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/jit"
)

// machine is what detours and the routines beside them need to know of a machine. What
// they share with the controller is the same for all: words have 8 bytes, of which 32-bit
// code uses the lower half where they are addresses, and the upper one stays 0.
type machine struct {
	arch *arch.Arch
	abi  *jit.ABI

	// The routines, from testdata: the code, where each begins, and where to go on from
	// an instruction that may fault.
	runtime  []byte
	routines map[string]int
	faults   map[int]int
	// What they are assembled with, besides names. Slots are a word apart, and entries of the
	// grave 32 bytes: that is GRAVE_SHIFT.
	names map[string]int64

	fixed map[int]uint64 // words of the context that have always one value
}

// Serves tells whether detours are made for a machine; the error says that they are not.
func Serves(a *arch.Arch) error {
	if machines[a] == nil {
		return fmt.Errorf("detours are not made for %s", a.Name)
	}
	return nil
}

func (m *machine) narrow() bool { return m.arch.PtrSize == 4 }

const notASyscall = ^uint64(0)

var machines = map[*arch.Arch]*machine{
	arch.AMD64: {
		arch: arch.AMD64, abi: jit.ABIs[arch.AMD64],
		runtime: amd64Runtime, routines: amd64Routines, faults: amd64Faults,
		names: map[string]int64{"SYS_GETTID": 186, "GRAVE_SHIFT": 2},
		fixed: map[int]uint64{15: notASyscall, 17: 0x33, 20: 0x2b}, // orig_rax; cs and ss of Linux's 64-bit programs
	},
	arch.I386: {
		arch: arch.I386, abi: jit.ABIs[arch.I386],
		runtime: i386Runtime, routines: i386Routines, faults: i386Faults,
		names: map[string]int64{"SYS_GETTID": 224, "GRAVE_SHIFT": 3, "STATE_REGS": jit.StateRegs, "SCRATCH": stateScratch},
		fixed: map[int]uint64{15: notASyscall, 17: 0x23, 20: 0x2b}, // of its 32-bit programs
	},
}
