// Package machine has what scripts name of machines: registers, and where C's functions have their
// arguments and results.
package machine

import (
	"debug/elf"
	"slices"

	"kprobe/arch"
	"kprobe/bpf"
)

// Machine is one that probes of a script can be on.
type Machine struct {
	Name    string // in messages: uname's
	Arch    *arch.Arch
	ELF     elf.Machine // its files
	Context bpf.Context

	Args       []string // registers with a function's first arguments
	GoArgs     []string // with those of a Go function
	FirstStack int      // from the stack pointer at a function's entry to the arguments behind them, in bytes
	Result     string
	SP         string

	other func(name string) string // another name of a register
}

// The machines.
var (
	// AMD64 is x86-64 with the System V convention; i386's registers have places in the same context.
	AMD64 = &Machine{Name: "x86_64", Arch: arch.AMD64, ELF: elf.EM_X86_64, Context: bpf.AMD64,
		Args: []string{"rdi", "rsi", "rdx", "rcx", "r8", "r9"}, GoArgs: names(arch.AMD64, arch.AMD64.GoArgs), FirstStack: 8, Result: "rax", SP: "rsp",
		other: func(name string) string {
			switch name {
			case "flags":
				return "eflags"
			case "pc":
				return "rip"
			case "fp":
				return "rbp"
			}
			return "r" + name
		}}

	// ARM64 is arm64 with AAPCS64.
	ARM64 = &Machine{Name: "aarch64", Arch: arch.ARM64, ELF: elf.EM_AARCH64, Context: bpf.ARM64,
		Args: bpf.ARM64.Regs[:8], GoArgs: names(arch.ARM64, arch.ARM64.GoArgs), Result: "x0", SP: "sp",
		other: func(name string) string {
			switch name {
			case "lr":
				return "x30"
			case "fp":
				return "x29"
			}
			if name != "" && name[0] == 'r' {
				return "x" + name[1:]
			}
			return ""
		}}
)

func names(a *arch.Arch, regs []arch.Reg) (all []string) {
	for _, r := range regs {
		all = append(all, a.RegName(r))
	}
	return all
}

// All of them; the first stands for those that have none.
var machines = []*Machine{AMD64, ARM64}

// Of is the one of a target's machine; nil stands for x86-64.
func Of(a *arch.Arch) *Machine {
	for _, m := range machines {
		if m.Arch == a {
			return m
		}
	}
	return machines[0]
}

// OfELF finds the one of a file; nil where there is none.
func OfELF(e elf.Machine) *Machine {
	for _, m := range machines {
		if m.ELF == e {
			return m
		}
	}
	return nil
}

// Register is a register's index in the context; -1 for none.
func (m *Machine) Register(name string) int {
	if i := slices.Index(m.Context.Regs, name); i >= 0 {
		return i
	}
	return slices.Index(m.Context.Regs, m.other(name))
}
