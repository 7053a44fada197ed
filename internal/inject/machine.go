package inject

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/jit"
)

// Machine is what detours and the routines beside them need to know of a machine. What
// they share with the controller is the same for all: words have 8 bytes, of which 32-bit
// code uses the lower half where they are addresses, and the upper one stays 0.
type Machine struct {
	*arch.Arch

	// build makes a detour. Errors: of Tail; what the machine's detours do not do.
	build func(d *Detour, silent bool) (*generated, error)
	// flags are a thread's, made of what the flags register and the scratch register have.
	flags func(at flagsAt, now, scratch uint64) uint64

	// What programs need; nil and empty where detours only count.
	code *jit.Machine
	// fixed are the words of the context that have always one value.
	fixed map[int]uint64
	// leaves is Leaves.
	leaves func(code []byte) (cond byte, ok bool)
	// backAt is the offset of a program's return address from the beginning of its private stack.
	backAt int
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
	if m.code == nil {
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

// returnTo is where a program's return address is that runs in a state: x86 has it where the call has put it, below
// the private stack's beginning, and arm64 beside the program's own stack pointer, for the detour to go by.
func (m *Machine) returnTo(state arch.Addr) arch.Addr {
	return state - m.targetSP() + arch.Addr(m.backAt)
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

// word is the offset from the state of a word of the context.
func (m *Machine) word(i int) int { return 8 * (i - m.code.Words) }

func (m *Machine) narrow() bool { return m.PtrSize == 4 }

// targetSP is how far below a thread's state its private stack begins: below the context, with the
// program's own stack pointer on top.
func (m *Machine) targetSP() arch.Addr {
	if m.code == nil {
		return 0
	}
	return arch.Addr(roundUp(8*m.code.Words+8, 16))
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

// The machines.
var (
	AMD64 = &Machine{
		Arch: arch.AMD64, build: buildX86, flags: joinX86, code: jit.AMD64, fixed: fixedX86(amd64Names), leaves: leavesX86, backAt: -8, returns: true, depth: 120,
		runtime: amd64Runtime, routines: amd64Routines, faults: amd64Faults, names: amd64Names,
	}
	I386 = &Machine{
		Arch: arch.I386, build: buildX86, flags: joinX86, code: jit.I386, fixed: fixedX86(i386Names), leaves: leavesX86, backAt: -4, returns: true, depth: 60,
		runtime: i386Runtime, routines: i386Routines, faults: i386Faults, names: i386Names,
	}
	ARM64 = &Machine{
		Arch: arch.ARM64, build: buildARM64, flags: joinARM64, code: jit.ARM64, leaves: leavesARM64, backAt: a64BackAt, together: true, returns: true, depth: 160,
		runtime: arm64Runtime, routines: arm64Routines, faults: arm64Faults,
		names: map[string]int64{"SYS_GETTID": 178, "CONTEXT_IP": int64(arch.ARM64.PC), "CONTEXT_FP": int64(arch.ARM64.FP), "CONTEXT_LINK": int64(arch.ARM64.LR)},
	}
)
