package builtin

import (
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What changes the target.

// unsafe refuses a function that does something to the target or this machine, unless that is allowed.
func (c checker) unsafe(x *syntax.Call) (allowed bool) {
	if !c.Opts.Unsafe {
		c.Errorf(x, "%s() is an unsafe function being used in safe mode", x.Name)
		c.Hint("--unsafe allows it")
	}
	return c.Opts.Unsafe
}

// lastSignal is the greatest number a signal has.
const lastSignal = 64

func (c checker) signal(x *syntax.Call) *types.Type {
	c.unsafe(x)
	if !c.Everywhere((*point.Point).Inside) {
		c.Errorf(x, "%s can not be used with '%s' probes", x.Name, c.At[0].Provider)
		return types.VoidT
	}
	t := c.Expr(x.Args[0])
	if text, ok := c.StringLiteral(x.Args[0]); ok {
		if signalNumber(text) == 0 {
			c.Errorf(x, "%s is not a valid signal", text)
		}
		return types.VoidT
	}
	n, known := c.Constant(x.Args[0])
	switch {
	case t.Kind != types.None && t.Kind != types.Int && !c.Counts(x.Args[0], t):
		c.Errorf(x, "%s() only supports int or string literal arguments (%s provided)", x.Name, t.Family())
	case known && (n < 1 || n > lastSignal):
		c.Errorf(x, "%d is not a valid signal, allowed range: [1,%d]", int64(n), lastSignal)
	}
	return types.VoidT
}

// signalNumber is the number of a signal's name, with SIG or without; 0 for none.
func signalNumber(name string) uint64 {
	return uint64(unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")))
}

// signal asks the controller to send one.
func (g generator) signal(x *syntax.Call) {
	a := &plan.Action{At: x.Span, Kind: plan.Signal, Thread: x.Name == "signal_thread", Args: []*types.Type{types.Uint64, types.Uint64}}
	rec := g.Room(plan.RecordArgs + 16)
	if name, ok := g.StringLiteral(x.Args[0]); ok {
		g.Imm(bpf.R0, signalNumber(name))
	} else {
		g.Number(x.Args[0])
	}
	g.Store(rec.Plus(plan.RecordArgs), bpf.R0)
	g.Helper(bpf.FnGetCurrentPidTgid)
	g.Store(rec.Plus(plan.RecordArgs+8), bpf.R0)
	g.EmitRecord(a, rec, plan.RecordArgs+16)
}

func (c checker) override(x *syntax.Call) *types.Type {
	c.Number(x.Args[0], "override()")
	c.unsafe(x)
	if !c.Everywhere(func(p *point.Point) bool { return p.Provider == "kprobe" || p.Provider == "uprobe" }) {
		c.Errorf(x, "override can not be used with '%s' probes", c.At[0].Provider)
	}
	return types.VoidT
}

func (g generator) override(x *syntax.Call) {
	g.Number(x.Args[0])
	g.Mov(bpf.R2, bpf.R0)
	g.Mov(bpf.R1, compile.RegCtx)
	g.Helper(bpf.FnOverrideReturn)
	g.GoTo(g.End)
}

// writeUser is write_user(TO, VALUE): it writes as many bytes as TO points to, or VALUE has.
func (c checker) writeUser(x *syntax.Call) *types.Type {
	to, value := c.Expr(x.Args[0]), c.Expr(x.Args[1])
	_, literal := x.Args[1].(*syntax.Str)
	switch {
	case !c.unsafe(x):
	case c.Opts.Kernel || !c.Everywhere((*point.Point).Inside) || len(c.At) > 0 && c.At[0].Interpreted():
		c.Errorf(x, "write_user() writes the memory of a process, at a probe on it")
	case to.Kind != types.None && to.Kind != types.Int && to.Kind != types.Pointer:
		c.Errorf(x, "write_user() expects an address (%s provided)", to.Family())
	case value.Kind == types.String && !literal:
		c.Errorf(x, "write_user(): how much of a text is to be written is known of a literal alone")
	case value.Kind != types.None && value.Aggregate():
		c.Errorf(x, "write_user() cannot write a %s", value.Family())
	}
	return types.Int64
}

// writeUser writes a value into the target, and leaves in R0 what the helper says.
func (g generator) writeUser(x *syntax.Call) {
	to, t := g.Types[x.Args[0]], g.Types[x.Args[1]]
	size := max(t.Size, 1)
	var from compile.Place
	text, literal := x.Args[1].(*syntax.Str)
	switch {
	case literal:
		size = len(text.Value) + 1
		from = g.Memory(text)
	case t.Scalar():
		if to.Kind == types.Pointer && to.Elem != nil && to.Elem.Scalar() {
			size = max(to.Elem.Size, 1)
		}
		g.Number(x.Args[1])
		from = g.Save()
	default:
		from = g.Memory(x.Args[1])
	}
	g.Number(x.Args[0])
	g.Mov(bpf.R1, bpf.R0)
	g.Addr(bpf.R2, from)
	g.Imm(bpf.R3, uint64(size))
	g.Helper(bpf.FnProbeWriteUser)
}

// only does what a function's value is made by, and leaves the value.
func (g generator) only(x *syntax.Call) {
	g.Scoped(func() { g.Number(x) })
}

func (c checker) unwatch(x *syntax.Call) *types.Type {
	if t := c.Expr(x.Args[0]); t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer && !c.Counts(x.Args[0], t) {
		c.Errorf(x, "unwatch() only supports int or pointer arguments (%s provided)", t.Family())
	}
	return types.VoidT
}

func (g generator) unwatch(x *syntax.Call) {
	g.send(&plan.Action{At: x.Span, Kind: plan.Unwatch}, x.Args)
}
