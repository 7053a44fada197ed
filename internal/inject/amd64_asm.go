package inject

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/segment"
)

// The few instructions that detours are made of.
type asm struct {
	*output
	narrow bool // 32-bit code
	fixups []fixup
}

func newAsm(base arch.Addr, narrow bool) *asm {
	return &asm{output: &output{base: base, silent: true}, narrow: narrow}
}

// label is a place in the code that jumps may lead to before it is known.
type label struct {
	off   int // -1 until placed
	frame frame
}

type fixup struct {
	off   int // of the rel32, or address, which ends its instruction
	to    *label
	whole bool // an address
}

func newLabel() *label { return &label{off: -1} }

// branch adds an instruction that ends in a rel32, which will lead to the label.
func (a *asm) branch(l *label, insn ...byte) {
	a.put(insn...)
	a.fixups = append(a.fixups, fixup{off: len(a.code) - 4, to: l})
	if l.off < 0 {
		l.frame = a.now
	}
}

// addressOf loads where the label will be.
func (a *asm) addressOf(dst arch.Reg, l *label) {
	if a.narrow {
		a.branch(l, x86.AppendConst(nil, 4, x86.Of(dst), 0)...)
		a.fixups[len(a.fixups)-1].whole = true
		return
	}
	a.branch(l, x86.AppendNear(nil, 8, x86.OpLea, x86.Of(dst), 0)...)
}

func (a *asm) jmp(l *label)              { a.branch(l, x86.AppendJmp(nil, 0)...) }
func (a *asm) jcc(cc x86.Cond, l *label) { a.branch(l, x86.AppendJcc(nil, cc, 0)...) }

// Place puts the label here.
func (a *asm) place(l *label) { l.off = len(a.code) }

// placeCold puts the label here, behind code that leaves: what holds here is
// what held at the jump to it.
func (a *asm) placeCold(l *label) {
	a.place(l)
	a.now = l.frame
}

// finish fills in the jumps.
func (a *asm) finish() {
	for _, f := range a.fixups {
		v := uint32(f.to.off - f.off - 4)
		if f.whole {
			v = uint32(a.base) + uint32(f.to.off)
		}
		binary.LittleEndian.PutUint32(a.code[f.off:], v)
	}
}

// Word is how many bytes a register has, on the stack too.
func (a *asm) word() int {
	if a.narrow {
		return 4
	}
	return 8
}

// Mem is memory at a register's value and some bytes.
func mem(base arch.Reg, disp int) x86.Operand { return x86.At(x86.Of(base), int32(disp)) }

// insn adds an instruction of a size with a register, or an opcode's extension, and another or memory.
func (a *asm) insn(size int, op x86.Opcode, reg x86.Reg, rm x86.Operand) {
	a.put(x86.Append(nil, size, op, reg, rm)...)
}

// inSegment is insn with memory that counts from a segment's base.
func (a *asm) inSegment(prefix byte, size int, op x86.Opcode, reg x86.Reg, rm x86.Operand) {
	a.put(x86.Append([]byte{prefix}, size, op, reg, rm)...)
}

// registers is rm op= reg.
func (a *asm) registers(op x86.Opcode, rm, reg arch.Reg) {
	a.insn(a.word(), op, x86.Of(reg), x86.In(x86.Of(rm)))
}

// test has the flags tell of a register.
func (a *asm) test(r arch.Reg) { a.registers(x86.OpTest, r, r) }

func (a *asm) load(dst, base arch.Reg, disp int) {
	a.insn(a.word(), x86.OpLoad, x86.Of(dst), mem(base, disp))
}

func (a *asm) load32(dst, base arch.Reg, disp int) {
	a.insn(4, x86.OpLoad, x86.Of(dst), mem(base, disp))
}

func (a *asm) store(base arch.Reg, disp int, src arch.Reg) {
	a.insn(a.word(), x86.OpStore, x86.Of(src), mem(base, disp))
}

func (a *asm) store32(base arch.Reg, disp int, src arch.Reg) {
	a.insn(4, x86.OpStore, x86.Of(src), mem(base, disp))
}

// loadGS is mov gs:disp, dst.
func (a *asm) loadGS(dst arch.Reg, disp int32) {
	a.inSegment(x86.PrefixGS, 8, x86.OpLoad, x86.Of(dst), x86.Absolute(disp))
}

// loadGS32 is mov gs:disp, dst of 32 bits.
func (a *asm) loadGS32(dst arch.Reg, disp int32) {
	a.inSegment(x86.PrefixGS, 4, x86.OpLoad, x86.Of(dst), x86.Absolute(disp))
}

// loadIndexed is mov disp(base, index, 8), dst; the index is not rsp.
func (a *asm) loadIndexed(dst, base, index arch.Reg, disp int32) {
	a.insn(8, x86.OpLoad, x86.Of(dst), x86.Indexed(x86.Of(base), x86.Of(index), 3, disp))
}

func (a *asm) lea(dst, base arch.Reg, disp int) {
	a.insn(a.word(), x86.OpLea, x86.Of(dst), mem(base, disp))
}

// aluImm is rm op= v, v a byte that is sign-extended.
func (a *asm) aluImm(size int, op x86.ALU, rm x86.Operand, v int8) {
	a.put(x86.AppendALUImm(nil, size, op, rm, int32(v))...)
}

// inc counts one in 8 bytes. A signal handler that counts in between does no harm: the
// carry is in the flags, which it gives back. Who has counted must not begin again.
func (a *asm) inc(base arch.Reg, disp int) {
	if a.narrow {
		a.aluImm(4, x86.Add, mem(base, disp), 1)
		a.now.phase = max(a.now.phase, Running)
		a.aluImm(4, x86.Adc, mem(base, disp+4), 0)
	} else {
		a.insn(8, x86.OpInc, 0, mem(base, disp))
	}
	a.now.phase = max(a.now.phase, Running)
}

// lockInc is inc for memory that another CPU may be counting in just now.
func (a *asm) lockInc(base arch.Reg, disp int) {
	a.put(x86.Append([]byte{x86.PrefixLock}, a.word(), x86.OpInc, 0, mem(base, disp))...)
}

// lose is inc in a state that may be the sink's, which threads share.
func (a *asm) lose(base arch.Reg, disp int) {
	if a.narrow {
		a.put(x86.AppendALUImm([]byte{x86.PrefixLock}, 4, x86.Add, mem(base, disp), 1)...)
		a.now.phase = max(a.now.phase, Running)
		a.put(x86.AppendALUImm([]byte{x86.PrefixLock}, 4, x86.Adc, mem(base, disp+4), 0)...)
	} else {
		a.put(x86.Append([]byte{x86.PrefixLock}, 8, x86.OpInc, 0, mem(base, disp))...)
	}
	a.now.phase = max(a.now.phase, Running)
}

// compare is cmp reg, with.
func (a *asm) compare(reg, with arch.Reg) {
	a.registers(x86.Cmp.ToRM(), reg, with)
}

// compareByte is cmp reg, v.
func (a *asm) compareByte(reg arch.Reg, v int8) {
	a.aluImm(a.word(), x86.Cmp, x86.In(x86.Of(reg)), v)
}

// cmpReg compares the register with memory, as cmp disp(base), reg.
func (a *asm) cmpReg(base arch.Reg, disp int, reg arch.Reg) {
	a.insn(a.word(), x86.Cmp.ToRM(), x86.Of(reg), mem(base, disp))
}

// cmpMem compares memory with the register, as cmp reg, disp(base).
func (a *asm) cmpMem(reg, base arch.Reg, disp int) {
	a.insn(a.word(), x86.Cmp.ToReg(), x86.Of(reg), mem(base, disp))
}

// cmpByte and setByte are for flags of one byte.
func (a *asm) cmpByte(base arch.Reg, disp int, v byte) {
	a.aluImm(1, x86.Cmp, mem(base, disp), int8(v))
}

// cmpByteAt is cmpByte for a byte at an address in reach; of 0 or 1.
func (a *asm) cmpByteAt(at arch.Addr, v byte) {
	const length = 7
	insn := x86.AppendNear(nil, 1, x86.OpALUImm, x86.Reg(x86.Cmp), a.near(at, length))
	a.put(append(insn, v)...)
}

// near is how an instruction of a length here names memory in reach: in 32-bit code the same bits mean
// the address itself.
func (a *asm) near(to arch.Addr, length int) int32 {
	if a.narrow {
		return int32(to)
	}
	return int32(to - a.here() - arch.Addr(length))
}

func (a *asm) setByte(base arch.Reg, disp int, v byte) {
	a.put(append(x86.Append(nil, 1, x86.OpStoreImm, 0, mem(base, disp)), v)...)
}

// storeConst stores a constant of 32 bits, sign-extended to a register's size.
func (a *asm) storeConst(base arch.Reg, disp int, v int32) { a.storeImm(a.word(), base, disp, v) }

func (a *asm) storeImm(size int, base arch.Reg, disp int, v int32) {
	a.put(x86.AppendImm(x86.Append(nil, size, x86.OpStoreImm, 0, mem(base, disp)), 4, v)...)
}

// storeWide stores 8 bytes; it may change ax.
func (a *asm) storeWide(base arch.Reg, disp int, v uint64) {
	if !a.narrow {
		a.movConst(arch.AX, v)
		a.store(base, disp, arch.AX)
		return
	}
	a.storeConst(base, disp, int32(v))
	a.storeConst(base, disp+4, int32(v>>32))
}

func (a *asm) mov(dst, src arch.Reg) {
	a.registers(x86.OpStore, dst, src)
}

func (a *asm) movConst(dst arch.Reg, v uint64) {
	a.put(x86.AppendConst(nil, a.word(), x86.Of(dst), v)...)
}

// nearby is op with a register and memory at an address in reach.
func (a *asm) nearby(op x86.Opcode, reg arch.Reg, to arch.Addr) {
	const length = 7
	a.put(x86.AppendNear(nil, a.word(), op, x86.Of(reg), a.near(to, length))...)
}

func (a *asm) call(to arch.Addr) {
	a.put(x86.AppendCall(nil, int32(to-a.here()-x86.CallLen))...)
}

func (a *asm) ret() { a.put(x86.ByteRet) }

// Hash encodes dst = uint32(src) * HashFactor.
func (a *asm) hash(dst, src arch.Reg) {
	factor := uint32(segment.HashFactor)
	a.multiply(4, dst, src, int32(factor))
}

// multiply encodes dst = src * factor, of a size.
func (a *asm) multiply(size int, dst, src arch.Reg, factor int32) {
	a.put(x86.AppendImm(x86.Append(nil, size, x86.OpImulImm, x86.Of(dst), x86.In(x86.Of(src))), 4, factor)...)
}

// shift shifts a register of a size by a constant.
func (a *asm) shift(size int, op x86.Shift, r arch.Reg, n byte) {
	a.put(append(x86.Append(nil, size, x86.OpShiftImm, x86.Reg(op), x86.In(x86.Of(r))), n)...)
}

// shr32 and and32 work on the lower half of a register.
func (a *asm) shr32(r arch.Reg, n byte) { a.shift(4, x86.Shr, r, n) }

func (a *asm) and32(r arch.Reg, v uint32) {
	a.put(x86.AppendImm(x86.Append(nil, 4, x86.OpALUImm, x86.Reg(x86.And), x86.In(x86.Of(r))), 4, int32(v))...)
}

// The rest changes where the program's registers are.

// pushReg saves a register on the program's stack.
func (a *asm) pushReg(r arch.Reg) {
	a.deepens()
	a.put(x86.AppendPush(nil, x86.Of(r))...)
	a.now.sp -= a.word()
	a.now.reg[r] = where{onStack, a.now.sp}
}

func (a *asm) popReg(r arch.Reg) {
	a.put(x86.AppendPop(nil, x86.Of(r))...)
	a.now.sp += a.word()
	a.now.reg[r] = where{}
}

// moveSP moves the program's stack pointer and leaves the flags alone.
func (a *asm) moveSP(by int) {
	if by == 0 {
		return
	}
	a.lea(arch.SP, arch.SP, by)
	a.now.sp += by
}

// exchange swaps r, whose own value nobody needs, with s; or swaps them back.
func (a *asm) exchange(r, s arch.Reg) {
	if r == s {
		return
	}
	a.registers(x86.OpXchg, s, r)
	switch w := &a.now.reg[s]; w.kind {
	case inPlace:
		*w = where{swapped, int(r)}
	case swapped:
		*w = where{}
	}
}

// saveFlags keeps the status flags in ah and al, at a fraction of the price of
// pushfq and popfq. The flags that are not of arithmetic stay as they are.
func (a *asm) saveFlags() {
	a.put(x86.ByteLahf)
	a.put(0x0f, 0x90, 0xc0) // seto al
	a.now.flags = flagsInAX
}

// restoreFlags takes them back from there.
func (a *asm) restoreFlags() {
	a.put(0x04, 0x7f) // add al, 127: overflows if al is 1
	a.now.flags = flagsInAH
	a.put(x86.ByteSahf)
	a.now.flags = flagsInPlace
}

// joinX86 makes the flags register of what it is now and of the ax that lahf and
// seto have left.
func joinX86(f flagsAt, now, ax uint64) uint64 {
	const arithmetic, overflow = 0xd5, 1 << 11
	switch f {
	case flagsInPlace, flagsDead:
		return now
	case flagsPushed:
		return ax
	}
	if f != flagsInAH {
		now &^= overflow
		now |= ax & 1 * overflow
	}
	return now&^arithmetic | ax>>8&arithmetic
}
