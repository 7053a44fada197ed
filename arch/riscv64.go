package arch

import "encoding/binary"

// RISCV64 is RISC-V with 64-bit registers, little-endian, with compressed instructions (RV64GC), and the
// calling convention LP64D. Registers are numbered in GDB's order: x0 to x31, and the program counter. The
// breakpoint is the compressed one, which covers no more than the shortest instruction.
var RISCV64 = &Arch{
	Name: "riscv64", Order: binary.LittleEndian, PtrSize: 8, MinInsn: 2, MaxInsn: 4,
	Break: []byte{0x02, 0x90}, BreakPC: 0, BreakTrap: 3, // c.ebreak; scause of a breakpoint
	RegNames: riscvNames,
	PC:       32, SP: 2, FP: 8, Flags: 0, Ret: 10, Ret2: 11, // there are no flags: x0 reads 0 and keeps nothing
	Args:      firstRegs(10, 8),
	Debug:     Debug{LongDouble: Quad},
	GoArgs:    []Reg{10, 11, 12, 13, 14, 15, 16, 17, 8, 9, 18, 19, 20, 21, 22, 23},
	ThreadPtr: 4,
	SyscallNo: NoReg,
	LR:        1,
	UserEnd:   1 << 47,
	names:     riscvAll(),
}

// riscvNames are the names of the calling convention, which the kernel's struct pt_regs has too.
var riscvNames = []string{
	"zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1",
	"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7",
	"s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6", "pc",
}

// riscvAll adds the registers' numbers.
func riscvAll() map[string]Reg {
	m := names(riscvNames)
	for n, name := range numbered("x", 32) {
		m[name] = Reg(n)
	}
	m["fp"], m["epc"], m["lr"] = 8, 32, 1
	return m
}
