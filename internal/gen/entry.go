package gen

import (
	"slices"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/event"
)

// At a return, a register of the function's entry is one word of the call's private data: a program at the entry
// puts it there.

// Programs are the recorder's own, and the one at the function's entry, where there is one.
func (r *Recorder) Programs() []*bpf.Program {
	if r.Entry == nil {
		return []*bpf.Program{r.Program}
	}
	return []*bpf.Program{r.Program, r.Entry}
}

// Data is the size of the private data that each call needs for them, in bytes.
func (r *Recorder) Data() int { return 8 * len(r.entered) }

// wanted adds the registers that a load wants as they were at the entry, each once.
func wanted(regs []arch.Reg, l *event.Load) []arch.Reg {
	if l == nil {
		return regs
	}
	if l.Source == event.LoadEntry && !slices.Contains(regs, l.Reg) {
		regs = append(regs, l.Reg)
	}
	for i := range l.Guards {
		regs = wanted(wanted(regs, l.Guards[i].Of), l.Guards[i].Minus)
	}
	return wanted(wanted(wanted(regs, l.A), l.B), l.Length)
}

// entryProgram puts them into the call's private data.
func (g *writer) entryProgram() []bpf.Insn {
	g.mov(bpf.R6, bpf.R1)
	g.callData(bpf.R1)
	for i, r := range g.r.entered {
		g.load(bpf.R1, bpf.R6, g.ctx.Word*g.ctx.word(r))
		g.store(bpf.R0, 8*i, bpf.R1)
	}
	g.set(bpf.R0, 0) // the return is of interest
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
	return g.out
}

// callData takes the address of the call's private data to R0.
func (g *writer) callData(ctx uint8) {
	if ctx != bpf.R1 {
		g.mov(bpf.R1, ctx)
	}
	g.set(bpf.R2, int32(g.r.Data()))
	g.call(bpf.FnCallData)
}

// entryWord takes a register of the function's entry to R3.
func (g *writer) entryWord(r arch.Reg) {
	if len(g.r.entered) == 0 { // it is the entry
		g.load(bpf.R3, bpf.R6, g.ctx.Word*g.ctx.word(r))
		return
	}
	g.callData(bpf.R6)
	g.load(bpf.R3, bpf.R0, 8*slices.Index(g.r.entered, r))
}
