package kernel

import (
	"kprobe/arch"
	"kprobe/target"
)

// faultEntries are the addresses to which a CPU of x86-64 comes when an instruction of the kernel's
// faults, since 5.8: by the number of the trap, and whether the CPU tells more of it by a word on
// the stack. Exceptions with a stack of their own, and those that are no fault, are not here.
var faultEntries = []struct {
	name string
	trap int
	code bool
}{
	{"asm_exc_divide_error", 0, false}, {"asm_exc_bounds", 5, false}, {"asm_exc_invalid_op", 6, false}, {"asm_exc_device_not_available", 7, false},
	{"asm_exc_segment_not_present", 11, true}, {"asm_exc_stack_segment", 12, true}, {"asm_exc_general_protection", 13, true},
	{"asm_exc_page_fault", 14, true}, {"asm_exc_coprocessor_error", 16, false}, {"asm_exc_alignment_check", 17, true},
	{"asm_exc_simd_coprocessor_error", 19, false}, {"asm_exc_control_protection", 21, true},
}

// resumeFlag is RF, which a CPU sets in the flags that it saves at a fault: the instruction will be
// tried again.
const resumeFlag = 1 << 16

// Excepted looks at where the CPU is: at the very first instruction of a handler the other
// registers are as they were.
func (t *Target) Excepted(th target.Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool) {
	if excepted := t.on().excepted; excepted != nil {
		return excepted(t, th, r)
	}
	return 0, at, false
}

// exceptedAMD64: the CPU has put the program counter, the flags and the stack pointer on the stack.
func (t *Target) exceptedAMD64(_ target.Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool) {
	a := t.Arch()
	for _, e := range faultEntries {
		entry, known := t.kernel.Table().Addr(e.name)
		if !known || entry != arch.Addr(r[a.PC]) {
			continue
		}
		frame := arch.Addr(r[a.SP])
		if e.code {
			frame += 8
		}
		const ip, cs, flags, sp = 0, 8, 16, 24
		if t.number(frame+cs, 8)&3 != 0 {
			return 0, at, false // a program's
		}
		at = *r
		at[a.PC] = t.number(frame+ip, 8)
		at[a.Flags] = t.number(frame+flags, 8) &^ resumeFlag
		at[a.SP] = t.number(frame+sp, 8)
		return e.trap, at, true
	}
	return 0, at, false
}

// exceptedARM64: the CPU has put the program counter and the flags into registers of the system's.
// The number of a trap is the class of the exception.
func (t *Target) exceptedARM64(th target.Thread, r *arch.Regs) (trap int, at arch.Regs, ok bool) {
	const (
		ownStack = 0x200 // in the table of handlers: of the kernel's own exceptions, on the stack that it had
		class    = 26
	)
	a := t.Arch()
	table, known := t.kernel.Table().Addr("vectors")
	if !known || arch.Addr(r[a.PC]) != table+ownStack {
		return 0, at, false
	}
	at = *r
	var syndrome uint64
	for name, to := range map[string]*uint64{"ELR_EL1": &at[a.PC], "SPSR_EL1": &at[a.Flags], "ESR_EL1": &syndrome} {
		v, err := t.Register(th, name)
		if err != nil {
			return 0, at, false
		}
		*to = v
	}
	return int(syndrome >> class & 0x3f), at, true
}
