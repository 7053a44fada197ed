package gdbremote

import (
	"debug/elf"
	"fmt"

	"kprobe/arch"
)

// machine is a machine as stubs show it.
type machine struct {
	arch *arch.Arch
	name string // in a description; QEMU and gdbserver use BFD's names. "" where none is described

	// file is the machine of a program that shows it, where no registers are described.
	file elf.Machine

	// clone and clone3 are the numbers of the calls by which a child gets the very memory; 0 where it
	// is not known.
	clone, clone3 uint64

	paging *paging // nil: how kernels find their memory is not known
}

var machines = []*machine{
	// Above 2 GiB a PC's memory lies differently from machine to machine; below
	// 1 MiB there are devices.
	{arch: arch.AMD64, name: "i386:x86-64", clone: 56, clone3: 435,
		paging: &paging{translate: amd64Translate, bases: []uint64{0}, sameUpTo: 2 << 30, hole: span{0xa0000, 0x100000}}},
	{arch: arch.ARM64, name: "aarch64", paging: &paging{translate: arm64Translate, bases: []uint64{1 << 30, 0}}},
	{arch: arch.RISCV64, name: "riscv:rv64", paging: &paging{translate: riscv64Translate, bases: []uint64{2 << 30}}},
	{arch: arch.S390X, name: "s390:64-bit",
		paging: &paging{translate: s390xTranslate, user: s390xUser, bases: []uint64{0}, hole: span{0, s390xOwn}, inKernel: s390xInKernel}},
	{arch: arch.PPC64LE, name: "powerpc:common64"},
	{arch: arch.PPC, name: "powerpc:common"},
	{arch: arch.MIPS64LE, file: elf.EM_MIPS},
	{arch: arch.MIPSLE, file: elf.EM_MIPS},
}

// on is the record of a machine; one that nothing is known of has an empty one.
func on(a *arch.Arch) *machine {
	for _, m := range machines {
		if m.arch == a {
			return m
		}
	}
	return &machine{arch: a}
}

// machineOf finds the machine by its name in a description. Nil: it is not known. A stub that
// gives no name has described x86-64, if there is its program counter.
func machineOf(d *description) *arch.Arch {
	name := d.machine
	if r := d.byName["rip"]; name == "" && r != nil && r.size == 8 {
		return machines[0].arch
	}
	for _, m := range machines {
		if m.name == name && name != "" {
			return m.arch
		}
	}
	return nil
}

// Walks says why no kernel of a machine can be probed: it is not known how that finds its memory.
// nil where it is.
func Walks(a *arch.Arch) error {
	if on(a).paging == nil {
		return fmt.Errorf("kernels of %s are not probed: how they find their memory is not known here", a.Name)
	}
	return nil
}
