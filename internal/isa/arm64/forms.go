package arm64

import (
	"math/bits"

	"kprobe/arch"
	"kprobe/internal/isa"
)

const nop = 0xd503201f

// form is a kind of encoding that does something to the program counter, or
// refers to it.
type form struct {
	mask, value uint32
	flow        isa.Flow
	offset      func(w uint32) int64 // from the instruction to what it refers to; nil: to nothing
	page        bool                 // the offset counts from the page of the instruction
	emulate     func(w uint32, pc arch.Addr, r *arch.Regs)
}

// forms are looked through in order. What fits none goes on with the next
// instruction.
var forms = []form{
	{mask: 0xfc000000, value: 0x14000000, flow: isa.Jump, offset: imm26, emulate: jump},     // b
	{mask: 0xfc000000, value: 0x94000000, flow: isa.Call, offset: imm26},                    // bl
	{mask: 0xff000000, value: 0x54000000, flow: isa.CondJump, offset: imm19, emulate: cond}, // b.cond, bc.cond
	{mask: 0x7e000000, value: 0x34000000, flow: isa.CondJump, offset: imm19, emulate: compare},
	{mask: 0x7e000000, value: 0x36000000, flow: isa.CondJump, offset: imm14, emulate: test},
	// Unconditional branches to a register. Those with pointer authentication
	// (braa, retab, ...) are not emulated: only the CPU knows the keys.
	{mask: 0xfffffc1f, value: 0xd61f0000, flow: isa.IndirectJump, emulate: jumpReg}, // br
	{mask: 0xfffffc1f, value: 0xd63f0000, flow: isa.IndirectCall},                   // blr
	{mask: 0xfffffc1f, value: 0xd65f0000, flow: isa.Return, emulate: ret},           // ret
	{mask: 0xfefff800, value: 0xd61f0800, flow: isa.IndirectJump},                   // braa, brab, braaz, brabz
	{mask: 0xfefff800, value: 0xd63f0800, flow: isa.IndirectCall},                   // blraa, ...
	{mask: 0xfffffbff, value: 0xd65f0bff, flow: isa.Return},                         // retaa, retab
	{mask: 0xfffff3e0, value: 0xd69f03e0, flow: isa.Privileged},                     // eret, eretaa, eretab
	{mask: 0xffe0001f, value: 0xd4000001, flow: isa.Syscall},                        // svc
	{mask: 0xffe0001f, value: 0xd4000002, flow: isa.Trap},                           // hvc
	{mask: 0xffe0001f, value: 0xd4000003, flow: isa.Trap},                           // smc
	{mask: 0xffe0001f, value: 0xd4200000, flow: isa.Break},                          // brk
	{mask: 0xffe0001f, value: 0xd4400000, flow: isa.Trap},                           // hlt
	{mask: 0xffff0000, value: 0x00000000, flow: isa.Undefined},                      // udf
	{mask: 0x9f000000, value: 0x10000000, offset: immADR},                           // adr
	{mask: 0x9f000000, value: 0x90000000, offset: immADRP, page: true},              // adrp
	{mask: 0x3b000000, value: 0x18000000, offset: imm19},                            // ldr (literal)
}

func formOf(w uint32) form {
	for _, f := range forms {
		if w&f.mask == f.value {
			return f
		}
	}
	return form{}
}

func (f *form) target(w uint32, pc arch.Addr) arch.Addr {
	if f.page {
		pc &^= 1<<12 - 1
	}
	return pc + arch.Addr(f.offset(w))
}

// signed is the two's complement number in bits at and up of w, n of them.
func signed(w uint32, at, n int) int64 { return int64(w) << (64 - at - n) >> (64 - n) }

func imm26(w uint32) int64   { return signed(w, 0, 26) * length }
func imm19(w uint32) int64   { return signed(w, 5, 19) * length }
func imm14(w uint32) int64   { return signed(w, 5, 14) * length }
func immADR(w uint32) int64  { return signed(w, 5, 19)<<2 | int64(w>>29&3) }
func immADRP(w uint32) int64 { return immADR(w) << 12 }

// landing tells bti, and what acts as one: paciasp and pacibsp.
func landing(w uint32) bool {
	switch w {
	case 0xd503241f, 0xd503245f, 0xd503249f, 0xd50324df, 0xd503233f, 0xd503237f:
		return true
	}
	return false
}

// exclusive tells the loads and stores that work by a monitor, which any
// exception clears (C4.1, "Load/store exclusive"). The ordered accesses and the
// compare and swap instructions of the same group need none.
func exclusive(w uint32) bool {
	return w&0x3f800000 == 0x08000000 && (w&(1<<21) == 0 || w>>31 == 1)
}

// xzr is register 31 where it is not the stack pointer: it reads 0.
const xzr = 31

func reg(r *arch.Regs, n uint32) uint64 {
	if n &= 31; n != xzr {
		return r[n]
	}
	return 0
}

func jump(w uint32, pc arch.Addr, r *arch.Regs) {
	r[arch.ARM64.PC] = uint64(pc) + uint64(imm26(w))
}

// branch goes to an offset, or on.
func branch(taken bool, offset int64, pc arch.Addr, r *arch.Regs) {
	if !taken {
		offset = length
	}
	r[arch.ARM64.PC] = uint64(pc) + uint64(offset)
}

func cond(w uint32, pc arch.Addr, r *arch.Regs) {
	branch(holds(w&15, r[arch.ARM64.Flags]), imm19(w), pc, r)
}

// holds tells whether a condition does (C1.2.4); the flags are N Z C V, from
// bit 31 down.
func holds(condition uint32, pstate uint64) bool {
	n, z, c, v := pstate>>31&1 == 1, pstate>>30&1 == 1, pstate>>29&1 == 1, pstate>>28&1 == 1
	if condition>>1 == 7 {
		return true // al, and nv, which is the same
	}
	yes := [...]bool{z, c, n, v, c && !z, n == v, n == v && !z}[condition>>1]
	return yes != (condition&1 == 1)
}

// compare is cbz and cbnz.
func compare(w uint32, pc arch.Addr, r *arch.Regs) {
	v := reg(r, w)
	if w>>31 == 0 {
		v = uint64(uint32(v))
	}
	branch((v == 0) == (w>>24&1 == 0), imm19(w), pc, r)
}

// test is tbz and tbnz.
func test(w uint32, pc arch.Addr, r *arch.Regs) {
	bit := w>>31<<5 | w>>19&31
	set := bits.RotateLeft64(reg(r, w), -int(bit))&1 == 1
	branch(set == (w>>24&1 == 1), imm14(w), pc, r)
}

func jumpReg(w uint32, _ arch.Addr, r *arch.Regs) { r[arch.ARM64.PC] = reg(r, w>>5) }

func ret(w uint32, _ arch.Addr, r *arch.Regs) { r[arch.ARM64.PC] = reg(r, w>>5) }
