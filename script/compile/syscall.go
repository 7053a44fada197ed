package compile

import (
	"kprobe/bpf"
	"kprobe/script/asm"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/types"
)

// Programs at system calls.

// calledFor finds which call it is, and goes to the program's end where it is none of those that are asked for.
func (g *Generator) calledFor(s *point.Syscall) {
	g.Call = g.Temp()
	if s.Kernel { // the place knows
		g.Mov(bpf.R1, RegCtx)
		g.Helper(bpf.FnGetAttachCookie)
		g.AluImm(bpf.Rsh, bpf.R0, 32)
	} else if s.Exit {
		// The place may know (the cookie's upper half), or the entry has noted it.
		known := g.NewLabel()
		g.Mov(bpf.R1, RegCtx)
		g.Helper(bpf.FnGetAttachCookie)
		g.AluImm(bpf.Rsh, bpf.R0, 32)
		g.IfImm(bpf.Jne, bpf.R0, 0, known)
		g.noted(g.End)
		g.Mov(bpf.R1, bpf.R0)
		g.Load(bpf.R0, Cell(bpf.R1, 0), 8, false)
		g.IfImm(bpf.Jeq, bpf.R0, 0, g.End)
		g.Put(known)
		g.AluImm(bpf.Sub, bpf.R0, 1)
	} else {
		g.Context("rax")
		g.Fit(types.Int32)
	}
	g.Store(g.Call, bpf.R0)
	if s.Numbers == nil || s.Kernel {
		return
	}
	wanted := g.NewLabel()
	for _, n := range s.Numbers {
		g.IfImm(bpf.Jeq, bpf.R0, int32(n), wanted)
	}
	g.GoTo(g.End)
	g.Put(wanted)
}

// callWord leaves in R0 what a program of a kernel's has passed to the system call in a register; or of rax, its result.
func (g *Generator) callWord(reg string) {
	if reg == "rax" {
		g.Context(reg)
		return
	}
	g.Scoped(func() {
		g.Context("rdi")
		g.AluImm(bpf.Add, bpf.R0, savedAt[reg])
		g.ReadTarget(types.Uint64)
	})
}

// noted leaves in R0 the address of the thread's note of the call that is under way.
func (g *Generator) noted(none Label) {
	key := g.Temp()
	g.StoreImm(key, 0)
	g.MapAddr(bpf.R1, g.notes)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapLookupElem)
	g.drop()
	g.IfImm(bpf.Jeq, bpf.R0, 0, none)
}

// noter is the program at places where the call's number is not known beforehand: it notes it for the exit. With a
// cookie it is behind the call, after all others, and the note is no more.
func (g *Generator) noter() *bpf.Program {
	g.Asm = asm.Asm{}
	g.lines, g.stack, g.scratch, g.deepest = nil, 0, 0, 0
	g.End = g.NewLabel()
	g.Mov(RegCtx, bpf.R1)
	g.noted(g.End)
	g.Mov(RegValue, bpf.R0)
	g.StoreImm(Cell(RegValue, 0), 0)
	g.Mov(bpf.R1, RegCtx)
	g.Helper(bpf.FnGetAttachCookie)
	g.IfImm(bpf.Jne, bpf.R0, 0, g.End)
	g.Context("rax")
	g.Fit(types.Uint32)
	g.AluImm(bpf.Add, bpf.R0, 1)
	g.Store(Cell(RegValue, 0), bpf.R0)
	g.Put(g.End)
	g.Imm(bpf.R0, 0)
	g.Emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
	g.Link()
	return &bpf.Program{Name: plan.NoterName, Insns: g.Insns, Maps: g.Plan.Specs, Kind: bpf.Kprobe}
}
