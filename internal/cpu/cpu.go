// Package cpu has one record for each machine of what its CPUs show of the system to a client of a
// stub: where they find their memory, which task they run, and which exception they have taken. It
// asks a CPU that stands, and knows no stub.
package cpu

import (
	"debug/elf"
	"fmt"
	"slices"

	"kprobe/arch"
)

// Machine is a machine as stubs and their clients see it. What a machine lacks is nil, zero or
// false.
type Machine struct {
	Arch *arch.Arch
	Name string // in a stub's description; QEMU and gdbserver use BFD's names. "" where none is described

	// File is the machine of a program that shows it, where no registers are described.
	File elf.Machine

	// Clone and Clone3 are the numbers of the calls by which a child gets the very memory; 0 where it
	// is not known.
	Clone, Clone3 uint64

	Paging *Paging // nil: how kernels find their memory is not known
	Kernel Kernel
}

// Kernel is a machine as its kernels go about it. One of which nothing is known has the zero Kernel:
// its kernels are probed by stops, and tasks are found by the kernel's own variables.
type Kernel struct {
	// Task asks a CPU for the task that it runs, where the kernel keeps that in a register. 0: it runs
	// no kernel. nil: no register tells.
	Task func(Registers) (arch.Addr, error)

	// Excepted tells of a CPU at the very first instruction of a handler which exception of the
	// kernel's own instructions brought it there, and the registers at that instruction.
	Excepted func(Exception) (trap int, at arch.Regs, ok bool)

	// Inside tells that code of ours can be in the guest, ORC that the kernel's rules for stacks are
	// read, and Counter that its clock is the processor's counter.
	Inside, ORC, Counter bool

	// Moves are the addresses that kernels may be moved to; nil: they are not known.
	Moves *Moves

	Text Text
}

// Moves are the ends of a range of addresses, and by which steps kernels move in it, in bytes.
type Moves struct {
	Start, End arch.Addr
	Step       uint64
}

// Text says what kernels rewrite of their code, and forbid.
type Text struct {
	Sizes      Sizes
	ShortJumps bool // jump labels may have two bytes

	// Areas are sections that are blacklisted (arch_populate_kprobe_blacklist).
	Areas []string
}

// Sizes count the bytes that are rewritten, by what for. FtraceAt is the beginning of ftrace's, seen
// from the address in its record.
type Sizes struct{ FtraceAt, Ftrace, Jump, Call, Bug int }

// Registers are those of a CPU that stands.
type Registers interface {
	// Register is the value of one, by QEMU's name of it.
	Register(name string) (uint64, error)
}

// Memory is a CPU's way to physical memory.
type Memory interface {
	Registers

	// Entry is the entry of a page table at a physical address.
	Entry(phys uint64) (uint64, error)
}

// Exception is a CPU that may have taken an exception, and the kernel that it runs.
type Exception interface {
	Registers

	// General are the registers of the program's, at the address that it stands at.
	General() *arch.Regs

	// Symbol is the address of one of the kernel's.
	Symbol(name string) (arch.Addr, bool)

	// Word is a word of the kernel's memory; 0 where there is none.
	Word(arch.Addr) uint64
}

// Paging says how a machine finds its memory.
type Paging struct {
	// Translate finds the physical address that a CPU gives to one of the kernel's. Errors: EFAULT;
	// ENOTSUP for a mode that no kernel here uses.
	Translate func(Memory, arch.Addr) (uint64, error)

	// User is the same for an address of the program that the CPU runs. nil: one address space holds
	// both.
	User func(Memory, arch.Addr) (uint64, error)

	// Bases are the physical addresses at which memory may begin, on the boards that QEMU has, and
	// SameUpTo (0: no limit) where it may go on elsewhere. In the hole there is something else.
	Bases    []uint64
	SameUpTo uint64
	Hole     Span

	// InKernel tells from the registers whether a CPU runs the kernel; nil: an address tells.
	InKernel func(Registers) (bool, error)
}

// Span is a range of physical addresses.
type Span struct{ Start, End uint64 }

// PageSize is the smallest page of all machines here.
const PageSize = 4096

// kernelHalf is the lowest address that is a kernel's.
const kernelHalf = arch.Addr(1 << 63)

// The machines of which only programs are probed behind a stub.
var (
	PPC64LE  = &Machine{Arch: arch.PPC64LE, Name: "powerpc:common64"}
	PPC      = &Machine{Arch: arch.PPC, Name: "powerpc:common"}
	MIPS64LE = &Machine{Arch: arch.MIPS64LE, File: elf.EM_MIPS}
	MIPSLE   = &Machine{Arch: arch.MIPSLE, File: elf.EM_MIPS}
)

var machines = []*Machine{AMD64, ARM64, RISCV64, S390X, PPC64LE, PPC, MIPS64LE, MIPSLE}

// Of is the record of a machine; one that nothing is known of has an empty one.
func Of(a *arch.Arch) *Machine {
	if i := slices.IndexFunc(machines, func(m *Machine) bool { return m.Arch == a }); i >= 0 {
		return machines[i]
	}
	return &Machine{Arch: a}
}

// Named is the machine of a name in a description; nil where it is not known.
func Named(name string) *arch.Arch {
	i := slices.IndexFunc(machines, func(m *Machine) bool { return m.Name == name && name != "" })
	if i < 0 {
		return nil
	}
	return machines[i].Arch
}

// ShownBy is the machine of a program that shows it, for stubs that describe no registers; nil for
// any other.
func ShownBy(f *elf.File) *arch.Arch {
	i := slices.IndexFunc(machines, func(m *Machine) bool {
		return m.File != elf.EM_NONE && m.File == f.Machine && m.Arch.Order == f.ByteOrder && (m.Arch.PtrSize == 4) == (f.Class == elf.ELFCLASS32)
	})
	if i < 0 {
		return nil
	}
	return machines[i].Arch
}

// Missing says that stubs do not show a machine, or not as one of its own.
func Missing(a *arch.Arch) error {
	return fmt.Errorf("how a stub shows %s is not known here", a.Name)
}

// Walks says why no kernel of a machine can be probed: it is not known how that finds its memory.
// nil where it is.
func (m *Machine) Walks() error {
	if m.Paging == nil {
		return fmt.Errorf("kernels of %s are not probed: how they find their memory is not known here", m.Arch.Name)
	}
	return nil
}
