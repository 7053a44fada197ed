package cpu

import (
	"syscall"

	"kprobe/arch"
)

// S390X is z/Architecture.
var S390X = &Machine{
	Arch: arch.S390X, Name: "s390:64-bit",
	Paging: &Paging{Translate: s390xTranslate, User: s390xUser, Bases: []uint64{0}, Hole: Span{0, s390xOwn}, InKernel: s390xInKernel},
	Kernel: Kernel{Text: Text{Sizes: Sizes{0, 6, 6, 6, 4}, Areas: []string{".irqentry.text"}}},
}

// Address spaces of z/Architecture (Principles of Operation, chapter 3, "Dynamic
// Address Translation"). Linux runs its kernel in the home space (control register
// 13) and programs in the primary one (1), which is the secondary one (7) as long as
// the CPU is in the kernel: the same address is in both.
const (
	s390xDAT   = 1 << 58 // of the PSW: addresses are translated
	s390xSpace = 3 << 46 // of the PSW: the address space
	s390xHome  = 3 << 46
	s390xUsers = 1 << 48 // of the PSW: problem state, a program runs

	asceReal   = 1 << 5 // of an address-space-control element: no translation
	asceTable  = 3      // bits 2 and 3: the kind of the first table
	asceOrigin = ^uint64(0xfff)

	s390xInvalid = 1 << 5  // of an entry of a region or segment table
	s390xLarge   = 1 << 10 // of a segment's or third region's entry: it is a page itself
	s390xNoPage  = 1 << 10 // of a page table's entry: invalid

	// s390xOwn is the size of the area that each CPU has at another place
	// (prefixing), which the stub does not tell.
	s390xOwn = 0x2000
)

func s390xTranslate(c Memory, addr arch.Addr) (uint64, error) { return s390xIn(c, "cr13", addr) }

func s390xUser(c Memory, addr arch.Addr) (uint64, error) { return s390xIn(c, "cr7", addr) }

// s390xIn translates in the address space whose element a control register holds.
func s390xIn(c Memory, space string, addr arch.Addr) (uint64, error) {
	mask, err := c.Register("pswm")
	if err != nil {
		return 0, err
	}
	if mask&s390xDAT == 0 {
		return uint64(addr), nil
	}
	asce, err := c.Register(space)
	if err != nil {
		return 0, err
	}
	if asce&asceReal != 0 {
		return uint64(addr), nil
	}
	// Regions of three sizes, then segments of 1 MiB: 11 bits each. Above the span of the first
	// table there is nothing.
	level := int(asce >> 2 & asceTable)
	if uint64(addr)>>(20+11*(level+1)) != 0 {
		return 0, syscall.EFAULT
	}
	table := asce & asceOrigin
	for ; level >= 0; level-- {
		shift := 20 + 11*level
		e, err := c.Entry(table + uint64(addr)>>shift&(1<<11-1)*8)
		if err != nil {
			return 0, err
		}
		if e&s390xInvalid != 0 {
			return 0, syscall.EFAULT
		}
		if level <= 1 && e&s390xLarge != 0 {
			size := uint64(1) << shift
			if at := e&^(size-1) | uint64(addr)&(size-1); at >= s390xOwn {
				return at, nil
			}
			return 0, syscall.ENOTSUP
		}
		table = e & asceOrigin
		if level == 0 {
			table = e &^ (1<<11 - 1) // page tables are smaller
		}
	}
	e, err := c.Entry(table + uint64(addr)>>12&0xff*8)
	if err != nil {
		return 0, err
	}
	if e&s390xNoPage != 0 {
		return 0, syscall.EFAULT
	}
	at := e&^(PageSize-1) | uint64(addr)&(PageSize-1)
	if at < s390xOwn {
		return 0, syscall.ENOTSUP
	}
	return at, nil
}

// s390xInKernel goes by the program status word.
func s390xInKernel(c Registers) (bool, error) {
	mask, err := c.Register("pswm")
	return mask&s390xUsers == 0 && (mask&s390xDAT == 0 || mask&s390xSpace == s390xHome), err
}
