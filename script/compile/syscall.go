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
func (g *generator) calledFor(s *point.Syscall) {
	g.call = g.temp()
	if s.Kernel { // the place knows
		g.Mov(bpf.R1, regCtx)
		g.Helper(bpf.FnGetAttachCookie)
		g.AluImm(bpf.Rsh, bpf.R0, 32)
	} else if s.Exit {
		// The place may know (the cookie's upper half), or the entry has noted it.
		known := g.NewLabel()
		g.Mov(bpf.R1, regCtx)
		g.Helper(bpf.FnGetAttachCookie)
		g.AluImm(bpf.Rsh, bpf.R0, 32)
		g.IfImm(bpf.Jne, bpf.R0, 0, known)
		g.noted(g.end)
		g.Mov(bpf.R1, bpf.R0)
		g.Load(bpf.R0, cell(bpf.R1, 0), 8, false)
		g.IfImm(bpf.Jeq, bpf.R0, 0, g.end)
		g.Put(known)
		g.AluImm(bpf.Sub, bpf.R0, 1)
	} else {
		g.context("rax")
		g.fit(types.Int32)
	}
	g.Store(g.call, bpf.R0)
	if s.Numbers == nil || s.Kernel {
		return
	}
	wanted := g.NewLabel()
	for _, n := range s.Numbers {
		g.IfImm(bpf.Jeq, bpf.R0, int32(n), wanted)
	}
	g.GoTo(g.end)
	g.Put(wanted)
}

// callWord leaves in R0 what a program of a kernel's has passed to the system call in a register; or of rax, its result.
func (g *generator) callWord(reg string) {
	if reg == "rax" {
		g.context(reg)
		return
	}
	g.scoped(func() {
		g.context("rdi")
		g.AluImm(bpf.Add, bpf.R0, savedAt[reg])
		g.readTarget(types.Uint64)
	})
}

// noted leaves in R0 the address of the thread's note of the call that is under way.
func (g *generator) noted(none label) {
	key := g.temp()
	g.StoreImm(key, 0)
	g.MapAddr(bpf.R1, g.notes)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapLookupElem)
	g.drop()
	g.IfImm(bpf.Jeq, bpf.R0, 0, none)
}

// noter is the program at places where the call's number is not known beforehand: it notes it for the exit. With a
// cookie it is behind the call, after all others, and the note is no more.
func (g *generator) noter() *bpf.Program {
	g.Asm = asm.Asm{}
	g.lines, g.stack, g.scratch, g.deepest = nil, 0, 0, 0
	g.end = g.NewLabel()
	g.Mov(regCtx, bpf.R1)
	g.noted(g.end)
	g.Mov(regValue, bpf.R0)
	g.StoreImm(cell(regValue, 0), 0)
	g.Mov(bpf.R1, regCtx)
	g.Helper(bpf.FnGetAttachCookie)
	g.IfImm(bpf.Jne, bpf.R0, 0, g.end)
	g.context("rax")
	g.fit(types.Uint32)
	g.AluImm(bpf.Add, bpf.R0, 1)
	g.Store(cell(regValue, 0), bpf.R0)
	g.Put(g.end)
	g.Imm(bpf.R0, 0)
	g.Emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
	g.Link()
	return &bpf.Program{Name: plan.NoterName, Insns: g.Insns, Maps: g.plan.Specs, Kind: bpf.Kprobe}
}
