// Package machine has one record for each machine that a target can be of, in the file of its name.
// A record has a field for each part that probing takes there. The part's package says what the part
// is, and is handed it. A part that a machine lacks is nil, and refused with the reason that Parts
// shows.
//
// Adding a machine begins with a file beside amd64.go and its name in the table below;
// docs/PORTING.md has the order of the rest, and the files.
package machine

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/cpu"
	"kprobe/internal/errno"
	"kprobe/internal/goabi"
	"kprobe/internal/inject"
	"kprobe/internal/isa"
	"kprobe/internal/jit"
	"kprobe/internal/lifeline"
	"kprobe/internal/untouchable"
)

// Machine is one machine's record: what is known of it, then the parts, each nil where the machine
// lacks it.
type Machine struct {
	Arch *arch.Arch
	ELF  elf.Machine // its files, of the architecture's byte order and word
	ISA  isa.ISA     // lengths, verdicts, slots, emulation; jumps, unless its JumpForm is nil

	CPU        *cpu.Machine           // the stub's view, and kernels
	C          *cabi.Machine          // C's arguments
	Go         *goabi.Machine         // Go's arguments
	Sigreturns untouchable.Sigreturns // signal frames
	Lifeline   *lifeline.Machine      // the lifeline
	Code       *jit.Machine           // the compiler
	Detours    *inject.Machine        // detours, routines, calls
}

// All are the machines, the most complete first.
func All() []*Machine { return machines }

var machines = []*Machine{amd64Machine, i386Machine, arm64Machine, riscv64Machine, s390xMachine, ppc64leMachine, mips64leMachine, mipsleMachine, ppcMachine}

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
	return []Part{
		{"stub's view", "programs behind a stub", m.unless(m.CPU != nil, cpu.Missing)},
		{"page tables", "kernels behind a stub", cpu.Of(m.Arch).Walks()},
		{"C's arguments", "arguments of C that are floating point numbers or structs", m.unless(m.C != nil, cabi.Missing)},
		{"Go's arguments", "jprobes on Go functions", m.unless(m.Go != nil, goabi.Missing)},
		{"signal frames", "signal trampolines that are known and left alone", m.unless(m.Sigreturns != nil, untouchable.Missing)},
		{"lifeline", "live processes, which outlive a killed controller", m.unless(m.Lifeline != nil, lifeline.Missing)},
		{"jumps", "probes that are jumps, without a stop", m.jumps()},
		{"compiler", "programs in the target, compiled", m.compiles()},
		{"detours", "probes that count without a stop", m.Counts()},
		{"routines", "programs in the target, called by detours", m.calls((*inject.Machine).Runs)},
		{"calls", "programs in the target at returns", m.calls((*inject.Machine).Watches)},
	}
}

// unless is the reason for a part that is not there.
func (m *Machine) unless(there bool, missing func(*arch.Arch) error) error {
	if there {
		return nil
	}
	return missing(m.Arch)
}

func (m *Machine) jumps() error {
	if m.ISA.JumpForm() == nil {
		return errors.New("jumps over instructions are not planned for " + m.Arch.Name)
	}
	return nil
}

func (m *Machine) compiles() error { return m.unless(m.Code != nil, jit.Missing) }

// calls asks the detours, where there are any, whether they call what it takes.
func (m *Machine) calls(what func(*inject.Machine) error) error {
	if err := m.Counts(); err != nil {
		return err
	}
	return what(m.Detours)
}

// Counts tells whether probes can count inside targets of a machine, by detours; the error says
// what is missing.
func (m *Machine) Counts() error { return m.unless(m.Detours != nil, inject.Missing) }

// RunsPrograms tells whether programs can run inside targets of a machine; the error says
// what is missing.
func (m *Machine) RunsPrograms() error {
	if err := m.compiles(); err != nil {
		return err
	}
	return m.calls((*inject.Machine).Runs)
}

// WatchesCalls tells whether programs can run inside targets of a machine when functions return; the error
// says what is missing.
func (m *Machine) WatchesCalls() error {
	if err := m.compiles(); err != nil {
		return err
	}
	return m.calls((*inject.Machine).Watches)
}

// For is RunsPrograms, or WatchesCalls for programs some of which are for returns.
func For(returns bool) func(*Machine) error {
	if returns {
		return (*Machine).WatchesCalls
	}
	return (*Machine).RunsPrograms
}
