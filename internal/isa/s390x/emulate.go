package s390x

import "kprobe/arch"

// The work of an instruction that branches, calls or makes an address, done on a thread's
// registers. A thread that was interrupted at a trap stands behind its two bytes: so no instruction
// of two bytes is emulated that would do harm if it were carried out twice (bctr).

// gpr is a general register.
func gpr(n uint64) arch.Reg { return arch.S390X.SP - 15 + arch.Reg(n) }

// condition tells whether an instruction branches, and does the rest of its work.
type condition func(i insn, r *arch.Regs) bool

// destination computes the address of a branch that is taken.
type destination func(i insn, r *arch.Regs) uint64

// branch carries a branch out.
func (f *form) branch(i insn, pc, target arch.Addr, r *arch.Regs) {
	to := uint64(target)
	if f.where != nil {
		to = f.where(i, r) // before anything is counted
	}
	if takes := f.when(i, r); !takes || f.register != 0 && i.field(f.register, 4) == 0 {
		to = uint64(pc) + uint64(i.size)
	}
	r[arch.S390X.PC] = to
}

// masked is a mask of condition codes, which are in the program status word.
func masked(i insn, r *arch.Regs) bool {
	code := r[arch.S390X.Flags] >> 44 & 3
	return i.field(8, 4)<<code&8 != 0
}

// low sets the lower half of a register.
func low(r *arch.Regs, n uint64, v uint32) { r[gpr(n)] = r[gpr(n)]&^(1<<32-1) | uint64(v) }

func counted(i insn, r *arch.Regs) bool {
	n := i.field(8, 4)
	v := uint32(r[gpr(n)]) - 1
	low(r, n, v)
	return v != 0
}

func countedLong(i insn, r *arch.Regs) bool {
	n := gpr(i.field(8, 4))
	r[n]--
	return r[n] != 0
}

func countedHigh(i insn, r *arch.Regs) bool {
	n := gpr(i.field(8, 4))
	r[n] -= 1 << 32
	return r[n]>>32 != 0
}

// high adds an increment, and compares with the odd register of a pair, or with the same one.
func high(i insn, r *arch.Regs) bool {
	n, by := i.field(8, 4), i.field(12, 4)
	with := int32(r[gpr(by|1)])
	sum := uint32(r[gpr(n)]) + uint32(r[gpr(by)])
	low(r, n, sum)
	return int32(sum) > with
}

func notHigh(i insn, r *arch.Regs) bool { return !high(i, r) }

func highLong(i insn, r *arch.Regs) bool {
	n, by := gpr(i.field(8, 4)), i.field(12, 4)
	with := int64(r[gpr(by|1)])
	r[n] += r[gpr(by)]
	return int64(r[n]) > with
}

func notHighLong(i insn, r *arch.Regs) bool { return !highLong(i, r) }

// operands returns the two numbers that an instruction compares, and the results for which it
// branches: a bit each for equal, low and high, from the highest of four on.
type operands func(i insn, r *arch.Regs) (a, b, mask uint64)

func registers(i insn, r *arch.Regs) (a, b, mask uint64) {
	return r[gpr(i.field(8, 4))], r[gpr(i.field(12, 4))], i.field(32, 4)
}

func signedByte(i insn, r *arch.Regs) (a, b, mask uint64) {
	return r[gpr(i.field(8, 4))], uint64(i.signed(32, 8)), i.field(12, 4)
}

func unsignedByte(i insn, r *arch.Regs) (a, b, mask uint64) {
	return r[gpr(i.field(8, 4))], i.field(32, 8), i.field(12, 4)
}

func signedWord(a, b uint64) int   { return maskIndex(int32(a) < int32(b), int32(a) > int32(b)) }
func signedLong(a, b uint64) int   { return maskIndex(int64(a) < int64(b), int64(a) > int64(b)) }
func unsignedWord(a, b uint64) int { return maskIndex(uint32(a) < uint32(b), uint32(a) > uint32(b)) }
func unsignedLong(a, b uint64) int { return maskIndex(a < b, a > b) }

// maskIndex is the bit of a comparison's result in a branch's mask, counted from the highest: equal, low, high.
func maskIndex(less, more bool) int {
	switch {
	case less:
		return 1
	case more:
		return 2
	}
	return 0
}

func compared(of operands, as func(a, b uint64) int) condition {
	return func(i insn, r *arch.Regs) bool {
		a, b, mask := of(i, r)
		return mask<<as(a, b)&8 != 0
	}
}

// inRegister is bcr's.
func inRegister(i insn, r *arch.Regs) uint64 { return r[gpr(i.field(12, 4))] &^ 1 }

// addressOf is the address of an operand: register 0 stands for none.
func addressOf(r *arch.Regs, base, index uint64, displacement int64) uint64 {
	a := uint64(displacement)
	for _, n := range []uint64{base, index} {
		if n != 0 {
			a += r[gpr(n)]
		}
	}
	return a
}

func based(i insn, r *arch.Regs) uint64 {
	return addressOf(r, i.field(16, 4), 0, int64(i.field(20, 12)))
}

func indexed(i insn, r *arch.Regs) uint64 {
	return addressOf(r, i.field(16, 4), i.field(12, 4), int64(i.field(20, 12)))
}

func basedLong(i insn, r *arch.Regs) uint64 {
	return addressOf(r, i.field(16, 4), 0, i.signed(32, 8)<<12|int64(i.field(20, 12)))
}

func indexedLong(i insn, r *arch.Regs) uint64 {
	return addressOf(r, i.field(16, 4), i.field(12, 4), i.signed(32, 8)<<12|int64(i.field(20, 12)))
}

// call is bras and brasl.
func call(i insn, pc, target arch.Addr, r *arch.Regs) {
	r[gpr(i.field(8, 4))] = uint64(pc) + uint64(i.size)
	r[arch.S390X.PC] = uint64(target)
}

// callReg is basr and balr: the register that is set may be the one that leads there. With
// register 0 nothing is called.
func callReg(i insn, pc, _ arch.Addr, r *arch.Regs) {
	to := uint64(pc) + uint64(i.size)
	if n := i.field(12, 4); n != 0 {
		to = r[gpr(n)]
	}
	r[gpr(i.field(8, 4))] = uint64(pc) + uint64(i.size)
	r[arch.S390X.PC] = to
}

// address is larl.
func address(i insn, pc, target arch.Addr, r *arch.Regs) {
	r[gpr(i.field(8, 4))] = uint64(target)
	r[arch.S390X.PC] = uint64(pc) + uint64(i.size)
}
