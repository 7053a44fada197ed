package builtin

import (
	"strings"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Statements that print, or have the controller do something: each sends a record.

func (c checker) printf(x *syntax.Call) *types.Type {
	if x.Name == "debugf" {
		c.Warnf(x, "The debugf() builtin is not recommended for production use.")
	}
	if x.Name == "system" {
		c.unsafe(x)
	}
	format, ok := c.literal(x, 0)
	if !ok {
		return types.VoidT
	}
	if strings.Contains(format, "%gr") {
		c.Errorf(x, "%s: %%gr, flags of the kernel's allocator by their names, is not there yet: %%x shows the number", x.Name)
		return nil
	}
	wants := types.Verbs(format)
	if got := len(x.Args) - 1; len(wants) != got {
		word := "enough"
		if got > len(wants) {
			word = "many"
		}
		if word == "enough" {
			c.Errorf(x, "%s: Not enough arguments for format string (%d supplied, %d expected)", x.Name, got, len(wants))
		} else {
			c.Errorf(x, "%s: Too many arguments for format string (%d supplied, %d expected)", x.Name, got, len(wants))
		}
	}
	for i, a := range x.Args[1:] {
		t := c.Expr(a)
		if t.Kind == types.None {
			continue
		}
		if c.Counts(a, t) {
			t = types.ValueOf(t)
		}
		if i < len(wants) && !wants[i].Takes(t) {
			c.Errorf(a, "%s: %s specifier expects a value of type %s (%s supplied)", x.Name, wants[i].Text, wants[i].Expects(), t)
		}
	}
	return types.VoidT
}

// formatted sends what a format is filled with.
func formatted(kind plan.ActionKind) func(generator, *syntax.Call) {
	return func(g generator, x *syntax.Call) {
		g.send(&plan.Action{At: x.Span, Kind: kind, Format: x.Args[0].(*syntax.Str).Value}, x.Args[1:])
	}
}

func (c checker) print(x *syntax.Call) *types.Type {
	if m, ok := x.Args[0].(*syntax.Map); ok && m.Key == nil {
		info := c.MapOf(m.Name, m)
		if info.Value.Kind == types.None {
			c.Errorf(m, "Undefined map: %s", m.Name)
		}
		if c.Loops > 0 {
			c.Warnf(x, "Using 'print()' in a loop can lead to unexpected behavior: the map will likely have changed before it is printed.")
		}
		if info.Value.Kind == types.Stats && len(x.Args) > 1 {
			c.Warnf(x, "print()'s top and div arguments are ignored when used on stats() maps.")
		}
		for _, a := range x.Args[1:] {
			if n, ok := c.Constant(a); !ok || int64(n) < 0 {
				c.Errorf(a, "print() expects the number of entries and the divisor to be literals that are not negative")
			}
			c.Expr(a)
		}
		return types.VoidT
	}
	t := c.Expr(x.Args[0])
	if len(x.Args) > 1 {
		c.Errorf(x, "Non-map print() only takes 1 argument, %d found", len(x.Args))
	}
	if _, isMap := x.Args[0].(*syntax.Map); isMap && types.Lined(t) {
		c.Errorf(x, "Map type %s cannot print the value of individual keys. You must print the whole map.", t)
	} else if t.Kind == types.Void || t.Aggregate() && !isMap {
		c.Errorf(x.Args[0], "%s type passed to print() is not printable", t)
	}
	return types.VoidT
}

func (g generator) print(x *syntax.Call) {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok || m.Key != nil {
		g.send(&plan.Action{At: x.Span, Kind: plan.PrintValue}, x.Args)
		return
	}
	g.send(&plan.Action{At: x.Span, Kind: plan.PrintMap, Map: g.Maps[m.Name].Plan}, x.Args[1:])
}

func (c checker) exit(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		if t := c.Expr(x.Args[0]); t.Kind != types.None && !t.Number() && !c.Counts(x.Args[0], t) {
			c.Errorf(x, "exit() only supports int arguments (%s provided)", t.Family())
		}
	}
	return types.VoidT
}

func (g generator) exit(x *syntax.Call) {
	g.send(&plan.Action{At: x.Span, Kind: plan.Exit}, x.Args)
	g.GoTo(g.End)
}

// join prints the strings that an array of pointers in the target points to.
func (c checker) join(x *syntax.Call) *types.Type {
	if t := c.Expr(x.Args[0]); t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer {
		c.Errorf(x, "join() only supports int or pointer arguments (%s provided)", t.Family())
	}
	if len(x.Args) == 2 {
		c.literal(x, 1)
	}
	if !c.Everywhere(func(p *point.Point) bool { return p.Inside() && p.Provider != "software" && p.Provider != "hardware" }) {
		c.Errorf(x, "join can not be used with '%s' probes: there is no target to read", c.At[0].Provider)
	}
	return types.VoidT
}

// joinMost is the number of strings that join shows, and joinSize the number of bytes of each.
const (
	joinMost = 16
	joinSize = 1024
)

// join sends the strings that an array of pointers points to.
func (g generator) join(x *syntax.Call) {
	a := &plan.Action{At: x.Span, Kind: plan.Join, Format: " "}
	if len(x.Args) == 2 {
		a.Format = x.Args[1].(*syntax.Str).Value
	}
	size := min(joinSize, g.Set.MaxStrlen)
	for range joinMost {
		a.Args = append(a.Args, types.StringOf(size))
	}
	slot := a.Args[0].Slot()
	rec := g.Room(plan.RecordArgs + joinMost*slot)
	g.Number(x.Args[0])
	at, end := g.Save(), g.NewLabel()
	g.Zero(rec, plan.RecordArgs+joinMost*slot)
	for i := range joinMost {
		g.Load(bpf.R0, at, 8, false)
		g.AluImm(bpf.Add, bpf.R0, int32(8*i))
		g.ReadTarget(types.Uint64)
		g.IfImm(bpf.Jeq, bpf.R0, 0, end)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, rec.Plus(plan.RecordArgs+i*slot))
		g.Imm(bpf.R2, uint64(size))
		g.Fetch(true)
	}
	g.Put(end)
	g.EmitRecord(a, rec, plan.RecordArgs+joinMost*slot)
}

// assert ends the script with a message where its condition does not hold.
func (c checker) assert(x *syntax.Call) *types.Type {
	c.Cond(x.Args[0])
	if len(x.Args) == 2 {
		c.literal(x, 1)
	}
	return types.VoidT
}

// assert ends the script where its condition does not hold.
func (g generator) assert(x *syntax.Call) {
	no, end := g.NewLabel(), g.NewLabel()
	g.Condition(x.Args[0], no)
	g.GoTo(end)
	g.Put(no)
	text := "assert failed"
	if len(x.Args) == 2 {
		text += ": " + x.Args[1].(*syntax.Str).Value
	}
	g.send(&plan.Action{At: x.Span, Kind: plan.Errorf, Format: strings.ReplaceAll(text, "%", "%%")}, nil)
	g.send(&plan.Action{At: x.Span, Kind: plan.Exit, Code: 1}, nil)
	g.GoTo(g.End)
	g.Put(end)
}

// send puts a record together and sends it.
func (g generator) send(a *plan.Action, args []syntax.Expr) {
	size := plan.RecordArgs
	for _, x := range args {
		t := g.Types[x]
		if g.Counts(x, t) && a.Kind != plan.PrintValue {
			t = types.ValueOf(t)
		}
		a.Args = append(a.Args, t)
		size += t.Slot()
	}
	rec := g.Room(size)
	off := plan.RecordArgs
	for i, x := range args {
		t := a.Args[i]
		if t.Aggregate() {
			g.Copy(rec.Plus(off), g.MapMemory(x.(*syntax.Map), t), t.Slot())
		} else {
			g.Into(x, rec.Plus(off), t)
		}
		off += t.Slot()
	}
	g.EmitRecord(a, rec, size)
}

// nothing is for what was done before the script runs.
func nothing(generator, *syntax.Call) {}
