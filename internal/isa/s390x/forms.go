package s390x

import (
	"kprobe/arch"
	"kprobe/internal/isa"
)

// form is an operation that does something to the instruction address, or refers to it, or must not
// be touched: its code, and how. An operation without a form goes on with the next instruction, and
// does the same wherever it runs.
type form struct {
	flow     isa.Flow
	monitor  isa.Monitor
	rel      int // bytes of the offset, in halfwords, that begins at the third byte; 0: none
	register int // bit at which the number of the register begins that it branches to; 0: none

	executes bool // it carries out the instruction that it refers to

	masked bool // bits 8 to 11 say for which conditions

	refuse  string // why it cannot be probed; "" where it can
	inPlace bool   // it is not known how it would run elsewhere
	done    string // the work done in its stead, in a plan's words; "" for a copy
	emulate func(i insn, pc, target arch.Addr, r *arch.Regs)
	when    condition                                       // it branches: instead of emulate
	where   destination                                     // it branches to; nil: to the address that it refers to
	move    func(s *sequence, i insn, pc, target arch.Addr) // nil: a copy, or of branches what moveBranch makes
}

const (
	noBreakpoint  = "it is no instruction, or a breakpoint already"
	noTransaction = "a stop in a transaction ends it, and it would be begun anew for ever"
)

// The work that is done in an instruction's stead, in a plan's words.
const (
	jumps  = "a branch"
	calls  = "a call"
	refers = "an address of its own place"
)

// formOf finds the form by the operation code, which lies in other places from
// format to format. A branch to an address in registers is IndirectJump, conditional or not.
func formOf(i insn) form {
	first := uint16(i.field(0, 8))
	switch first {
	case 0x01, 0xb2, 0xb9, 0xe5: // E, S, RRE and SIL
		return long[uint16(i.field(0, 16))]
	case 0xa7, 0xc0, 0xcc: // RI and RIL
		return long[first<<8|uint16(i.field(12, 4))]
	case 0xc4, 0xc6: // RIL: all operands are relative
		const exrl = 0xc600
		return form{rel: 4, executes: i.field(0, 16)&0xff0f == exrl, done: refers, move: moveOperand}
	case 0xe3, 0xeb, 0xec: // RXY, RSY and RIE
		return long[first<<8|uint16(i.field(40, 8))]
	}
	return short[first]
}

// short are the operations whose code is the first byte.
var short = map[uint16]form{
	0x00: {flow: isa.Undefined, refuse: noBreakpoint},
	0x05: {flow: isa.IndirectCall, register: 12, done: calls, emulate: callReg, move: moveCallReg},           // balr
	0x06: {flow: isa.IndirectJump, register: 12},                                                             // bctr
	0x07: {flow: isa.IndirectJump, register: 12, masked: true, done: jumps, when: masked, where: inRegister}, // bcr
	0x0a: {flow: isa.Syscall},                                                                                // svc
	0x0b: {flow: isa.IndirectJump, register: 12, inPlace: true},                                              // bsm
	0x0c: {flow: isa.IndirectCall, register: 12, inPlace: true},                                              // bassm
	0x0d: {flow: isa.IndirectCall, register: 12, done: calls, emulate: callReg, move: moveCallReg},           // basr
	0x44: {executes: true, inPlace: true},                                                                    // ex
	0x45: {flow: isa.IndirectCall, inPlace: true},                                                            // bal
	0x46: {flow: isa.IndirectJump, done: jumps, when: counted, where: indexed},                               // bct
	0x47: {flow: isa.IndirectJump, masked: true, done: jumps, when: masked, where: indexed},                  // bc
	0x4d: {flow: isa.IndirectCall, inPlace: true},                                                            // bas
	0x82: {flow: isa.Privileged, inPlace: true},                                                              // lpsw
	0x83: {flow: isa.Trap, inPlace: true},                                                                    // diag
	0x84: {flow: isa.CondJump, rel: 2, done: jumps, when: high},                                              // brxh
	0x85: {flow: isa.CondJump, rel: 2, done: jumps, when: notHigh},                                           // brxle
	0x86: {flow: isa.IndirectJump, done: jumps, when: high, where: based},                                    // bxh
	0x87: {flow: isa.IndirectJump, done: jumps, when: notHigh, where: based},                                 // bxle
	0xaf: {flow: isa.Trap, inPlace: true},                                                                    // mc
}

// long are forms with a part of the code elsewhere, appended.
var long = map[uint16]form{
	0x0101: {flow: isa.IndirectJump, inPlace: true}, // pr
	0x01ff: {flow: isa.Trap, inPlace: true},         // trap2
	0xb218: {flow: isa.IndirectCall, inPlace: true}, // pc
	0xb228: {flow: isa.IndirectJump, inPlace: true}, // pt
	0xb240: {flow: isa.IndirectJump, inPlace: true}, // bakr
	0xb258: {flow: isa.IndirectJump, inPlace: true}, // bsg
	0xb25a: {flow: isa.IndirectJump, inPlace: true}, // bsa
	0xb2b2: {flow: isa.Privileged, inPlace: true},   // lpswe
	0xb2ff: {flow: isa.Trap, inPlace: true},         // trap4
	0xb946: {flow: isa.IndirectJump, register: 28},  // bctgr

	0xe560: {monitor: isa.Opens, refuse: noTransaction},  // tbegin
	0xe561: {monitor: isa.Opens, refuse: noTransaction},  // tbeginc
	0xb2f8: {monitor: isa.Closes, refuse: noTransaction}, // tend
	0xb2fc: {refuse: noTransaction},                      // tabort

	0xa704: {flow: isa.CondJump, rel: 2, masked: true, done: jumps, when: masked}, // brc
	0xa705: {flow: isa.Call, rel: 2, done: calls, emulate: call, move: moveCall},  // bras
	0xa706: {flow: isa.CondJump, rel: 2, done: jumps, when: counted},              // brct
	0xa707: {flow: isa.CondJump, rel: 2, done: jumps, when: countedLong},          // brctg
	0xc000: {rel: 4, done: refers, emulate: address, move: moveOperand},           // larl
	0xc004: {flow: isa.CondJump, rel: 4, masked: true, done: jumps, when: masked}, // brcl
	0xc005: {flow: isa.Call, rel: 4, done: calls, emulate: call, move: moveCall},  // brasl
	0xcc06: {flow: isa.CondJump, rel: 4, done: jumps, when: countedHigh},          // brcth

	0xe346: {flow: isa.IndirectJump, done: jumps, when: countedLong, where: indexedLong}, // bctg
	0xe347: {flow: isa.IndirectJump},                                                     // bic
	0xeb44: {flow: isa.IndirectJump, done: jumps, when: highLong, where: basedLong},      // bxhg
	0xeb45: {flow: isa.IndirectJump, done: jumps, when: notHighLong, where: basedLong},   // bxleg
	0xeb71: {flow: isa.Privileged, inPlace: true},                                        // lpswey

	0xec44: {flow: isa.CondJump, rel: 2, done: jumps, when: highLong},                                       // brxhg
	0xec45: {flow: isa.CondJump, rel: 2, done: jumps, when: notHighLong},                                    // brxlg
	0xec64: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(registers, signedLong)},                // cgrj
	0xec65: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(registers, unsignedLong)},              // clgrj
	0xec76: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(registers, signedWord)},                // crj
	0xec77: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(registers, unsignedWord)},              // clrj
	0xec7c: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(signedByte, signedLong)},               // cgij
	0xec7d: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(unsignedByte, unsignedLong)},           // clgij
	0xec7e: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(signedByte, signedWord)},               // cij
	0xec7f: {flow: isa.CondJump, rel: 2, done: jumps, when: compared(unsignedByte, unsignedWord)},           // clij
	0xece4: {flow: isa.IndirectJump, done: jumps, when: compared(registers, signedLong), where: based},      // cgrb
	0xece5: {flow: isa.IndirectJump, done: jumps, when: compared(registers, unsignedLong), where: based},    // clgrb
	0xecf6: {flow: isa.IndirectJump, done: jumps, when: compared(registers, signedWord), where: based},      // crb
	0xecf7: {flow: isa.IndirectJump, done: jumps, when: compared(registers, unsignedWord), where: based},    // clrb
	0xecfc: {flow: isa.IndirectJump, done: jumps, when: compared(signedByte, signedLong), where: based},     // cgib
	0xecfd: {flow: isa.IndirectJump, done: jumps, when: compared(unsignedByte, unsignedLong), where: based}, // clgib
	0xecfe: {flow: isa.IndirectJump, done: jumps, when: compared(signedByte, signedWord), where: based},     // cib
	0xecff: {flow: isa.IndirectJump, done: jumps, when: compared(unsignedByte, unsignedWord), where: based}, // clib
}
