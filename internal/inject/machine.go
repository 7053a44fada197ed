package inject

import (
	"fmt"
	"maps"

	"kprobe/arch"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// Machine has what detours and the routines beside them need to know of a machine.
type Machine struct {
	segment.Machine // of what they share with the controller

	// build makes a detour. Errors: of Tail; what the machine's detours do not do.
	build func(d *Detour, silent bool) (*generated, error)
	// flags are a thread's, made of what the flags register and the scratch register have.
	flags func(at flagsAt, now, scratch uint64) uint64

	// What programs need; nil and empty where detours only count.
	//
	// readers makes the helpers that read a kernel's memory, to stand at an address, and tells where each begins. keep is
	// the routine that makes a stack an element. nil where kernels have no code of ours.
	readers func(r *Readers, base, keep arch.Addr) (code []byte, at map[int32]arch.Addr)
	// leaves is Leaves.
	leaves func(code []byte) (cond byte, ok bool)
	// together is Together.
	together bool
	// returns tells whether calls are watched from the entry to the return.
	returns bool
	// depth is what routines that detours call take of the program's own stack at most, with the return address.
	depth int
	// The routines, from testdata: the code, where each begins, and where to go on from
	// an instruction that may fault.
	runtime  []byte
	routines map[string]int
	faults   map[int]int
	// What they are assembled with, besides names.
	names map[string]int64
}

// Missing says what a machine without a Machine lacks.
func Missing(a *arch.Arch) error { return fmt.Errorf("detours are not made for %s", a.Name) }

// Runs tells whether the machine's detours call programs; the error says that they do not.
func (m *Machine) Runs() error {
	if m.Code == nil {
		return fmt.Errorf("detours for %s only count", m.Name)
	}
	return nil
}

// Together tells whether detours that only count do so for all threads together: the segment has
// to be told (Open).
func (m *Machine) Together() bool { return m.together }

// Watches tells whether the machine's detours watch calls, from a function's entry to its return; the
// error says that they do not.
func (m *Machine) Watches() error {
	if err := m.Runs(); err != nil {
		return err
	}
	if !m.returns {
		return fmt.Errorf("detours for %s run programs where they stand, and watch no calls: a return probe has handlers", m.Name)
	}
	return nil
}

// Leaves tells whether an instruction that leaves a function can be an Exit's: a return,
// or a direct jump; and under which condition it does (Detour.Cond).
func (m *Machine) Leaves(code []byte) (cond byte, ok bool) {
	if m == nil {
		return 0, false
	}
	return m.leaves(code)
}

// Answers tells whether a helper of package bpf can be called in targets of the machine. Those that are compiled in
// place need no routine.
func (m *Machine) Answers(helper int32) bool {
	name, called := helperRoutines[helper]
	if !called {
		return true
	}
	_, ok := m.routines[name]
	return ok
}

// The words of x86's context that have always one value: orig_rax, and the segments of code and
// stack.
const (
	wordOrigAX, wordCS, wordSS = 15, 17, 20

	notASyscall = ^uint64(0)
)

func fixedX86(names map[string]int64) map[int]uint64 {
	return map[int]uint64{wordOrigAX: notASyscall, wordCS: uint64(names["USER_CS"]), wordSS: uint64(names["USER_SS"])}
}

// What the routines of two machines are assembled with, besides names.
var (
	amd64Names = namesX86(map[string]int64{"SYS_GETTID": 186, "USER_CS": 0x33, "USER_SS": 0x2b}) // Linux's 64-bit programs'
	i386Names  = namesX86(map[string]int64{"SYS_GETTID": 224, "STATE_REGS": jit.StateRegs, "SCRATCH": segment.StateScratch, "USER_CS": 0x23, "USER_SS": 0x2b})
)

// namesX86 adds those that both have.
func namesX86(own map[string]int64) map[string]int64 {
	maps.Copy(own, map[string]int64{
		"CONTEXT_ORIG_AX": int64(word(wordOrigAX)), "CONTEXT_CS": int64(word(wordCS)), "CONTEXT_SS": int64(word(wordSS)),
		"CONTEXT_IP": wordIP, "CONTEXT_FP": wordFP, "CONTEXT_SP": wordSP,

		// Linux keeps the CPU's number in the limit of this segment: its low bits.
		"CPU_SEGMENT": 0x7b, "CPU_MASK": 0xfff,
	})
	return own
}

// The machines.
var (
	AMD64 = &Machine{
		Machine: segment.Machine{Arch: arch.AMD64, Code: jit.AMD64, Fixed: fixedX86(amd64Names), BackAt: -8},
		build:   buildX86, flags: joinX86, readers: readersX86, leaves: leavesX86, returns: true, depth: 120,
		runtime: amd64Runtime, routines: amd64Routines, faults: amd64Faults, names: amd64Names,
	}
	I386 = &Machine{
		Machine: segment.Machine{Arch: arch.I386, Code: jit.I386, Fixed: fixedX86(i386Names), BackAt: -4},
		build:   buildX86, flags: joinX86, leaves: leavesX86, returns: true, depth: 60,
		runtime: i386Runtime, routines: i386Routines, faults: i386Faults, names: i386Names,
	}
	ARM64 = &Machine{
		Machine: segment.Machine{Arch: arch.ARM64, Code: jit.ARM64, BackAt: a64BackAt},
		build:   buildARM64, flags: joinARM64, leaves: leavesARM64, together: true, returns: true, depth: 160,
		runtime: arm64Runtime, routines: arm64Routines, faults: arm64Faults,
		names: map[string]int64{"SYS_GETTID": 178, "CONTEXT_IP": int64(arch.ARM64.PC), "CONTEXT_FP": int64(arch.ARM64.FP), "CONTEXT_LINK": int64(arch.ARM64.LR)},
	}
)
