package compile

import (
	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Functions of the script: their bodies are put in where they are called. None calls itself.

// fnInfo is what is known of one.
type fnInfo struct {
	fn     *syntax.Fn
	params []*variable
	result *types.Type
	vars   []*variable // of its body
	busy   bool        // its code is being made
}

func (c *Checker) fn(f *syntax.Fn) {
	if c.fns[f.Name] != nil || c.lib.Functions[f.Name] != nil {
		c.Errorf(f, "Redefinition of function: %s", f.Name)
		return
	}
	info := &fnInfo{fn: f, result: types.NoType}
	for _, p := range f.Params {
		info.params = append(info.params, &variable{name: p.Name, Typ: types.NoType, set: true, Given: true})
	}
	c.fns[f.Name] = info
	c.fnOrder = append(c.fnOrder, f.Name)
}

// fnBody finds the types of a function's parameters, its result, and its body.
func (c *Checker) fnBody(info *fnInfo) {
	c.At, c.scopes, c.FnAt = nil, nil, info
	defer func() { c.FnAt = nil }()
	c.open()
	for _, p := range info.params {
		c.scopes[0][p.name] = p
	}
	set := func(to **types.Type, t *types.Type) {
		if t != nil && !types.Same(*to, t) {
			*to = t
			c.changed = true
		}
	}
	for i, p := range info.fn.Params {
		set(&info.params[i].Typ, c.typeOf(p.Type))
	}
	if r := info.fn.Result; r.Name == "void" && r.Stars == 0 {
		set(&info.result, types.VoidT)
	} else {
		set(&info.result, c.typeOf(r))
	}
	c.block(info.fn.Body)
	c.shut()
	if k := info.result.Kind; k != types.Void && k != types.None && !c.First && !syntax.Returns(info.fn.Body, c.Constant) {
		c.Errorf(info.fn, "Not all code paths returned a value")
	}
}

// returns looks at a return within a function.
func (c *Checker) returns(s *syntax.Jump) {
	t := types.VoidT
	if s.Value != nil {
		t = c.Expr(s.Value)
	}
	want := c.FnAt.result
	switch {
	case t.Kind == types.None || want.Kind == types.None:
	case (t.Kind == types.Void) != (want.Kind == types.Void), t.Kind != types.Void && !c.fits(want, t, s.Value):
		c.Errorf(s, "Function %s is of type %s, cannot return %s", c.FnAt.fn.Name, want.Declared(), t)
	}
}

// fnCall looks at a call.
func (c *Checker) fnCall(x *syntax.Call, info *fnInfo) *types.Type {
	if len(x.Args) < len(info.params) {
		c.Errorf(x, "Function `%s` requires %d arguments, got only %d", x.Name, len(info.params), len(x.Args))
		return nil
	}
	if len(x.Args) > len(info.params) {
		c.Errorf(x, "Function `%s` requires %d arguments, got %d", x.Name, len(info.params), len(x.Args))
		return nil
	}
	for i, a := range x.Args {
		t, p := c.Expr(a), info.params[i]
		if t.Kind != types.None && p.Typ.Kind != types.None && !c.fits(p.Typ, t, a) {
			c.Errorf(a, "Expected %s for argument `%s` got %s", p.Typ.Declared(), p.name, t)
		}
	}
	return info.result
}

// ret is where a return within a function goes.
type ret struct {
	end  Label
	to   Place
	info *fnInfo
}

// callFn puts a function's body here; its result is left in to.
func (g *Generator) callFn(x *syntax.Call, to Place) {
	info := g.fns[x.Name]
	if info.busy {
		g.Errorf(x, "%s() calls itself: functions are put in where they are called", x.Name)
		return
	}
	var args []Place
	for i, a := range x.Args {
		p := g.Room(info.params[i].Typ.Slot())
		g.Into(a, p, info.params[i].Typ)
		args = append(args, p)
	}
	info.busy = true
	defer func() { info.busy = false }()
	for _, v := range info.vars {
		delete(g.places, v)
	}
	for i, p := range info.params {
		g.places[p] = args[i]
	}
	r := ret{g.NewLabel(), to, info}
	if info.result.Kind != types.Void {
		g.Zero(to, info.result.Slot())
	}
	g.returns = append(g.returns, r)
	breaks, nexts := g.breaks, g.nexts
	g.breaks, g.nexts = nil, nil
	g.block(info.fn.Body)
	g.breaks, g.nexts = breaks, nexts
	g.returns = g.returns[:len(g.returns)-1]
	g.Put(r.end)
}

// leave is a return.
func (g *Generator) leave(s *syntax.Jump) {
	if len(g.returns) == 0 {
		if s.Value != nil && g.At[0].Provider == "test" { // others' results mean nothing
			g.Number(s.Value)
			g.Emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
			return
		}
		g.GoTo(g.End)
		return
	}
	r := g.returns[len(g.returns)-1]
	if s.Value != nil && r.info.result.Kind != types.Void {
		g.Into(s.Value, r.to, r.info.result)
	}
	g.GoTo(r.end)
}

// fnNumber leaves a function's result in R0.
func (g *Generator) fnNumber(x *syntax.Call) {
	to := g.Room(8)
	g.callFn(x, to)
	g.Load(bpf.R0, to, 8, false)
}
