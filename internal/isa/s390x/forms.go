package s390x

import "kprobe/internal/isa"

// form is an operation that does something to the instruction address, or refers
// to it: its code, and how.
type form struct {
	flow     isa.Flow
	rel      int // bytes of the offset, in halfwords, that begins at the third byte; 0: none
	register int // bit at which the number of the register begins that it branches to; 0: none

	masked bool // bits 8 to 11 say for which conditions
}

// formOf finds the form by the operation code, which lies in other places from
// format to format. What has none goes on with the next instruction. A branch to
// an address in registers is IndirectJump, conditional or not.
func formOf(i insn) form {
	first := uint16(i.field(0, 8))
	switch first {
	case 0x01, 0xb2, 0xb9: // E, S and RRE
		return long[uint16(i.field(0, 16))]
	case 0xa7, 0xc0, 0xcc: // RI and RIL
		return long[first<<8|uint16(i.field(12, 4))]
	case 0xc4, 0xc6: // RIL: all operands are relative
		return form{rel: 4}
	case 0xe3, 0xeb, 0xec: // RXY, RSY and RIE
		return long[first<<8|uint16(i.field(40, 8))]
	}
	return short[first]
}

// short are the operations whose code is the first byte.
var short = map[uint16]form{
	0x00: {flow: isa.Undefined},
	0x05: {flow: isa.IndirectCall, register: 12},               // balr
	0x06: {flow: isa.IndirectJump, register: 12},               // bctr
	0x07: {flow: isa.IndirectJump, register: 12, masked: true}, // bcr
	0x0a: {flow: isa.Syscall},                                  // svc
	0x0b: {flow: isa.IndirectJump, register: 12},               // bsm
	0x0c: {flow: isa.IndirectCall, register: 12},               // bassm
	0x0d: {flow: isa.IndirectCall, register: 12},               // basr
	0x45: {flow: isa.IndirectCall},                             // bal
	0x46: {flow: isa.IndirectJump},                             // bct
	0x47: {flow: isa.IndirectJump, masked: true},               // bc
	0x4d: {flow: isa.IndirectCall},                             // bas
	0x82: {flow: isa.Privileged},                               // lpsw
	0x83: {flow: isa.Trap},                                     // diag
	0x84: {flow: isa.CondJump, rel: 2},                         // brxh
	0x85: {flow: isa.CondJump, rel: 2},                         // brxle
	0x86: {flow: isa.IndirectJump},                             // bxh
	0x87: {flow: isa.IndirectJump},                             // bxle
	0xaf: {flow: isa.Trap},                                     // mc
}

// long are those with a part of the code elsewhere, appended.
var long = map[uint16]form{
	0x0101: {flow: isa.IndirectJump},               // pr
	0x01ff: {flow: isa.Trap},                       // trap2
	0xb218: {flow: isa.IndirectCall},               // pc
	0xb228: {flow: isa.IndirectJump},               // pt
	0xb240: {flow: isa.IndirectJump},               // bakr
	0xb258: {flow: isa.IndirectJump},               // bsg
	0xb25a: {flow: isa.IndirectJump},               // bsa
	0xb2b2: {flow: isa.Privileged},                 // lpswe
	0xb2ff: {flow: isa.Trap},                       // trap4
	0xb946: {flow: isa.IndirectJump, register: 28}, // bctgr

	0xa704: {flow: isa.CondJump, rel: 2, masked: true}, // brc
	0xa705: {flow: isa.Call, rel: 2},                   // bras
	0xa706: {flow: isa.CondJump, rel: 2},               // brct
	0xa707: {flow: isa.CondJump, rel: 2},               // brctg
	0xc000: {rel: 4},                                   // larl
	0xc004: {flow: isa.CondJump, rel: 4, masked: true}, // brcl
	0xc005: {flow: isa.Call, rel: 4},                   // brasl
	0xcc06: {flow: isa.CondJump, rel: 4},               // brcth

	0xe346: {flow: isa.IndirectJump}, // bctg
	0xe347: {flow: isa.IndirectJump}, // bic
	0xeb44: {flow: isa.IndirectJump}, // bxhg
	0xeb45: {flow: isa.IndirectJump}, // bxleg
	0xeb71: {flow: isa.Privileged},   // lpswey

	0xec44: {flow: isa.CondJump, rel: 2}, // brxhg
	0xec45: {flow: isa.CondJump, rel: 2}, // brxlg
	0xec64: {flow: isa.CondJump, rel: 2}, // cgrj
	0xec65: {flow: isa.CondJump, rel: 2}, // clgrj
	0xec76: {flow: isa.CondJump, rel: 2}, // crj
	0xec77: {flow: isa.CondJump, rel: 2}, // clrj
	0xec7c: {flow: isa.CondJump, rel: 2}, // cgij
	0xec7d: {flow: isa.CondJump, rel: 2}, // clgij
	0xec7e: {flow: isa.CondJump, rel: 2}, // cij
	0xec7f: {flow: isa.CondJump, rel: 2}, // clij
	0xece4: {flow: isa.IndirectJump},     // cgrb
	0xece5: {flow: isa.IndirectJump},     // clgrb
	0xecf6: {flow: isa.IndirectJump},     // crb
	0xecf7: {flow: isa.IndirectJump},     // clrb
	0xecfc: {flow: isa.IndirectJump},     // cgib
	0xecfd: {flow: isa.IndirectJump},     // clgib
	0xecfe: {flow: isa.IndirectJump},     // cib
	0xecff: {flow: isa.IndirectJump},     // clib
}
