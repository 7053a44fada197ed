// Package asm puts a program's instructions together: jumps to labels, and places in memory.
package asm

import (
	"math"

	"kprobe/bpf"
)

// Far is the register by which a place is reached that an instruction's offset does not reach.
const Far = bpf.R5

// Asm collects a program's instructions.
type Asm struct {
	Insns  []bpf.Insn
	labels []int // where each is; -1 while it is not known
	jumps  []struct{ at, label int }
}

// Label is a place in the code that jumps lead to.
type Label int

// NewLabel makes one, whose place Put says.
func (a *Asm) NewLabel() Label {
	a.labels = append(a.labels, -1)
	return Label(len(a.labels) - 1)
}

// Put says that a label is here.
func (a *Asm) Put(l Label) { a.labels[l] = len(a.Insns) }

// Emit adds an instruction.
func (a *Asm) Emit(i bpf.Insn) { a.Insns = append(a.Insns, i) }

// GoTo jumps.
func (a *Asm) GoTo(l Label) { a.Branch(bpf.Insn{Op: bpf.ClassJMP | bpf.Ja}, l) }

// Branch adds an instruction that jumps to l.
func (a *Asm) Branch(i bpf.Insn, l Label) {
	a.jumps = append(a.jumps, struct{ at, label int }{len(a.Insns), int(l)})
	a.Emit(i)
}

// IfImm goes to l where dst op imm.
func (a *Asm) IfImm(op uint8, dst uint8, imm int32, l Label) {
	a.Branch(bpf.Insn{Op: bpf.ClassJMP | op, Dst: dst, Imm: imm}, l)
}

// IfReg goes to l where dst op src.
func (a *Asm) IfReg(op uint8, dst, src uint8, l Label) {
	a.Branch(bpf.Insn{Op: bpf.ClassJMP | op | bpf.SrcX, Dst: dst, Src: src}, l)
}

// Mov copies a register.
func (a *Asm) Mov(dst, src uint8) {
	if dst != src {
		a.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: dst, Src: src})
	}
}

// Alu is dst op= src.
func (a *Asm) Alu(op, dst, src uint8) {
	a.Emit(bpf.Insn{Op: bpf.ClassALU64 | op | bpf.SrcX, Dst: dst, Src: src})
}

// AluImm is dst op= imm.
func (a *Asm) AluImm(op, dst uint8, imm int32) {
	a.Emit(bpf.Insn{Op: bpf.ClassALU64 | op, Dst: dst, Imm: imm})
}

// Imm puts a number into a register.
func (a *Asm) Imm(dst uint8, n uint64) {
	if int64(n) >= math.MinInt32 && int64(n) <= math.MaxInt32 {
		a.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: dst, Imm: int32(n)})
		return
	}
	a.Emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Imm: int32(uint32(n))})
	a.Emit(bpf.Insn{Imm: int32(uint32(n >> 32))})
}

// MapAddr puts a map's address into a register.
func (a *Asm) MapAddr(dst uint8, m int) {
	a.Emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: bpf.LoadMap, Imm: int32(m)})
	a.Emit(bpf.Insn{})
}

// MapValue puts the address of an array's value into a register.
func (a *Asm) MapValue(dst uint8, m int, off int) {
	a.Emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: bpf.LoadMapValue, Imm: int32(m)})
	a.Emit(bpf.Insn{Imm: int32(off)})
}

// Helper calls one.
func (a *Asm) Helper(id int32) { a.Emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: id}) }

// Place is memory of the program: what Base points to, Off bytes on.
type Place struct {
	Base uint8
	Off  int
}

// Plus is a place n bytes on.
func (p Place) Plus(n int) Place { return Place{p.Base, p.Off + n} }

// Addr puts a place's address into a register.
func (a *Asm) Addr(dst uint8, p Place) {
	a.Mov(dst, p.Base)
	if p.Off != 0 {
		a.AluImm(bpf.Add, dst, int32(p.Off))
	}
}

// Near makes the place one that an instruction's offset reaches, by a register.
func (a *Asm) Near(p Place, by uint8) Place {
	if p.Off >= math.MinInt16 && p.Off <= math.MaxInt16 {
		return p
	}
	a.Addr(by, p)
	return Place{by, 0}
}

var sizeBits = map[int]uint8{1: bpf.SizeB, 2: bpf.SizeH, 4: bpf.SizeW, 8: bpf.SizeDW}

// Load reads size bytes, extended by the sign where asked.
func (a *Asm) Load(dst uint8, p Place, size int, signed bool) {
	p = a.Near(p, dst)
	mode := uint8(bpf.ModeMem)
	if signed && size < 8 {
		mode = bpf.ModeMemSX
	}
	a.Emit(bpf.Insn{Op: bpf.ClassLDX | mode | sizeBits[size], Dst: dst, Src: p.Base, Off: int16(p.Off)})
}

// Store writes a word.
func (a *Asm) Store(p Place, src uint8) {
	p = a.Near(p, Far)
	a.Emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: p.Base, Src: src, Off: int16(p.Off)})
}

// StoreImm writes a word that is known.
func (a *Asm) StoreImm(p Place, n uint64) {
	if int64(n) >= math.MinInt32 && int64(n) <= math.MaxInt32 {
		p = a.Near(p, Far)
		a.Emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: p.Base, Off: int16(p.Off), Imm: int32(n)})
		return
	}
	a.Imm(bpf.R0, n)
	a.Store(p, bpf.R0)
}

// Zero clears n bytes, a multiple of 8.
func (a *Asm) Zero(p Place, n int) {
	for i := 0; i < n; i += 8 {
		a.StoreImm(p.Plus(i), 0)
	}
}

// Copy moves n bytes, a multiple of 8, by R0.
func (a *Asm) Copy(dst, src Place, n int) {
	if dst == src {
		return
	}
	for i := 0; i < n; i += 8 {
		a.Load(bpf.R0, src.Plus(i), 8, false)
		a.Store(dst.Plus(i), bpf.R0)
	}
}

// CopyBytes moves n bytes, by R0.
func (a *Asm) CopyBytes(dst, src Place, n int) {
	for i := 0; i < n; {
		size := 8
		for size > n-i || (src.Off+i)%size != 0 {
			size /= 2
		}
		a.Load(bpf.R0, src.Plus(i), size, false)
		to := a.Near(dst.Plus(i), Far)
		a.Emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | sizeBits[size], Dst: to.Base, Src: bpf.R0, Off: int16(to.Off)})
		i += size
	}
}

// AtomicAdd adds src to a word that others change too; with fetch the old value is in
// src afterwards.
func (a *Asm) AtomicAdd(p Place, src uint8, fetch bool) {
	op := int32(bpf.AtomicAdd)
	if fetch {
		op |= bpf.AtomicFetch
	}
	a.Emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | bpf.SizeDW, Dst: p.Base, Src: src, Off: int16(p.Off), Imm: op})
}

// Link fills the jumps in. False: one is too far for an instruction.
func (a *Asm) Link() bool {
	for _, j := range a.jumps {
		off := a.labels[j.label] - j.at - 1
		if off != int(int16(off)) {
			if i := &a.Insns[j.at]; i.Op == bpf.ClassJMP|bpf.Ja {
				i.Op, i.Imm = bpf.ClassJMP32|bpf.Ja, int32(off)
				continue
			}
			return false
		}
		a.Insns[j.at].Off = int16(off)
	}
	return true
}
