package inject

import (
	"encoding/binary"

	"kprobe/arch"
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

// branch adds an instruction that ends in a rel32 to the label.
func (a *asm) branch(l *label, op ...byte) {
	a.put(append(op, 0, 0, 0, 0)...)
	a.fixups = append(a.fixups, fixup{off: len(a.code) - 4, to: l})
	if l.off < 0 {
		l.frame = a.now
	}
}

// addressOf loads where the label will be.
func (a *asm) addressOf(dst arch.Reg, l *label) {
	if a.narrow {
		a.branch(l, 0xb8|number(dst)) // mov
		a.fixups[len(a.fixups)-1].whole = true
		return
	}
	a.branch(l, 0x48|number(dst)>>3<<2, 0x8d, number(dst)&7<<3|5) // lea
}

func (a *asm) jmp(l *label)          { a.branch(l, 0xe9) }
func (a *asm) jcc(cc byte, l *label) { a.branch(l, 0x0f, 0x80|cc) }

// Conditions, as opcodes hold them.
const (
	ccB  = 2
	ccAE = 3
	ccE  = 4
	ccNE = 5
	ccBE = 6
	ccS  = 8
	ccNS = 9
)

// place puts the label here.
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

// number is the register's number as instructions hold it.
func number(r arch.Reg) byte {
	switch r {
	case arch.BX:
		return 3
	case arch.CX:
		return 1
	case arch.DX:
		return 2
	case arch.SP:
		return 4
	case arch.BP:
		return 5
	case arch.SI:
		return 6
	case arch.DI:
		return 7
	}
	return byte(r) // rax, r8 to r15
}

// word is how many bytes a register has, on the stack too.
func (a *asm) word() int {
	if a.narrow {
		return 4
	}
	return 8
}

// registers encodes op with two registers.
func (a *asm) registers(op byte, rm, reg arch.Reg) {
	insn := []byte{op, 0xc0 | number(reg)&7<<3 | number(rm)&7}
	if !a.narrow {
		insn = append([]byte{0x48 | number(reg)>>3<<2 | number(rm)>>3}, insn...)
	}
	a.put(insn...)
}

// memory encodes op with the operands reg and disp(base), 64 bits wide if wide.
func memory(wide bool, op []byte, reg byte, base arch.Reg, disp int) []byte {
	b := number(base)
	rex := byte(0x40) | reg>>3<<2 | b>>3
	if wide {
		rex |= 8
	}
	var out []byte
	if rex != 0x40 {
		out = append(out, rex)
	}
	out = append(out, op...)
	mod := byte(2)
	switch {
	case disp == 0 && b&7 != 5:
		mod = 0
	case disp == int(int8(disp)):
		mod = 1
	}
	out = append(out, mod<<6|reg&7<<3|b&7)
	if b&7 == 4 {
		out = append(out, 0x24) // no index
	}
	switch mod {
	case 1:
		out = append(out, byte(disp))
	case 2:
		out = binary.LittleEndian.AppendUint32(out, uint32(disp))
	}
	return out
}

func (a *asm) load(dst, base arch.Reg, disp int) {
	a.put(memory(!a.narrow, []byte{0x8b}, number(dst), base, disp)...)
}

func (a *asm) load32(dst, base arch.Reg, disp int) {
	a.put(memory(false, []byte{0x8b}, number(dst), base, disp)...)
}

func (a *asm) store(base arch.Reg, disp int, src arch.Reg) {
	a.put(memory(!a.narrow, []byte{0x89}, number(src), base, disp)...)
}

func (a *asm) store32(base arch.Reg, disp int, src arch.Reg) {
	a.put(memory(false, []byte{0x89}, number(src), base, disp)...)
}

// loadGS is mov gs:disp, dst.
func (a *asm) loadGS(dst arch.Reg, disp int32) {
	insn := []byte{0x65, 0x48 | number(dst)>>3<<2, 0x8b, number(dst)&7<<3 | 4, 0x25}
	a.put(binary.LittleEndian.AppendUint32(insn, uint32(disp))...)
}

// loadGS32 is mov gs:disp, dst of 32 bits.
func (a *asm) loadGS32(dst arch.Reg, disp int32) {
	insn := []byte{0x65, 0x8b, number(dst)&7<<3 | 4, 0x25}
	if number(dst) >= 8 {
		insn = []byte{0x65, 0x44, 0x8b, number(dst)&7<<3 | 4, 0x25}
	}
	a.put(binary.LittleEndian.AppendUint32(insn, uint32(disp))...)
}

// loadIndexed is mov disp(base, index, 8), dst; the index is not rsp.
func (a *asm) loadIndexed(dst, base, index arch.Reg, disp int32) {
	d, b, i := number(dst), number(base), number(index)
	insn := []byte{0x48 | d>>3<<2 | i>>3<<1 | b>>3, 0x8b, 0x84 | d&7<<3, 3<<6 | i&7<<3 | b&7}
	a.put(binary.LittleEndian.AppendUint32(insn, uint32(disp))...)
}

func (a *asm) lea(dst, base arch.Reg, disp int) {
	a.put(memory(!a.narrow, []byte{0x8d}, number(dst), base, disp)...)
}

// inc counts one in 8 bytes. A signal handler that counts in between does no harm: the
// carry is in the flags, which it gives back. Who has counted must not begin again.
func (a *asm) inc(base arch.Reg, disp int) {
	if a.narrow {
		a.put(append(memory(false, []byte{0x83}, 0, base, disp), 1)...) // add
		a.now.phase = max(a.now.phase, Running)
		a.put(append(memory(false, []byte{0x83}, 2, base, disp+4), 0)...) // adc
	} else {
		a.put(memory(true, []byte{0xff}, 0, base, disp)...)
	}
	a.now.phase = max(a.now.phase, Running)
}

// lockInc is inc for memory that another CPU may be counting in just now.
func (a *asm) lockInc(base arch.Reg, disp int) {
	a.put(append([]byte{0xf0}, memory(!a.narrow, []byte{0xff}, 0, base, disp)...)...)
}

// compare is cmp reg, with.
func (a *asm) compare(reg, with arch.Reg) {
	a.registers(0x39, reg, with)
}

// compareByte is cmp reg, v.
func (a *asm) compareByte(reg arch.Reg, v byte) {
	insn := []byte{0x83, 0xf8 | number(reg)&7, v}
	if !a.narrow {
		insn = append([]byte{0x48 | number(reg)>>3}, insn...)
	}
	a.put(insn...)
}

// cmpReg compares the register with memory, as cmp disp(base), reg.
func (a *asm) cmpReg(base arch.Reg, disp int, reg arch.Reg) {
	a.put(memory(!a.narrow, []byte{0x39}, number(reg), base, disp)...)
}

// cmpMem compares memory with the register, as cmp reg, disp(base).
func (a *asm) cmpMem(reg, base arch.Reg, disp int) {
	a.put(memory(!a.narrow, []byte{0x3b}, number(reg), base, disp)...)
}

// cmpByte and setByte are for flags of one byte.
func (a *asm) cmpByte(base arch.Reg, disp int, v byte) {
	a.put(append(memory(false, []byte{0x80}, 7, base, disp), v)...)
}

// cmpByteAt is cmpByte for a byte at an address in reach; of 0 or 1.
func (a *asm) cmpByteAt(at arch.Addr, v byte) {
	to := uint32(at - a.here() - 7)
	if a.narrow {
		to = uint32(at)
	}
	a.put(append(binary.LittleEndian.AppendUint32([]byte{0x80, 0x3d}, to), v)...)
}

func (a *asm) setByte(base arch.Reg, disp int, v byte) {
	a.put(append(memory(false, []byte{0xc6}, 0, base, disp), v)...)
}

// storeConst stores a constant of 32 bits, sign-extended to a register's size.
func (a *asm) storeConst(base arch.Reg, disp int, v int32) {
	a.put(binary.LittleEndian.AppendUint32(memory(!a.narrow, []byte{0xc7}, 0, base, disp), uint32(v))...)
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
	a.registers(0x89, dst, src)
}

func (a *asm) movConst(dst arch.Reg, v uint64) {
	if a.narrow {
		a.put(binary.LittleEndian.AppendUint32([]byte{0xb8 | number(dst)}, uint32(v))...)
		return
	}
	a.put(binary.LittleEndian.AppendUint64([]byte{0x48 | number(dst)>>3, 0xb8 | number(dst)&7}, v)...)
}

// rip encodes op reg, to(%rip); in 32-bit code the same bits mean the address itself.
func (a *asm) rip(op byte, reg arch.Reg, to arch.Addr) {
	if a.narrow {
		a.put(binary.LittleEndian.AppendUint32([]byte{op, number(reg)<<3 | 5}, uint32(to))...)
		return
	}
	insn := []byte{0x48 | number(reg)>>3<<2, op, number(reg)&7<<3 | 5}
	a.put(binary.LittleEndian.AppendUint32(insn, uint32(to-a.here()-7))...)
}

func (a *asm) call(to arch.Addr) {
	a.put(binary.LittleEndian.AppendUint32([]byte{0xe8}, uint32(to-a.here()-5))...)
}

// hash encodes dst = uint32(src) * hashFactor.
func (a *asm) hash(dst, src arch.Reg) {
	rex := byte(0x40) | number(dst)>>3<<2 | number(src)>>3
	insn := []byte{0x69, 0xc0 | number(dst)&7<<3 | number(src)&7}
	if rex != 0x40 {
		insn = append([]byte{rex}, insn...)
	}
	a.put(binary.LittleEndian.AppendUint32(insn, hashFactor)...)
}

// shr32 and and32 work on the lower half of a register.
func (a *asm) shr32(r arch.Reg, n byte) { a.put(short(r, 0xc1, 5, n)...) }

func (a *asm) and32(r arch.Reg, v uint32) {
	a.put(binary.LittleEndian.AppendUint32(short(r, 0x81, 4), v)...)
}

func short(r arch.Reg, op, ext byte, imm ...byte) []byte {
	insn := append([]byte{op, 0xc0 | ext<<3 | number(r)&7}, imm...)
	if number(r) >= 8 {
		insn = append([]byte{0x41}, insn...)
	}
	return insn
}

// The rest changes where the program's registers are.

// pushReg saves a register on the program's stack.
func (a *asm) pushReg(r arch.Reg) {
	insn := []byte{0x50 | number(r)&7}
	if number(r) >= 8 {
		insn = append([]byte{0x41}, insn...)
	}
	a.put(insn...)
	a.now.sp -= a.word()
	a.now.reg[r] = where{onStack, a.now.sp}
}

func (a *asm) popReg(r arch.Reg) {
	insn := []byte{0x58 | number(r)&7}
	if number(r) >= 8 {
		insn = append([]byte{0x41}, insn...)
	}
	a.put(insn...)
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
	a.registers(0x87, s, r)
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
	a.put(0x9f)             // lahf
	a.put(0x0f, 0x90, 0xc0) // seto al
	a.now.flags = flagsInAX
}

// restoreFlags takes them back from there.
func (a *asm) restoreFlags() {
	a.put(0x04, 0x7f) // add al, 127: overflows if al is 1
	a.now.flags = flagsInAH
	a.put(0x9e) // sahf
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
