package arch

import "encoding/binary"

// PPC is 32-bit PowerPC, big-endian, with the System V ABI of Linux.
var PPC = &Arch{
	Name: "ppc", Order: binary.BigEndian, PtrSize: 4, MinInsn: 4, MaxInsn: 4,
	Break: []byte{0x7f, 0xe0, 0x00, 0x08}, BreakPC: 0, // trap
	RegNames: ppcNames,
	PC:       ppcPC, SP: 1, FP: 31, Flags: ppcPC + 2, Ret: 3, Ret2: 4,
	Args:      firstRegs(3, 8),
	ThreadPtr: 2,
	SyscallNo: NoReg,
	LR:        ppcPC + 3,
	UserEnd:   1 << 32,
	SaveArea:  8, // the back chain, and LR's home
	names:     ppcAll(),
}
