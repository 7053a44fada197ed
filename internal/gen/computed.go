package gen

import (
	"errors"

	"kprobe/bpf"
	"kprobe/event"
)

// computedWord takes what debug data computes to R3, by way of an element's slot. What waits for the other number has the place of a guard's mask.
func (g *writer) computedWord(f *event.Load, elem int) {
	g.operand(f.A, elem)
	if f.B == nil {
		switch f.Op {
		case "neg":
			g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R3})
		case "not":
			g.alu(bpf.Xor, bpf.R3, -1)
		case "abs":
			g.mov(bpf.R1, bpf.R3)
			g.alu(bpf.Arsh, bpf.R1, 63)
			g.aluReg(bpf.Xor, bpf.R3, bpf.R1)
			g.aluReg(bpf.Sub, bpf.R3, bpf.R1)
		}
		return
	}
	here := g.guards
	if g.guards++; g.guards > maxGuards {
		g.err = errors.New("gen: a computation of too many numbers")
		return
	}
	g.store(bpf.R10, maskAt(here), bpf.R3)
	g.operand(f.B, elem)
	g.mov(bpf.R2, bpf.R3)
	g.load(bpf.R1, bpf.R10, maskAt(here))
	g.guards--
	switch f.Op {
	case "and", "or", "xor", "plus", "minus", "mul":
		op := map[string]uint8{"and": bpf.And, "or": bpf.Or, "xor": bpf.Xor, "plus": bpf.Add, "minus": bpf.Sub, "mul": bpf.Mul}[f.Op]
		g.aluReg(op, bpf.R1, bpf.R2)
	case "shl", "shr", "shra":
		g.alu(bpf.And, bpf.R2, 63)
		g.aluReg(map[string]uint8{"shl": bpf.Lsh, "shr": bpf.Rsh, "shra": bpf.Arsh}[f.Op], bpf.R1, bpf.R2)
	case "div", "mod":
		g.set(bpf.R0, 0) // by 0: it cannot be read
		g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jne, Dst: bpf.R2, Off: 1})
		g.set(bpf.R0, -1)
		g.fault(elem)
		op := NumberDiv
		if f.Op == "mod" {
			op = NumberMod
		}
		g.divide(&Number{Op: op, Unsigned: f.Op == "mod"})
	default:
		op := map[string]uint8{"eq": bpf.Jeq, "ne": bpf.Jne, "lt": bpf.Jslt, "le": bpf.Jsle, "gt": bpf.Jsgt, "ge": bpf.Jsge}[f.Op]
		if op == 0 {
			g.err = errors.New("gen: a computation that is not known")
			return
		}
		g.set(bpf.R3, 1)
		g.emit(bpf.Insn{Op: bpf.ClassJMP | op | bpf.SrcX, Dst: bpf.R1, Src: bpf.R2, Off: 1})
		g.set(bpf.R3, 0)
		return
	}
	g.mov(bpf.R3, bpf.R1)
}
