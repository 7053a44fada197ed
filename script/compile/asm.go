package compile

import (
	"math"

	"kprobe/bpf"
)

// Registers that keep their meaning through a program. R0 is where values come out;
// calls change R0 to R5; R5 is also used to reach what an offset cannot.
const (
	regCtx     = bpf.R6
	regScratch = bpf.R7
	regValue   = bpf.R8 // a map's value that is being worked on
	regFar     = bpf.R5
)

// asm collects a program's instructions.
type asm struct {
	insns  []bpf.Insn
	labels []int // where each is; -1 while it is not known
	jumps  []struct{ at, label int }
}

type label int

func (a *asm) newLabel() label {
	a.labels = append(a.labels, -1)
	return label(len(a.labels) - 1)
}

func (a *asm) put(l label) { a.labels[l] = len(a.insns) }

func (a *asm) emit(i bpf.Insn) { a.insns = append(a.insns, i) }

func (a *asm) goTo(l label) { a.branch(bpf.Insn{Op: bpf.ClassJMP | bpf.Ja}, l) }

func (a *asm) branch(i bpf.Insn, l label) {
	a.jumps = append(a.jumps, struct{ at, label int }{len(a.insns), int(l)})
	a.emit(i)
}

// ifImm goes to l where dst op imm.
func (a *asm) ifImm(op uint8, dst uint8, imm int32, l label) {
	a.branch(bpf.Insn{Op: bpf.ClassJMP | op, Dst: dst, Imm: imm}, l)
}

// ifReg goes to l where dst op src.
func (a *asm) ifReg(op uint8, dst, src uint8, l label) {
	a.branch(bpf.Insn{Op: bpf.ClassJMP | op | bpf.SrcX, Dst: dst, Src: src}, l)
}

func (a *asm) mov(dst, src uint8) {
	if dst != src {
		a.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: dst, Src: src})
	}
}

func (a *asm) alu(op, dst, src uint8) {
	a.emit(bpf.Insn{Op: bpf.ClassALU64 | op | bpf.SrcX, Dst: dst, Src: src})
}

func (a *asm) aluImm(op, dst uint8, imm int32) {
	a.emit(bpf.Insn{Op: bpf.ClassALU64 | op, Dst: dst, Imm: imm})
}

// imm puts a number into a register.
func (a *asm) imm(dst uint8, n uint64) {
	if int64(n) >= math.MinInt32 && int64(n) <= math.MaxInt32 {
		a.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: dst, Imm: int32(n)})
		return
	}
	a.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Imm: int32(uint32(n))})
	a.emit(bpf.Insn{Imm: int32(uint32(n >> 32))})
}

// mapAddr puts a map's address into a register.
func (a *asm) mapAddr(dst uint8, m int) {
	a.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: bpf.LoadMap, Imm: int32(m)})
	a.emit(bpf.Insn{})
}

// mapValue puts the address of an array's value into a register.
func (a *asm) mapValue(dst uint8, m int, off int) {
	a.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: bpf.LoadMapValue, Imm: int32(m)})
	a.emit(bpf.Insn{Imm: int32(off)})
}

func (a *asm) helper(id int32) { a.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: id}) }

// place is memory of the program: what base points to, off bytes on.
type place struct {
	base uint8
	off  int
}

func (p place) plus(n int) place { return place{p.base, p.off + n} }

// addr puts a place's address into a register.
func (a *asm) addr(dst uint8, p place) {
	a.mov(dst, p.base)
	if p.off != 0 {
		a.aluImm(bpf.Add, dst, int32(p.off))
	}
}

// near makes the place one that an instruction's offset reaches, by a register.
func (a *asm) near(p place, by uint8) place {
	if p.off >= math.MinInt16 && p.off <= math.MaxInt16 {
		return p
	}
	a.addr(by, p)
	return place{by, 0}
}

var sizeBits = map[int]uint8{1: bpf.SizeB, 2: bpf.SizeH, 4: bpf.SizeW, 8: bpf.SizeDW}

// load reads size bytes, extended by the sign where asked.
func (a *asm) load(dst uint8, p place, size int, signed bool) {
	p = a.near(p, dst)
	mode := uint8(bpf.ModeMem)
	if signed && size < 8 {
		mode = bpf.ModeMemSX
	}
	a.emit(bpf.Insn{Op: bpf.ClassLDX | mode | sizeBits[size], Dst: dst, Src: p.base, Off: int16(p.off)})
}

// store writes a word.
func (a *asm) store(p place, src uint8) {
	p = a.near(p, regFar)
	a.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: p.base, Src: src, Off: int16(p.off)})
}

// storeImm writes a word that is known.
func (a *asm) storeImm(p place, n uint64) {
	if int64(n) >= math.MinInt32 && int64(n) <= math.MaxInt32 {
		p = a.near(p, regFar)
		a.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: p.base, Off: int16(p.off), Imm: int32(n)})
		return
	}
	a.imm(bpf.R0, n)
	a.store(p, bpf.R0)
}

// zero clears n bytes, a multiple of 8.
func (a *asm) zero(p place, n int) {
	for i := 0; i < n; i += 8 {
		a.storeImm(p.plus(i), 0)
	}
}

// copy moves n bytes, a multiple of 8, by R0.
func (a *asm) copy(dst, src place, n int) {
	if dst == src {
		return
	}
	for i := 0; i < n; i += 8 {
		a.load(bpf.R0, src.plus(i), 8, false)
		a.store(dst.plus(i), bpf.R0)
	}
}

// copyBytes moves n bytes, by R0.
func (a *asm) copyBytes(dst, src place, n int) {
	for i := 0; i < n; {
		size := 8
		for size > n-i || (src.off+i)%size != 0 {
			size /= 2
		}
		a.load(bpf.R0, src.plus(i), size, false)
		to := a.near(dst.plus(i), regFar)
		a.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | sizeBits[size], Dst: to.base, Src: bpf.R0, Off: int16(to.off)})
		i += size
	}
}

// atomicAdd adds src to a word that others change too; with fetch the old value is in
// src afterwards.
func (a *asm) atomicAdd(p place, src uint8, fetch bool) {
	op := int32(bpf.AtomicAdd)
	if fetch {
		op |= bpf.AtomicFetch
	}
	a.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | bpf.SizeDW, Dst: p.base, Src: src, Off: int16(p.off), Imm: op})
}

// link fills the jumps in. False: one is too far for an instruction.
func (a *asm) link() bool {
	for _, j := range a.jumps {
		off := a.labels[j.label] - j.at - 1
		if off != int(int16(off)) {
			if i := &a.insns[j.at]; i.Op == bpf.ClassJMP|bpf.Ja {
				i.Op, i.Imm = bpf.ClassJMP32|bpf.Ja, int32(off)
				continue
			}
			return false
		}
		a.insns[j.at].Off = int16(off)
	}
	return true
}
