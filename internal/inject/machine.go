package inject

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/segment"
)

// Machine has what detours and the routines beside them need to know of a machine.
type Machine struct {
	segment.Machine // of what they share with the controller

	// Build makes a detour; silent has it note no points. Errors: of Tail; what the machine's detours do not do.
	Build func(d *Detour, silent bool) (*Generated, error)
	// Join makes a thread's flags of what the flags register and Scratch have.
	Join func(at FlagsAt, now, scratch uint64) uint64
	// Key and Scratch are registers that detours work with: see StackInKey and Join. Status tells whether a
	// store exclusive has failed.
	Key, Scratch, Status arch.Reg

	// What programs need; nil and empty where detours only count.
	//
	// Reading makes the helpers that read a kernel's memory, to stand at an address, and tells where each begins. keep is
	// the routine that makes a stack an element. nil where kernels have no code of ours.
	Reading func(r *Readers, base, keep arch.Addr) (code []byte, at map[int32]arch.Addr)
	// StackContext are the words of the context that Readers.Stack may want: a kernel's table of callers counts from any register.
	StackContext uint64
	// Leaving is Leaves.
	Leaving func(code []byte) (cond byte, ok bool)
	// CountsTogether tells whether detours that only count do so of all threads together.
	CountsTogether bool
	// Returns tells whether calls are watched from the entry to the return.
	Returns bool
	// Depth is the most that routines called by detours take of the program's own stack, in bytes, with the return address.
	Depth int
	// The routines, from testdata: the code, where each begins, and where to go on from
	// an instruction that may fault.
	Runtime  []byte
	Routines map[string]int
	Faults   map[int]int
	// Pairs are the exclusives in them.
	Pairs []Pair
	// What they are assembled with, besides names.
	Names map[string]int64
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
func (m *Machine) Together() bool { return m.CountsTogether }

// Watches tells whether the machine's detours watch calls, from a function's entry to its return; the
// error says that they do not.
func (m *Machine) Watches() error {
	if err := m.Runs(); err != nil {
		return err
	}
	if !m.Returns {
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
	return m.Leaving(code)
}

// Answers tells whether a helper of package bpf can be called in targets of the machine. Those that are compiled in
// place need no routine.
func (m *Machine) Answers(helper int32) bool {
	name, called := helperRoutines[helper]
	if !called {
		return true
	}
	_, ok := m.Routines[name]
	return ok
}
