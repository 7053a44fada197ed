package arch

import (
	"encoding/binary"
	"maps"
)

// MIPS64LE and MIPSLE are MIPS, little-endian, of 64 bits (the ABI n64) and of 32 (o32). A jump takes effect behind the
// next instruction, which is in its delay slot. Registers are numbered in GDB's order.
var (
	MIPS64LE = &Arch{
		Name: "mips64le", Order: binary.LittleEndian, PtrSize: 8, MinInsn: 4, MaxInsn: 4,
		Break: mipsBreak, BreakPC: 0,
		RegNames: mipsNames,
		PC:       mipsPC, SP: 29, FP: 30, Flags: 32, Ret: 2, Ret2: 3,
		Args:      firstRegs(4, 8),
		Debug:     Debug{LongDouble: Quad},
		ThreadPtr: NoReg,
		SyscallNo: NoReg,
		LR:        31,
		UserEnd:   1 << 40,
		names:     mipsAll(8),
	}
	MIPSLE = &Arch{
		Name: "mipsle", Order: binary.LittleEndian, PtrSize: 4, MinInsn: 4, MaxInsn: 4,
		Break: mipsBreak, BreakPC: 0,
		RegNames: mipsNames,
		PC:       mipsPC, SP: 29, FP: 30, Flags: 32, Ret: 2, Ret2: 3,
		Args:      firstRegs(4, 4),
		ThreadPtr: NoReg,
		SyscallNo: NoReg,
		LR:        31,
		UserEnd:   1 << 31,
		SaveArea:  16,
		names:     mipsAll(4),
	}
)

const mipsPC = 37

var (
	mipsBreak = []byte{0x0d, 0x00, 0x00, 0x00}
	mipsNames = append(numbered("r", 32), "status", "lo", "hi", "badvaddr", "cause", "pc")
)

// mipsAll adds the names that both ABIs have, and those of the arguments.
func mipsAll(args int) map[string]Reg {
	m := names(mipsNames)
	for n, name := range numbered("a", args) {
		m[name] = 4 + Reg(n)
	}
	maps.Copy(m, map[string]Reg{"zero": 0, "v0": 2, "v1": 3, "t9": 25, "gp": 28, "sp": 29, "fp": 30, "s8": 30, "ra": 31, "lr": 31})
	for n, name := range numbered("s", 8) {
		m[name] = 16 + Reg(n)
	}
	return m
}
