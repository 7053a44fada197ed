package riscv64

import "kprobe/arch"

// The work of an instruction, done on a thread's registers: without the second stop that the end
// of a slot is.

const sp = 2

func setReg(r *arch.Regs, n uint32, v uint64) {
	if n != 0 {
		r[n] = v
	}
}

// set has a register hold a value, and goes on behind the instruction.
func set(i insn, pc arch.Addr, r *arch.Regs, n uint32, v uint64) {
	setReg(r, n, v)
	r[arch.RISCV64.PC] = uint64(pc) + uint64(i.size)
}

// jump is jal, with and without a link.
func jump(i insn, pc arch.Addr, r *arch.Regs) {
	setReg(r, i.rd(), uint64(pc)+uint64(i.size))
	r[arch.RISCV64.PC] = uint64(pc) + uint64(immJ(i))
}

func shortJump(i insn, pc arch.Addr, r *arch.Regs) {
	r[arch.RISCV64.PC] = uint64(pc) + uint64(immCJ(i))
}

// jumpReg is jalr. The register that it sets may be the one that it reads.
func jumpReg(i insn, pc arch.Addr, r *arch.Regs) {
	to := r[i.rs1()] + uint64(immI(i))
	setReg(r, i.rd(), uint64(pc)+uint64(i.size))
	r[arch.RISCV64.PC] = to &^ 1
}

// shortJumpReg is c.jr and c.jalr.
func shortJumpReg(i insn, pc arch.Addr, r *arch.Regs) {
	to := r[i.rd()]
	if i.w>>12&1 == 1 {
		r[link] = uint64(pc) + uint64(i.size)
	}
	r[arch.RISCV64.PC] = to &^ 1
}

func branch(i insn, pc arch.Addr, r *arch.Regs) {
	a, b := r[i.rs1()], r[i.rs2()]
	yes := [...]bool{a == b, false, int64(a) < int64(b), a < b}[i.w>>13&3]
	branchIf(yes != (i.w>>12&1 == 1), immB(i), i, pc, r)
}

func shortBranch(i insn, pc arch.Addr, r *arch.Regs) {
	branchIf((r[i.short(7)] == 0) != (i.w>>13&1 == 1), immCB(i), i, pc, r)
}

func branchIf(taken bool, offset int64, i insn, pc arch.Addr, r *arch.Regs) {
	if !taken {
		offset = int64(i.size)
	}
	r[arch.RISCV64.PC] = uint64(pc) + uint64(offset)
}

func address(i insn, pc arch.Addr, r *arch.Regs) {
	set(i, pc, r, i.rd(), uint64(pc)+uint64(immU(i)))
}

func hint(i insn, pc arch.Addr, r *arch.Regs) { set(i, pc, r, 0, 0) }

func addi(i insn, pc arch.Addr, r *arch.Regs) {
	set(i, pc, r, i.rd(), r[i.rs1()]+uint64(immI(i)))
}

func addiw(i insn, pc arch.Addr, r *arch.Regs) {
	set(i, pc, r, i.rd(), word(r[i.rs1()]+uint64(immI(i))))
}

// word is the lower half of a register, sign-extended.
func word(v uint64) uint64 { return uint64(int32(v)) }

func lui(i insn, pc arch.Addr, r *arch.Regs) { set(i, pc, r, i.rd(), uint64(immU(i))) }

func shortAdd(i insn, pc arch.Addr, r *arch.Regs) {
	set(i, pc, r, i.rd(), r[i.rd()]+uint64(immCI(i)))
}

func shortAddW(i insn, pc arch.Addr, r *arch.Regs) {
	set(i, pc, r, i.rd(), word(r[i.rd()]+uint64(immCI(i))))
}

func shortLoad(i insn, pc arch.Addr, r *arch.Regs) { set(i, pc, r, i.rd(), uint64(immCI(i))) }

func shortMove(i insn, pc arch.Addr, r *arch.Regs) { set(i, pc, r, i.rd(), r[i.w>>2&31]) }

func addSP(i insn, pc arch.Addr, r *arch.Regs) { set(i, pc, r, sp, r[sp]+uint64(immAddSP(i))) }

func addShortSP(i insn, pc arch.Addr, r *arch.Regs) {
	set(i, pc, r, i.short(2), r[sp]+uint64(immShortSP(i)))
}
