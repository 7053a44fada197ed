package arch

import (
	"encoding/binary"
	"strconv"
)

// ARM64 is the 64-bit Arm machine (AArch64), little-endian, with the procedure
// call standard AAPCS64. Registers are numbered in GDB's order: x0 to x30, sp, pc,
// cpsr.
var ARM64 = &Arch{
	Name: "arm64", Order: binary.LittleEndian, PtrSize: 8, MinInsn: 4, MaxInsn: 4,
	Break: []byte{0x00, 0x00, 0x20, 0xd4}, BreakPC: 0, BreakTrap: 0x3c, // brk #0
	RegNames: append(numbered("x", 31), "sp", "pc", "cpsr"),
	PC:       arm64PC, SP: 31, FP: 29, Flags: 33, Ret: 0, Ret2: 1,
	Args:      firstRegs(0, 8),
	GoArgs:    firstRegs(0, 16),
	ThreadPtr: NoReg, // TPIDR_EL0 is none of the general registers
	SyscallNo: NoReg,
	LR:        30,
	Debug:     Debug{Regs: append(numbered("x", 31), "sp"), LongDouble: Quad},
	UserEnd:   1 << 48,
	names:     arm64Names(),
}

const arm64PC = 32

// arm64Names adds the names that the kernel's struct pt_regs has to GDB's.
func arm64Names() map[string]Reg {
	m := names(append(numbered("x", 31), "sp", "pc", "cpsr"))
	m["lr"], m["pstate"] = 30, 33
	return m
}

// numbered are n registers' names: a prefix, and numbers from 0.
func numbered(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = prefix + strconv.Itoa(i)
	}
	return list
}

// firstRegs are n registers in a row.
func firstRegs(first Reg, n int) []Reg {
	list := make([]Reg, n)
	for i := range list {
		list[i] = first + Reg(i)
	}
	return list
}

// names leads from the names in a list to their places there.
func names(list []string) map[string]Reg {
	m := make(map[string]Reg, len(list))
	for i, n := range list {
		m[n] = Reg(i)
	}
	return m
}
