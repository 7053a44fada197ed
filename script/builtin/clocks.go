package builtin

import (
	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Time.

func (c checker) nsecs(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		id, ok := x.Args[0].(*syntax.Ident)
		switch {
		case !ok:
			c.Errorf(x.Args[0], "Invalid timestamp mode: a clock is wanted: monotonic, boot, tai or sw_tai")
		case id.Name != "monotonic" && id.Name != "boot" && id.Name != "tai" && id.Name != "sw_tai":
			c.Errorf(id, "Invalid timestamp mode: %s", id.Name)
		}
	}
	return types.Uint64
}

func (g generator) nsecs(x *syntax.Call) {
	if len(x.Args) == 1 && x.Args[0].(*syntax.Ident).Name == "monotonic" {
		g.Helper(bpf.FnKtimeGetNs)
		return
	}
	g.Helper(bpf.FnKtimeGetBootNs)
}

func (g generator) elapsed(*syntax.Ident) {
	g.Helper(bpf.FnKtimeGetBootNs)
	from := plan.FactStart
	if g.Opts.Kernel && g.Inside() {
		from = plan.FactTargetStart // its clock is its own: the first who asks begins
	}
	g.MapValue(bpf.R2, g.Start, 0)
	g.Load(bpf.R1, compile.Cell(bpf.R2, from), 8, false)
	if from == plan.FactTargetStart {
		begun := g.NewLabel()
		g.IfImm(bpf.Jne, bpf.R1, 0, begun)
		g.Store(compile.Cell(bpf.R2, from), bpf.R0)
		g.Mov(bpf.R1, bpf.R0)
		g.Put(begun)
	}
	g.Alu(bpf.Sub, bpf.R0, bpf.R1)
}

func (g generator) jiffies(*syntax.Ident) {
	g.Helper(bpf.FnKtimeGetNs)
	g.AluImm(bpf.Div, bpf.R0, 4000000)
}

// isMonotonic tells whether an expression is nsecs(monotonic).
func isMonotonic(x syntax.Expr) bool {
	call, ok := x.(*syntax.Call)
	if !ok || call.Name != "nsecs" || len(call.Args) != 1 {
		return false
	}
	id, ok := call.Args[0].(*syntax.Ident)
	return ok && id.Name == "monotonic"
}

// strftime is strftime(FORMAT, TIME). The format is the name of its type: it is printed by that.
func (c checker) strftime(x *syntax.Call) *types.Type {
	format, ok := c.literal(x, 0)
	c.Number(x.Args[1], "strftime()")
	if isMonotonic(x.Args[1]) {
		c.Errorf(x, "strftime() can not take a monotonic timestamp")
	}
	if !ok {
		return nil
	}
	return &types.Type{Kind: types.Time, Size: 8, Name: format}
}

func (c checker) clock(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		c.literal(x, 0)
	}
	return types.VoidT
}

func (g generator) clock(x *syntax.Call) {
	a := &plan.Action{At: x.Span, Kind: plan.Clock, Format: "%H:%M:%S\n"}
	if len(x.Args) == 1 {
		a.Format = x.Args[0].(*syntax.Str).Value
	}
	g.send(a, nil)
}
