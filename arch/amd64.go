package arch

import "encoding/binary"

// The registers of amd64 and 386, numbered in GDB's order for amd64. A 386
// target uses the same numbers: its eax is AX and so on, and r8-r15 read 0.
const (
	AX Reg = iota
	BX
	CX
	DX
	SI
	DI
	BP
	SP
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	IP
	FLAGS
	CS
	SS
	DS
	ES
	FS
	GS
	FSBase
	GSBase
	OrigAX
)

// x86Names are GDB's names; x86Kernel are those of pt_regs, which
// kprobe_events definitions use. Same order as the constants above.
var (
	x86Names = []string{
		"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
		"rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs",
		"fs_base", "gs_base", "orig_rax",
	}
	x86Kernel = []string{
		"ax", "bx", "cx", "dx", "si", "di", "bp", "sp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
		"ip", "flags", "cs", "ss", "ds", "es", "fs", "gs",
		"fs_base", "gs_base", "orig_ax",
	}
)

// AMD64 is x86-64 with the System V ABI.
var AMD64 = &Arch{
	Name: "amd64", Stacks: true, Order: binary.LittleEndian, PtrSize: 8, MinInsn: 1, MaxInsn: 15,
	Break: []byte{0xcc}, BreakPC: 1, BreakTrap: 3,
	RegNames: x86Names,
	PC:       IP, SP: SP, FP: BP, Flags: FLAGS, Ret: AX, Ret2: DX,
	Args:           []Reg{DI, SI, DX, CX, R8, R9},
	GoArgs:         []Reg{AX, BX, CX, DI, SI, R8, R9, R10, R11},
	ThreadPtr:      FSBase,
	SyscallNo:      OrigAX,
	RetAddrOnStack: true, LR: NoReg,
	RedZone: 128,
	Debug: Debug{
		Regs:        []string{"ax", "dx", "cx", "bx", "si", "di", "bp", "sp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "ip"},
		FirstVector: 17, Vectors: 16, // those that every processor has
		LongDouble: X87,
		SP:         7, Kept: []uint64{3, 6, 12, 13, 14, 15},
		Eightbytes: true, ThreadStorage: true,
	},
	UserEnd: 0x7fff_ffff_f000,
	Shadow:  Range{0x7fff_7000, 0x1000_7fff_8000},
	names:   x86RegNames(),
	halves:  x86Halves(),
}

func x86Halves() map[string]Reg {
	m := make(map[string]Reg)
	for i, n := range x86Names[:R15+1] {
		if Reg(i) < R8 {
			m["e"+n[1:]] = Reg(i)
		} else {
			m[n+"d"] = Reg(i)
		}
	}
	return m
}

func x86RegNames() map[string]Reg {
	m := make(map[string]Reg, 2*len(x86Names))
	for i, n := range x86Names {
		m[n] = Reg(i)
	}
	for i, n := range x86Kernel {
		m[n] = Reg(i)
	}
	return m
}
