package cpu

import (
	"syscall"

	"kprobe/arch"
)

// AMD64 is x86-64. Above 2 GiB memory lies differently from PC to PC; below 1 MiB there are devices.
// Kernels are moved by the least alignment that they can be built with (CONFIG_PHYSICAL_ALIGN).
var AMD64 = &Machine{
	Arch: arch.AMD64, Name: "i386:x86-64", Clone: 56, Clone3: 435,
	Paging: &Paging{Translate: amd64Translate, Bases: []uint64{0}, SameUpTo: 2 << 30, Hole: Span{0xa0000, 0x100000}},
	Kernel: Kernel{
		Excepted: amd64Excepted, Inside: true, ORC: true, Counter: true,
		Moves: &Moves{Start: 0xffff_ffff_8000_0000, End: 0xffff_ffff_c000_0000, Step: 2 << 20},
		Text:  Text{Sizes: Sizes{0, 5, 5, 5, 2}, ShortJumps: true, Areas: []string{".entry.text"}},
	},
}

// Page tables as the CPU walks them (Intel's manual, volume 3, "Paging").
const (
	entryPresent = 1 << 0
	entryLarge   = 1 << 7
	entryAddress = 0x000f_ffff_ffff_f000

	cr0Paging = 1 << 31
	cr4LA57   = 1 << 12
	eferLong  = 1 << 10

	// userTables is the bit by which, under page-table isolation, the tables of
	// user mode differ from those of the kernel (Linux: PTI_USER_PGTABLE_BIT).
	userTables = 1 << 12
)

// amd64Translate goes through the tables of the current CPU.
func amd64Translate(c Memory, addr arch.Addr) (uint64, error) {
	var reg [4]uint64
	for i, name := range []string{"cr0", "cr3", "cr4", "efer"} {
		v, err := c.Register(name)
		if err != nil {
			return 0, err
		}
		reg[i] = v
	}
	cr0, cr3, cr4, efer := reg[0], reg[1], reg[2], reg[3]
	if cr0&cr0Paging == 0 {
		return uint64(addr), nil
	}
	if efer&eferLong == 0 {
		return 0, syscall.ENOTSUP
	}
	levels := 4
	if cr4&cr4LA57 != 0 {
		levels = 5
	}
	phys, err := amd64Walk(c, cr3, levels, addr)
	if err == syscall.EFAULT && addr >= kernelHalf && cr3&userTables != 0 {
		return amd64Walk(c, cr3&^userTables, levels, addr)
	}
	return phys, err
}

// amd64Walk goes down the tables from their root.
func amd64Walk(c Memory, root uint64, levels int, addr arch.Addr) (uint64, error) {
	table := root & entryAddress
	for level := levels - 1; level >= 0; level-- {
		shift := 12 + 9*level
		e, err := c.Entry(table + uint64(addr)>>shift&511*8)
		if err != nil {
			return 0, err
		}
		if e&entryPresent == 0 {
			return 0, syscall.EFAULT
		}
		if level == 0 || level <= 2 && e&entryLarge != 0 {
			within := uint64(1)<<shift - 1
			return e&entryAddress&^within | uint64(addr)&within, nil
		}
		table = e & entryAddress
	}
	panic("unreachable")
}

// amd64Faults are the addresses to which a CPU of x86-64 comes when an instruction of the kernel's
// faults, since 5.8: by the number of the trap, and whether the CPU tells more of it by a word on
// the stack. Exceptions with a stack of their own, and those that are no fault, are not here.
var amd64Faults = []struct {
	name string
	trap int
	code bool
}{
	{"asm_exc_divide_error", 0, false}, {"asm_exc_bounds", 5, false}, {"asm_exc_invalid_op", 6, false}, {"asm_exc_device_not_available", 7, false},
	{"asm_exc_segment_not_present", 11, true}, {"asm_exc_stack_segment", 12, true}, {"asm_exc_general_protection", 13, true},
	{"asm_exc_page_fault", 14, true}, {"asm_exc_coprocessor_error", 16, false}, {"asm_exc_alignment_check", 17, true},
	{"asm_exc_simd_coprocessor_error", 19, false}, {"asm_exc_control_protection", 21, true},
}

// amd64Resume is RF, which a CPU sets in the flags that it saves at a fault: the instruction will be
// tried again.
const amd64Resume = 1 << 16

// amd64Excepted: the CPU has put the program counter, the flags and the stack pointer on the stack.
func amd64Excepted(c Exception) (trap int, at arch.Regs, ok bool) {
	a, r := arch.AMD64, c.General()
	for _, e := range amd64Faults {
		entry, known := c.Symbol(e.name)
		if !known || entry != r.Addr(a.PC) {
			continue
		}
		frame := r.Addr(a.SP)
		if e.code {
			frame += 8
		}
		const ip, cs, flags, sp = 0, 8, 16, 24
		if c.Word(frame+cs)&3 != 0 {
			return 0, at, false // a program's
		}
		at = *r
		at[a.PC] = c.Word(frame + ip)
		at[a.Flags] = c.Word(frame+flags) &^ amd64Resume
		at[a.SP] = c.Word(frame + sp)
		return e.trap, at, true
	}
	return 0, at, false
}
