package cpu

import (
	"math/bits"
	"syscall"

	"kprobe/arch"
)

// RISCV64 is RISC-V, of 64 bits.
var RISCV64 = &Machine{
	Arch: arch.RISCV64, Name: "riscv:rv64",
	Paging: &Paging{Translate: riscv64Translate, Bases: []uint64{2 << 30}},
	Kernel: Kernel{
		Task: riscv64Task,
		Text: Text{
			Sizes: Sizes{-4, 8, 4, 0, 2}, // since 6.16: auipc, and in its record the jalr behind it; c.ebreak
			Areas: []string{".irqentry.text"},
		},
	},
}

// Page tables as RISC-V walks them (The RISC-V Instruction Set Manual, volume II, 20240411,
// chapters 10.3 to 10.6, and 13 of Svnapot): three, four or five levels of 9 bits each. One space
// holds the kernel and a program.
const (
	riscvBare   = 0 // modes, in the upper 4 bits of satp: no translation
	riscvSv39   = 8 // and one level more for each number more
	riscvSv57   = 10
	riscvNumber = 1<<44 - 1 // satp's and an entry's page number

	riscvValid    = 1 << 0
	riscvLeaf     = 7 << 1  // readable, writable or executable: no table
	riscvEntry    = 10      // where an entry has its page number
	riscvTogether = 1 << 63 // several pages in a row, as many as the number's lowest bit says
)

func riscv64Translate(c Memory, addr arch.Addr) (uint64, error) {
	satp, err := c.Register("satp")
	if err != nil {
		return 0, err
	}
	mode := int(satp >> 60)
	if mode == riscvBare {
		return uint64(addr), nil
	}
	if mode < riscvSv39 || mode > riscvSv57 {
		return 0, syscall.ENOTSUP
	}
	const perLevel, granule = 9, 12
	levels := mode - riscvSv39 + 3
	if unused := 64 - granule - perLevel*levels; int64(addr)<<unused>>unused != int64(addr) {
		return 0, syscall.EFAULT
	}
	table := satp & riscvNumber << granule
	for level := levels - 1; level >= 0; level-- {
		shift := granule + perLevel*level
		e, err := c.Entry(table + uint64(addr)>>shift&(1<<perLevel-1)*8)
		switch {
		case err != nil:
			return 0, err
		case e&riscvValid == 0:
			return 0, syscall.EFAULT
		}
		table = e >> riscvEntry & riscvNumber << granule
		if e&riscvLeaf == 0 {
			continue
		}
		if e&riscvTogether != 0 && level == 0 {
			shift = bits.TrailingZeros64(table) + 1
		}
		size := uint64(1) << shift
		return table&^(size-1) | uint64(addr)&(size-1), nil
	}
	return 0, syscall.EFAULT
}

// riscv64Task: tp is the program's, until the kernel has put its own there: that is an address of
// its half.
func riscv64Task(c Registers) (arch.Addr, error) {
	task, err := c.Register("tp")
	if err != nil || int64(task) >= 0 {
		return 0, err
	}
	return arch.Addr(task), nil
}
