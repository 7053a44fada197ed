package riscv64

import (
	"kprobe/arch"
	"kprobe/internal/isa"
)

// form is a kind of encoding that takes more than a copy: it changes the program counter, refers to it, must stay where it is, or is
// emulated on registers. An instruction that goes on with the next one, and does the same wherever it runs, has the form usual.
type form struct {
	mask, value uint32
	flow        isa.Flow
	monitor     isa.Monitor
	landing     bool
	offset      func(i insn) int64 // distance from the instruction to the address that it refers to; nil: it refers to none

	refuse  string // why it cannot be probed; "" where it can
	done    string // the work done in its stead, in a plan's words; "" for a copy
	emulate func(i insn, pc arch.Addr, r *arch.Regs)
	move    func(s *sequence, i insn, pc, target arch.Addr) // nil: a copy
}

const (
	noMonitor    = "it belongs to a load and store that a stop would make fail for ever"
	noBreakpoint = "it is a breakpoint already"
	noLanding    = "indirect branches may lead to it only while it is what it is"
	noUser       = "it is none of a program's"
)

// The work that is done in an instruction's stead, in a plan's words.
const (
	jumps    = "a branch"
	calls    = "a call"
	puts     = "an address of its own place"
	reckons  = "a sum with a constant"
	nothing  = "it does nothing"
	link     = 1
	nop      = 0x13
	shortNop = 1
)

// long are the forms of 4 bytes, looked through in order.
var long = []form{
	{mask: 0xfff, value: 0x06f, flow: isa.Jump, offset: immJ, done: jumps, emulate: jump, move: moveJump},
	{mask: 0x7f, value: 0x6f, flow: isa.Call, offset: immJ, done: calls, emulate: jump, move: moveJump},
	{mask: 0xffffffff, value: 0x8067, flow: isa.Return, done: jumps, emulate: jumpReg},
	{mask: 0x7fff, value: 0x0067, flow: isa.IndirectJump, done: jumps, emulate: jumpReg},
	{mask: 0x707f, value: 0x0067, flow: isa.IndirectCall, done: calls, emulate: jumpReg, move: moveCallReg},
	{mask: 0x607f, value: 0x0063, flow: isa.CondJump, offset: immB, done: jumps, emulate: branch, move: moveBranch}, // beq, bne
	{mask: 0x407f, value: 0x4063, flow: isa.CondJump, offset: immB, done: jumps, emulate: branch, move: moveBranch}, // blt, bge, bltu, bgeu
	{mask: 0xfff, value: 0x017, landing: true, offset: immU, refuse: noLanding},                                     // lpad
	{mask: 0x7f, value: 0x17, offset: immU, done: puts, emulate: address, move: moveAddress},                        // auipc

	{mask: 0xf800607f, value: 0x1000202f, monitor: isa.Opens, refuse: noMonitor},  // lr.w, lr.d
	{mask: 0xf800607f, value: 0x1800202f, monitor: isa.Closes, refuse: noMonitor}, // sc.w, sc.d

	{mask: 0xffffffff, value: 0x00000073, flow: isa.Syscall},
	{mask: 0xffffffff, value: 0x00100073, flow: isa.Break, refuse: noBreakpoint},
	{mask: 0xffffffff, value: 0x00d00073, refuse: noMonitor}, // wrs.nto waits for what lr has read
	{mask: 0xffffffff, value: 0x01d00073, refuse: noMonitor}, // wrs.sto
	{mask: 0x707f, value: 0x0073, flow: isa.Privileged, refuse: noUser},

	{mask: 0xffffffff, value: nop, done: nothing, emulate: hint},
	{mask: 0x707f, value: 0x0013, done: reckons, emulate: addi},
	{mask: 0x707f, value: 0x001b, done: reckons, emulate: addiw},
	{mask: 0x7f, value: 0x37, done: reckons, emulate: lui},
}

// compressed are the forms of 2 bytes.
var compressed = []form{
	{mask: 0xffff, value: 0x0000, flow: isa.Undefined},
	{mask: 0xe003, value: 0xa001, flow: isa.Jump, offset: immCJ, done: jumps, emulate: shortJump, move: moveJump},
	{mask: 0xc003, value: 0xc001, flow: isa.CondJump, offset: immCB, done: jumps, emulate: shortBranch, move: moveBranch}, // c.beqz, c.bnez
	{mask: 0xffff, value: 0x8082, flow: isa.Return, done: jumps, emulate: shortJumpReg},
	{mask: 0xffff, value: 0x9002, flow: isa.Break, refuse: noBreakpoint},
	{mask: 0xf07f, value: 0x8002, flow: isa.IndirectJump, done: jumps, emulate: shortJumpReg},                    // c.jr
	{mask: 0xf07f, value: 0x9002, flow: isa.IndirectCall, done: calls, emulate: shortJumpReg, move: moveCallReg}, // c.jalr

	{mask: 0xffff, value: shortNop, done: nothing, emulate: hint},
	{mask: 0xe003, value: 0x0000, done: reckons, emulate: addShortSP}, // c.addi4spn
	{mask: 0xe003, value: 0x0001, done: reckons, emulate: shortAdd},   // c.addi
	{mask: 0xe003, value: 0x2001, done: reckons, emulate: shortAddW},  // c.addiw
	{mask: 0xe003, value: 0x4001, done: reckons, emulate: shortLoad},  // c.li
	{mask: 0xef83, value: 0x6101, done: reckons, emulate: addSP},      // c.addi16sp
	{mask: 0xf003, value: 0x8002, done: reckons, emulate: shortMove},  // c.mv
}

// usual is the form of instructions without one of their own.
var usual = &form{}

// opcodes are the major opcodes of 4 bytes (table 70, "RISC-V base opcode map") that belong to
// known extensions: a bit for each value of bits 2 to 6.
var opcodes = func() (known uint32) {
	for _, op := range []uint32{
		0x03, 0x07, 0x0f, 0x13, 0x17, 0x1b, 0x23, 0x27, 0x2f, 0x33, 0x37, 0x3b,
		0x43, 0x47, 0x4b, 0x4f, 0x53, 0x57, 0x63, 0x67, 0x6f, 0x73, 0x77,
	} {
		known |= 1 << (op >> 2)
	}
	return known
}()

// formOf finds an instruction's form; nil for an encoding that is not known.
func formOf(i insn) *form {
	forms := compressed
	if i.size == 4 {
		forms = long
	}
	for k := range forms {
		if f := &forms[k]; i.w&f.mask == f.value {
			if reserved(i) {
				return nil
			}
			return f
		}
	}
	switch op := i.w & 0x7f; {
	case reserved(i), i.size == 4 && (opcodes>>(op>>2)&1 == 0 || op == 0x63 || op == 0x67):
		return nil
	}
	return usual
}

// reserved tells compressed encodings that are kept for later extensions (27.8, "RVC Instruction
// Set Listings").
func reserved(i insn) bool {
	if i.size == 4 {
		return false
	}
	low, rd := i.w&0xe003, i.rd()
	switch {
	case low == 0x0000: // c.addi4spn
		return i.w != 0 && i.w>>5&0xff == 0
	case low == 0x2001: // c.addiw
		return rd == 0
	case low == 0x6001 && i.w&0x107c == 0: // c.lui and c.addi16sp of 0, but those that may be (c.mop)
		return i.w&0xf8ff != 0x6081&0xf8ff
	case i.w == 0x8002: // c.jr of x0
		return true
	case low == 0x4002, low == 0x6002: // c.lwsp, c.ldsp
		return rd == 0
	}
	return false
}

// target is the address that the instruction refers to.
func (f *form) target(i insn, pc arch.Addr) arch.Addr { return pc + arch.Addr(f.offset(i)) }

// signed is the two's complement number of n bits in v.
func signed(v uint32, n int) int64 { return int64(int32(v<<(32-n)) >> (32 - n)) }

// bits are n bits of w from at on, put at to.
func bits(w uint32, at, n, to int) uint32 { return w >> at & (1<<n - 1) << to }

func immI(i insn) int64 { return signed(i.w>>20, 12) }
func immU(i insn) int64 { return int64(int32(i.w &^ 0xfff)) }

func immJ(i insn) int64 {
	return signed(bits(i.w, 21, 10, 1)|bits(i.w, 20, 1, 11)|bits(i.w, 12, 8, 12)|bits(i.w, 31, 1, 20), 21)
}

func immB(i insn) int64 {
	return signed(bits(i.w, 8, 4, 1)|bits(i.w, 25, 6, 5)|bits(i.w, 7, 1, 11)|bits(i.w, 31, 1, 12), 13)
}

func immCJ(i insn) int64 {
	return signed(bits(i.w, 3, 3, 1)|bits(i.w, 11, 1, 4)|bits(i.w, 2, 1, 5)|bits(i.w, 7, 1, 6)|
		bits(i.w, 6, 1, 7)|bits(i.w, 9, 2, 8)|bits(i.w, 8, 1, 10)|bits(i.w, 12, 1, 11), 12)
}

func immCB(i insn) int64 {
	return signed(bits(i.w, 3, 2, 1)|bits(i.w, 10, 2, 3)|bits(i.w, 2, 1, 5)|bits(i.w, 5, 2, 6)|bits(i.w, 12, 1, 8), 9)
}

// immCI is the immediate of c.addi, c.addiw and c.li.
func immCI(i insn) int64 { return signed(bits(i.w, 2, 5, 0)|bits(i.w, 12, 1, 5), 6) }

func immAddSP(i insn) int64 { // c.addi16sp
	return signed(bits(i.w, 6, 1, 4)|bits(i.w, 2, 1, 5)|bits(i.w, 5, 1, 6)|bits(i.w, 3, 2, 7)|bits(i.w, 12, 1, 9), 10)
}

func immShortSP(i insn) int64 { // c.addi4spn
	return int64(bits(i.w, 6, 1, 2) | bits(i.w, 5, 1, 3) | bits(i.w, 11, 2, 4) | bits(i.w, 7, 4, 6))
}
