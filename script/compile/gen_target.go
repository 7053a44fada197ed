package compile

import (
	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Values that lie in the target's memory: what pointers point to.

// inTarget tells whether an expression names memory of the target.
func (g *generator) inTarget(x syntax.Expr) bool {
	switch x := x.(type) {
	case *syntax.Unary:
		return x.Op == "*"
	case *syntax.Field:
		t := g.types[x.X]
		return t.Kind == types.Pointer || t.Kind == types.Record && g.inTarget(x.X)
	case *syntax.Index:
		t := g.types[x.X]
		return t.Kind == types.Pointer || t.Kind == types.Array && g.inTarget(x.X)
	}
	return false
}

// address leaves in R0 where in the target the expression's value lies.
func (g *generator) address(x syntax.Expr) {
	switch x := x.(type) {
	case *syntax.Unary:
		g.number(x.X)
	case *syntax.Field:
		f := g.fieldOf(x)
		if g.types[x.X].Kind == types.Pointer {
			g.number(x.X)
		} else {
			g.address(x.X)
		}
		if f.Offset != 0 {
			g.aluImm(bpf.Add, bpf.R0, int32(f.Offset))
		}
	case *syntax.Index:
		size := int32(max(g.types[x].Size, 1))
		if g.types[x.X].Kind == types.Pointer {
			g.number(x.X)
		} else {
			g.address(x.X)
		}
		if n, ok := g.constant(x.I); ok && n < 1<<16 {
			if n > 0 {
				g.aluImm(bpf.Add, bpf.R0, int32(n)*size)
			}
			return
		}
		at := g.save()
		g.number(x.I)
		g.aluImm(bpf.Mul, bpf.R0, size)
		g.load(bpf.R1, at, 8, false)
		g.alu(bpf.Add, bpf.R0, bpf.R1)
		g.drop()
	}
}

// fieldOf finds a structure's member.
func (g *generator) fieldOf(x *syntax.Field) types.Field {
	t := g.types[x.X]
	if t.Kind == types.Pointer {
		t = t.Elem
	}
	for i, f := range t.Fields {
		if f.Name == x.Name || t.Kind == types.Tuple && x.Name == tupleNames[min(i, len(tupleNames)-1)] {
			return f
		}
	}
	return types.Field{Type: types.NoType}
}

// targetNumber leaves a scalar of the target's memory in R0.
func (g *generator) targetNumber(x syntax.Expr, t *types.Type) {
	g.address(x)
	g.readTarget(t)
	if f, ok := x.(*syntax.Field); ok {
		g.bits(g.fieldOf(f))
	}
}

// bits takes a bit-field out of its word in R0.
func (g *generator) bits(f types.Field) {
	if f.BitSize == 0 {
		return
	}
	g.aluImm(bpf.Lsh, bpf.R0, int32(64-f.BitOff-f.BitSize))
	op := uint8(bpf.Rsh)
	if f.Type.Signed {
		op = bpf.Arsh
	}
	g.aluImm(op, bpf.R0, int32(64-f.BitSize))
}

// targetMemory copies a structure, array or string of the target.
func (g *generator) targetMemory(x syntax.Expr, t *types.Type) place {
	dst := g.room(t.Slot())
	g.scoped(func() {
		g.address(x)
		from := g.save()
		g.zero(dst, t.Slot())
		g.addr(bpf.R1, dst)
		g.imm(bpf.R2, uint64(t.Size))
		g.load(bpf.R3, from, 8, false)
		if t.Kind == types.String {
			// Nothing of what is behind its NUL.
			g.helper(bpf.FnProbeReadUserStr)
		} else {
			g.helper(bpf.FnProbeReadUser)
		}
	})
	return dst
}
