package compile

import (
	"fmt"

	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// ctx, and the addresses of variables and maps. Programs do not get at addresses of their own: such a pointer is a
// number that stands for the thing, and its type's Name says which thing. What is read through it is read from there.

// Numbers that stand for what no pointer of the target points to.
const (
	CtxAddress      = 0xffffc90000000000
	variableAddress = 0xffffc90000001000 // of the first; of maps
	mapAddress      = 0xffff888000000000
)

const ctxName = "ctx"

// Ctx is the type of the builtin: a pointer to registers at functions, to nothing that is known elsewhere.
func (c *Checker) Ctx() *types.Type {
	t := types.PointerTo(nil)
	if len(c.At) > 0 && c.At[0].Inside() && c.At[0].Syscall == nil {
		t = types.PointerTo(c.Known("struct pt_regs"))
	}
	t.Name = ctxName
	return t
}

// reference is the type of &$x and &@x.
func (c *Checker) reference(x *syntax.Unary) *types.Type {
	c.Stable(x, "unstable_addr")
	switch of := x.X.(type) {
	case *syntax.Var:
		if v := c.Find(of.Name); v != nil {
			v.Given = true // the pointer may be used to write to it
		}
		t := c.Expr(of)
		if t.Kind == types.None {
			c.Errorf(x, "No type available for variable %s", of.Name)
			return nil
		}
		p := types.PointerTo(t.Plain())
		p.Name = fmt.Sprintf("&%d", c.numberOf(c.Uses[of]))
		return p
	case *syntax.Map:
		if m := c.MapOf(of.Name, of); m.Value.Kind == types.None {
			c.Errorf(x, "Undefined map: %s", of.Name)
			if c.Final {
				m.first = nil // told
			}
		}
		return types.PointerTo(nil)
	}
	c.Errorf(x, "addresses are those of variables and maps")
	return nil
}

// numberOf tells variables apart whose addresses are taken.
func (c *Checker) numberOf(v *variable) int {
	for i, o := range c.taken {
		if o == v {
			return i
		}
	}
	c.taken = append(c.taken, v)
	return len(c.taken) - 1
}

// standsFor is the number that &$x or &@x is.
func (g *Generator) standsFor(x *syntax.Unary) uint64 {
	if v, ok := x.X.(*syntax.Var); ok {
		return variableAddress + 8*uint64(g.numberOf(g.Uses[v]))
	}
	return mapAddress + 4096*uint64(g.Maps[x.X.(*syntax.Map).Name].Index)
}

// variableAt is the variable that *x reads; nil where that is memory of the target.
func (g *Generator) variableAt(x syntax.Expr) *variable {
	u, ok := x.(*syntax.Unary)
	if !ok || u.Op != "*" {
		return nil
	}
	for i, v := range g.taken {
		if g.Types[u.X].Kind == types.Pointer && g.Types[u.X].Name == fmt.Sprintf("&%d", i) {
			return v
		}
	}
	return nil
}

// referred leaves in R0 what is read through such a pointer; false where x is memory of the target.
func (g *Generator) referred(x syntax.Expr, t *types.Type) bool {
	if v := g.variableAt(x); v != nil {
		g.Load(bpf.R0, g.Variable(v), 8, false)
		g.Fit(t)
		return true
	}
	off, ok := g.inContext(x)
	if !ok {
		return false
	}
	size := max(t.Size, 1)
	if f, isField := x.(*syntax.Field); isField && g.fieldOf(f).BitSize > 0 {
		f := g.fieldOf(f)
		if !g.hasContext(off, f.Bytes()) {
			g.Imm(bpf.R0, 0)
			return true
		}
		f.BitOff += 8 * (off % 8)
		g.bitField(f, func(dst Place) { g.Copy(dst, Cell(RegCtx, off/8*8), (f.Bytes()+7)&^7) })
		return true
	}
	if off/8 != (off+size-1)/8 || !g.hasContext(off, size) {
		g.Imm(bpf.R0, 0) // nothing is there
		return true
	}
	g.Load(bpf.R0, Cell(RegCtx, off/8*8), 8, false)
	if shift := int32(8 * (off % 8)); shift > 0 {
		g.AluImm(bpf.Rsh, bpf.R0, shift)
	}
	g.Fit(t)
	return true
}

// hasContext tells whether that many bytes of the program's context are there.
func (g *Generator) hasContext(off, size int) bool {
	return off >= 0 && off+size <= ptRegs.Size && g.Inside() && g.At[0].Syscall == nil
}

// inContext tells of an expression that reads through ctx how far behind it that is.
func (g *Generator) inContext(x syntax.Expr) (off int, ok bool) {
	through := func(p syntax.Expr) (int, bool) {
		if t := g.Types[p]; t.Kind == types.Pointer {
			return 0, t.Name == ctxName
		}
		return g.inContext(p)
	}
	switch x := x.(type) {
	case *syntax.Unary:
		if x.Op == "*" {
			return through(x.X)
		}
	case *syntax.Field:
		off, ok = through(x.X)
		return off + g.fieldOf(x).Offset, ok
	case *syntax.Index:
		n, known := g.Constant(x.I)
		off, ok = through(x.X)
		return off + int(n)*g.Types[x].Size, ok && known && n < 1<<16
	}
	return 0, false
}
