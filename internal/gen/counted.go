package gen

import (
	"math/bits"

	"kprobe/bpf"
	"kprobe/event"
)

// counted writes the memory of what is counted, behind its length. What is read is bounded by Most, whatever the length says.
func (g *writer) counted(f *event.Load, elem int) {
	shift := int32(bits.Len(uint(f.Size)) - 1)
	g.guards = 0
	g.word(f, elem)
	if f.Nil && !f.End { // there is nothing, whatever the length says
		g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jne, Dst: bpf.R3, Off: 1},
			bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R8, Off: int16(g.slot(elem - 1))})
	}
	g.add(bpf.R3, f.Off)
	g.load(bpf.R2, bpf.R8, g.slot(elem-1))
	if f.End {
		g.aluReg(bpf.Sub, bpf.R2, bpf.R3)
		if g.pointer == 4 {
			g.emit(bpf.Insn{Op: bpf.ClassALU | bpf.Mov | bpf.SrcX, Dst: bpf.R2, Src: bpf.R2})
		}
		if shift > 0 {
			g.alu(bpf.Rsh, bpf.R2, shift)
		}
		g.store(bpf.R8, g.slot(elem-1), bpf.R2)
	}
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jle, Dst: bpf.R2, Imm: int32(f.Most), Off: 1})
	g.set(bpf.R2, int32(f.Most))
	if shift > 0 {
		g.alu(bpf.Lsh, bpf.R2, shift)
	}
	g.alu(bpf.And, bpf.R2, textMask)
	g.store(bpf.R8, g.slot(elem), bpf.R2)
	g.textTo(bpf.R1)
	g.call(bpf.FnProbeRead)
	g.fault(elem)
	g.load(bpf.R0, bpf.R8, g.slot(elem))
	g.alu(bpf.And, bpf.R0, textMask)
	g.textTo(bpf.R1)
	g.aluReg(bpf.Add, bpf.R1, bpf.R0)
	g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeB, Dst: bpf.R1}) // a NUL, for who compares texts
	g.alu(bpf.Add, bpf.R0, 1)
	g.textDone(elem)
}
