package compile

import (
	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Names and calls become code as the library says.

// Context reads a word of the context.
func (g *Generator) Context(reg string) {
	g.Load(bpf.R0, Cell(RegCtx, 8*g.Machine.Register(reg)), 8, false)
}

// builtin leaves the value of a name in R0.
func (g *Generator) builtin(x *syntax.Ident) {
	if n, stack, ok := point.Argument(x.Name); ok {
		if !stack && len(g.At) > 0 && g.At[0].Provider == "usdt" {
			g.Scoped(func() { g.staticArg(x, n) })
			return
		}
		w := point.Word{Stack: g.Machine.FirstStack + 8*n}
		if !stack {
			w = point.Word{Reg: g.At[0].Args(g.Machine)[n]}
		}
		g.atEntry(w)
		return
	}
	if v := g.lib.Values[x.Name]; v != nil && v.Number != nil {
		v.Number(g, x)
		return
	}
	g.callNumber(&syntax.Call{Span: x.Span, Name: x.Name})
}

// staticArg leaves an argument of a static probe in R0.
func (g *Generator) staticArg(x *syntax.Ident, n int) {
	if g.At[0].Static == nil {
		g.Imm(bpf.R0, 0) // only checked
		return
	}
	args := g.At[0].Static.Args
	if n >= len(args) {
		g.Errorf(x, "%s: the probe %s has %d arguments", x.Name, g.At[0].Text, len(args))
		return
	}
	a := args[n]
	if a.Unread != "" {
		g.Errorf(x, "%s of the probe %s cannot be read: %s", x.Name, g.At[0].Text, a.Unread)
		return
	}
	t := types.IntOf(a.Size, a.Signed)
	switch {
	case a.Memory:
		g.Context(a.Base)
		if a.Index != "" {
			at := g.Save()
			g.Context(a.Index)
			g.AluImm(bpf.Mul, bpf.R0, int32(a.Scale))
			g.Load(bpf.R1, at, 8, false)
			g.Alu(bpf.Add, bpf.R0, bpf.R1)
		}
		g.Imm(bpf.R1, uint64(a.Value))
		g.Alu(bpf.Add, bpf.R0, bpf.R1)
		g.ReadTarget(t)
	case a.Base != "":
		g.Context(a.Base)
		g.Fit(t)
	default:
		g.Imm(bpf.R0, uint64(a.Value))
		g.Fit(t)
	}
}

// callNumber leaves a function's value in R0.
func (g *Generator) callNumber(x *syntax.Call) {
	if g.fns[x.Name] != nil {
		g.fnNumber(x)
		return
	}
	if f := g.lib.Functions[x.Name]; f != nil && f.Number != nil {
		f.Number(g, x)
		return
	}
	g.Errorf(x, "%s() is not supported yet", x.Name)
}

// callMemory writes a function's value to memory.
func (g *Generator) callMemory(x *syntax.Call, dst Place, t *types.Type) {
	if g.fns[x.Name] != nil {
		g.callFn(x, dst)
		return
	}
	if f := g.lib.Functions[x.Name]; f != nil && f.Memory != nil {
		f.Memory(g, x, dst, t)
		return
	}
	g.Errorf(x, "%s() is not supported yet", x.Name)
}

// EmitRecord sends a record that is complete but for its head.
func (g *Generator) EmitRecord(a *plan.Action, rec Place, size int) {
	g.StoreImm(rec.Plus(plan.RecordID), uint64(len(g.Plan.Actions)))
	g.Plan.Actions = append(g.Plan.Actions, a)
	g.Helper(bpf.FnKtimeGetNs)
	g.Store(rec.Plus(plan.RecordTime), bpf.R0)
	g.MapAddr(bpf.R1, g.ring)
	g.Addr(bpf.R2, rec)
	g.Imm(bpf.R3, uint64(size))
	g.Imm(bpf.R4, 0)
	g.Helper(bpf.FnRingbufOutput)
}

// OfProcess puts the number of its process above a value in R0 that means nothing without: of several. It changes R1.
func (g *Generator) OfProcess(t *types.Type) {
	shift := int32(plan.ProcessShift)
	switch {
	case !g.Opts.Several:
		return
	case t.Kind == types.UStack:
		shift = 32
	case t.Kind != types.USym:
		return
	}
	g.AluImm(bpf.Lsh, bpf.R0, 64-shift)
	g.AluImm(bpf.Rsh, bpf.R0, 64-shift)
	g.MapValue(bpf.R1, g.Start, 0)
	g.Load(bpf.R1, Cell(bpf.R1, plan.FactProcess), 8, false)
	g.AluImm(bpf.Lsh, bpf.R1, shift)
	g.Alu(bpf.Or, bpf.R0, bpf.R1)
}
