package compile

import (
	"slices"

	"kprobe/bpf"
	"kprobe/script/asm"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What args has at an attach point.

// resolve finds the types of parameters. What a pointer points to may be known to the script alone.
func (c *Checker) resolve(params []point.Param) []point.Param {
	all := make([]point.Param, len(params))
	for i, p := range params {
		if all[i] = p; p.Type == nil {
			all[i].Type = types.OfC(p.C, c.Known)
		}
	}
	return all
}

// arg is the type of args.NAME: all points must have one, of types that go together.
func (c *Checker) arg(x *syntax.Field) *types.Type {
	c.Types[x.X] = types.NoType
	if c.outside(x, "args") {
		return nil
	}
	var t *types.Type
	for _, pt := range c.At {
		p := pt.Param(x.Name)
		switch {
		case len(pt.Params) == 0:
			c.noArgs(x, pt)
			return nil
		case p == nil:
			c.Errorf(x, "Can't find function parameter %s: %s has none of that name", x.Name, pt.Text)
			return nil
		case p.Err != nil:
			c.Errorf(x, "args.%s cannot be read at %s: %v", x.Name, pt.Text, p.Err)
			return nil
		case t == nil:
			t = p.Type
		default:
			j := types.Join(t, p.Type)
			if j == nil && t.Number() && p.Type.Number() { // a pointer here, a number there
				j = types.Uint64
			}
			if t = j; t == nil {
				c.Errorf(x, "args.%s is not of one type at all of the attach points", x.Name)
				return nil
			}
		}
	}
	return t
}

// noArgs says why there is no args.
func (c *Checker) noArgs(x syntax.Node, pt *point.Point) {
	if pt.Syscall != nil {
		c.Errorf(x, "args: the system calls that %s matches have parameters of their own: name the calls one by one, or use raw_syscalls:sys_enter", pt.Text)
		return
	}
	if pt.NoParams != "" {
		c.Errorf(x, "%s", pt.NoParams)
		return
	}
	c.Errorf(x, "The args builtin is not supported yet with '%s' probes", pt.Provider)
}

// Args is the type of all of them: a record.
func (c *Checker) Args(x *syntax.Ident) *types.Type {
	var t *types.Type
	for _, pt := range c.At {
		if len(pt.Params) == 0 {
			c.noArgs(x, pt)
			return nil
		}
		var names []string
		var elems []*types.Type
		for _, p := range pt.Params {
			if p.Err != nil {
				c.Errorf(x, "args as a whole cannot be read at %s, name a member: %v", pt.Text, p.Err)
				return nil
			}
			names, elems = append(names, p.Name), append(elems, p.Type)
		}
		own := types.TupleOf(names, elems...)
		if t != nil && !types.Same(t, own) {
			c.Errorf(x, "args is not of one type at all of the attach points: name a member")
			return nil
		}
		t = own
	}
	return t
}

// argNumber leaves args.NAME in R0.
func (g *Generator) argNumber(name string) {
	switch p := g.At[0].Param(name); {
	case p.Record:
		g.recordPart(p)
		if !p.Behind {
			g.ReadTarget(p.Type)
		}
	case p.Call:
		g.Load(bpf.R0, g.Call, 8, false)
	case len(p.Regs) == 0 && !g.At[0].AtReturn():
		g.Scoped(func() {
			g.Context(g.Machine.SP)
			g.AluImm(bpf.Add, bpf.R0, int32(p.Stack))
			g.ReadTarget(p.Type)
		})
	default:
		g.paramWord(p, 0)
		g.Fit(types.IntOf(p.Type.Size, p.Type.Signed)) // what is above it in the register is anything
	}
}

// paramWord leaves the i-th word of a parameter in R0.
func (g *Generator) paramWord(p *point.Param, i int) {
	if s := g.At[0].Syscall; s != nil && s.Kernel {
		g.callWord(p.Regs[i])
		return
	}
	g.atEntry(p.Word(i))
}

// atEntry leaves a word in R0. At a return it is what the program at the entry has kept of it for this one call.
func (g *Generator) atEntry(w point.Word) {
	if !g.At[0].Behind() {
		g.entryWord(w)
		return
	}
	i := slices.Index(g.kept, w)
	if i < 0 {
		i = len(g.kept)
		g.kept = append(g.kept, w)
	}
	g.Mov(bpf.R1, RegCtx)
	g.Imm(bpf.R2, uint64(8*(i+1)))
	g.Helper(bpf.FnCallData)
	g.Load(bpf.R0, Cell(bpf.R0, 8*i), 8, false)
}

// entryWord leaves a word in R0 where the function is entered.
func (g *Generator) entryWord(w point.Word) {
	if w.Reg != "" {
		g.Context(w.Reg)
		return
	}
	g.Scoped(func() {
		g.Context(g.Machine.SP)
		g.AluImm(bpf.Add, bpf.R0, int32(w.Stack))
		g.ReadTarget(types.Uint64)
	})
}

// keeper is the program that runs where the function is entered: it keeps the words that the one at the return
// asks for in the call's own data.
func (g *Generator) keeper(name string, words []point.Word) *bpf.Program {
	g.Asm = asm.Asm{}
	g.lines, g.stack, g.scratch, g.deepest = nil, 0, 0, 0
	g.Mov(RegCtx, bpf.R1)
	g.Imm(bpf.R2, uint64(8*len(words)))
	g.Helper(bpf.FnCallData)
	g.Mov(RegValue, bpf.R0)
	for i, w := range words {
		g.entryWord(w)
		g.Store(Cell(RegValue, 8*i), bpf.R0)
	}
	g.Imm(bpf.R0, 0)
	g.Emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
	g.Link()
	return &bpf.Program{Name: name, Insns: g.Insns, Maps: g.Plan.Specs, Kind: bpf.Kprobe, Context: g.Machine.Context}
}

// argInto writes a member to memory.
func (g *Generator) argInto(p *point.Param, dst Place) {
	if p.Type.Scalar() {
		g.argNumber(p.Name)
		g.Store(dst, bpf.R0)
		return
	}
	if p.Record {
		g.Zero(dst, p.Type.Slot())
		g.recordPart(p)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, dst)
		g.Imm(bpf.R2, uint64(p.Type.Size))
		g.Fetch(false)
		return
	}
	for i := range (p.Type.Size + 7) / 8 {
		g.paramWord(p, i)
		if rest := p.Type.Size - 8*i; rest < 8 { // what is behind it is anything
			g.AluImm(bpf.Lsh, bpf.R0, int32(64-8*rest))
			g.AluImm(bpf.Rsh, bpf.R0, int32(64-8*rest))
		}
		g.Store(dst.Plus(8*i), bpf.R0)
	}
}

// ArgsInto writes all of args to memory.
func (g *Generator) ArgsInto(dst Place, t *types.Type) {
	for i := range g.At[0].Params {
		g.argInto(&g.At[0].Params[i], dst.Plus(t.Fields[i].Offset))
	}
}
