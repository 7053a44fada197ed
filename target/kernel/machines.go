package kernel

import (
	"kprobe/arch"
	"kprobe/target"
)

// machine is a machine as its kernels go about it. A kernel of one without a record is probed by
// stops, and its tasks are found by the kernel's own variables.
type machine struct {
	arch *arch.Arch

	// task asks a CPU for the task that it runs, where the kernel keeps that in a register.
	task func(*Target, target.Thread) (arch.Addr, error)

	// excepted looks at where a CPU is: see Target.Excepted.
	excepted func(*Target, target.Thread, *arch.Regs) (trap int, at arch.Regs, ok bool)

	// inside tells that code of ours can be in the guest, orc that the kernel's rules for stacks are
	// read, and counter that its clock is the processor's counter.
	inside, orc, counter bool
}

var machines = []*machine{
	{arch: arch.AMD64, excepted: (*Target).exceptedAMD64, inside: true, orc: true, counter: true},
	{arch: arch.ARM64, task: (*Target).taskARM64, excepted: (*Target).exceptedARM64},
	{arch: arch.RISCV64, task: (*Target).taskRISCV64},
}

// on is the record of the guest's machine.
func (t *Target) on() *machine {
	for _, m := range machines {
		if m.arch == t.Arch() {
			return m
		}
	}
	return &machine{arch: t.Arch()}
}

// taskARM64: SP_EL0, the program's stack pointer, is free for it as long as the CPU is in
// the kernel (exception level 1 and above: bits 2 and 3 of the state).
func (t *Target) taskARM64(th target.Thread) (arch.Addr, error) {
	state, err := t.Register(th, "cpsr")
	if err != nil || state>>2&3 == 0 {
		return 0, err
	}
	task, err := t.Register(th, "SP_EL0")
	return arch.Addr(task), err
}

// taskRISCV64: tp is the program's, until the kernel has put its own there: that is an address of
// its half.
func (t *Target) taskRISCV64(th target.Thread) (arch.Addr, error) {
	task, err := t.Register(th, "tp")
	if err != nil || int64(task) >= 0 {
		return 0, err
	}
	return arch.Addr(task), nil
}
