package arm64

import (
	"kprobe/arch"
	"kprobe/internal/isa"
)

// form is a kind of encoding that takes more than a copy: it changes the program counter, refers to it, or must stay where it is. Any other instruction goes on with the next one, and does the same wherever it
// runs. So all of the manual's encodings of the former kinds must be here.
type form struct {
	mask, value uint32
	flow        isa.Flow
	offset      func(w uint32) int64 // distance from the instruction to the address that it refers to; nil: it refers to none
	page        bool                 // the offset counts from the page of the instruction

	refuse  string // why it cannot be probed; "" where it can
	done    string // the work done in its stead, in a plan's words; "" for a copy
	emulate func(w uint32, pc arch.Addr, r *arch.Regs, m arch.Memory) error
	move    func(s *sequence, w uint32, pc, target arch.Addr) // nil: a copy
}

const (
	noTransaction = "a transaction ends in failure at a trap"
	noCopying     = "it is one of three that copy or fill memory together, where they stand only"
	noOwnPlace    = "it signs a return address with its own place"
	noDebugger    = "it calls a debugger"
)

// forms are looked through in order.
var forms = []form{
	{mask: 0xfc000000, value: 0x14000000, flow: isa.Jump, offset: imm26, done: jumps, emulate: jump, move: moveJump},
	{mask: 0xfc000000, value: 0x94000000, flow: isa.Call, offset: imm26, done: calls, emulate: call, move: moveCall},
	{mask: 0xff000000, value: 0x54000000, flow: isa.CondJump, offset: imm19, done: jumps, emulate: cond, move: moveCond}, // b.cond, bc.cond
	{mask: 0x7e000000, value: 0x34000000, flow: isa.CondJump, offset: imm19, done: jumps, emulate: compare, move: moveTest},
	{mask: 0x7e000000, value: 0x36000000, flow: isa.CondJump, offset: imm14, done: jumps, emulate: test, move: moveTest},
	// Unconditional branches to a register. Branches with pointer authentication (braa, retab, ...)
	// are not emulated: only the CPU knows the keys.
	{mask: 0xfffffc1f, value: 0xd61f0000, flow: isa.IndirectJump, done: jumps, emulate: jumpReg},                        // br
	{mask: 0xfffffc1f, value: 0xd63f0000, flow: isa.IndirectCall, done: calls, emulate: callReg, move: moveCallReg},     // blr
	{mask: 0xfffffc1f, value: 0xd65f0000, flow: isa.Return, done: jumps, emulate: jumpReg},                              // ret
	{mask: 0xfffff81f, value: 0xd61f081f, flow: isa.IndirectJump},                                                       // braaz, brabz: only with Rm 31
	{mask: 0xfffff800, value: 0xd71f0800, flow: isa.IndirectJump},                                                       // braa, brab
	{mask: 0xfffff81f, value: 0xd63f081f, flow: isa.IndirectCall, done: calls, move: moveCallReg},                       // blraaz, blrabz
	{mask: 0xfffff800, value: 0xd73f0800, flow: isa.IndirectCall, done: calls, move: moveCallReg},                       // blraa, blrab
	{mask: 0xfffffbff, value: 0xd65f0bff, flow: isa.Return},                                                             // retaa, retab
	{mask: 0xfffffbe0, value: 0xd65f0be0, flow: isa.Return, refuse: noOwnPlace},                                         // retaasppcr, retabsppcr
	{mask: 0xffc0001f, value: 0x5500001f, flow: isa.Return, refuse: noOwnPlace},                                         // retaasppc, retabsppc
	{mask: 0xffffffff, value: 0xd69f03e0, flow: isa.Privileged, refuse: "it returns from an exception"},                 // eret
	{mask: 0xfffffbff, value: 0xd69f0bff, flow: isa.Privileged, refuse: "it returns from an exception"},                 // eretaa, eretab
	{mask: 0xffe0001f, value: 0xd4000001, flow: isa.Syscall},                                                            // svc
	{mask: 0xffe0001f, value: 0xd4000002, flow: isa.Trap},                                                               // hvc
	{mask: 0xffe0001f, value: 0xd4000003, flow: isa.Trap},                                                               // smc
	{mask: 0xffe0001f, value: 0xd4200000, flow: isa.Break, refuse: "it is a breakpoint already"},                        // brk
	{mask: 0xffe0001f, value: 0xd4400000, flow: isa.Trap, refuse: noDebugger},                                           // hlt
	{mask: 0xffe0001c, value: 0xd4a00000, flow: isa.Privileged, refuse: noDebugger},                                     // dcps1 to dcps3
	{mask: 0xffffffff, value: 0xd6bf03e0, flow: isa.Privileged, refuse: noDebugger},                                     // drps
	{mask: 0xffff0000, value: 0x00000000, flow: isa.Undefined},                                                          // udf
	{mask: 0x9f000000, value: 0x10000000, offset: immADR, done: puts, emulate: address, move: moveAddress},              // adr
	{mask: 0x9f000000, value: 0x90000000, offset: immADRP, page: true, done: puts, emulate: address, move: moveAddress}, // adrp
	{mask: 0xff000000, value: 0xd8000000, offset: imm19, done: hints, emulate: hint, move: moveHint},                    // prfm (literal)
	{mask: 0xbf000000, value: 0x18000000, offset: imm19, done: loads, emulate: load, move: moveLoad},                    // ldr w, x
	{mask: 0xff000000, value: 0x98000000, offset: imm19, done: loads, emulate: load, move: moveLoad},                    // ldrsw
	{mask: 0x3f000000, value: 0x1c000000, offset: imm19, done: loads, move: moveVectorLoad},                             // ldr s, d, q

	{mask: 0x3f200c00, value: 0x19000400, refuse: noCopying},     // cpyf*,
	{mask: 0x3f200c00, value: 0x1d000400, refuse: noCopying},     // cpy*, set*
	{mask: 0xfffff3ff, value: 0xdac183fe, refuse: noOwnPlace},    // pacnbiasppc, pacnbibsppc
	{mask: 0xfffffbff, value: 0xdac1a3fe, refuse: noOwnPlace},    // paciasppc, pacibsppc
	{mask: 0xfffff81f, value: 0xdac1901e, refuse: noOwnPlace},    // autiasppcr, autibsppcr
	{mask: 0xffc0001f, value: 0xf380001f, refuse: noOwnPlace},    // autiasppc, autibsppc
	{mask: 0xffffffe0, value: 0xd5233060, refuse: noTransaction}, // tstart
	{mask: 0xffffffff, value: 0xd503307f, refuse: noTransaction}, // tcommit
	{mask: 0xffe0001f, value: 0xd4600000, refuse: noTransaction}, // tcancel

	{mask: 0xffffffff, value: nop, done: nothing, emulate: hint},
	{mask: 0xffffff3f, value: 0xd503241f, done: nothing, emulate: hint}, // bti
}

// group is the number of an encoding's group, by table C4-1.
func group(w uint32) uint32 { return w >> 25 & 15 }

// ofGroup has the forms that there are in each group: whole libraries are decoded.
var ofGroup = func() (of [16][]*form) {
	for i := range forms {
		f := &forms[i]
		for g := range uint32(len(of)) {
			if group(f.mask)&(g^group(f.value)) == 0 {
				of[g] = append(of[g], f)
			}
		}
	}
	return of
}()

// usual is the form of instructions without one of their own.
var usual = &form{}

func formOf(w uint32) *form {
	for _, f := range ofGroup[group(w)] {
		if w&f.mask == f.value {
			return f
		}
	}
	return usual
}

// target is the address that the instruction refers to; 0 where there is none.
func (f *form) target(w uint32, pc arch.Addr) arch.Addr {
	switch {
	case f.offset == nil:
		return 0
	case f.page:
		pc &^= pageSize - 1
	}
	return pc + arch.Addr(f.offset(w))
}

// pageSize is the page of adrp, whatever the system's pages are.
const pageSize = 1 << 12

const nop = 0xd503201f

// signed is the two's complement number in bits at and up of w, n of them.
func signed(w uint32, at, n int) int64 { return int64(w) << (64 - at - n) >> (64 - n) }

func imm26(w uint32) int64   { return signed(w, 0, 26) * length }
func imm19(w uint32) int64   { return signed(w, 5, 19) * length }
func imm14(w uint32) int64   { return signed(w, 5, 14) * length }
func immADR(w uint32) int64  { return signed(w, 5, 19)<<2 | int64(w>>29&3) }
func immADRP(w uint32) int64 { return immADR(w) << 12 }

// landing tells bti, and what acts as one: paciasp and pacibsp. brk and hlt are compatible with
// every value of PSTATE.BTYPE (DDI 0487, "Branch Target Identification"), so a trap may take the
// place of one. A branch may not.
func landing(w uint32) bool {
	switch w {
	case 0xd503241f, 0xd503245f, 0xd503249f, 0xd50324df, paciasp, pacibsp:
		return true
	}
	return false
}

const (
	paciasp = 0xd503233f
	pacibsp = 0xd503237f
	xpaclri = 0xd50320ff
)

// exclusive tells the loads and stores that work by a monitor, which any
// exception clears (C4.1, "Load/store exclusive"). The ordered accesses and the
// compare and swap instructions of the same group need none. load tells which.
func exclusive(w uint32) (is, load bool) {
	usual := w&0x3f800000 == 0x08000000 && (w&(1<<21) == 0 || w>>31 == 1)
	asUser := w&0xbfa00000 == 0x89000000 // ldtxr, sttxr
	return usual || asUser, w&(1<<22) != 0
}

// clrex clears the monitor.
func clrex(w uint32) bool { return w&0xfffff0ff == 0xd503305f }
