package jit

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
)

// The x86-64 instructions that programs are made of: general registers and
// memory only. Jumps are kept apart from the other bytes until the end, when
// each gets the shortest form that reaches.

// The kinds of jump beside those on a condition.
const (
	always   x86.Cond = 16 // a jmp
	calling  x86.Cond = 17 // a call of a label
	external x86.Cond = 18 // a call out of the program, linked later
)

type jump struct {
	place
	cond   x86.Cond
	to     label
	helper int32 // for external
	long   bool
}

func (j *jump) size() int {
	switch {
	case j.cond >= calling:
		return x86.CallLen
	case !j.long:
		return x86.Jmp8Len
	case j.cond == always:
		return x86.JmpLen
	}
	return x86.JccLen
}

// asm collects the code of one program. All methods that take a size take it
// in bytes: 1, 2, 4 or 8.
type asm struct {
	output // all but the jumps
	jumps  []jump

	// flags is the register whose value the zero and sign flags tell of, with
	// its size; good as long as nothing has been emitted since.
	flags struct {
		reg  x86.Reg
		size int
		place
	}
}

// emit appends one instruction with a ModRM byte. reg is a register or the
// opcode's extension.
func (a *asm) emit(size int, op x86.Opcode, reg x86.Reg, rm x86.Operand) {
	a.code = x86.Append(a.code, size, op, reg, rm)
}

// imm appends an immediate for an operation of a size.
func (a *asm) imm(size int, v int32) { a.code = x86.AppendImm(a.code, size, v) }

// wrote notes that a register has a new value.
func (a *asm) wrote(r x86.Reg) { a.writes |= 1 << r.Arch() }

// tells notes that the zero and sign flags match a register's value.
func (a *asm) tells(size int, r x86.Reg) {
	a.flags.reg, a.flags.size, a.flags.place = r, size, a.here()
}

func (a *asm) here() place { return place{len(a.code), len(a.jumps)} }

// alu is dst op= src.
func (a *asm) alu(size int, op x86.ALU, dst, src x86.Reg) {
	a.emit(size, op.ToRM(), src, x86.In(dst))
	if op != x86.Cmp {
		a.wrote(dst)
		a.tells(size, dst)
	}
}

// aluImm is dst op= v, v sign-extended.
func (a *asm) aluImm(size int, op x86.ALU, dst x86.Operand, v int32) {
	if v == 128 && size >= 4 && (op == x86.Add || op == x86.Sub) {
		op, v = op^x86.Add^x86.Sub, -128 // which fits a byte
	}
	a.code = x86.AppendALUImm(a.code, size, op, dst, v)
	if dst.Reg != x86.NoReg && op != x86.Cmp {
		a.wrote(dst.Reg)
		a.tells(size, dst.Reg)
	}
}

// mov copies a register; with size 4 it clears the upper half.
func (a *asm) mov(size int, dst, src x86.Reg) {
	a.emit(size, x86.OpStore, src, x86.In(dst))
	a.wrote(dst)
}

// movImm loads a constant by the shortest instruction. It may change flags.
func (a *asm) movImm(dst x86.Reg, v uint64) {
	a.wrote(dst)
	switch {
	case v == 0:
		a.alu(4, x86.Xor, dst, dst)
	case v == uint64(uint32(v)):
		a.code = x86.AppendConst(a.code, 4, dst, v)
	case v == uint64(int32(v)):
		a.emit(8, x86.OpStoreImm, 0, x86.In(dst))
		a.imm(4, int32(v))
	default:
		a.code = x86.AppendConst(a.code, 8, dst, v)
	}
}

// load reads memory of a size into the whole of dst, zero-extended.
func (a *asm) load(size int, dst x86.Reg, m x86.Operand) {
	switch size {
	case 1:
		a.emit(4, x86.OpMovzx8, dst, m)
	case 2:
		a.emit(4, x86.OpMovzx16, dst, m)
	default:
		a.emit(size, x86.OpLoad, dst, m)
	}
	a.wrote(dst)
}

// extend copies src, or memory, of a size into dst, sign-extended to size to.
func (a *asm) extend(to, size int, dst x86.Reg, src x86.Operand) {
	op := x86.OpMovsxd
	switch size {
	case 1:
		op = x86.OpMovsx8
	case 2:
		op = x86.OpMovsx16
	}
	a.emit(to, op, dst, src)
	a.wrote(dst)
}

func (a *asm) store(size int, m x86.Operand, src x86.Reg) { a.emit(size, x86.OpStore, src, m) }

// storeImm writes v, sign-extended, to memory.
func (a *asm) storeImm(size int, m x86.Operand, v int32) {
	a.emit(size, x86.OpStoreImm, 0, m)
	a.imm(size, v)
}

// lea is dst = the address of m, or with size 4 its lower half.
func (a *asm) lea(size int, dst x86.Reg, m x86.Operand) {
	a.emit(size, x86.OpLea, dst, m)
	a.wrote(dst)
}

func (a *asm) imul(size int, dst, src x86.Reg) {
	a.emit(size, x86.OpImul, dst, x86.In(src))
	a.wrote(dst)
}

// imulImm is dst = src * v, v sign-extended.
func (a *asm) imulImm(size int, dst, src x86.Reg, v int32) {
	if x86.Fits8(v) {
		a.emit(size, x86.OpImulImm8, dst, x86.In(src))
		a.imm(1, v)
	} else {
		a.emit(size, x86.OpImulImm, dst, x86.In(src))
		a.imm(4, v)
	}
	a.wrote(dst)
}

// unary is not or neg, which change dst, or mul, div or idiv by it.
func (a *asm) unary(size int, op x86.Unary, dst x86.Reg) {
	a.emit(size, x86.OpUnary, x86.Reg(op), x86.In(dst))
	switch op {
	case x86.Not: // changes no flags
		a.wrote(dst)
	case x86.Neg:
		a.wrote(dst)
		a.tells(size, dst)
	default:
		a.wrote(x86.RAX)
		a.wrote(x86.RDX)
	}
}

// shiftImm shifts by a constant between 1 and one less than the width.
func (a *asm) shiftImm(size int, op x86.Shift, dst x86.Reg, n uint8) {
	if n == 1 {
		a.emit(size, x86.OpShift1, x86.Reg(op), x86.In(dst))
	} else {
		a.emit(size, x86.OpShiftImm, x86.Reg(op), x86.In(dst))
		a.imm(1, int32(n))
	}
	a.wrote(dst)
	if op >= x86.Shl {
		a.tells(size, dst)
	}
}

// shiftCL shifts by cl, modulo the width. The flags may stay as they were.
func (a *asm) shiftCL(size int, op x86.Shift, dst x86.Reg) {
	a.emit(size, x86.OpShiftCL, x86.Reg(op), x86.In(dst))
	a.wrote(dst)
}

// bswap reverses 4 or 8 bytes; 4 clear the upper half.
func (a *asm) bswap(size int, dst x86.Reg) {
	a.code = x86.AppendBswap(a.code, size, dst)
	a.wrote(dst)
}

// test makes sure that the zero and sign flags tell of x.
func (a *asm) test(size int, x x86.Reg) {
	if a.flags.reg == x && a.flags.size == size && a.flags.place == a.here() {
		return
	}
	a.emit(size, x86.OpTest, x, x86.In(x))
}

// testImm sets flags by x & v, v sign-extended.
func (a *asm) testImm(size int, x x86.Reg, v int32) {
	if v >= 0 {
		size = 4 // the upper half of v is zero
		if v < 0x80 {
			size = 1
		}
	}
	a.code = x86.AppendTestImm(a.code, size, x, v)
}

// exchange is one of the read-modify-write instructions on memory whose
// register takes the old value: xchg, xadd.
func (a *asm) exchange(size int, op x86.Opcode, m x86.Operand, src x86.Reg) {
	a.emit(size, op, src, m)
	a.wrote(src)
}

func (a *asm) lock() { a.code = append(a.code, x86.PrefixLock) }

func (a *asm) push(r x86.Reg) { a.code = x86.AppendPush(a.code, r) }

func (a *asm) pop(r x86.Reg) {
	a.code = x86.AppendPop(a.code, r)
	a.wrote(r)
}

func (a *asm) ret() { a.code = append(a.code, x86.ByteRet) }

// signExtendA fills rdx with the sign of rax, or edx with that of eax, as
// idiv wants it.
func (a *asm) signExtendA(size int) {
	a.code = x86.AppendSignExtendA(a.code, size)
	a.wrote(x86.RDX)
}

// rdtsc reads the time-stamp counter into edx:eax.
func (a *asm) rdtsc() {
	a.code = append(a.code, 0x0f, 0x31)
	a.wrote(x86.RAX)
	a.wrote(x86.RDX)
}

// loadGS loads 4 bytes at an offset from gs.
func (a *asm) loadGS(dst x86.Reg, off int32) {
	a.code = append(a.code, x86.PrefixGS)
	a.emit(4, x86.OpLoad, dst, x86.Absolute(off))
	a.wrote(dst)
}

// bind puts a label here. A jump to it comes with other flags.
func (a *asm) bind(l label) {
	a.mark(l)
	a.flags.reg = x86.NoReg
}

func (a *asm) mark(l label) { a.labels[l] = a.here() }

// jump goes to a label, always or on a condition, or calls it.
func (a *asm) jump(c x86.Cond, to label) {
	a.jumps = append(a.jumps, jump{place: a.here(), cond: c, to: to})
}

// callHelper calls out of the program.
func (a *asm) callHelper(helper int32) {
	a.jumps = append(a.jumps, jump{place: a.here(), cond: external, helper: helper})
	a.writes |= HelperClobbers
}

// finish puts the jumps between the other bytes. A jump starts short and
// becomes long when it cannot reach, which may push others out of reach; none
// becomes short again, so this ends.
func (a *asm) finish() (code []byte, calls []Call, err error) {
	before := make([]int, len(a.jumps)+1) // bytes of the jumps before each
	position := func(p place) int { return p.off + before[p.jumps] }
	for grew := true; grew; {
		grew = false
		for i := range a.jumps {
			before[i+1] = before[i] + a.jumps[i].size()
		}
		for i := range a.jumps {
			j := &a.jumps[i]
			if j.cond < calling && !j.long && !x86.Fits8(int32(position(a.labels[j.to])-position(j.place)-2)) {
				j.long, grew = true, true
			}
		}
	}
	done := 0
	for i := range a.jumps {
		j := &a.jumps[i]
		code = append(code, a.code[done:j.off]...)
		done = j.off
		if j.cond == external {
			code = x86.AppendCall(code, 0)
			calls = append(calls, Call{Offset: len(code) - 4, Helper: j.helper})
			continue
		}
		rel := int32(position(a.labels[j.to]) - len(code) - j.size())
		switch {
		case j.cond == calling:
			code = x86.AppendCall(code, rel)
		case j.cond == always && !j.long:
			code = x86.AppendJmp8(code, int8(rel))
		case j.cond == always:
			code = x86.AppendJmp(code, rel)
		case !j.long:
			code = x86.AppendJcc8(code, j.cond, int8(rel))
		default:
			code = x86.AppendJcc(code, j.cond, rel)
		}
	}
	code = append(code, a.code[done:]...)
	for i, p := range a.labels {
		if p.off >= 0 {
			a.labels[i].off = position(p) // for the line table
		}
	}
	return code, calls, nil
}

// linkAMD64 is a rel32, from where the call ends.
func linkAMD64(field []byte, from, to arch.Addr) bool {
	rel := int64(to - (from + 4))
	binary.LittleEndian.PutUint32(field, uint32(rel))
	return rel == int64(int32(rel))
}

// linkI386 is the same: addresses wrap around, so that everything is in reach.
func linkI386(field []byte, from, to arch.Addr) bool {
	linkAMD64(field, from, to)
	return true
}
