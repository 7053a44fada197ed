package compile

import (
	"math"

	"strconv"
	"strings"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Values that lie in the target's memory: what pointers point to.

// Fetch calls the helper that reads at R3, up to a NUL or not. Of a kernel's target an address of its own half is the
// kernel's, any other that of the process that is under way.
func (g *Generator) Fetch(str bool) {
	user, kernel := int32(bpf.FnProbeReadUser), int32(bpf.FnProbeReadKernel)
	if str {
		user, kernel = bpf.FnProbeReadUserStr, bpf.FnProbeReadKernelStr
	}
	name := map[bool]string{false: "probe_read_user", true: "probe_read_user_str"}[str]
	if !g.Opts.Kernel {
		g.Helper(user)
		g.failed(name)
		return
	}
	own, end := g.NewLabel(), g.NewLabel()
	g.IfImm(bpf.Jslt, bpf.R3, 0, own)
	g.Helper(user)
	g.failed(name)
	g.GoTo(end)
	g.Put(own)
	g.Helper(kernel)
	g.failed(strings.Replace(name, "user", "kernel", 1))
	g.Put(end)
}

// failed tells of a helper whose result, in R0, is an error, where that is asked for. It keeps no register.
func (g *Generator) failed(name string) {
	if !g.Opts.Told {
		return
	}
	fine := g.NewLabel()
	g.IfImm(bpf.Jsge, bpf.R0, 0, fine)
	g.Scoped(func() {
		rec := g.Room(plan.RecordArgs + 8)
		g.Store(rec.Plus(plan.RecordArgs), bpf.R0)
		g.EmitRecord(&plan.Action{At: g.doing, Kind: plan.Failed, Format: name, Args: []*types.Type{types.Int64}}, rec, plan.RecordArgs+8)
	})
	g.Put(fine)
}

// absent is where a map has no element for a key: told of where that is asked for. R0 is 0 at none.
func (g *Generator) absent(none Label) {
	if !g.Opts.Told {
		g.IfImm(bpf.Jeq, bpf.R0, 0, none)
		return
	}
	there := g.NewLabel()
	g.IfImm(bpf.Jne, bpf.R0, 0, there)
	g.Scoped(func() {
		rec := g.Room(plan.RecordArgs + 8)
		g.StoreImm(rec.Plus(plan.RecordArgs), 0)
		g.EmitRecord(&plan.Action{At: g.doing, Kind: plan.Failed, Format: "map_lookup_elem", Args: []*types.Type{types.Int64}}, rec, plan.RecordArgs+8)
	})
	g.Imm(bpf.R0, 0)
	g.GoTo(none)
	g.Put(there)
}

// during makes x what messages of its code are about, until the function that comes back is called.
func (g *Generator) during(x syntax.Expr) func() {
	before := g.doing
	g.doing = x.At()
	return func() { g.doing = before }
}

// InTarget tells whether an expression names memory of the target.
func (g *Generator) InTarget(x syntax.Expr) bool {
	switch x := x.(type) {
	case *syntax.Unary:
		return x.Op == "*"
	case *syntax.Field:
		t := g.Types[x.X]
		return t.Kind == types.Pointer || t.Kind == types.Record && g.InTarget(x.X)
	case *syntax.Index:
		t := g.Types[x.X]
		return t.Kind == types.Pointer || t.Kind == types.Array && g.InTarget(x.X)
	}
	return false
}

// Address leaves in R0 where in the target the expression's value lies.
func (g *Generator) Address(x syntax.Expr) {
	switch x := x.(type) {
	case *syntax.Unary:
		g.Number(x.X)
	case *syntax.Field:
		f := g.fieldOf(x)
		if g.Types[x.X].Kind == types.Pointer {
			g.Number(x.X)
		} else {
			g.Address(x.X)
		}
		if f.Offset != 0 {
			g.AluImm(bpf.Add, bpf.R0, int32(f.Offset))
		}
	case *syntax.Index:
		size := int32(max(g.Types[x].Size, 1))
		if g.Types[x.X].Kind == types.Pointer {
			g.Number(x.X)
		} else {
			g.Address(x.X)
		}
		n, known := g.Constant(x.I)
		if known && n*uint64(size) <= math.MaxInt32 {
			if n > 0 {
				g.AluImm(bpf.Add, bpf.R0, int32(n)*size)
			}
			return
		}
		at, none, end := g.Save(), g.NewLabel(), g.NewLabel()
		if t := g.Types[x.X]; t.Kind == types.Array && t.Len > 0 && !known {
			g.bounded(x, t.Len, none)
		} else {
			g.Number(x.I)
		}
		g.AluImm(bpf.Mul, bpf.R0, size)
		g.Load(bpf.R1, at, 8, false)
		g.Alu(bpf.Add, bpf.R0, bpf.R1)
		g.GoTo(end)
		g.Put(none)
		g.Imm(bpf.R0, 0) // where nothing can be read
		g.Put(end)
		g.drop()
	}
}

// fieldOf finds a structure's member.
func (g *Generator) fieldOf(x *syntax.Field) types.Field {
	t := g.Types[x.X]
	if t.Kind == types.Pointer {
		t = t.Elem
	}
	for i, f := range t.Fields {
		if f.Name == x.Name || t.Kind == types.Tuple && x.Name == strconv.Itoa(i) {
			return f
		}
	}
	return types.Field{Type: types.NoType}
}

// targetNumber leaves a scalar of the target's memory in R0.
func (g *Generator) targetNumber(x syntax.Expr, t *types.Type) {
	if g.referred(x, t) {
		return
	}
	g.Address(x)
	if f, ok := x.(*syntax.Field); ok {
		if f := g.fieldOf(f); f.BitSize > 0 {
			g.bitField(f, func(dst Place) {
				g.Mov(bpf.R3, bpf.R0)
				g.Addr(bpf.R1, dst)
				g.Imm(bpf.R2, uint64(f.Bytes()))
				g.Fetch(false)
			})
			return
		}
	}
	g.ReadTarget(t)
}

// bitField leaves a bit-field in R0, as C reads it. fill puts its bytes into memory that is cleared; until then R0 is what it was.
func (g *Generator) bitField(f types.Field, fill func(dst Place)) {
	p := g.Room(16)
	g.StoreImmKeeping(p)
	g.StoreImmKeeping(p.Plus(8))
	fill(p)
	g.Load(bpf.R0, p, 8, false)
	if f.Bytes() > 8 {
		g.AluImm(bpf.Rsh, bpf.R0, int32(f.BitOff))
		g.Load(bpf.R1, p.Plus(8), 8, false)
		g.AluImm(bpf.Lsh, bpf.R1, int32(64-f.BitOff))
		g.Alu(bpf.Or, bpf.R0, bpf.R1)
		f.BitOff = 0
	}
	g.bits(f)
}

// bits takes a bit-field out of the word in R0, which has all of it.
func (g *Generator) bits(f types.Field) {
	op := uint8(bpf.Rsh)
	if f.Type.Signed {
		op = bpf.Arsh
	}
	g.AluImm(bpf.Lsh, bpf.R0, int32(64-f.BitOff-f.BitSize))
	g.AluImm(op, bpf.R0, int32(64-f.BitSize))
}

// targetMemory copies a structure, array or string of the target.
func (g *Generator) targetMemory(x syntax.Expr, t *types.Type) Place {
	if v := g.variableAt(x); v != nil {
		return g.Variable(v)
	}
	dst := g.Room(t.Slot())
	if off, ok := g.inContext(x); ok {
		g.Zero(dst, t.Slot())
		for i := 0; i < t.Slot() && g.hasContext(off+i, 8) && off%8 == 0; i += 8 {
			g.Load(bpf.R0, Cell(RegCtx, off+i), 8, false)
			g.Store(dst.Plus(i), bpf.R0)
		}
		return dst
	}
	g.Scoped(func() {
		g.Address(x)
		from := g.Save()
		g.Zero(dst, t.Slot())
		g.Addr(bpf.R1, dst)
		n := g.Stored[x].Size
		g.Imm(bpf.R2, uint64(n))
		g.Load(bpf.R3, from, 8, false)
		g.Fetch(t.Kind == types.String) // then nothing of what is behind its NUL
		if !g.Stored[x].Chars {
			return
		}
		// It may fill its array: the last character is read by itself, and nothing behind it.
		whole := g.NewLabel()
		g.IfImm(bpf.Jne, bpf.R0, int32(n), whole)
		g.Addr(bpf.R1, dst.Plus(n-1))
		g.Imm(bpf.R2, 1)
		g.Load(bpf.R3, from, 8, false)
		g.AluImm(bpf.Add, bpf.R3, int32(n-1))
		g.Fetch(false)
		g.Put(whole)
	})
	return dst
}
