package cpu

import (
	"syscall"

	"kprobe/arch"
)

// ARM64 is AArch64.
var ARM64 = &Machine{
	Arch: arch.ARM64, Name: "aarch64",
	Paging: &Paging{Translate: arm64Translate, Bases: []uint64{1 << 30, 0}},
	Kernel: Kernel{
		Task: arm64Task, Excepted: arm64Excepted,
		Text: Text{
			Sizes: Sizes{-4, 8, 4, 4, 4}, // two NOPs: one for the return address, one for the call
			Areas: []string{".entry.text", ".irqentry.text", ".softirqentry.text", ".idmap.text", ".hyp.text"},
		},
	},
}

// Page tables as AArch64 walks them with 48 or fewer bits of address (Arm Architecture Reference
// Manual, D8, "The AArch64 Virtual Memory System Architecture"). The registers are those of
// exception level 1, by QEMU's names.
const (
	arm64Enabled = 1 << 0 // of SCTLR: addresses are translated

	arm64Valid   = 1 << 0
	arm64Table   = 1 << 1 // at the last level: a page
	arm64Address = 0x0000_ffff_ffff_f000
	arm64Root    = 0x0000_ffff_ffff_fffe // of a TTBR: the first table may be smaller than a page

	// arm64UserASID tells, under page-table isolation, that a CPU is in user mode
	// (Linux: USER_ASID_BIT). It then has tables that hardly map the kernel, and
	// the kernel's own lie two pages behind (TRAMP_SWAPPER_OFFSET).
	arm64UserASID = 1 << 48
	arm64Behind   = 2
)

// arm64Translate goes through the tables for the half of addresses that addr is in.
func arm64Translate(c Memory, addr arch.Addr) (uint64, error) {
	control, err := c.Register("SCTLR")
	if err != nil {
		return 0, err
	}
	if control&arm64Enabled == 0 {
		return uint64(addr), nil
	}
	tcr, err := c.Register("TCR_EL1")
	if err != nil {
		return 0, err
	}
	// In TCR_EL1 each half has a size, as bits that are not used, and a granule,
	// which the two halves encode differently.
	root, unused, granule := "TTBR0_EL1", int(tcr&63), [...]int{12, 16, 14, 0}[tcr>>14&3]
	upper := addr >= kernelHalf
	if upper {
		root, unused, granule = "TTBR1_EL1", int(tcr>>16&63), [...]int{0, 14, 12, 16}[tcr>>30&3]
	}
	if granule == 0 || unused < 16 { // 52 bits are laid out in another way
		return 0, syscall.ENOTSUP
	}
	if top := int64(addr) >> (64 - unused); upper && top != -1 || !upper && top != 0 {
		return 0, syscall.EFAULT
	}
	base, err := c.Register(root)
	if err != nil {
		return 0, err
	}
	table := base & arm64Root
	phys, err := arm64Walk(c, table, 64-unused, granule, addr)
	if err == syscall.EFAULT && upper && base&arm64UserASID != 0 {
		return arm64Walk(c, table+arm64Behind<<granule, 64-unused, granule, addr)
	}
	return phys, err
}

// arm64Walk goes down the tables from their root. Each table is as large as a
// page, but for the first, which may be smaller.
func arm64Walk(c Memory, table uint64, bits, granule int, addr arch.Addr) (uint64, error) {
	perLevel := granule - 3
	levels := (bits - granule + perLevel - 1) / perLevel
	within := uint64(addr) & (1<<bits - 1)
	for level := levels - 1; level >= 0; level-- {
		shift := granule + perLevel*level
		index := within >> shift
		if level < levels-1 {
			index &= 1<<perLevel - 1
		}
		e, err := c.Entry(table + index*8)
		switch {
		case err != nil:
			return 0, err
		case e&arm64Valid == 0, level == 0 && e&arm64Table == 0:
			return 0, syscall.EFAULT
		case level == 0 || e&arm64Table == 0: // a page, or a block of them
			size := uint64(1) << shift
			return e&arm64Address&^(size-1) | uint64(addr)&(size-1), nil
		}
		table = e & arm64Address &^ (1<<granule - 1)
	}
	return 0, syscall.EFAULT
}

// arm64Task: SP_EL0, the program's stack pointer, is free for it as long as the CPU is in
// the kernel (exception level 1 and above: bits 2 and 3 of the state).
func arm64Task(c Registers) (arch.Addr, error) {
	state, err := c.Register("cpsr")
	if err != nil || state>>2&3 == 0 {
		return 0, err
	}
	task, err := c.Register("SP_EL0")
	return arch.Addr(task), err
}

// arm64Excepted: the CPU has put the program counter and the flags into registers of the system's.
// The number of a trap is the class of the exception.
func arm64Excepted(c Exception) (trap int, at arch.Regs, ok bool) {
	const (
		ownStack = 0x200 // in the table of handlers: of the kernel's own exceptions, on the stack that it had
		class    = 26
	)
	a, r := arch.ARM64, c.General()
	table, known := c.Symbol("vectors")
	if !known || r.Addr(a.PC) != table+ownStack {
		return 0, at, false
	}
	at = *r
	var syndrome uint64
	for name, to := range map[string]*uint64{"ELR_EL1": &at[a.PC], "SPSR_EL1": &at[a.Flags], "ESR_EL1": &syndrome} {
		v, err := c.Register(name)
		if err != nil {
			return 0, at, false
		}
		*to = v
	}
	return int(syndrome >> class & 0x3f), at, true
}
