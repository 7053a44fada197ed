package arch

import "encoding/binary"

// S390X is IBM's z/Architecture, 64-bit and big-endian, with the ELF ABI of Linux.
// Registers are numbered in GDB's order: the program status word's mask and
// address, then r0 to r15.
var S390X = &Arch{
	Name: "s390x", Order: binary.BigEndian, PtrSize: 8, MinInsn: 2, MaxInsn: 6,
	Break: []byte{0x00, 0x01}, BreakPC: 2, BreakTrap: 1, // an operation exception; Linux takes it for a breakpoint
	RegNames: append([]string{"pswm", "pswa"}, numbered("r", 16)...),
	PC:       1, SP: s390xR0 + 15, FP: s390xR0 + 11, Flags: 0, Ret: s390xR0 + 2, Ret2: s390xR0 + 3,
	Args:      firstRegs(s390xR0+2, 5),
	ThreadPtr: NoReg, // access registers 0 and 1 together
	SyscallNo: NoReg,
	LR:        s390xR0 + 14,
	UserEnd:   1 << 42,
	SaveArea:  160,
	Debug:     Debug{Regs: numbered("r", 16), LongDouble: Quad},
	names:     s390xNames(),
}

const s390xR0 = 2

// s390xNames: the kernel's own names are those of the general registers.
func s390xNames() map[string]Reg {
	m := names(append([]string{"pswm", "pswa"}, numbered("r", 16)...))
	m["pc"], m["sp"], m["lr"] = 1, s390xR0+15, s390xR0+14
	return m
}
