package gen

import (
	"errors"
	"math"

	"kprobe/bpf"
	"kprobe/event"
)

// maxGuards is how many guards an argument has at most: see event. Their masks lie behind all else on the stack.
const maxGuards = 6

// maskAt is where guard k has its mask.
func maskAt(k int) int { return -(bpf.MaxStack - 64) - 8*(k+1) }

// masks works out the masks of a fetch's guards: all ones where a guard holds, else 0, without a jump, so that there
// are no more ways through the program. It gives where each is.
func (g *writer) masks(f *event.Load, elem int) []int {
	var at []int
	for i := range f.Guards {
		k := &f.Guards[i]
		g.operand(k.Of, elem)
		here := g.guards
		if g.guards++; g.guards > maxGuards {
			g.err = errors.New("gen: an argument with too many guards")
			return nil
		}
		if k.Minus != nil {
			g.store(bpf.R10, maskAt(here), bpf.R3)
			g.operand(k.Minus, elem)
			g.load(bpf.R1, bpf.R10, maskAt(here))
			g.aluReg(bpf.Sub, bpf.R1, bpf.R3)
			g.mov(bpf.R3, bpf.R1)
		}
		g.set64(bpf.R1, uint64(k.N))
		if k.Equal { // x | -x is negative unless x is 0
			g.aluReg(bpf.Xor, bpf.R3, bpf.R1)
			g.mov(bpf.R1, bpf.R3)
			g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R1})
			g.aluReg(bpf.Or, bpf.R3, bpf.R1)
			g.alu(bpf.Arsh, bpf.R3, 63)
			if !k.Not {
				g.alu(bpf.Xor, bpf.R3, -1)
			}
		} else { // the value is not negative, and N less the value is
			g.mov(bpf.R2, bpf.R3)
			g.alu(bpf.Xor, bpf.R2, -1)
			g.alu(bpf.Arsh, bpf.R2, 63)
			g.aluReg(bpf.Sub, bpf.R1, bpf.R3)
			g.alu(bpf.Arsh, bpf.R1, 63)
			g.aluReg(bpf.And, bpf.R1, bpf.R2)
			g.mov(bpf.R3, bpf.R1)
		}
		g.store(bpf.R10, maskAt(here), bpf.R3)
		at = append(at, here)
	}
	return at
}

// operand takes a guard's number to R3, by way of an element's slot.
func (g *writer) operand(f *event.Load, elem int) {
	g.word(f, elem)
	if f.As == event.LoadWord {
		g.add(bpf.R3, f.Off)
		mask := f.Mask
		if mask == math.MaxUint64 {
			mask = 0
		}
		g.mov(bpf.R1, bpf.R3)
		g.part(f.Size, false, uint(f.Shift), mask)
		g.mov(bpf.R3, bpf.R1)
		return
	}
	var null []int
	if f.Nil {
		null = g.unlessNull(elem)
	}
	g.add(bpf.R3, f.Off)
	g.read(elem, f.Size)
	g.here(null)
	g.load(bpf.R3, bpf.R8, g.slot(elem))
}

// mask makes R3 0 where the guards of a hop do not hold.
func (g *writer) mask(f *event.Load, hop int, masks []int) {
	for i := range f.Guards {
		if f.Guards[i].Hop == hop && i < len(masks) {
			g.load(bpf.R1, bpf.R10, maskAt(masks[i]))
			g.aluReg(bpf.And, bpf.R3, bpf.R1)
		}
	}
}

// unlessNull begins what is not to be done where R3 is 0: the element's slot is 0 then. It gives the jumps to its end.
func (g *writer) unlessNull(elem int) []int {
	g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R8, Off: int16(g.slot(elem))})
	at := len(g.out)
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jeq, Dst: bpf.R3})
	return []int{at}
}
