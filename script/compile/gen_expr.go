package compile

import (
	"encoding/binary"

	"kprobe/bpf"
	"kprobe/script/asm"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Number leaves a scalar's value in R0, extended to the word.
func (g *Generator) Number(x syntax.Expr) {
	if n, ok := g.Constant(x); ok {
		g.Imm(bpf.R0, n)
		return
	}
	if text, ok := g.StringLiteral(x); ok {
		g.Imm(bpf.R0, types.Word(text != "")) // as a condition: whether there is text
		return
	}
	t := g.Types[x]
	defer g.during(x)()
	if g.InTarget(x) {
		g.Scoped(func() { g.targetNumber(x, t) })
		return
	}
	switch x := x.(type) {
	case *syntax.Ident:
		g.builtin(x)
	case *syntax.Var:
		g.Load(bpf.R0, g.Variable(g.Uses[x]), 8, false)
	case *syntax.Map:
		g.Scoped(func() { g.mapNumber(x) })
	case *syntax.Unary:
		g.Scoped(func() { g.unaryNumber(x, t) })
	case *syntax.Binary:
		g.Scoped(func() { g.binaryNumber(x, t) })
	case *syntax.Ternary:
		other, end := g.NewLabel(), g.NewLabel()
		if x.Then == nil {
			g.Number(x.Cond)
			g.IfImm(bpf.Jne, bpf.R0, 0, end)
			g.Number(x.Else)
			g.Put(end)
			return
		}
		g.Condition(x.Cond, other)
		g.Number(x.Then)
		g.GoTo(end)
		g.Put(other)
		g.Number(x.Else)
		g.Put(end)
	case *syntax.Call:
		g.Scoped(func() { g.callNumber(x) })
	case *syntax.Cast:
		switch from := g.Types[x.X]; from.Kind {
		case types.String: // to a boolean: whether there is text
			g.Load(bpf.R0, g.Memory(x.X), 1, false)
			g.Fit(t)
		case types.Array:
			g.Load(bpf.R0, g.Memory(x.X), t.Size, t.Signed)
		default:
			g.Number(x.X)
			g.Fit(t)
		}
	case *syntax.Comptime:
		g.Number(x.X)
	case *syntax.Block:
		g.Scoped(func() {
			for _, s := range x.Stmts {
				g.declared(s)
				g.Scoped(func() { g.stmt(s) })
			}
			g.Number(x.Value)
		})
	case *syntax.Field:
		if syntax.IsArgs(x.X) {
			g.argNumber(x.Name)
			return
		}
		g.Scoped(func() {
			p, f := g.part(x)
			size := 8
			if g.Types[x.X].Name != "" {
				size = max(f.Type.Size, 1)
			}
			if f.BitSize > 0 {
				g.bitField(f, func(dst Place) { g.CopyBytes(dst, p, f.Bytes()) })
				return
			}
			g.Load(bpf.R0, p, size, f.Type.Signed)
		})
	case *syntax.Index:
		if f := g.parts[x]; f != nil {
			g.Number(f)
			return
		}
		g.Scoped(func() { g.element2(x, t) })
	default:
		g.Errorf(x, "this has no value")
	}
}

// element2 leaves in R0 an element of an array, or a byte of a string, that the script keeps. What is
// not there is 0.
func (g *Generator) element2(x *syntax.Index, t *types.Type) {
	own := g.Types[x.X]
	if n, ok := g.Constant(x.I); ok {
		g.Load(bpf.R0, g.Memory(x.X).Plus(int(n)*t.Size), max(t.Size, 1), t.Signed)
		return
	}
	n := own.Len
	if own.Kind == types.String {
		n = own.Size
	}
	p := g.Memory(x.X)
	none, end := g.NewLabel(), g.NewLabel()
	g.bounded(x, n, none)
	g.AluImm(bpf.Mul, bpf.R0, int32(t.Size))
	g.Addr(bpf.R1, p)
	g.Alu(bpf.Add, bpf.R1, bpf.R0)
	g.Load(bpf.R0, Cell(bpf.R1, 0), max(t.Size, 1), t.Signed)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// ReadTarget reads a scalar of the target at the address in R0.
func (g *Generator) ReadTarget(t *types.Type) {
	p := g.Temp()
	g.StoreImmKeeping(p)
	g.Mov(bpf.R3, bpf.R0)
	g.Addr(bpf.R1, p)
	g.Imm(bpf.R2, uint64(max(t.Size, 1)))
	g.Fetch(false)
	g.Load(bpf.R0, p, max(t.Size, 1), t.Signed)
}

// StoreImmKeeping clears a word and leaves R0 as it is.
func (g *Generator) StoreImmKeeping(p Place) {
	g.Emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: p.Base, Off: int16(p.Off)})
}

// Fit cuts R0 to the width of a type.
func (g *Generator) Fit(t *types.Type) {
	switch {
	case t.Kind == types.Bool:
		end, one := g.NewLabel(), g.NewLabel()
		g.IfImm(bpf.Jne, bpf.R0, 0, one)
		g.GoTo(end)
		g.Put(one)
		g.Imm(bpf.R0, 1)
		g.Put(end)
	case t.Kind != types.Int && t.Kind != types.Enum || t.Size == 8:
	case t.Signed:
		g.AluImm(bpf.Lsh, bpf.R0, int32(64-8*t.Size))
		g.AluImm(bpf.Arsh, bpf.R0, int32(64-8*t.Size))
	default:
		g.AluImm(bpf.Lsh, bpf.R0, int32(64-8*t.Size))
		g.AluImm(bpf.Rsh, bpf.R0, int32(64-8*t.Size))
	}
}

// mapNumber reads a map's number: 0 where there is none.
func (g *Generator) mapNumber(x *syntax.Map) {
	m := g.Maps[x.Name]
	if x.Key == nil {
		g.MapValue(bpf.R1, m.Index, 0)
		g.MapWord(m.Value, Cell(bpf.R1, plan.KeylessHeader))
		return
	}
	none := g.NewLabel()
	g.Lookup(m, g.Key(m, x.Key))
	g.absent(none)
	g.Mov(bpf.R1, bpf.R0)
	g.MapWord(m.Value, Cell(bpf.R1, 0))
	g.Put(none)
}

// MapWord reads the number that a map's value stands for.
func (g *Generator) MapWord(t *types.Type, p Place) {
	switch t.Kind {
	case types.Avg:
		g.Load(bpf.R0, p.Plus(8), 8, false)
		g.Load(bpf.R1, p, 8, false)
		g.operate("/", !t.Signed)
	case types.Min, types.Max:
		g.Load(bpf.R0, p.Plus(8), 8, false)
		g.Imm(bpf.R1, t.Mask())
		g.Alu(bpf.Xor, bpf.R0, bpf.R1)
	default:
		g.Load(bpf.R0, p, 8, false)
	}
}

func (g *Generator) unaryNumber(x *syntax.Unary, t *types.Type) {
	switch x.Op {
	case "&":
		g.Imm(bpf.R0, g.standsFor(x))
	case "++", "--":
		if m, ok := x.X.(*syntax.Map); ok {
			g.step(x, m)
			return
		}
		v := g.Uses[x.X.(*syntax.Var)]
		p := g.Variable(v)
		by := v.Typ.Stride()
		if x.Op == "--" {
			by = -by
		}
		g.Load(bpf.R0, p, 8, false)
		old := g.Save()
		g.AluImm(bpf.Add, bpf.R0, by)
		g.Fit(v.Typ)
		g.Store(p, bpf.R0)
		if x.Post {
			g.Load(bpf.R0, old, 8, false)
		}
	case "!":
		g.Number(x.X)
		g.Flag(func(yes Label) { g.IfImm(bpf.Jeq, bpf.R0, 0, yes) })
	case "-":
		g.Number(x.X)
		g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R0})
	case "~":
		g.Number(x.X)
		g.AluImm(bpf.Xor, bpf.R0, -1)
	}
}

// Flag leaves 1 in R0 where test goes to yes, else 0.
func (g *Generator) Flag(test func(yes Label)) {
	yes, end := g.NewLabel(), g.NewLabel()
	test(yes)
	g.Imm(bpf.R0, 0)
	g.GoTo(end)
	g.Put(yes)
	g.Imm(bpf.R0, 1)
	g.Put(end)
}

func (g *Generator) binaryNumber(x *syntax.Binary, t *types.Type) {
	a, b := g.Types[x.X], g.Types[x.Y]
	switch {
	case x.Op == "&&":
		no, end := g.NewLabel(), g.NewLabel()
		g.Condition(x.X, no)
		g.Condition(x.Y, no)
		g.Imm(bpf.R0, 1)
		g.GoTo(end)
		g.Put(no)
		g.Imm(bpf.R0, 0)
		g.Put(end)
		return
	case x.Op == "||":
		g.Flag(func(yes Label) {
			for _, side := range []syntax.Expr{x.X, x.Y} {
				g.Number(side)
				g.IfImm(bpf.Jne, bpf.R0, 0, yes)
			}
		})
		return
	case !a.Scalar() && !g.Counts(x.X, a):
		g.equal(x, a, b)
		return
	}
	if jumps, ok := comparisons[x.Op]; ok {
		g.operands(x.X, x.Y)
		// Numbers of both signs are compared as signed ones.
		both := types.JoinInts(types.Numeric(a), types.Numeric(b))
		jump := jumps[1]
		if types.Unsigned(both) {
			jump = jumps[0]
		}
		g.Flag(func(yes Label) { g.IfReg(jump, bpf.R0, bpf.R1, yes) })
		return
	}
	g.reckon(x.Op, t, x.X, x.Y)
}

// operands leaves x in R0 and y in R1.
func (g *Generator) operands(x, y syntax.Expr) {
	if n, ok := g.Constant(y); ok {
		g.Number(x)
		g.Imm(bpf.R1, n)
		return
	}
	g.Number(x)
	left := g.Save()
	g.Number(y)
	g.Mov(bpf.R1, bpf.R0)
	g.Load(bpf.R0, left, 8, false)
	g.drop()
}

// reckon leaves x op y in R0.
func (g *Generator) reckon(op string, t *types.Type, x, y syntax.Expr) {
	g.operands(x, y)
	if by := t.Stride(); by > 1 {
		number := bpf.R1
		if g.Types[y].Kind == types.Pointer {
			number = bpf.R0
		}
		g.AluImm(bpf.Mul, number, by)
	}
	noSign := types.Unsigned(types.JoinInts(types.Numeric(g.Types[x]), types.Numeric(g.Types[y])))
	if op == ">>" {
		noSign = types.Unsigned(types.Numeric(g.Types[x]))
	}
	g.divide(op, noSign, y)
}

// divide is operate; where y may be 0 a division by it gives 1, and is counted. The result comes without a
// jump, so that what follows is one way to the verifier.
func (g *Generator) divide(op string, noSign bool, y syntax.Expr) {
	if n, ok := g.Constant(y); op != "/" && op != "%" || ok && n != 0 {
		g.operate(op, noSign)
		return
	}
	// R2 is 1 where R1 is not 0, R3 where it is.
	g.Mov(bpf.R2, bpf.R1)
	g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R2})
	g.Alu(bpf.Or, bpf.R2, bpf.R1)
	g.AluImm(bpf.Rsh, bpf.R2, 63)
	g.Mov(bpf.R3, bpf.R2)
	g.AluImm(bpf.Xor, bpf.R3, 1)
	g.Alu(bpf.Or, bpf.R1, bpf.R3)
	g.operate(op, noSign)
	if op == "/" {
		g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R2})
		g.Alu(bpf.And, bpf.R0, bpf.R2)
	}
	g.Alu(bpf.Or, bpf.R0, bpf.R3)
	fine := g.NewLabel()
	g.IfImm(bpf.Jeq, bpf.R3, 0, fine)
	g.count(plan.Loss{At: y.At()})
	g.Put(fine)
}

// bounded leaves an array's index in R0. Of one that is beyond its elements the program goes on at none, and it is counted.
func (g *Generator) bounded(x *syntax.Index, elements int, none Label) {
	there := g.NewLabel()
	g.Number(x.I)
	g.IfImm(bpf.Jlt, bpf.R0, int32(elements), there)
	g.count(plan.Loss{At: x.At(), Elements: elements})
	g.GoTo(none)
	g.Put(there)
}

// count counts what goes wrong.
func (g *Generator) count(l plan.Loss) {
	g.MapValue(bpf.R1, g.losses, g.loss(l))
	g.Imm(bpf.R2, 1)
	g.AtomicAdd(Cell(bpf.R1, 0), bpf.R2, false)
}

// loss is where among the words of the losses' map one is counted.
func (g *Generator) loss(l plan.Loss) int {
	at, known := g.lossAt[l]
	if !known {
		g.Plan.Losses = append(g.Plan.Losses, &l)
		at = 8 * len(g.Plan.Losses)
		g.lossAt[l] = at
	}
	return at
}

// operate leaves R0 op R1 in R0.
func (g *Generator) operate(op string, noSign bool) {
	i := bpf.Insn{Op: bpf.ClassALU64 | operations[op] | bpf.SrcX, Dst: bpf.R0, Src: bpf.R1}
	if !noSign {
		switch op {
		case "/", "%":
			i.Off = 1
		case ">>":
			i.Op = bpf.ClassALU64 | bpf.Arsh | bpf.SrcX
		}
	}
	g.Emit(i)
}

// equal compares strings, buffers and tuples: all their bytes, as long as both have some.
func (g *Generator) equal(x *syntax.Binary, a, b *types.Type) {
	t := types.Join(a, b)
	pa, pb := g.Memory(x.X), g.Memory(x.Y)
	n := min(a.Slot(), b.Slot())
	if a.Kind != types.String {
		ca, cb := g.Room(t.Slot()), g.Room(t.Slot())
		g.Convert(ca, t, pa, a)
		g.Convert(cb, t, pb, b)
		pa, pb, n = ca, cb, t.Slot()
	}
	g.same(pa, pb, n, x.Op == "==")
}

// same leaves in R0 whether n bytes are equal, or with want false whether they differ.
func (g *Generator) same(a, b Place, n int, want bool) {
	differ, end := g.NewLabel(), g.NewLabel()
	for i := 0; i < n; i += 8 {
		g.Load(bpf.R0, a.Plus(i), 8, false)
		g.Load(bpf.R1, b.Plus(i), 8, false)
		if mask := n - i; mask < 8 {
			g.AluImm(bpf.Lsh, bpf.R0, int32(64-8*mask))
			g.AluImm(bpf.Lsh, bpf.R1, int32(64-8*mask))
		}
		g.IfReg(bpf.Jne, bpf.R0, bpf.R1, differ)
	}
	g.Imm(bpf.R0, types.Word(want))
	g.GoTo(end)
	g.Put(differ)
	g.Imm(bpf.R0, types.Word(!want))
	g.Put(end)
}

// Into writes an expression's value as type t to memory.
func (g *Generator) Into(x syntax.Expr, dst Place, t *types.Type) {
	own := g.Types[x]
	switch x := x.(type) {
	case *syntax.Str:
		g.Text(dst, x.Value, t.Slot())
		return
	case *syntax.Tuple:
		g.elements(x.Elems, nil, dst, t)
		return
	case *syntax.Record:
		g.elements(x.Elems, x.Names, dst, t)
		return
	case *syntax.Ternary:
		if !own.Scalar() && x.Then != nil {
			other, end := g.NewLabel(), g.NewLabel()
			g.Condition(x.Cond, other)
			g.Into(x.Then, dst, t)
			g.GoTo(end)
			g.Put(other)
			g.Into(x.Else, dst, t)
			g.Put(end)
			return
		}
	case *syntax.Block:
		g.Scoped(func() {
			for _, s := range x.Stmts {
				g.declared(s)
				g.Scoped(func() { g.stmt(s) })
			}
			g.Into(x.Value, dst, t)
		})
		return
	}
	if t.Scalar() {
		if n, known := g.Constant(x); known && own.Kind == types.Int && t.Kind == types.Int {
			g.Imm(bpf.R0, types.Truncate(n, t))
		} else {
			g.Number(x)
			g.Fit(t)
		}
		g.Store(dst, bpf.R0)
		return
	}
	g.Scoped(func() {
		g.Convert(dst, t, g.Memory(x), own)
	})
}

func (g *Generator) elements(xs []syntax.Expr, names []string, dst Place, t *types.Type) {
	for i, x := range xs {
		f := t.Fields[i]
		if names != nil {
			f = t.Fields[t.Field(names[i])]
		}
		g.Into(x, dst.Plus(f.Offset), f.Type)
	}
}

// Text writes a string that is known.
func (g *Generator) Text(dst Place, s string, n int) {
	b := make([]byte, n)
	copy(b[:n-1], s)
	for i := 0; i < n; i += 8 {
		g.StoreImm(dst.Plus(i), binary.LittleEndian.Uint64(b[i:]))
	}
}

// Convert copies a value to a type that holds it.
func (g *Generator) Convert(dst Place, t *types.Type, src Place, from *types.Type) {
	if (t.Kind == types.Tuple || t.Kind == types.Record) && !types.Same(t, from) {
		for i, f := range t.Fields {
			if t.Kind == types.Record {
				i = from.Field(f.Name)
			}
			g.Convert(dst.Plus(f.Offset), f.Type, src.Plus(from.Fields[i].Offset), from.Fields[i].Type)
		}
		return
	}
	n := min(t.Slot(), from.Slot())
	g.Copy(dst, src, n)
	if t.Slot() > n {
		g.Zero(dst.Plus(n), t.Slot()-n)
	} else if t.Kind == types.String && t.Size < from.Size {
		// Cut: what is behind it in its last word are NULs.
		last := g.Near(dst.Plus(t.Size&^7), asm.Far)
		kept := int32(t.Size % 8 * 8)
		g.Imm(bpf.R0, 0)
		if kept > 0 {
			g.Load(bpf.R0, last, 8, false)
			g.AluImm(bpf.Lsh, bpf.R0, 64-kept)
			g.AluImm(bpf.Rsh, bpf.R0, 64-kept)
		}
		g.Store(last, bpf.R0)
	}
}

// Memory gives the place of a value that is more than a word.
func (g *Generator) Memory(x syntax.Expr) Place {
	t := g.Types[x]
	defer g.during(x)()
	if g.InTarget(x) {
		return g.targetMemory(x, t)
	}
	switch x := x.(type) {
	case *syntax.Var:
		return g.Variable(g.Uses[x])
	case *syntax.Field:
		if syntax.IsArgs(x.X) {
			dst := g.Room(t.Slot())
			g.argInto(g.At[0].Param(x.Name), dst)
			return dst
		}
		p, _ := g.part(x)
		if g.Types[x.X].Name == "" {
			return p
		}
		dst := g.Room(t.Slot()) // in a structure of C, others follow at once
		g.Zero(dst, t.Slot())
		g.CopyBytes(dst, p, g.Stored[x].Size)
		return dst
	case *syntax.Index:
		if f := g.parts[x]; f != nil {
			return g.Memory(f)
		}
		if n, ok := g.Constant(x.I); ok && t.Size%8 == 0 {
			return g.Memory(x.X).Plus(int(n) * t.Size)
		}
	case *syntax.Comptime:
		return g.Memory(x.X)
	case *syntax.Cast:
		dst := g.Room(t.Slot())
		from := g.Types[x.X]
		switch {
		case t.Kind == types.Array && from.Scalar():
			g.Number(x.X)
			if cut := int32(64 - 8*min(t.Size, 8)); cut > 0 {
				g.AluImm(bpf.Lsh, bpf.R0, cut)
				g.AluImm(bpf.Rsh, bpf.R0, cut)
			}
			g.Zero(dst, t.Slot())
			g.Store(dst, bpf.R0)
		case t.Kind == types.Array:
			g.Convert(dst, types.StringOf(t.Slot()-1), g.Memory(x.X), from)
		default:
			g.Into(x.X, dst, t)
		}
		return dst
	case *syntax.Map:
		return g.MapMemory(x, t)
	case *syntax.Call:
		dst := g.Room(t.Slot())
		g.Scoped(func() { g.callMemory(x, dst, t) })
		return dst
	case *syntax.Positional:
		dst := g.Room(t.Slot())
		g.Text(dst, g.Opts.Params[x.N-1], t.Slot())
		return dst
	case *syntax.Ident:
		dst := g.Room(t.Slot())
		if v := g.lib.Values[x.Name]; v != nil && v.Memory != nil {
			v.Memory(g, x, dst, t)
		} else {
			g.Errorf(x, "%s is not supported yet", x.Name)
		}
		return dst
	case *syntax.Str, *syntax.Tuple, *syntax.Record, *syntax.Ternary, *syntax.Block:
		dst := g.Room(t.Slot())
		g.Into(x, dst, t)
		return dst
	}
	g.Errorf(x, "a value of type '%s' is not supported here yet", t)
	return g.Room(t.Slot())
}

// MapMemory copies a map's value; zeros where there is none.
func (g *Generator) MapMemory(x *syntax.Map, t *types.Type) Place {
	m := g.Maps[x.Name]
	dst := g.Room(t.Slot())
	g.Scoped(func() {
		if x.Key == nil {
			g.MapValue(RegValue, m.Index, 0)
			g.Copy(dst, Cell(RegValue, plan.KeylessHeader), t.Slot())
			return
		}
		key := g.Key(m, x.Key)
		g.Zero(dst, t.Slot())
		none := g.NewLabel()
		g.Lookup(m, key)
		g.absent(none)
		g.Mov(RegValue, bpf.R0)
		g.Copy(dst, Cell(RegValue, 0), t.Slot())
		g.Put(none)
	})
	return dst
}

// part is the place of a field, and the field.
func (g *Generator) part(x *syntax.Field) (Place, types.Field) {
	p, f := g.Memory(x.X), g.fieldOf(x)
	return p.Plus(f.Offset), f
}
