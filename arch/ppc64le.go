package arch

import "encoding/binary"

// PPC64LE is 64-bit Power, little-endian, with the ELFv2 ABI of Linux. Registers are in GDB's order, less those of floating
// point, which come in between there. A function has two entries; a call within its file goes to the
// second, behind the instructions that set r2, and so do probes (package symbol).
var PPC64LE = &Arch{
	Name: "ppc64le", Order: binary.LittleEndian, PtrSize: 8, MinInsn: 4, MaxInsn: 8,
	Break: []byte{0x08, 0x00, 0xe0, 0x7f}, BreakPC: 0, BreakTrap: 0x700, // trap; the vector of a program interrupt
	RegNames: ppcNames,
	PC:       ppcPC, SP: 1, FP: 31, Flags: ppcPC + 2, Ret: 3, Ret2: 4,
	Args:      firstRegs(3, 8),
	ThreadPtr: 13,
	SyscallNo: NoReg,
	LR:        ppcPC + 3,
	UserEnd:   1 << 47,
	SaveArea:  32 + 8*8, // what is saved at calls, and the first eight arguments' home
	RedZone:   512,
	names:     ppcAll(),
}

const ppcPC = 32

var ppcNames = append(numbered("r", 32), "pc", "msr", "cr", "lr", "ctr", "xer")

// ppcAll adds the names of the kernel's struct pt_regs.
func ppcAll() map[string]Reg {
	m := names(ppcNames)
	for n, name := range numbered("gpr", 32) {
		m[name] = Reg(n)
	}
	m["sp"], m["nip"], m["ccr"], m["link"] = 1, ppcPC, ppcPC+2, ppcPC+3
	return m
}
