package builtin

import (
	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What is done with maps.

// wholeMap is clear and zero.
func (c checker) wholeMap(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok || m.Key != nil {
		c.Expr(x.Args[0])
		c.Errorf(x, "%s() expects a map to be provided", x.Name)
		return types.VoidT
	}
	if c.MapOf(m.Name, m).Value.Kind == types.None {
		c.Errorf(m, "Undefined map: %s", m.Name)
	}
	return types.VoidT
}

// ofMap sends an order about a map.
func ofMap(kind plan.ActionKind) func(generator, *syntax.Call) {
	return func(g generator, x *syntax.Call) {
		g.send(&plan.Action{At: x.Span, Kind: kind, Map: g.Maps[x.Args[0].(*syntax.Map).Name].Plan}, nil)
	}
}

// keyed makes delete(@m, key) and delete(@m[key]) one.
func (c checker) keyed(x *syntax.Call) *syntax.Map {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok {
		c.Errorf(x.Args[0], "%s() expects a map argument", x.Name)
		return nil
	}
	if len(x.Args) == 2 {
		if m.Key != nil {
			c.Errorf(m, "%s() expects a map with no keys for the first argument", x.Name)
			return nil
		}
		m = &syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]}
		x.Args = []syntax.Expr{m}
	}
	return m
}

func (c checker) deletes(x *syntax.Call) *types.Type {
	if m := c.keyed(x); m != nil {
		if info := c.MapOf(m.Name, m); m.Key != nil && info.Keyless && !info.Keyed {
			c.Errorf(x, "call to delete() with two arguments expects a map with explicit keys (non-scalar map)")
			return types.BoolT
		}
		c.MapUse(m).Walked = true // shared, so that one thread deletes all of it
		c.Types[m] = types.NoType
	}
	return types.BoolT
}

func (g generator) deletes(x *syntax.Call) { g.deleteKey(x.Args[0].(*syntax.Map)) }

func (g generator) deleteKey(x *syntax.Map) {
	m := g.Maps[x.Name]
	if x.Key == nil {
		g.MapValue(compile.RegValue, m.Index, 0)
		g.StoreImm(compile.Cell(compile.RegValue, 0), plan.KeylessGone)
		g.Zero(compile.Cell(compile.RegValue, plan.KeylessHeader), m.Value.Slot())
		g.Imm(bpf.R0, 1)
		return
	}
	key := g.Key(m, x.Key)
	g.MapAddr(bpf.R1, m.Index)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapDeleteElem)
	if m.Plan.Count >= 0 {
		absent := g.NewLabel()
		g.IfImm(bpf.Jne, bpf.R0, 0, absent)
		g.Uncounted(m)
		g.Put(absent)
	}
	g.Flag(func(yes compile.Label) { g.IfImm(bpf.Jeq, bpf.R0, 0, yes) })
}

// deleteOnly deletes a key, and tells where nothing was there.
func (g generator) deleteOnly(x *syntax.Call) {
	g.Scoped(func() { g.Number(x); g.undeleted(x) })
}

// undeleted tells of a delete that found nothing, where the script does not use its answer.
func (g generator) undeleted(x *syntax.Call) {
	there := g.NewLabel()
	g.IfImm(bpf.Jne, bpf.R0, 0, there)
	rec := g.Room(plan.RecordArgs + 8)
	g.StoreImm(rec.Plus(plan.RecordArgs), ^uint64(1)) // -ENOENT
	g.EmitRecord(&plan.Action{At: x.Span, Kind: plan.Failed, Format: plan.DeleteFailed, Args: []*types.Type{types.Int64}}, rec, plan.RecordArgs+8)
	g.Put(there)
}

func (c checker) hasKey(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok || m.Key != nil {
		c.Errorf(x.Args[0], "has_key() expects a map argument")
		return types.BoolT
	}
	c.MapUse(&syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]})
	return types.BoolT
}

func (g generator) hasKey(x *syntax.Call) {
	m := g.Maps[x.Args[0].(*syntax.Map).Name]
	g.Lookup(m, g.Key(m, x.Args[1]))
	g.Flag(func(yes compile.Label) { g.IfImm(bpf.Jne, bpf.R0, 0, yes) })
}

// findKey is find(@m, key, $v): has_key that puts the value into a variable.
func (c checker) findKey(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	v, okV := x.Args[2].(*syntax.Var)
	if !ok || m.Key != nil || !okV {
		c.Errorf(x, "find() expects a map, a key and a variable")
		return types.BoolT
	}
	c.MapUse(&syntax.Map{Span: m.Span, Name: m.Name, Key: x.Args[1]})
	if info := c.Find(v.Name); info != nil {
		info.Given = true
	}
	c.Expr(v)
	if info := c.Uses[v]; info != nil && c.Maps[m.Name].Value.Kind != types.None {
		c.AssignVar(x, info, types.ValueOf(c.Maps[m.Name].Value), v)
	}
	return types.BoolT
}

// find puts a key's value into a variable, where there is one.
func (g generator) find(x *syntax.Call) {
	m := g.Maps[x.Args[0].(*syntax.Map).Name]
	v := g.Uses[x.Args[2].(*syntax.Var)]
	none, end := g.NewLabel(), g.NewLabel()
	g.Lookup(m, g.Key(m, x.Args[1]))
	g.IfImm(bpf.Jeq, bpf.R0, 0, none)
	g.Mov(compile.RegValue, bpf.R0)
	to := g.Variable(v)
	if v.Typ.Scalar() {
		g.MapWord(m.Value, compile.Cell(compile.RegValue, 0))
		g.Fit(v.Typ)
		g.Store(to, bpf.R0)
	} else {
		g.Convert(to, v.Typ, compile.Cell(compile.RegValue, 0), types.ValueOf(m.Value))
	}
	g.Imm(bpf.R0, 1)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// length is len of a map or a stack.
func (c checker) length(x *syntax.Call) *types.Type {
	m, ok := x.Args[0].(*syntax.Map)
	switch {
	case !ok || m.Key != nil:
		if t := c.Expr(x.Args[0]); t.Kind != types.None && !t.Kind.Stack() {
			c.Errorf(x.Args[0], "len() expects a map or stack to be provided")
		}
	case c.MapOf(m.Name, m).Value.Kind == types.None:
		c.Errorf(m, "Undefined map: %s", m.Name)
	case c.MapOf(m.Name, m).Keyless:
		c.Errorf(m, "call to len() expects a map with explicit keys (non-scalar map)")
	}
	return types.Uint64
}

func (g generator) length(x *syntax.Call) {
	if t := g.Types[x.Args[0]]; t != nil && t.Kind.Stack() {
		g.frames(x.Args[0])
		return
	}
	m := g.Maps[x.Args[0].(*syntax.Map).Name]
	key, n := g.Room(max(m.Key.Slot(), 8)), g.Room(8)
	g.StoreImm(n, 0)
	g.Walk(m, key, func(_, _ compile.Label) {
		g.Load(bpf.R0, n, 8, false)
		g.AluImm(bpf.Add, bpf.R0, 1)
		g.Store(n, bpf.R0)
	})
	g.Load(bpf.R0, n, 8, false)
}
