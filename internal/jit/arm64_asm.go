package jit

import (
	"encoding/binary"
	"math/bits"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
)

// The A64 instructions that programs are made of. Each is a word, so that a label's place is known
// when it is bound; a jump ahead is completed at the end.

// Number 31 is the stack pointer, or reads zero, as the instruction has it.
const zr, sp31 gpr = 31, 31

// Operations on registers, by their 32-bit encodings; the highest bit makes them 64 bits wide.
const (
	a64And  = 0x0a000000
	a64Orr  = 0x2a000000
	a64Eor  = 0x4a000000
	a64Ands = 0x6a000000
	a64Add  = 0x0b000000
	a64Sub  = 0x4b000000
	a64Subs = 0x6b000000

	a64AddSP = 0x0b206000 // with the stack pointer, of 8 bytes

	a64Udiv = 0x1ac00800
	a64Sdiv = 0x1ac00c00
	a64Lslv = 0x1ac02000
	a64Lsrv = 0x1ac02400
	a64Asrv = 0x1ac02800

	a64Madd = 0x1b000000
	a64Msub = 0x1b008000

	a64Rev16 = 0x5ac00400
	a64Rev32 = 0x5ac00800
	a64Rev64 = 0xdac00c00
)

// Conditions. The lowest bit negates.
const (
	a64EQ = 0
	a64NE = 1
	a64HS = 2
	a64LO = 3
	a64HI = 8
	a64LS = 9
	a64GE = 10
	a64LT = 11
	a64GT = 12
	a64LE = 13
)

// fixup is a word that refers to a label.
type fixup struct {
	off int
	to  label
	n   int // bits of its field
	at  int // the field's lowest
}

// asm64 collects words.
type asm64 struct {
	output
	fixups []fixup
	calls  []Call
	far    bool // conditional jumps may lead further than their field reaches
}

// put emits a word that writes a register; 31 for none.
func (a *asm64) put(w uint32, writes gpr) {
	a.code = binary.LittleEndian.AppendUint32(a.code, w)
	if writes < 31 {
		a.writes |= arch.RegSet(1) << writes
	}
}

// wide is the bit of an operation on n bytes.
func wide(n int) uint32 {
	if n == 8 {
		return a64.Wide
	}
	return 0
}

// rrr is dst = x op y.
func (a *asm64) rrr(n int, op uint32, dst, x, y gpr) {
	a.put(op|wide(n)|uint32(y)<<16|uint32(x)<<5|uint32(dst), dst)
}

// rrrr is dst = z + x*y, or with a64Msub z - x*y.
func (a *asm64) rrrr(n int, op uint32, dst, x, y, z gpr) { a.rrr(n, op|uint32(z)<<10, dst, x, y) }

// move is dst = src; of 4 bytes it clears the upper half.
func (a *asm64) move(n int, dst, src gpr) { a.rrr(n, a64Orr, dst, zr, src) }

func (a *asm64) constant(dst gpr, v uint64) {
	for _, w := range a64.Constant(uint32(dst), v) {
		a.put(w, dst)
	}
}

// addImm is dst = x + v where an immediate can say it; 31 is the stack pointer. compare sets the
// flags, by x - v, and writes nothing.
func (a *asm64) addImm(n int, dst, x gpr, v int64) bool {
	return a.addition(n, a64.AddImm&^a64.Wide, dst, x, v)
}

func (a *asm64) compareImm(n int, x gpr, v int64) bool {
	return v != -v && a.addition(n, 0x31000000, zr, x, -v) || v == 0 && a.addition(n, 0x71000000, zr, x, 0)
}

func (a *asm64) addition(n int, op uint32, dst, x gpr, v int64) bool {
	if v < 0 {
		op, v = op^0x40000000, -v
	}
	switch {
	case v < 1<<12:
	case v < 1<<24 && v&(1<<12-1) == 0:
		v = v>>12 | 1<<12
	default:
		return false
	}
	a.put(op|wide(n)|uint32(v)<<10|uint32(x)<<5|uint32(dst), dst)
	return true
}

// logical is dst = x op v where an immediate can say it: a run of ones, rotated and repeated.
func (a *asm64) logical(n int, op uint32, dst, x gpr, v uint64) bool {
	field, ok := bitmask(n, v)
	if ok {
		a.put(op^0x18000000|wide(n)|field<<10|uint32(x)<<5|uint32(dst), dst)
	}
	return ok
}

// bitmask is the field of 13 bits that stands for a value of n bytes.
func bitmask(n int, v uint64) (field uint32, ok bool) {
	if n == 4 {
		v = v&(1<<32-1) | v<<32
	}
	if v == 0 || v == ^uint64(0) {
		return 0, false
	}
	size := uint64(64) // of what repeats
	for size > 2 && v == bits.RotateLeft64(v, int(size/2)) {
		size /= 2
	}
	mask := ^uint64(0) >> (64 - size)
	one := v & mask
	ones := uint64(bits.OnesCount64(one))
	run := uint64(1)<<ones - 1
	for rotate := range size {
		if (run>>rotate|run<<(size-rotate))&mask == one {
			imms := (^(size*2 - 1))&0x3f | (ones - 1)
			if size == 64 {
				return uint32(1<<12 | rotate<<6 | ones - 1), true
			}
			return uint32(rotate<<6 | imms), true
		}
	}
	return 0, false
}

// bitfield is ubfm, or signed sbfm: shifts and extensions are.
func (a *asm64) bitfield(n int, signed bool, dst, x gpr, from, to int) {
	op := uint32(0x53000000)
	if signed {
		op = 0x13000000
	}
	if n == 8 {
		op |= 1<<31 | 1<<22
	}
	a.put(op|uint32(from)<<16|uint32(to)<<10|uint32(x)<<5|uint32(dst), dst)
}

func (a *asm64) lsl(n int, dst, x gpr, k int) {
	a.bitfield(n, false, dst, x, (8*n-k)&(8*n-1), 8*n-1-k)
}

func (a *asm64) lsr(n int, dst, x gpr, k int) { a.bitfield(n, false, dst, x, k, 8*n-1) }
func (a *asm64) asr(n int, dst, x gpr, k int) { a.bitfield(n, true, dst, x, k, 8*n-1) }

// Accesses to memory, by their encodings with an offset that counts in units of the size.
const (
	a64Store  = 0x39000000
	a64Load   = 0x39400000
	a64Signed = 0x39800000 // to 64 bits
)

func log2(n int) uint32 { return uint32(bits.TrailingZeros(uint(n))) }

// access loads or stores n bytes at base + off. scratch is for an offset that no field holds.
func (a *asm64) access(op uint32, n int, r, base gpr, off int32, scratch gpr) {
	w := op | log2(n)<<30 | uint32(base)<<5 | uint32(r)
	to := r
	if op == a64Store {
		to = zr
	}
	const unscaled, byRegister = 1 << 24, 1<<21 | 0x6800
	switch {
	case off >= 0 && off%int32(n) == 0 && off/int32(n) < 1<<12:
		a.put(w|uint32(off)/uint32(n)<<10, to)
	case off >= -256 && off < 256:
		a.put(w&^unscaled|uint32(off)&(1<<9-1)<<12, to)
	default:
		a.constant(scratch, uint64(off))
		a.put(w&^unscaled|byRegister|uint32(scratch)<<16, to)
	}
}

// load and store keep to the encoder's own scratch register where the offset has no field.
func (a *asm64) load(n int, signed bool, dst, base gpr, off int32) {
	op := uint32(a64Load)
	if signed {
		op = a64Signed
	}
	a.access(op, n, dst, base, off, s3)
}

func (a *asm64) store(n int, r, base gpr, off int32) { a.access(a64Store, n, r, base, off, s3) }

// loadExclusive acquires, storeExclusive releases, and tells in status whether it failed.
func (a *asm64) loadExclusive(n int, r, base gpr) {
	a.put(0x085ffc00|log2(n)<<30|uint32(base)<<5|uint32(r), r)
}

func (a *asm64) storeExclusive(n int, status, r, base gpr) {
	a.put(0x0800fc00|log2(n)<<30|uint32(status)<<16|uint32(base)<<5|uint32(r), status)
}

// storeRelease stores 4 bytes behind all that was stored before.
func (a *asm64) storeRelease(r, base gpr) { a.put(0x889ffc00|uint32(base)<<5|uint32(r), zr) }

// barrier orders all accesses of memory.
func (a *asm64) barrier() { a.put(0xd5033bbf, zr) }

// refer emits a word with a field that leads to a label.
func (a *asm64) refer(w uint32, to label, n, at int) {
	a.fixups = append(a.fixups, fixup{len(a.code), to, n, at})
	a.put(w, zr)
}

// goTo jumps, and callLabel calls.
func (a *asm64) goTo(to label)      { a.refer(a64.B, to, 26, 0) }
func (a *asm64) callLabel(to label) { a.refer(a64.BL, to, 26, 0); a.writes |= 1 << 30 }

// when jumps on a condition.
func (a *asm64) when(cond uint32, to label) {
	if a.far {
		a.put(a64.BCond|2<<5|cond^1, zr)
		a.goTo(to)
		return
	}
	a.refer(a64.BCond|cond, to, 19, 5)
}

// whenZero jumps where a register of n bytes is zero, or, with not, where it is not.
func (a *asm64) whenZero(n int, not bool, r gpr, to label) {
	w := uint32(a64.CBZ) | wide(n) | uint32(r)
	const negated = a64.CBZ ^ a64.CBNZ
	if not {
		w |= negated
	}
	if a.far {
		a.put(w^negated|2<<5, zr)
		a.goTo(to)
		return
	}
	a.refer(w, to, 19, 5)
}

func (a *asm64) ret() { a.put(a64.Ret, zr) }

// callHelper calls out of the program.
func (a *asm64) callHelper(helper int32) {
	a.calls = append(a.calls, Call{Offset: len(a.code), Helper: helper})
	a.put(a64.BL, zr)
	a.writes |= places64.helper
}

func (a *asm64) bind(l label) { a.mark(l) }
func (a *asm64) mark(l label) { a.labels[l] = place{off: len(a.code)} }

// finish fills the fields that lead to labels. Errors: errFar.
func (a *asm64) finish() (code []byte, calls []Call, err error) {
	for _, f := range a.fixups {
		d := (a.labels[f.to].off - f.off) / 4
		if d < -1<<(f.n-1) || d >= 1<<(f.n-1) {
			return nil, nil, errFar
		}
		word := a.code[f.off:]
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|uint32(d)&(1<<f.n-1)<<f.at)
	}
	return a.code, a.calls, nil
}

// linkARM64 aims a bl, in a word that is 0 yet.
func linkARM64(field []byte, from, to arch.Addr) bool {
	w, ok := a64.Branch(a64.BL, from, to)
	binary.LittleEndian.PutUint32(field, w)
	return ok
}
