package arch

// I386 is the 32-bit machine as Linux programs use it: cdecl, with all arguments
// on the stack. Its registers have the numbers that AMD64's have, see there.
var I386 = &Arch{
	Name: "386", Order: AMD64.Order, PtrSize: 4, MinInsn: 1, MaxInsn: 15,
	Break: []byte{0xcc}, BreakPC: 1, BreakTrap: 3,
	RegNames: i386Names(),
	PC:       IP, SP: SP, FP: BP, Flags: FLAGS, Ret: AX, Ret2: DX,
	ThreadPtr:      GSBase,
	SyscallNo:      OrigAX,
	RetAddrOnStack: true, LR: NoReg,
	Debug:   Debug{Regs: []string{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "ip"}, LongDouble: X87},
	UserEnd: 0xffff_e000,
	Shadow:  Range{0x1fff_f000, 0x4000_0000},
	names:   i386RegNames(),
}

// i386Names are GDB's names, in the order of AMD64's numbers; "" is a register
// that there is not.
func i386Names() []string {
	return []string{
		"eax", "ebx", "ecx", "edx", "esi", "edi", "ebp", "esp",
		"", "", "", "", "", "", "", "",
		"eip", "eflags", "cs", "ss", "ds", "es", "fs", "gs",
		"fs_base", "gs_base", "orig_eax",
	}
}

func i386RegNames() map[string]Reg {
	m := make(map[string]Reg)
	for i, n := range i386Names() {
		if n != "" {
			m[n], m[x86Kernel[i]] = Reg(i), Reg(i)
		}
	}
	return m
}
