package jit

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/rv64"
)

// The RISC-V instructions that programs are made of, RV64G's: none is compressed, so that each is a
// word. A jump is completed at the end.

// rvField is the kind of a place that leads to a label.
type rvField uint8

const (
	rvBranch rvField = iota // a word that reaches 4 KiB
	rvJump                  // a word that reaches 1 MiB
	rvPair                  // two words, which reach 2 GiB
)

type rvFixup struct {
	off  int
	to   label
	kind rvField
}

// asmRV collects words.
type asmRV struct {
	output
	fixups []rvFixup
	calls  []Call
	reach  rvField // of all jumps, at least
}

// put emits a word that writes a register; 0 for none.
func (a *asmRV) put(w uint32, writes gpr) {
	a.code = binary.LittleEndian.AppendUint32(a.code, w)
	if writes != rvZero {
		a.writes |= arch.RegSet(1) << writes
	}
}

// rvWord has the bit of an operation on n bytes.
func rvWord(n int) uint32 {
	if n == 4 {
		return rv64.Word
	}
	return 0
}

// rrr is dst = x op y. Of 4 bytes it sign-extends, where the machine has the operation.
func (a *asmRV) rrr(op uint32, dst, x, y gpr) {
	a.put(rv64.R(op, uint32(dst), uint32(x), uint32(y)), dst)
}

// imm is dst = x op v, with 12 bits.
func (a *asmRV) imm(op uint32, dst, x gpr, v int64) {
	a.put(rv64.Imm(op, uint32(dst), uint32(x), int32(v)), dst)
}

// extend sign-extends 4 bytes, and clear clears the upper half if n is 4.
func (a *asmRV) extend(dst, x gpr) { a.imm(rv64.Addi|rv64.Word, dst, x, 0) }

func (a *asmRV) clear(n int, dst, x gpr) {
	if n == 4 {
		a.imm(rv64.Slli, dst, x, 32)
		a.imm(rv64.Srli, dst, dst, 32)
	} else if dst != x {
		a.imm(rv64.Addi, dst, x, 0)
	}
}

func (a *asmRV) constant(dst gpr, v uint64) {
	for _, w := range rv64.Constant(uint32(dst), v) {
		a.put(w, dst)
	}
}

// near is base + off where the offset is one that an access has.
func (a *asmRV) near(base gpr, off int32) (gpr, int32) {
	if rv64.Short(int64(off)) {
		return base, off
	}
	a.constant(rvOwn, uint64(off))
	a.rrr(rv64.Add, rvOwn, rvOwn, base)
	return rvOwn, 0
}

func (a *asmRV) load(n int, signed bool, dst, base gpr, off int32) {
	base, off = a.near(base, off)
	kind := log2(n)
	if !signed && n < 8 {
		kind |= 4
	}
	a.imm(rv64.Load|kind<<12, dst, base, int64(off))
}

func (a *asmRV) store(n int, r, base gpr, off int32) {
	base, off = a.near(base, off)
	a.put(rv64.Stores(rv64.Store|log2(n)<<12, uint32(r), uint32(base), off), rvZero)
}

func (a *asmRV) storeRelease(r, base gpr) {
	a.put(rv64.Release, rvZero)
	a.store(4, r, base, 0)
}

// amo is dst = the word at base, and that word becomes it op src.
func (a *asmRV) amo(n int, op uint32, dst, src, base gpr) {
	a.rrr(rv64.Amo|log2(n)<<12|op, dst, base, src)
}

// refer emits a word, or two, that lead to a label.
func (a *asmRV) refer(kind rvField, to label, words ...uint32) {
	a.fixups = append(a.fixups, rvFixup{len(a.code), to, kind})
	for _, w := range words {
		a.put(w, rvZero)
	}
}

// leap jumps, and leaves the place behind in a register; 0 for none.
func (a *asmRV) leap(link gpr, to label) {
	by := link
	if by == rvZero {
		by = rvOwn
	}
	if a.reach < rvPair {
		a.refer(rvJump, to, rv64.Jal|uint32(link)<<7)
	} else {
		a.refer(rvPair, to, rv64.Auipc|uint32(by)<<7, rv64.Imm(rv64.Jalr, uint32(link), uint32(by), 0))
		a.writes |= 1 << by
	}
	if link != rvZero {
		a.writes |= 1 << link
	}
}

func (a *asmRV) goTo(to label)      { a.leap(rvZero, to) }
func (a *asmRV) callLabel(to label) { a.leap(rvLink, to) }

// Conditions of branches. The lowest bit negates.
const (
	rvEQ  = 0
	rvNE  = 1
	rvLT  = 4
	rvGE  = 5
	rvLTU = 6
	rvGEU = 7
)

// beside is a branch to a label that is not far, however far others are.
func (a *asmRV) beside(cond uint32, x, y gpr, to label) {
	a.refer(rvBranch, to, rv64.R(rv64.Branch|cond<<12, 0, uint32(x), uint32(y)))
}

// when is a branch to any label.
func (a *asmRV) when(cond uint32, x, y gpr, to label) {
	if a.reach == rvBranch {
		a.beside(cond, x, y, to)
		return
	}
	over := a.newLabel()
	a.beside(cond^1, x, y, over)
	a.goTo(to)
	a.bind(over)
}

func (a *asmRV) ret() { a.put(rv64.Ret, rvZero) }

// callHelper calls out of the program.
func (a *asmRV) callHelper(helper int32) {
	a.calls = append(a.calls, Call{Offset: len(a.code), Helper: helper})
	words, _ := rv64.Call(0, 0)
	for _, w := range words {
		a.put(w, rvLink)
	}
	a.writes |= placesRV.helper
}

func (a *asmRV) bind(l label) { a.mark(l) }
func (a *asmRV) mark(l label) { a.labels[l] = place{off: len(a.code)} }

// finish fills the fields that lead to labels. Errors: errFar.
func (a *asmRV) finish() (code []byte, calls []Call, err error) {
	for _, f := range a.fixups {
		d := int64(a.labels[f.to].off - f.off)
		var first, second uint32
		var ok bool
		switch f.kind {
		case rvBranch:
			first, ok = rv64.Condition(d)
		case rvJump:
			first, ok = rv64.Distance(d)
		case rvPair:
			var low int32
			first, low, ok = rv64.Pair(d)
			second = uint32(low) << 20
		}
		if !ok {
			return nil, nil, errFar
		}
		or(a.code[f.off:], first)
		if f.kind == rvPair {
			or(a.code[f.off+4:], second)
		}
	}
	return a.code, a.calls, nil
}

// or adds bits to a word.
func or(word []byte, bits uint32) {
	binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|bits)
}

// linkRISCV64 aims auipc and jalr.
func linkRISCV64(field []byte, from, to arch.Addr) bool {
	words, ok := rv64.Call(from, to)
	for i, w := range words {
		binary.LittleEndian.PutUint32(field[4*i:], w)
	}
	return ok
}
