package builtin

import (
	"slices"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What is known of a probe: its name, its function, its arguments and registers.

func (c checker) ctxHere(x *syntax.Ident) *types.Type {
	if i := slices.IndexFunc(c.At, (*point.Point).Own); i >= 0 {
		c.Errorf(x, "The ctx builtin can not be used with '%s' probes", c.At[i].Provider)
	}
	return c.Ctx()
}

func (g generator) allArgs(_ *syntax.Ident, dst compile.Place, t *types.Type) { g.ArgsInto(dst, t) }

func (c checker) retval(x *syntax.Ident) *types.Type {
	if !c.Everywhere((*point.Point).AtReturn) {
		c.Errorf(x, "The retval builtin can only be used with 'kretprobe', 'uretprobe' and 'fexit' probes")
	}
	return c.result()
}

// result is the type of retval: that of the function where all points agree on one, and it is a scalar.
func (c checker) result() *types.Type {
	var t *types.Type
	for _, p := range c.At {
		if p.Result == nil || !p.Result.Scalar() || t != nil && !types.Same(t, p.Result) {
			return types.Uint64
		}
		t = p.Result
	}
	if t == nil {
		return types.Uint64
	}
	return t
}

func (g generator) retval(*syntax.Ident) {
	g.Context(g.Machine.Result)
	if t := g.checks().result(); t.Kind == types.Int {
		g.Fit(t)
	}
}

func (c checker) function(x *syntax.Ident) *types.Type {
	if !c.Everywhere((*point.Point).Inside) || c.At[0].Syscall != nil {
		c.Errorf(x, "The func builtin can not be used with '%s' probes", c.At[0].Provider)
	}
	if c.Everywhere((*point.Point).OfKernel) {
		return &types.Type{Kind: types.KSym, Size: 8}
	}
	return &types.Type{Kind: types.USym, Size: 8}
}

func (g generator) function(x *syntax.Ident) {
	g.Mov(bpf.R1, compile.RegCtx)
	g.Helper(bpf.FnGetFuncIP)
	g.OfProcess(g.Types[x])
}

func (c checker) probe(*syntax.Ident) *types.Type {
	if name, ok := c.probeName(); ok {
		return types.StringOf(len(name) + 1)
	}
	return &types.Type{Kind: types.Probe, Size: 8}
}

// probeName is the text of probe where there is only one that it can be.
func (c checker) probeName() (string, bool) {
	if len(c.At) == 1 && !point.HasGlob(c.At[0].Text) && !c.At[0].Many() {
		return c.At[0].Text, true
	}
	return "", false
}

// probeNumber leaves the number of the attach point in R0, which stands for its name.
func (g generator) probeNumber(*syntax.Ident) {
	g.Mov(bpf.R1, compile.RegCtx)
	g.Helper(bpf.FnGetAttachCookie)
	if s := g.At[0].Syscall; s != nil {
		g.Fit(types.Uint32)
		if s.Glob {
			g.Load(bpf.R1, g.Call, 8, false)
			g.Alu(bpf.Add, bpf.R0, bpf.R1)
		}
	}
}

func (g generator) probeText(_ *syntax.Ident, dst compile.Place, t *types.Type) {
	name, _ := g.checks().probeName()
	g.Text(dst, name, t.Slot())
}

func (c checker) probeType(*syntax.Ident) *types.Type {
	size := len("rawtracepoint") // in a function of the script's, whatever probe calls it
	for _, p := range c.At {
		size = max(size, len(p.Type()))
	}
	return types.StringOf(size + 1)
}

// typeText is probetype where all attach points are of one type.
func typeText(c *compile.Checker) (string, bool) {
	if len(c.At) == 0 || c.FnAt != nil || !c.Everywhere(func(p *point.Point) bool { return p.Type() == c.At[0].Type() }) {
		return "", false
	}
	return c.At[0].Type(), true
}

func (g generator) probeType(_ *syntax.Ident, dst compile.Place, t *types.Type) {
	g.Text(dst, g.At[0].Type(), t.Slot())
}

func (c checker) reg(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if ok && c.Machine.Register(name) < 0 {
		c.Errorf(x, "'%s' is not a valid register on this architecture (%s)", name, c.Machine.Name)
	}
	if !c.Everywhere((*point.Point).Inside) {
		c.Errorf(x, "reg can not be used with '%s' probes", c.At[0].Provider)
	}
	return types.Uint64
}

func (g generator) reg(x *syntax.Call) { g.Context(x.Args[0].(*syntax.Str).Value) }
