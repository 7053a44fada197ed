package compile

import (
	"encoding/binary"

	"kprobe/bpf"
	"kprobe/script/asm"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// number leaves a scalar's value in R0, extended to the word.
func (g *generator) number(x syntax.Expr) {
	if n, ok := g.constant(x); ok {
		g.Imm(bpf.R0, n)
		return
	}
	if text, ok := g.stringLiteral(x); ok {
		g.Imm(bpf.R0, types.Word(text != "")) // as a condition: whether there is text
		return
	}
	t := g.types[x]
	defer g.during(x)()
	if g.inTarget(x) {
		g.scoped(func() { g.targetNumber(x, t) })
		return
	}
	switch x := x.(type) {
	case *syntax.Ident:
		g.builtin(x)
	case *syntax.Var:
		g.Load(bpf.R0, g.variable(g.uses[x]), 8, false)
	case *syntax.Map:
		g.scoped(func() { g.mapNumber(x) })
	case *syntax.Unary:
		g.scoped(func() { g.unaryNumber(x, t) })
	case *syntax.Binary:
		g.scoped(func() { g.binaryNumber(x, t) })
	case *syntax.Ternary:
		other, end := g.NewLabel(), g.NewLabel()
		if x.Then == nil {
			g.number(x.Cond)
			g.IfImm(bpf.Jne, bpf.R0, 0, end)
			g.number(x.Else)
			g.Put(end)
			return
		}
		g.condition(x.Cond, other)
		g.number(x.Then)
		g.GoTo(end)
		g.Put(other)
		g.number(x.Else)
		g.Put(end)
	case *syntax.Call:
		g.scoped(func() { g.callNumber(x) })
	case *syntax.Cast:
		switch from := g.types[x.X]; from.Kind {
		case types.String: // to a boolean: whether there is text
			g.Load(bpf.R0, g.memory(x.X), 1, false)
			g.fit(t)
		case types.Array:
			g.Load(bpf.R0, g.memory(x.X), t.Size, t.Signed)
		default:
			g.number(x.X)
			g.fit(t)
		}
	case *syntax.Comptime:
		g.number(x.X)
	case *syntax.Block:
		g.scoped(func() {
			for _, s := range x.Stmts {
				g.declared(s)
				g.scoped(func() { g.stmt(s) })
			}
			g.number(x.Value)
		})
	case *syntax.Field:
		if syntax.IsArgs(x.X) {
			g.argNumber(x.Name)
			return
		}
		g.scoped(func() {
			p, f := g.part(x)
			size := 8
			if g.types[x.X].Name != "" {
				size = max(f.Type.Size, 1)
			}
			if f.BitSize > 0 {
				g.bitField(f, func(dst place) { g.CopyBytes(dst, p, f.Bytes()) })
				return
			}
			g.Load(bpf.R0, p, size, f.Type.Signed)
		})
	case *syntax.Index:
		if f := g.parts[x]; f != nil {
			g.number(f)
			return
		}
		g.scoped(func() { g.element2(x, t) })
	default:
		g.errorf(x, "this has no value")
	}
}

// element2 leaves in R0 an element of an array, or a byte of a string, that the script keeps. What is
// not there is 0.
func (g *generator) element2(x *syntax.Index, t *types.Type) {
	own := g.types[x.X]
	if n, ok := g.constant(x.I); ok {
		g.Load(bpf.R0, g.memory(x.X).Plus(int(n)*t.Size), max(t.Size, 1), t.Signed)
		return
	}
	n := own.Len
	if own.Kind == types.String {
		n = own.Size
	}
	p := g.memory(x.X)
	none, end := g.NewLabel(), g.NewLabel()
	g.bounded(x, n, none)
	g.AluImm(bpf.Mul, bpf.R0, int32(t.Size))
	g.Addr(bpf.R1, p)
	g.Alu(bpf.Add, bpf.R1, bpf.R0)
	g.Load(bpf.R0, cell(bpf.R1, 0), max(t.Size, 1), t.Signed)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// readTarget reads a scalar of the target at the address in R0.
func (g *generator) readTarget(t *types.Type) {
	p := g.temp()
	g.storeImmKeeping(p)
	g.Mov(bpf.R3, bpf.R0)
	g.Addr(bpf.R1, p)
	g.Imm(bpf.R2, uint64(max(t.Size, 1)))
	g.read(false)
	g.Load(bpf.R0, p, max(t.Size, 1), t.Signed)
}

// storeImmKeeping clears a word and leaves R0 as it is.
func (g *generator) storeImmKeeping(p place) {
	g.Emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: p.Base, Off: int16(p.Off)})
}

// fit cuts R0 to the width of a type.
func (g *generator) fit(t *types.Type) {
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
func (g *generator) mapNumber(x *syntax.Map) {
	m := g.maps[x.Name]
	if x.Key == nil {
		g.MapValue(bpf.R1, m.index, 0)
		g.mapWord(m.value, cell(bpf.R1, plan.KeylessHeader))
		return
	}
	none := g.NewLabel()
	g.lookup(m, g.key(m, x.Key))
	g.absent(none)
	g.Mov(bpf.R1, bpf.R0)
	g.mapWord(m.value, cell(bpf.R1, 0))
	g.Put(none)
}

// mapWord reads the number that a map's value stands for.
func (g *generator) mapWord(t *types.Type, p place) {
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

func (g *generator) unaryNumber(x *syntax.Unary, t *types.Type) {
	switch x.Op {
	case "&":
		g.Imm(bpf.R0, g.standsFor(x))
	case "++", "--":
		if m, ok := x.X.(*syntax.Map); ok {
			g.step(x, m)
			return
		}
		v := g.uses[x.X.(*syntax.Var)]
		p := g.variable(v)
		by := v.typ.Stride()
		if x.Op == "--" {
			by = -by
		}
		g.Load(bpf.R0, p, 8, false)
		old := g.save()
		g.AluImm(bpf.Add, bpf.R0, by)
		g.fit(v.typ)
		g.Store(p, bpf.R0)
		if x.Post {
			g.Load(bpf.R0, old, 8, false)
		}
	case "!":
		g.number(x.X)
		g.flag(func(yes label) { g.IfImm(bpf.Jeq, bpf.R0, 0, yes) })
	case "-":
		g.number(x.X)
		g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R0})
	case "~":
		g.number(x.X)
		g.AluImm(bpf.Xor, bpf.R0, -1)
	}
}

// flag leaves 1 in R0 where test goes to yes, else 0.
func (g *generator) flag(test func(yes label)) {
	yes, end := g.NewLabel(), g.NewLabel()
	test(yes)
	g.Imm(bpf.R0, 0)
	g.GoTo(end)
	g.Put(yes)
	g.Imm(bpf.R0, 1)
	g.Put(end)
}

func (g *generator) binaryNumber(x *syntax.Binary, t *types.Type) {
	a, b := g.types[x.X], g.types[x.Y]
	switch {
	case x.Op == "&&":
		no, end := g.NewLabel(), g.NewLabel()
		g.condition(x.X, no)
		g.condition(x.Y, no)
		g.Imm(bpf.R0, 1)
		g.GoTo(end)
		g.Put(no)
		g.Imm(bpf.R0, 0)
		g.Put(end)
		return
	case x.Op == "||":
		g.flag(func(yes label) {
			for _, side := range []syntax.Expr{x.X, x.Y} {
				g.number(side)
				g.IfImm(bpf.Jne, bpf.R0, 0, yes)
			}
		})
		return
	case !a.Scalar() && !g.counts(x.X, a):
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
		g.flag(func(yes label) { g.IfReg(jump, bpf.R0, bpf.R1, yes) })
		return
	}
	g.reckon(x.Op, t, x.X, x.Y)
}

// operands leaves x in R0 and y in R1.
func (g *generator) operands(x, y syntax.Expr) {
	if n, ok := g.constant(y); ok {
		g.number(x)
		g.Imm(bpf.R1, n)
		return
	}
	g.number(x)
	left := g.save()
	g.number(y)
	g.Mov(bpf.R1, bpf.R0)
	g.Load(bpf.R0, left, 8, false)
	g.drop()
}

// reckon leaves x op y in R0.
func (g *generator) reckon(op string, t *types.Type, x, y syntax.Expr) {
	g.operands(x, y)
	if by := t.Stride(); by > 1 {
		number := bpf.R1
		if g.types[y].Kind == types.Pointer {
			number = bpf.R0
		}
		g.AluImm(bpf.Mul, number, by)
	}
	noSign := types.Unsigned(types.JoinInts(types.Numeric(g.types[x]), types.Numeric(g.types[y])))
	if op == ">>" {
		noSign = types.Unsigned(types.Numeric(g.types[x]))
	}
	g.divide(op, noSign, y)
}

// divide is operate; where y may be 0 a division by it gives 1, and is counted. The result comes without a
// jump, so that what follows is one way to the verifier.
func (g *generator) divide(op string, noSign bool, y syntax.Expr) {
	if n, ok := g.constant(y); op != "/" && op != "%" || ok && n != 0 {
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
func (g *generator) bounded(x *syntax.Index, elements int, none label) {
	there := g.NewLabel()
	g.number(x.I)
	g.IfImm(bpf.Jlt, bpf.R0, int32(elements), there)
	g.count(plan.Loss{At: x.At(), Elements: elements})
	g.GoTo(none)
	g.Put(there)
}

// count counts what goes wrong.
func (g *generator) count(l plan.Loss) {
	g.MapValue(bpf.R1, g.losses, g.loss(l))
	g.Imm(bpf.R2, 1)
	g.AtomicAdd(cell(bpf.R1, 0), bpf.R2, false)
}

// loss is where among the words of the losses' map one is counted.
func (g *generator) loss(l plan.Loss) int {
	at, known := g.lossAt[l]
	if !known {
		g.plan.Losses = append(g.plan.Losses, &l)
		at = 8 * len(g.plan.Losses)
		g.lossAt[l] = at
	}
	return at
}

// operate leaves R0 op R1 in R0.
func (g *generator) operate(op string, noSign bool) {
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
func (g *generator) equal(x *syntax.Binary, a, b *types.Type) {
	t := types.Join(a, b)
	pa, pb := g.memory(x.X), g.memory(x.Y)
	n := min(a.Slot(), b.Slot())
	if a.Kind != types.String {
		ca, cb := g.room(t.Slot()), g.room(t.Slot())
		g.convert(ca, t, pa, a)
		g.convert(cb, t, pb, b)
		pa, pb, n = ca, cb, t.Slot()
	}
	g.same(pa, pb, n, x.Op == "==")
}

// same leaves in R0 whether n bytes are equal, or with want false whether they differ.
func (g *generator) same(a, b place, n int, want bool) {
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

// into writes an expression's value as type t to memory.
func (g *generator) into(x syntax.Expr, dst place, t *types.Type) {
	own := g.types[x]
	switch x := x.(type) {
	case *syntax.Str:
		g.text(dst, x.Value, t.Slot())
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
			g.condition(x.Cond, other)
			g.into(x.Then, dst, t)
			g.GoTo(end)
			g.Put(other)
			g.into(x.Else, dst, t)
			g.Put(end)
			return
		}
	case *syntax.Block:
		g.scoped(func() {
			for _, s := range x.Stmts {
				g.declared(s)
				g.scoped(func() { g.stmt(s) })
			}
			g.into(x.Value, dst, t)
		})
		return
	}
	if t.Scalar() {
		if n, known := g.constant(x); known && own.Kind == types.Int && t.Kind == types.Int {
			g.Imm(bpf.R0, types.Truncate(n, t))
		} else {
			g.number(x)
			g.fit(t)
		}
		g.Store(dst, bpf.R0)
		return
	}
	g.scoped(func() {
		g.convert(dst, t, g.memory(x), own)
	})
}

func (g *generator) elements(xs []syntax.Expr, names []string, dst place, t *types.Type) {
	for i, x := range xs {
		f := t.Fields[i]
		if names != nil {
			f = t.Fields[t.Field(names[i])]
		}
		g.into(x, dst.Plus(f.Offset), f.Type)
	}
}

// text writes a string that is known.
func (g *generator) text(dst place, s string, n int) {
	b := make([]byte, n)
	copy(b[:n-1], s)
	for i := 0; i < n; i += 8 {
		g.StoreImm(dst.Plus(i), binary.LittleEndian.Uint64(b[i:]))
	}
}

// convert copies a value to a type that holds it.
func (g *generator) convert(dst place, t *types.Type, src place, from *types.Type) {
	if (t.Kind == types.Tuple || t.Kind == types.Record) && !types.Same(t, from) {
		for i, f := range t.Fields {
			if t.Kind == types.Record {
				i = from.Field(f.Name)
			}
			g.convert(dst.Plus(f.Offset), f.Type, src.Plus(from.Fields[i].Offset), from.Fields[i].Type)
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

// memory gives the place of a value that is more than a word.
func (g *generator) memory(x syntax.Expr) place {
	t := g.types[x]
	defer g.during(x)()
	if g.inTarget(x) {
		return g.targetMemory(x, t)
	}
	switch x := x.(type) {
	case *syntax.Var:
		return g.variable(g.uses[x])
	case *syntax.Field:
		if syntax.IsArgs(x.X) {
			dst := g.room(t.Slot())
			g.argInto(g.at[0].Param(x.Name), dst)
			return dst
		}
		p, _ := g.part(x)
		if g.types[x.X].Name == "" {
			return p
		}
		dst := g.room(t.Slot()) // in a structure of C, others follow at once
		g.Zero(dst, t.Slot())
		g.CopyBytes(dst, p, g.stored[x].Size)
		return dst
	case *syntax.Index:
		if f := g.parts[x]; f != nil {
			return g.memory(f)
		}
		if n, ok := g.constant(x.I); ok && t.Size%8 == 0 {
			return g.memory(x.X).Plus(int(n) * t.Size)
		}
	case *syntax.Comptime:
		return g.memory(x.X)
	case *syntax.Cast:
		dst := g.room(t.Slot())
		from := g.types[x.X]
		switch {
		case t.Kind == types.Array && from.Scalar():
			g.number(x.X)
			if cut := int32(64 - 8*min(t.Size, 8)); cut > 0 {
				g.AluImm(bpf.Lsh, bpf.R0, cut)
				g.AluImm(bpf.Rsh, bpf.R0, cut)
			}
			g.Zero(dst, t.Slot())
			g.Store(dst, bpf.R0)
		case t.Kind == types.Array:
			g.convert(dst, types.StringOf(t.Slot()-1), g.memory(x.X), from)
		default:
			g.into(x.X, dst, t)
		}
		return dst
	case *syntax.Map:
		return g.mapMemory(x, t)
	case *syntax.Call:
		dst := g.room(t.Slot())
		g.scoped(func() { g.callMemory(x, dst, t) })
		return dst
	case *syntax.Positional:
		dst := g.room(t.Slot())
		g.text(dst, g.opts.Params[x.N-1], t.Slot())
		return dst
	case *syntax.Ident:
		if x.Name == "args" {
			return g.argsMemory(t)
		}
		dst := g.room(t.Slot())
		switch x.Name {
		case "comm":
			g.Zero(dst, t.Slot())
			g.Addr(bpf.R1, dst)
			g.Imm(bpf.R2, 16)
			g.Helper(bpf.FnGetCurrentComm)
		case "probe":
			name, _ := g.probeName()
			g.text(dst, name, t.Slot())
		case "probetype":
			g.text(dst, g.at[0].Type(), t.Slot())
		default:
			g.errorf(x, "%s is not supported yet", x.Name)
		}
		return dst
	case *syntax.Str, *syntax.Tuple, *syntax.Record, *syntax.Ternary, *syntax.Block:
		dst := g.room(t.Slot())
		g.into(x, dst, t)
		return dst
	}
	g.errorf(x, "a value of type '%s' is not supported here yet", t)
	return g.room(t.Slot())
}

// mapMemory copies a map's value; zeros where there is none.
func (g *generator) mapMemory(x *syntax.Map, t *types.Type) place {
	m := g.maps[x.Name]
	dst := g.room(t.Slot())
	g.scoped(func() {
		if x.Key == nil {
			g.MapValue(regValue, m.index, 0)
			g.Copy(dst, cell(regValue, plan.KeylessHeader), t.Slot())
			return
		}
		key := g.key(m, x.Key)
		g.Zero(dst, t.Slot())
		none := g.NewLabel()
		g.lookup(m, key)
		g.absent(none)
		g.Mov(regValue, bpf.R0)
		g.Copy(dst, cell(regValue, 0), t.Slot())
		g.Put(none)
	})
	return dst
}

// part is the place of a field, and the field.
func (g *generator) part(x *syntax.Field) (place, types.Field) {
	p, f := g.memory(x.X), g.fieldOf(x)
	return p.Plus(f.Offset), f
}
