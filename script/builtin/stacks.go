package builtin

import (
	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Stacks, and addresses that are shown as names.

func (c checker) wholeStack(x *syntax.Ident) *types.Type {
	return c.stack(&syntax.Call{Span: x.Span, Name: x.Name})
}

func (g generator) wholeStack(x *syntax.Ident) {
	g.trace(&syntax.Call{Span: x.Span, Name: x.Name}, g.Types[x])
}

func (c checker) stack(x *syntax.Call) *types.Type {
	t := &types.Type{Kind: types.UStack, Size: 8, Name: c.Set.StackMode}
	if x.Name == "kstack" {
		t.Kind = types.KStack
	} else if c.Opts.Kernel {
		c.Errorf(x, "ustack can not be used on a kernel yet: the stacks of the programs that it runs are not walked")
	}
	for i, a := range x.Args {
		if id, ok := a.(*syntax.Ident); ok && i == 0 && c.Consts[id.Name] == 0 {
			switch id.Name {
			case "bpftrace", "perf", "raw", "build_id":
				t.Name = id.Name
				continue
			}
			c.Errorf(a, "Invalid stack mode: %s", id.Name)
		} else if n, ok := c.Constant(a); ok && n > 0 && n <= 1024 && i == len(x.Args)-1 {
			c.Expr(a)
			t.Len = int(n)
		} else {
			c.Expr(a)
			c.Errorf(x, "%s() expects a mode and a number of frames from 1 to 1024", x.Name)
		}
	}
	return t
}

func (g generator) stackOf(x *syntax.Call) { g.trace(x, g.Types[x]) }

// trace leaves the id of a stack in R0, 1 more so that 0 says that there is none.
func (g generator) trace(x *syntax.Call, t *types.Type) {
	if !g.Inside() || t.Kind == types.KStack && !g.Opts.Kernel || t.Kind == types.UStack && g.Opts.Kernel {
		g.Imm(bpf.R0, 0)
		return
	}
	g.Plan.Specs[g.Stacks].MaxEntries = 4096
	if g.Opts.Kernel {
		g.Plan.Specs[g.Stacks].MaxEntries = 256 // memory of a kernel's is scarce
	}
	end, none := g.NewLabel(), g.NewLabel()
	g.Mov(bpf.R1, compile.RegCtx)
	g.MapAddr(bpf.R2, g.Stacks)
	flags := uint64(0)
	if t.Kind == types.UStack {
		flags = 1 << 8
	}
	if g.At[0].AtEntry() {
		flags |= bpf.StackEntry
	}
	g.Imm(bpf.R3, flags)
	g.Helper(bpf.FnGetStackid)
	g.IfImm(bpf.Jslt, bpf.R0, 0, none)
	g.AluImm(bpf.Add, bpf.R0, 1)
	g.OfProcess(t)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// frames leaves in R0 how many addresses a stack has: its map knows them by the stack's number, and a 0 is behind the last.
func (g generator) frames(x syntax.Expr) {
	t, key, none, next, end := g.Types[x], g.Temp(), g.NewLabel(), g.NewLabel(), g.NewLabel()
	most := int(g.Plan.Specs[g.Stacks].ValueSize) / 8
	if t.Len > 0 {
		most = min(most, t.Len)
	}
	g.Number(x)
	g.Fit(types.Uint32) // without its process
	g.AluImm(bpf.Sub, bpf.R0, 1)
	g.Store(key, bpf.R0)
	g.MapAddr(bpf.R1, g.Stacks)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapLookupElem) // of none for the stack that is none
	g.IfImm(bpf.Jeq, bpf.R0, 0, none)
	g.Mov(bpf.R1, bpf.R0)
	g.Imm(bpf.R0, 0)
	g.Put(next)
	g.Load(bpf.R2, compile.Cell(bpf.R1, 0), 8, false)
	g.IfImm(bpf.Jeq, bpf.R2, 0, end)
	g.AluImm(bpf.Add, bpf.R1, 8)
	g.AluImm(bpf.Add, bpf.R0, 1)
	g.IfImm(bpf.Jlt, bpf.R0, int32(most), next)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

func addressed(kind types.Kind) func(checker, *syntax.Call) *types.Type {
	return func(c checker, x *syntax.Call) *types.Type {
		if t := c.Expr(x.Args[0]); t.Kind != types.None && !t.Scalar() {
			c.Errorf(x, "%s() only supports integer or pointer arguments", x.Name)
		}
		return &types.Type{Kind: kind, Size: 8}
	}
}
