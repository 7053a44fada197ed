// Package machine has one record for each machine that a target can be of: its architecture, the
// machine of its ELF files, and its instructions. Parts asks for everything else that probing takes
// there. Each part belongs to a package of its own. A part that a machine lacks is refused by that
// package, with the reason that Parts shows.
//
// Adding a machine begins with a line in the table below; docs/PORTING.md has the order
// of the rest.
package machine

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/errno"
	"kprobe/internal/goabi"
	"kprobe/internal/inject"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/isa/mips"
	"kprobe/internal/isa/ppc64le"
	"kprobe/internal/isa/riscv64"
	"kprobe/internal/isa/s390x"
	"kprobe/internal/jit"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// Machine is one machine's record.
type Machine struct {
	Arch *arch.Arch
	ELF  elf.Machine // its files, of the architecture's byte order and word
	ISA  isa.ISA     // lengths, verdicts, slots, emulation
}

var machines = []*Machine{
	{arch.AMD64, elf.EM_X86_64, amd64.ISA},
	{arch.I386, elf.EM_386, amd64.New(arch.I386)},
	{arch.ARM64, elf.EM_AARCH64, arm64.ISA},
	{arch.RISCV64, elf.EM_RISCV, riscv64.ISA},
	{arch.S390X, elf.EM_S390, s390x.ISA},
	{arch.PPC64LE, elf.EM_PPC64, ppc64le.ISA},
	{arch.MIPS64LE, elf.EM_MIPS, mips.MIPS64LE},
	{arch.MIPSLE, elf.EM_MIPS, mips.MIPSLE},
	{arch.PPC, elf.EM_PPC, ppc64le.PPC},
}

// All are the machines, the most complete first.
func All() []*Machine { return machines }

// Of is the record of a machine. Errors: ENOTSUP.
func Of(a *arch.Arch) (*Machine, error) {
	for _, m := range machines {
		if m.Arch == a {
			return m, nil
		}
	}
	return nil, errno.New(syscall.ENOTSUP, "no instruction set for %s targets", a.Name)
}

// OfELF is the record of the machine that a file is for. Errors: ENOTSUP.
func OfELF(e elf.Machine, class elf.Class, order binary.ByteOrder) (*Machine, error) {
	for _, m := range machines {
		if m.ELF == e && m.Arch.Order == order && (m.Arch.PtrSize == 4) == (class == elf.ELFCLASS32) {
			return m, nil
		}
	}
	return nil, errno.New(syscall.ENOTSUP, "no instruction set for files of %v, %v, %v", e, class, order)
}

// Part is one of the parts that probing takes on a machine, beyond its instructions.
type Part struct {
	Name  string
	Gives string // the abilities that users get from it
	Err   error  // why it is not there; nil where it is
}

// Parts are all of them, in the order in which a new machine gets them.
func (m *Machine) Parts() []Part {
	a := m.Arch
	return []Part{
		{"C's arguments", "arguments of C that are floating point numbers or structs", cabi.Serves(a)},
		{"Go's arguments", "jprobes on Go functions", goabi.Serves(a)},
		{"signal frames", "signal trampolines that are known and left alone", untouchable.Serves(a)},
		{"lifeline", "live processes, which outlive a killed controller", lifeline.Serves(a)},
		{"jumps", "probes that are jumps, without a stop", m.jumps()},
		{"compiler", "programs in the target, compiled", jit.Serves(a)},
		{"detours", "probes that count without a stop", inject.Serves(a)},
		{"routines", "programs in the target, called by detours", inject.Runs(a)},
		{"calls", "programs in the target at returns", inject.Watches(a)},
	}
}

func (m *Machine) jumps() error {
	if m.ISA.JumpForm() == nil {
		return errors.New("jumps over instructions are not planned for " + m.Arch.Name)
	}
	return nil
}

// Programs tells whether programs can run inside targets of a machine; the error says
// what is missing.
func Programs(a *arch.Arch) error {
	if err := jit.Serves(a); err != nil {
		return err
	}
	return inject.Runs(a)
}

// Calls tells whether programs can run inside targets of a machine when functions return; the error
// says what is missing.
func Calls(a *arch.Arch) error {
	if err := Programs(a); err != nil {
		return err
	}
	return inject.Watches(a)
}

// For is Programs, or Calls for programs some of which are for returns.
func For(returns bool) func(*arch.Arch) error {
	if returns {
		return Calls
	}
	return Programs
}

// Detours tells whether probes can count inside targets of a machine, by detours; the error says
// what is missing.
func Detours(a *arch.Arch) error { return inject.Serves(a) }
