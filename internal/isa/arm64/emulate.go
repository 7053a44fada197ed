package arm64

import (
	"math/bits"

	"kprobe/arch"
)

// The work of an instruction, done on a thread's registers.

// The work that is done in an instruction's stead, in a plan's words.
const (
	jumps   = "a branch"
	calls   = "a call"
	puts    = "an address of its own place"
	loads   = "a load from its own place"
	hints   = "a hint about its own place"
	nothing = "it does nothing"
)

// xzr is register 31 where it is not the stack pointer: it reads 0.
const xzr = 31

func reg(r *arch.Regs, n uint32) uint64 {
	if n &= 31; n != xzr {
		return r[n]
	}
	return 0
}

func setReg(r *arch.Regs, n uint32, v uint64) {
	if n &= 31; n != xzr {
		r[n] = v
	}
}

// btype are the bits of PSTATE that an indirect branch has set, and that every other
// instruction clears. Where they are left, and the next instruction is no landing pad
// of a guarded page, the CPU refuses to go on.
const btype = 3 << 10

// next goes to an address, in the state that an instruction leaves.
func next(r *arch.Regs, to uint64) {
	r[arch.ARM64.Flags] &^= btype
	r[arch.ARM64.PC] = to
}

// branchTo goes where a register says. Of an address of programs the highest byte is
// a tag, which Linux has the CPU ignore (TCR_EL1.TBI0).
func branchTo(r *arch.Regs, to uint64) {
	if to>>55&1 == 0 {
		to &= 1<<56 - 1
	}
	next(r, to)
}

func jump(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	next(r, uint64(pc)+uint64(imm26(w)))
	return nil
}

func call(w uint32, pc arch.Addr, r *arch.Regs, m arch.Memory) error {
	r[arch.ARM64.LR] = uint64(pc) + length
	return jump(w, pc, r, m)
}

// branch goes to an offset, or on.
func branch(taken bool, offset int64, pc arch.Addr, r *arch.Regs) error {
	if !taken {
		offset = length
	}
	next(r, uint64(pc)+uint64(offset))
	return nil
}

func cond(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	return branch(holds(w&15, r[arch.ARM64.Flags]), imm19(w), pc, r)
}

// holds tells whether a condition does (C1.2.4); the flags are N Z C V, from
// bit 31 down.
func holds(condition uint32, pstate uint64) bool {
	n, z, c, v := pstate>>31&1 == 1, pstate>>30&1 == 1, pstate>>29&1 == 1, pstate>>28&1 == 1
	if condition>>1 == always>>1 {
		return true
	}
	yes := [...]bool{z, c, n, v, c && !z, n == v, n == v && !z}[condition>>1]
	return yes != (condition&1 == 1)
}

// always is a condition; the one above it, nv, means the same.
const always = 14

// compare is cbz and cbnz.
func compare(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	v := reg(r, w)
	if w>>31 == 0 {
		v = uint64(uint32(v))
	}
	return branch((v == 0) == (w>>24&1 == 0), imm19(w), pc, r)
}

// test is tbz and tbnz.
func test(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	bit := w>>31<<5 | w>>19&31
	set := bits.RotateLeft64(reg(r, w), -int(bit))&1 == 1
	return branch(set == (w>>24&1 == 1), imm14(w), pc, r)
}

func jumpReg(w uint32, _ arch.Addr, r *arch.Regs, _ arch.Memory) error {
	branchTo(r, reg(r, w>>5))
	return nil
}

func callReg(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	to := reg(r, w>>5) // which may be the link register
	r[arch.ARM64.LR] = uint64(pc) + length
	branchTo(r, to)
	return nil
}

// address is adr and adrp.
func address(w uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	v := pc + arch.Addr(immADR(w))
	if w>>31 == 1 {
		v = pc&^(pageSize-1) + arch.Addr(immADRP(w))
	}
	setReg(r, w, uint64(v))
	next(r, uint64(pc)+length)
	return nil
}

// load is ldr and ldrsw of a literal.
func load(w uint32, pc arch.Addr, r *arch.Regs, m arch.Memory) error {
	var b [8]byte
	size := 4
	if w>>30 == 1 {
		size = 8
	}
	if err := m.ReadAt(pc+arch.Addr(imm19(w)), b[:size]); err != nil {
		return err
	}
	v := arch.ARM64.Order.Uint64(b[:])
	if w>>30 == 2 {
		v = uint64(int32(v))
	}
	setReg(r, w, v)
	next(r, uint64(pc)+length)
	return nil
}

func hint(_ uint32, pc arch.Addr, r *arch.Regs, _ arch.Memory) error {
	next(r, uint64(pc)+length)
	return nil
}
