package bpf

// coder puts instructions one after the other, with labels for the jumps. It is how this
// package writes functions of its own into a program (see lower.go).
type coder struct {
	insns  []Insn
	labels map[string]int
	jumps  map[int]string
}

func (w *coder) put(insns ...Insn) { w.insns = append(w.insns, insns...) }

// label names the next instruction.
func (w *coder) label(name string) {
	if w.labels == nil {
		w.labels = map[string]int{}
	}
	w.labels[name] = len(w.insns)
}

// jump is a jump, conditional or not, to a label.
func (w *coder) jump(i Insn, label string) {
	if w.jumps == nil {
		w.jumps = map[int]string{}
	}
	w.jumps[len(w.insns)] = label
	w.put(i)
}

// when jumps where a register compares so with a number, whenReg with another register.
func (w *coder) when(cond, reg uint8, imm int32, label string) {
	w.jump(Insn{Op: ClassJMP | cond, Dst: reg, Imm: imm}, label)
}
func (w *coder) whenReg(cond, reg, with uint8, label string) {
	w.jump(Insn{Op: ClassJMP | cond | SrcX, Dst: reg, Src: with}, label)
}
func (w *coder) goTo(label string) { w.jump(Insn{Op: ClassJMP | Ja}, label) }

// rounds leaves a loop for a label once it has gone round too often.
func (w *coder) rounds(label string) { w.jump(Insn{Op: ClassJMP | MayGoto}, label) }

// answer ends the function with a number.
func (w *coder) answer(v int32) { w.put(movTo(R0, v), Insn{Op: ClassJMP | Exit}) }

// value loads the address of a byte of the one value that a map has, pointer that of a map.
func (w *coder) value(dst uint8, m int, off int) {
	w.put(Insn{Op: OpLoadImm64, Dst: dst, Src: LoadMapValue, Imm: int32(m)}, Insn{Imm: int32(off)})
}
func (w *coder) pointer(dst uint8, m int) {
	w.put(Insn{Op: OpLoadImm64, Dst: dst, Src: LoadMap, Imm: int32(m)}, Insn{})
}

// number loads 64 bits.
func (w *coder) number(dst uint8, v uint64) {
	w.put(Insn{Op: OpLoadImm64, Dst: dst, Imm: int32(v)}, Insn{Imm: int32(v >> 32)})
}

// code is the function, its jumps worked out.
func (w *coder) code() []Insn {
	for at, label := range w.jumps {
		w.insns[at].Off = int16(w.labels[label] - at - 1)
	}
	return w.insns
}

// loadOf and storeTo are of memory at a register and a distance, size one of SizeB to SizeDW.
func loadOf(size, dst, src uint8, off int16) Insn {
	return Insn{Op: ClassLDX | ModeMem | size, Dst: dst, Src: src, Off: off}
}
func storeTo(size, dst uint8, off int16, src uint8) Insn {
	return Insn{Op: ClassSTX | ModeMem | size, Dst: dst, Off: off, Src: src}
}
func storeNumber(size, dst uint8, off int16, v int32) Insn {
	return Insn{Op: ClassST | ModeMem | size, Dst: dst, Off: off, Imm: v}
}

// aluTo is an operation of 64 bits with a number, aluBy with a register.
func aluTo(op, dst uint8, v int32) Insn { return Insn{Op: ClassALU64 | op, Dst: dst, Imm: v} }
func aluBy(op, dst, src uint8) Insn     { return Insn{Op: ClassALU64 | op | SrcX, Dst: dst, Src: src} }
func atomicOn(size, dst uint8, off int16, op int32, src uint8) Insn {
	return Insn{Op: ClassSTX | ModeAtomic | size, Dst: dst, Off: off, Src: src, Imm: op}
}
