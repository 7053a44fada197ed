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

// rrr is dst = x op y.
func (a *asm64) rrr(n int, op uint32, dst, x, y gpr) {
	a.put(a64.R(op|a64.Of(n), uint32(dst), uint32(x), uint32(y)), dst)
}

// rrrr is dst = z + x*y, or with a64.Msub z - x*y.
func (a *asm64) rrrr(n int, op uint32, dst, x, y, z gpr) { a.rrr(n, op|uint32(z)<<10, dst, x, y) }

// move is dst = src; of 4 bytes it clears the upper half.
func (a *asm64) move(n int, dst, src gpr) { a.rrr(n, a64.Orr, dst, zr, src) }

func (a *asm64) constant(dst gpr, v uint64) {
	for _, w := range a64.Constant(uint32(dst), v) {
		a.put(w, dst)
	}
}

// addImm is dst = x + v where an immediate can say it; 31 is the stack pointer.
func (a *asm64) addImm(n int, dst, x gpr, v int64) bool {
	return a.said(dst)(a64.Plus(n, uint32(dst), uint32(x), v))
}

// compareImm sets the flags by x - v where an immediate can say it.
func (a *asm64) compareImm(n int, x gpr, v int64) bool {
	return a.said(zr)(a64.Compare(n, uint32(x), v))
}

// logical is dst = x op v where an immediate can say it.
func (a *asm64) logical(n int, op uint32, dst, x gpr, v uint64) bool {
	return a.said(dst)(a64.Logical(n, op, uint32(dst), uint32(x), v))
}

// said emits a word, if there is one.
func (a *asm64) said(writes gpr) func(uint32, bool) bool {
	return func(w uint32, ok bool) bool {
		if ok {
			a.put(w, writes)
		}
		return ok
	}
}

func (a *asm64) bitfield(n int, signed bool, dst, x gpr, from, to int) {
	a.put(a64.Bitfield(n, signed, uint32(dst), uint32(x), from, to), dst)
}

func (a *asm64) lsl(n int, dst, x gpr, k int) {
	a.bitfield(n, false, dst, x, (8*n-k)&(8*n-1), 8*n-1-k)
}

func (a *asm64) lsr(n int, dst, x gpr, k int) { a.bitfield(n, false, dst, x, k, 8*n-1) }
func (a *asm64) asr(n int, dst, x gpr, k int) { a.bitfield(n, true, dst, x, k, 8*n-1) }

func log2(n int) uint32 { return uint32(bits.TrailingZeros(uint(n))) }

// access loads or stores n bytes at base + off. scratch is for an offset that no field holds.
func (a *asm64) access(op uint32, n int, r, base gpr, off int32, scratch gpr) {
	to := r
	if op == a64.Store {
		to = zr
	}
	if w, ok := a64.Access(op, n, uint32(r), uint32(base), off); ok {
		a.put(w, to)
		return
	}
	a.constant(scratch, uint64(off))
	a.put(a64.AccessBy(op, n, uint32(r), uint32(base), uint32(scratch)), to)
}

// load and store keep to the encoder's own scratch register where the offset has no field.
func (a *asm64) load(n int, signed bool, dst, base gpr, off int32) {
	op := uint32(a64.Load)
	if signed {
		op = a64.Signed
	}
	a.access(op, n, dst, base, off, s3)
}

func (a *asm64) store(n int, r, base gpr, off int32) { a.access(a64.Store, n, r, base, off, s3) }

// loadExclusive acquires, storeExclusive releases, and tells in status whether it failed.
func (a *asm64) loadExclusive(n int, r, base gpr) {
	a.put(a64.Sized(a64.LoadExclusive, n)|uint32(base)<<5|uint32(r), r)
}

func (a *asm64) storeExclusive(n int, status, r, base gpr) {
	a.put(a64.R(a64.Sized(a64.StoreExclusive, n), uint32(r), uint32(base), uint32(status)), status)
}

// storeRelease stores 4 bytes behind all that was stored before.
func (a *asm64) storeRelease(r, base gpr) {
	a.put(a64.Sized(a64.StoreRelease, 4)|uint32(base)<<5|uint32(r), zr)
}

// barrier orders all accesses of memory.
func (a *asm64) barrier() { a.put(a64.Barrier, zr) }

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
	w := uint32(a64.CBZ) | a64.Of(n) | uint32(r)
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
