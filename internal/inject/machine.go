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

	// build makes a detour. Errors: of Tail; what the machine's detours do not do.
	build func(d *Detour, silent bool) (*generated, error)
	// flags are a thread's, made of what the flags register and the scratch register have.
	flags func(at flagsAt, now, scratch uint64) uint64

	// What programs need; nil and empty where detours only count.
	abi *jit.ABI
	// fixed are the words of the context that have always one value.
	fixed map[int]uint64
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

// Serves tells whether detours are made for a machine; the error says that they are not.
func Serves(a *arch.Arch) error {
	if machines[a] == nil {
		return fmt.Errorf("detours are not made for %s", a.Name)
	}
	return nil
}

// Runs tells whether detours of a machine call programs; the error says that they do not.
func Runs(a *arch.Arch) error {
	if err := Serves(a); err != nil {
		return err
	}
	if machines[a].abi == nil {
		return fmt.Errorf("detours for %s only count", a.Name)
	}
	return nil
}

// Together tells whether detours of a machine that only count do so for all threads together: the segment has
// to be told (Open).
func Together(a *arch.Arch) bool { return a == arch.ARM64 }

// Watches tells whether detours of a machine watch calls, from a function's entry to its return; the
// error says that they do not.
func Watches(a *arch.Arch) error {
	if err := Runs(a); err != nil {
		return err
	}
	if !machines[a].returns {
		return fmt.Errorf("detours for %s run programs where they stand, and watch no calls: a return probe has handlers", a.Name)
	}
	return nil
}

// returnTo is where a program's return address is that runs in a state: x86 has it where the call has put it, below
// the private stack's beginning, and arm64 beside the program's own stack pointer, for the detour to go by.
func (m *machine) returnTo(state arch.Addr) arch.Addr {
	if m.arch == arch.ARM64 {
		return state - m.targetSP() + a64BackAt
	}
	return state - m.targetSP() - arch.Addr(m.arch.PtrSize)
}

// Answers tells whether a helper of package bpf can be called in targets of a machine. Those that are compiled in
// place need no routine.
func Answers(a *arch.Arch, helper int32) bool {
	name, called := helperRoutines[helper]
	if !called {
		return true
	}
	_, ok := machines[a].routines[name]
	return ok
}

// word is the offset from the state of a word of the context.
func (m *machine) word(i int) int { return 8 * (i - m.abi.Words) }

func (m *machine) narrow() bool { return m.arch.PtrSize == 4 }

// targetSP is how far below a thread's state its private stack begins: below the context, with the
// program's own stack pointer on top.
func (m *machine) targetSP() arch.Addr {
	if m.abi == nil {
		return 0
	}
	return arch.Addr(roundUp(8*m.abi.Words+8, 16))
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
	amd64Names = map[string]int64{"SYS_GETTID": 186, "USER_CS": 0x33, "USER_SS": 0x2b} // Linux's 64-bit programs'
	i386Names  = map[string]int64{"SYS_GETTID": 224, "STATE_REGS": jit.StateRegs, "SCRATCH": stateScratch, "USER_CS": 0x23, "USER_SS": 0x2b}
)

var machines = map[*arch.Arch]*machine{
	arch.AMD64: {
		arch: arch.AMD64, build: buildX86, flags: joinX86, abi: jit.ABIs[arch.AMD64], fixed: fixedX86(amd64Names), returns: true, depth: 120,
		runtime: amd64Runtime, routines: amd64Routines, faults: amd64Faults, names: amd64Names,
	},
	arch.I386: {
		arch: arch.I386, build: buildX86, flags: joinX86, abi: jit.ABIs[arch.I386], fixed: fixedX86(i386Names), returns: true, depth: 60,
		runtime: i386Runtime, routines: i386Routines, faults: i386Faults, names: i386Names,
	},
	arch.ARM64: {
		arch: arch.ARM64, build: buildARM64, flags: joinARM64, abi: jit.ABIs[arch.ARM64], returns: true, depth: 160,
		runtime: arm64Runtime, routines: arm64Routines, faults: arm64Faults,
		names: map[string]int64{"SYS_GETTID": 178, "CONTEXT_IP": int64(arch.ARM64.PC), "CONTEXT_FP": int64(arch.ARM64.FP), "CONTEXT_LINK": int64(arch.ARM64.LR)},
	},
}
