package x86

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// Asm writes the few instructions that detours are made of.
type Asm struct {
	*inject.Output
	narrow bool // 32-bit code
	fixups []fixup
}

// NewAsm begins code for an address; narrow is for 32-bit code.
func NewAsm(base arch.Addr, narrow bool) *Asm {
	return &Asm{Output: &inject.Output{Base: base, Silent: true}, narrow: narrow}
}

type fixup struct {
	off   int // of the rel32, or address, which ends its instruction
	to    *inject.Label
	whole bool // an address
}

// branch adds an instruction that ends in a rel32, which will lead to the label.
func (a *Asm) branch(l *inject.Label, insn ...byte) {
	a.Put(insn...)
	a.fixups = append(a.fixups, fixup{off: len(a.Code) - 4, to: l})
	if l.Off < 0 {
		l.Frame = a.Now
	}
}

// addressOf loads where the label will be.
func (a *Asm) addressOf(dst arch.Reg, l *inject.Label) {
	if a.narrow {
		a.branch(l, x86.AppendConst(nil, 4, x86.Of(dst), 0)...)
		a.fixups[len(a.fixups)-1].whole = true
		return
	}
	a.branch(l, x86.AppendNear(nil, 8, x86.OpLea, x86.Of(dst), 0)...)
}

func (a *Asm) jmp(l *inject.Label) { a.branch(l, x86.AppendJmp(nil, 0)...) }

// Jcc jumps on a condition.
func (a *Asm) Jcc(cc x86.Cond, l *inject.Label) { a.branch(l, x86.AppendJcc(nil, cc, 0)...) }

// Place puts the label here.
func (a *Asm) Place(l *inject.Label) { l.Off = len(a.Code) }

// placeCold puts the label here, behind code that leaves: what holds here is
// what held at the jump to it.
func (a *Asm) placeCold(l *inject.Label) {
	a.Place(l)
	a.Now = l.Frame
}

// Finish fills in the jumps.
func (a *Asm) Finish() {
	for _, f := range a.fixups {
		v := uint32(f.to.Off - f.off - 4)
		if f.whole {
			v = uint32(a.Base) + uint32(f.to.Off)
		}
		binary.LittleEndian.PutUint32(a.Code[f.off:], v)
	}
}

// word is the size of a register in bytes, on the stack too.
func (a *Asm) word() int {
	if a.narrow {
		return 4
	}
	return 8
}

// Mem is memory at a register's value and some bytes.
func Mem(base arch.Reg, disp int) x86.Operand { return x86.At(x86.Of(base), int32(disp)) }

// Insn adds an instruction of a size with a register, or an opcode's extension, and another or memory.
func (a *Asm) Insn(size int, op x86.Opcode, reg x86.Reg, rm x86.Operand) {
	a.Put(x86.Append(nil, size, op, reg, rm)...)
}

// inSegment is insn with memory that counts from a segment's base.
func (a *Asm) inSegment(prefix byte, size int, op x86.Opcode, reg x86.Reg, rm x86.Operand) {
	a.Put(x86.Append([]byte{prefix}, size, op, reg, rm)...)
}

// Registers is rm op= reg.
func (a *Asm) Registers(op x86.Opcode, rm, reg arch.Reg) {
	a.Insn(a.word(), op, x86.Of(reg), x86.In(x86.Of(rm)))
}

// test has the flags tell of a register.
func (a *Asm) test(r arch.Reg) { a.Registers(x86.OpTest, r, r) }

// Load loads a register from disp(base).
func (a *Asm) Load(dst, base arch.Reg, disp int) {
	a.Insn(a.word(), x86.OpLoad, x86.Of(dst), Mem(base, disp))
}

func (a *Asm) load32(dst, base arch.Reg, disp int) {
	a.Insn(4, x86.OpLoad, x86.Of(dst), Mem(base, disp))
}

// Store stores one there.
func (a *Asm) Store(base arch.Reg, disp int, src arch.Reg) {
	a.Insn(a.word(), x86.OpStore, x86.Of(src), Mem(base, disp))
}

func (a *Asm) store32(base arch.Reg, disp int, src arch.Reg) {
	a.Insn(4, x86.OpStore, x86.Of(src), Mem(base, disp))
}

// loadGS is mov gs:disp, dst.
func (a *Asm) loadGS(dst arch.Reg, disp int32) {
	a.inSegment(x86.PrefixGS, 8, x86.OpLoad, x86.Of(dst), x86.Absolute(disp))
}

// loadGS32 is mov gs:disp, dst of 32 bits.
func (a *Asm) loadGS32(dst arch.Reg, disp int32) {
	a.inSegment(x86.PrefixGS, 4, x86.OpLoad, x86.Of(dst), x86.Absolute(disp))
}

// loadIndexed is mov disp(base, index, 8), dst; the index is not rsp.
func (a *Asm) loadIndexed(dst, base, index arch.Reg, disp int32) {
	a.Insn(8, x86.OpLoad, x86.Of(dst), x86.Indexed(x86.Of(base), x86.Of(index), 3, disp))
}

// Lea leaves the address itself.
func (a *Asm) Lea(dst, base arch.Reg, disp int) {
	a.Insn(a.word(), x86.OpLea, x86.Of(dst), Mem(base, disp))
}

// aluImm is rm op= v, v a byte that is sign-extended.
func (a *Asm) aluImm(size int, op x86.ALU, rm x86.Operand, v int8) {
	a.Put(x86.AppendALUImm(nil, size, op, rm, int32(v))...)
}

// Inc counts one in 8 bytes. A signal handler that counts in between does no harm: the
// carry is in the flags, which it gives back. Who has counted must not begin again.
func (a *Asm) Inc(base arch.Reg, disp int) {
	if a.narrow {
		a.aluImm(4, x86.Add, Mem(base, disp), 1)
		a.Now.Phase = max(a.Now.Phase, inject.Running)
		a.aluImm(4, x86.Adc, Mem(base, disp+4), 0)
	} else {
		a.Insn(8, x86.OpInc, 0, Mem(base, disp))
	}
	a.Now.Phase = max(a.Now.Phase, inject.Running)
}

// lockInc is inc for memory that another CPU may be counting in just now.
func (a *Asm) lockInc(base arch.Reg, disp int) {
	a.Put(x86.Append([]byte{x86.PrefixLock}, a.word(), x86.OpInc, 0, Mem(base, disp))...)
}

// lose is inc in a state that may be the sink's, which threads share.
func (a *Asm) lose(base arch.Reg, disp int) {
	if a.narrow {
		a.Put(x86.AppendALUImm([]byte{x86.PrefixLock}, 4, x86.Add, Mem(base, disp), 1)...)
		a.Now.Phase = max(a.Now.Phase, inject.Running)
		a.Put(x86.AppendALUImm([]byte{x86.PrefixLock}, 4, x86.Adc, Mem(base, disp+4), 0)...)
	} else {
		a.Put(x86.Append([]byte{x86.PrefixLock}, 8, x86.OpInc, 0, Mem(base, disp))...)
	}
	a.Now.Phase = max(a.Now.Phase, inject.Running)
}

// Compare is cmp reg, with.
func (a *Asm) Compare(reg, with arch.Reg) {
	a.Registers(x86.Cmp.ToRM(), reg, with)
}

// compareByte is cmp reg, v.
func (a *Asm) compareByte(reg arch.Reg, v int8) {
	a.aluImm(a.word(), x86.Cmp, x86.In(x86.Of(reg)), v)
}

// CmpReg compares the register with memory, as cmp disp(base), reg.
func (a *Asm) CmpReg(base arch.Reg, disp int, reg arch.Reg) {
	a.Insn(a.word(), x86.Cmp.ToRM(), x86.Of(reg), Mem(base, disp))
}

// cmpMem compares memory with the register, as cmp reg, disp(base).
func (a *Asm) cmpMem(reg, base arch.Reg, disp int) {
	a.Insn(a.word(), x86.Cmp.ToReg(), x86.Of(reg), Mem(base, disp))
}

// cmpByte and SetByte are for flags of one byte.
func (a *Asm) cmpByte(base arch.Reg, disp int, v byte) {
	a.aluImm(1, x86.Cmp, Mem(base, disp), int8(v))
}

// cmpByteAt is cmpByte for a byte at an address in reach; of 0 or 1.
func (a *Asm) cmpByteAt(at arch.Addr, v byte) {
	const length = 7
	insn := x86.AppendNear(nil, 1, x86.OpALUImm, x86.Reg(x86.Cmp), a.near(at, length))
	a.Put(append(insn, v)...)
}

// near is the displacement by which an instruction of a length here reaches an address: in 32-bit code the same bits mean
// the address itself.
func (a *Asm) near(to arch.Addr, length int) int32 {
	if a.narrow {
		return int32(to)
	}
	return int32(to - a.Here() - arch.Addr(length))
}

// SetByte stores a byte.
func (a *Asm) SetByte(base arch.Reg, disp int, v byte) {
	a.Put(append(x86.Append(nil, 1, x86.OpStoreImm, 0, Mem(base, disp)), v)...)
}

// StoreConst stores a constant of 32 bits, sign-extended to a register's size.
func (a *Asm) StoreConst(base arch.Reg, disp int, v int32) { a.storeImm(a.word(), base, disp, v) }

func (a *Asm) storeImm(size int, base arch.Reg, disp int, v int32) {
	a.Put(x86.AppendImm(x86.Append(nil, size, x86.OpStoreImm, 0, Mem(base, disp)), 4, v)...)
}

// storeWide stores 8 bytes; it may change ax.
func (a *Asm) storeWide(base arch.Reg, disp int, v uint64) {
	if !a.narrow {
		a.MovConst(arch.AX, v)
		a.Store(base, disp, arch.AX)
		return
	}
	a.StoreConst(base, disp, int32(v))
	a.StoreConst(base, disp+4, int32(v>>32))
}

// Mov copies a register.
func (a *Asm) Mov(dst, src arch.Reg) {
	a.Registers(x86.OpStore, dst, src)
}

// MovConst loads a constant.
func (a *Asm) MovConst(dst arch.Reg, v uint64) {
	a.Put(x86.AppendConst(nil, a.word(), x86.Of(dst), v)...)
}

// nearby is op with a register and memory at an address in reach.
func (a *Asm) nearby(op x86.Opcode, reg arch.Reg, to arch.Addr) {
	const length = 7
	a.Put(x86.AppendNear(nil, a.word(), op, x86.Of(reg), a.near(to, length))...)
}

func (a *Asm) call(to arch.Addr) {
	a.Put(x86.AppendCall(nil, int32(to-a.Here()-x86.CallLen))...)
}

// Ret returns.
func (a *Asm) Ret() { a.Put(x86.ByteRet) }

// Hash encodes dst = uint32(src) * HashFactor.
func (a *Asm) hash(dst, src arch.Reg) {
	factor := uint32(segment.HashFactor)
	a.multiply(4, dst, src, int32(factor))
}

// multiply encodes dst = src * factor, of a size.
func (a *Asm) multiply(size int, dst, src arch.Reg, factor int32) {
	a.Put(x86.AppendImm(x86.Append(nil, size, x86.OpImulImm, x86.Of(dst), x86.In(x86.Of(src))), 4, factor)...)
}

// Shift shifts a register of a size by a constant.
func (a *Asm) Shift(size int, op x86.Shift, r arch.Reg, n byte) {
	a.Put(append(x86.Append(nil, size, x86.OpShiftImm, x86.Reg(op), x86.In(x86.Of(r))), n)...)
}

// shr32 and and32 work on the lower half of a register.
func (a *Asm) shr32(r arch.Reg, n byte) { a.Shift(4, x86.Shr, r, n) }

func (a *Asm) and32(r arch.Reg, v uint32) {
	a.Put(x86.AppendImm(x86.Append(nil, 4, x86.OpALUImm, x86.Reg(x86.And), x86.In(x86.Of(r))), 4, int32(v))...)
}

// The rest changes where the program's registers are.

// PushReg saves a register on the program's stack.
func (a *Asm) PushReg(r arch.Reg) {
	a.Deepens()
	a.Put(x86.AppendPush(nil, x86.Of(r))...)
	a.Now.SP -= a.word()
	a.Now.Reg[r] = inject.Place{Kind: inject.OnStack, Off: a.Now.SP}
}

func (a *Asm) popReg(r arch.Reg) {
	a.Put(x86.AppendPop(nil, x86.Of(r))...)
	a.Now.SP += a.word()
	a.Now.Reg[r] = inject.Place{}
}

// moveSP moves the program's stack pointer and leaves the flags alone.
func (a *Asm) moveSP(by int) {
	if by == 0 {
		return
	}
	a.Lea(arch.SP, arch.SP, by)
	a.Now.SP += by
}

// exchange swaps r, whose own value nobody needs, with s; or swaps them back.
func (a *Asm) exchange(r, s arch.Reg) {
	if r == s {
		return
	}
	a.Registers(x86.OpXchg, s, r)
	switch w := &a.Now.Reg[s]; w.Kind {
	case inject.InPlace:
		*w = inject.Place{Kind: inject.Swapped, Off: int(r)}
	case inject.Swapped:
		*w = inject.Place{}
	}
}

// saveFlags keeps the status flags in ah and al, at a fraction of the price of
// pushfq and popfq. The flags that are not of arithmetic stay as they are.
func (a *Asm) saveFlags() {
	a.Put(x86.ByteLahf)
	a.Put(0x0f, 0x90, 0xc0) // seto al
	a.Now.Flags = inject.FlagsInAX
}

// restoreFlags takes them back from there.
func (a *Asm) restoreFlags() {
	a.Put(0x04, 0x7f) // add al, 127: overflows if al is 1
	a.Now.Flags = inject.FlagsInAH
	a.Put(x86.ByteSahf)
	a.Now.Flags = inject.FlagsInPlace
}

// joinX86 makes the flags register of what it is now and of the ax that lahf and
// seto have left.
func joinX86(f inject.FlagsAt, now, ax uint64) uint64 {
	const arithmetic, overflow = 0xd5, 1 << 11
	switch f {
	case inject.FlagsInPlace, inject.FlagsDead:
		return now
	case inject.FlagsPushed:
		return ax
	}
	if f != inject.FlagsInAH {
		now &^= overflow
		now |= ax & 1 * overflow
	}
	return now&^arithmetic | ax>>8&arithmetic
}
