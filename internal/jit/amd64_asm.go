package jit

import "encoding/binary"

// The x86-64 instructions that programs are made of: general registers and
// memory only. Jumps are kept apart from the other bytes until the end, when
// each gets the shortest form that reaches.

// reg is a general register by the machine's number, as ModRM, SIB and the
// opcodes hold it.
type reg uint8

const (
	rax reg = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8
	r9
	r10
	r11
	r12
	r13
	r14
	r15
	noReg reg = 0xff
)

// operand is what ModRM's rm field can name: a register, or the memory at
// base + index<<shift + disp.
type operand struct {
	reg         reg // noReg for memory
	base, index reg // index may be noReg
	shift       uint8
	disp        int32
}

func inReg(r reg) operand { return operand{reg: r} }

func at(base reg, disp int32) operand {
	return operand{reg: noReg, base: base, index: noReg, disp: disp}
}

func indexed(base, index reg, shift uint8, disp int32) operand {
	return operand{reg: noReg, base: base, index: index, shift: shift, disp: disp}
}

// opcode is one byte, or two where the first is 0x0f. Those with wBit exist
// for bytes too: the opcode less one.
type opcode uint16

const (
	opMovsxd   opcode = 0x63
	opImulImm  opcode = 0x69
	opImulImm8 opcode = 0x6b
	opALUImm   opcode = 0x81 // reg field: an aluOp
	opALUImm8  opcode = 0x83
	opTest     opcode = 0x85
	opXchg     opcode = 0x87
	opStore    opcode = 0x89
	opLoad     opcode = 0x8b
	opLea      opcode = 0x8d
	opShiftImm opcode = 0xc1 // reg field: a shiftOp
	opStoreImm opcode = 0xc7
	opShift1   opcode = 0xd1
	opShiftCL  opcode = 0xd3
	opUnary    opcode = 0xf7 // reg field: a unaryOp
	opImul     opcode = 0x0faf
	opCmpxchg  opcode = 0x0fb1
	opMovzx8   opcode = 0x0fb6
	opMovzx16  opcode = 0x0fb7
	opMovsx8   opcode = 0x0fbe
	opMovsx16  opcode = 0x0fbf
	opShrd     opcode = 0x0fac // with a byte
	opXadd     opcode = 0x0fc1
)

// aluOp is the number of an arithmetic operation: the reg field beside an
// immediate, and bits 3 to 5 of the opcode between registers.
type aluOp uint8

const (
	aluAdd aluOp = 0
	aluOr  aluOp = 1
	aluAnd aluOp = 4
	aluSub aluOp = 5
	aluXor aluOp = 6
	aluCmp aluOp = 7
)

// between is the operation's opcode with both operands in ModRM: rm op= reg.
func (o aluOp) between() opcode { return opcode(o)<<3 | 1 }

type shiftOp uint8

const (
	shiftRor shiftOp = 1
	shiftShl shiftOp = 4
	shiftShr shiftOp = 5
	shiftSar shiftOp = 7
)

type unaryOp uint8

const (
	unaryTest unaryOp = 0 // with an immediate
	unaryNot  unaryOp = 2
	unaryNeg  unaryOp = 3
	unaryMul  unaryOp = 4
	unaryDiv  unaryOp = 6
	unaryIDiv unaryOp = 7
)

// cond is a condition as the low four bits of every jcc hold it; its lowest
// bit negates it.
type cond uint8

const (
	condB  cond = 2
	condAE cond = 3
	condE  cond = 4
	condNE cond = 5
	condBE cond = 6
	condA  cond = 7
	condS  cond = 8
	condNS cond = 9
	condL  cond = 12
	condGE cond = 13
	condLE cond = 14
	condG  cond = 15

	always   cond = 16 // a jmp
	calling  cond = 17 // a call of a label
	external cond = 18 // a call out of the program, linked later
)

type jump struct {
	place
	cond   cond
	to     label
	helper int32 // for external
	long   bool
}

func (j *jump) size() int {
	switch {
	case j.cond >= calling:
		return 5
	case !j.long:
		return 2
	case j.cond == always:
		return 5
	}
	return 6
}

// asm collects the code of one program. All methods that take a size take it
// in bytes: 1, 2, 4 or 8.
type asm struct {
	output // all but the jumps
	jumps  []jump

	// flags is the register whose value the zero and sign flags tell of, with
	// its size; good as long as nothing has been emitted since.
	flags struct {
		reg  reg
		size int
		place
	}
}

func fits8(v int32) bool { return v == int32(int8(v)) }

// emit appends one instruction with a ModRM byte. reg is a register or the
// opcode's extension.
func (a *asm) emit(size int, op opcode, reg reg, rm operand) {
	if size == 2 {
		a.code = append(a.code, 0x66)
	}
	var rex byte
	if size == 8 {
		rex |= 8
	}
	rex |= byte(reg>>3)<<2 | byte(rm.high())
	// Without any REX prefix, bytes 4 to 7 are ah, ch, dh and bh.
	narrow := size == 1 && reg >= rsp && op != opALUImm || (size == 1 || op == opMovzx8 || op == opMovsx8) && rm.reg != noReg && rm.reg >= rsp
	if rex != 0 || narrow {
		a.code = append(a.code, 0x40|rex)
	}
	if size == 1 {
		op--
	}
	if op > 0xff {
		a.code = append(a.code, 0x0f)
	}
	a.code = append(a.code, byte(op))
	a.modRM(byte(reg&7)<<3, rm)
}

// high is the operand's part of the REX prefix: the bits X and B.
func (o operand) high() reg {
	if o.reg != noReg {
		return o.reg >> 3
	}
	high := o.base >> 3
	if o.index != noReg {
		high |= o.index >> 3 << 1
	}
	return high
}

func (a *asm) modRM(reg byte, o operand) {
	if o.reg != noReg {
		a.code = append(a.code, 0xc0|reg|byte(o.reg&7))
		return
	}
	mod := byte(0x80)
	switch {
	case o.disp == 0 && o.base&7 != rbp: // mod 0 with rbp or r13 is something else
		mod = 0
	case fits8(o.disp):
		mod = 0x40
	}
	switch {
	case o.index != noReg:
		a.code = append(a.code, mod|reg|4, o.shift<<6|byte(o.index&7)<<3|byte(o.base&7))
	case o.base&7 == rsp: // rm 4 is a SIB byte's place; index 4 in it is none
		a.code = append(a.code, mod|reg|4, 0x24)
	default:
		a.code = append(a.code, mod|reg|byte(o.base&7))
	}
	switch mod {
	case 0x40:
		a.code = append(a.code, byte(o.disp))
	case 0x80:
		a.imm32(o.disp)
	}
}

func (a *asm) imm32(v int32) { a.code = binary.LittleEndian.AppendUint32(a.code, uint32(v)) }

// imm appends an immediate for an operation of a size: at most 4 bytes.
func (a *asm) imm(size int, v int32) {
	switch size {
	case 1:
		a.code = append(a.code, byte(v))
	case 2:
		a.code = append(a.code, byte(v), byte(v>>8))
	default:
		a.imm32(v)
	}
}

// wrote notes that a register has a new value.
func (a *asm) wrote(r reg) { a.writes |= 1 << gprs[r] }

// tells notes that the zero and sign flags are those of a register's value.
func (a *asm) tells(size int, r reg) {
	a.flags.reg, a.flags.size, a.flags.place = r, size, a.here()
}

func (a *asm) here() place { return place{len(a.code), len(a.jumps)} }

// alu is dst op= src.
func (a *asm) alu(size int, op aluOp, dst, src reg) {
	a.emit(size, op.between(), src, inReg(dst))
	if op != aluCmp {
		a.wrote(dst)
		a.tells(size, dst)
	}
}

// aluImm is dst op= v, v sign-extended.
func (a *asm) aluImm(size int, op aluOp, dst operand, v int32) {
	if v == 128 && size >= 4 && (op == aluAdd || op == aluSub) {
		op, v = op^aluAdd^aluSub, -128 // which fits a byte
	}
	switch {
	case size == 1:
		a.emit(size, opALUImm, reg(op), dst)
		a.imm(size, v)
	case fits8(v):
		a.emit(size, opALUImm8, reg(op), dst)
		a.imm(1, v)
	case dst.reg == rax: // shorter by a byte
		if size == 2 {
			a.code = append(a.code, 0x66)
		}
		if size == 8 {
			a.code = append(a.code, 0x48)
		}
		a.code = append(a.code, byte(op)<<3|5)
		a.imm(size, v)
	default:
		a.emit(size, opALUImm, reg(op), dst)
		a.imm(size, v)
	}
	if dst.reg != noReg && op != aluCmp {
		a.wrote(dst.reg)
		a.tells(size, dst.reg)
	}
}

// mov copies a register; with size 4 it clears the upper half.
func (a *asm) mov(size int, dst, src reg) {
	a.emit(size, opStore, src, inReg(dst))
	a.wrote(dst)
}

// movImm loads a constant by the shortest instruction. It may change flags.
func (a *asm) movImm(dst reg, v uint64) {
	a.wrote(dst)
	switch {
	case v == 0:
		a.alu(4, aluXor, dst, dst)
	case v == uint64(uint32(v)):
		a.short(0, 0xb8, dst)
		a.imm32(int32(v))
	case v == uint64(int32(v)):
		a.emit(8, opStoreImm, 0, inReg(dst))
		a.imm32(int32(v))
	default:
		a.short(8, 0xb8, dst)
		a.code = binary.LittleEndian.AppendUint64(a.code, v)
	}
}

// short appends an opcode that holds a register in its own low bits.
func (a *asm) short(rexW, op byte, r reg) {
	if rex := rexW | byte(r>>3); rex != 0 {
		a.code = append(a.code, 0x40|rex)
	}
	a.code = append(a.code, op|byte(r&7))
}

// load reads memory of a size into the whole of dst, zero-extended.
func (a *asm) load(size int, dst reg, m operand) {
	switch size {
	case 1:
		a.emit(4, opMovzx8, dst, m)
	case 2:
		a.emit(4, opMovzx16, dst, m)
	default:
		a.emit(size, opLoad, dst, m)
	}
	a.wrote(dst)
}

// extend copies src, or memory, of a size into dst, sign-extended to size to.
func (a *asm) extend(to, size int, dst reg, src operand) {
	op := opMovsxd
	switch size {
	case 1:
		op = opMovsx8
	case 2:
		op = opMovsx16
	}
	a.emit(to, op, dst, src)
	a.wrote(dst)
}

func (a *asm) store(size int, m operand, src reg) { a.emit(size, opStore, src, m) }

// storeImm writes v, sign-extended, to memory.
func (a *asm) storeImm(size int, m operand, v int32) {
	a.emit(size, opStoreImm, 0, m)
	a.imm(size, v)
}

// lea is dst = the address of m, or with size 4 its lower half.
func (a *asm) lea(size int, dst reg, m operand) {
	a.emit(size, opLea, dst, m)
	a.wrote(dst)
}

func (a *asm) imul(size int, dst, src reg) {
	a.emit(size, opImul, dst, inReg(src))
	a.wrote(dst)
}

// imulImm is dst = src * v, v sign-extended.
func (a *asm) imulImm(size int, dst, src reg, v int32) {
	if fits8(v) {
		a.emit(size, opImulImm8, dst, inReg(src))
		a.imm(1, v)
	} else {
		a.emit(size, opImulImm, dst, inReg(src))
		a.imm32(v)
	}
	a.wrote(dst)
}

// unary is not or neg, which change dst, or mul, div or idiv by it.
func (a *asm) unary(size int, op unaryOp, dst reg) {
	a.emit(size, opUnary, reg(op), inReg(dst))
	switch op {
	case unaryNot: // changes no flags
		a.wrote(dst)
	case unaryNeg:
		a.wrote(dst)
		a.tells(size, dst)
	default:
		a.wrote(rax)
		a.wrote(rdx)
	}
}

// shiftImm shifts by a constant between 1 and one less than the width.
func (a *asm) shiftImm(size int, op shiftOp, dst reg, n uint8) {
	if n == 1 {
		a.emit(size, opShift1, reg(op), inReg(dst))
	} else {
		a.emit(size, opShiftImm, reg(op), inReg(dst))
		a.imm(1, int32(n))
	}
	a.wrote(dst)
	if op >= shiftShl {
		a.tells(size, dst)
	}
}

// shiftCL shifts by cl, modulo the width. The flags may stay what they were.
func (a *asm) shiftCL(size int, op shiftOp, dst reg) {
	a.emit(size, opShiftCL, reg(op), inReg(dst))
	a.wrote(dst)
}

// bswap reverses 4 or 8 bytes; 4 clear the upper half.
func (a *asm) bswap(size int, dst reg) {
	var w byte
	if size == 8 {
		w = 8
	}
	if rex := w | byte(dst>>3); rex != 0 {
		a.code = append(a.code, 0x40|rex)
	}
	a.code = append(a.code, 0x0f, 0xc8|byte(dst&7))
	a.wrote(dst)
}

// test makes sure that the zero and sign flags tell of x.
func (a *asm) test(size int, x reg) {
	if a.flags.reg == x && a.flags.size == size && a.flags.place == a.here() {
		return
	}
	a.emit(size, opTest, x, inReg(x))
}

// testImm sets flags by x & v, v sign-extended.
func (a *asm) testImm(size int, x reg, v int32) {
	if v >= 0 {
		size = 4 // the upper half of v is zero
		if v < 0x80 {
			size = 1
		}
	}
	if x == rax {
		switch size {
		case 1:
			a.code = append(a.code, 0xa8)
		case 4:
			a.code = append(a.code, 0xa9)
		default:
			a.code = append(a.code, 0x48, 0xa9)
		}
	} else {
		a.emit(size, opUnary, reg(unaryTest), inReg(x))
	}
	a.imm(size, v)
}

// exchange is one of the read-modify-write instructions on memory whose
// register takes the old value: xchg, xadd.
func (a *asm) exchange(size int, op opcode, m operand, src reg) {
	a.emit(size, op, src, m)
	a.wrote(src)
}

func (a *asm) lock() { a.code = append(a.code, 0xf0) }

func (a *asm) push(r reg) { a.short(0, 0x50, r) }

func (a *asm) pop(r reg) {
	a.short(0, 0x58, r)
	a.wrote(r)
}

func (a *asm) ret() { a.code = append(a.code, 0xc3) }

// signExtendA fills rdx with the sign of rax, or edx with that of eax, as
// idiv wants it.
func (a *asm) signExtendA(size int) {
	if size == 8 {
		a.code = append(a.code, 0x48)
	}
	a.code = append(a.code, 0x99)
	a.wrote(rdx)
}

// rdtsc reads the time-stamp counter into edx:eax.
func (a *asm) rdtsc() {
	a.code = append(a.code, 0x0f, 0x31)
	a.wrote(rax)
	a.wrote(rdx)
}

// loadGS loads 4 bytes at an offset from gs into one of the first eight registers.
func (a *asm) loadGS(dst reg, off int32) {
	a.code = append(a.code, 0x65, 0x8b, byte(dst)<<3|4, 0x25)
	a.imm32(off)
	a.wrote(dst)
}

// bind puts a label here. Whoever jumps to it comes with other flags.
func (a *asm) bind(l label) {
	a.mark(l)
	a.flags.reg = noReg
}

func (a *asm) mark(l label) { a.labels[l] = a.here() }

// jump goes to a label, always or on a condition, or calls it.
func (a *asm) jump(c cond, to label) {
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
			if j.cond < calling && !j.long && !fits8(int32(position(a.labels[j.to])-position(j.place)-2)) {
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
			code = append(code, 0xe8, 0, 0, 0, 0)
			calls = append(calls, Call{Offset: len(code) - 4, Helper: j.helper})
			continue
		}
		rel := int32(position(a.labels[j.to]) - len(code) - j.size())
		switch {
		case j.cond == calling:
			code = append(code, 0xe8)
		case j.cond == always && !j.long:
			code = append(code, 0xeb, byte(rel))
		case j.cond == always:
			code = append(code, 0xe9)
		case !j.long:
			code = append(code, 0x70|byte(j.cond), byte(rel))
		default:
			code = append(code, 0x0f, 0x80|byte(j.cond))
		}
		if j.size() > 2 {
			code = binary.LittleEndian.AppendUint32(code, uint32(rel))
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
