package gdbremote

import (
	"syscall"

	"kprobe/arch"
)

// Page tables as the CPU walks them (Intel's manual, volume 3, "Paging").
const (
	entryPresent = 1 << 0
	entryLarge   = 1 << 7
	entryAddress = 0x000f_ffff_ffff_f000

	cr0Paging = 1 << 31
	cr4LA57   = 1 << 12
	eferLong  = 1 << 10

	// kernelHalf is the lowest address that is a kernel's.
	kernelHalf = arch.Addr(1 << 63)

	// userTables is the bit by which, under page-table isolation, the tables of
	// user mode differ from those of the kernel (Linux: PTI_USER_PGTABLE_BIT).
	userTables = 1 << 12
)

// amd64Translate goes through the tables of the current CPU.
func amd64Translate(t *Target, addr arch.Addr) (uint64, error) {
	var reg [4]uint64
	for i, name := range []string{"cr0", "cr3", "cr4", "efer"} {
		v, err := t.register(t.current, name)
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
	phys, err := t.amd64Walk(cr3, levels, addr)
	if err == syscall.EFAULT && addr >= kernelHalf && cr3&userTables != 0 {
		return t.amd64Walk(cr3&^userTables, levels, addr)
	}
	return phys, err
}

// amd64Walk goes down the tables from their root.
func (t *Target) amd64Walk(root uint64, levels int, addr arch.Addr) (uint64, error) {
	table := root & entryAddress
	for level := levels - 1; level >= 0; level-- {
		shift := 12 + 9*level
		e, err := t.entry(table + uint64(addr)>>shift&511*8)
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
