package compile

import (
	"encoding/binary"
	"strconv"

	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// number leaves a scalar's value in R0, extended to the word.
func (g *generator) number(x syntax.Expr) {
	if n, ok := g.constant(x); ok {
		g.imm(bpf.R0, n)
		return
	}
	t := g.types[x]
	if g.inTarget(x) {
		g.scoped(func() { g.targetNumber(x, t) })
		return
	}
	switch x := x.(type) {
	case *syntax.Ident:
		g.builtin(x)
	case *syntax.Var:
		g.load(bpf.R0, g.variable(g.uses[x]), 8, false)
	case *syntax.Map:
		g.scoped(func() { g.mapNumber(x) })
	case *syntax.Unary:
		g.scoped(func() { g.unaryNumber(x, t) })
	case *syntax.Binary:
		g.scoped(func() { g.binaryNumber(x, t) })
	case *syntax.Ternary:
		other, end := g.newLabel(), g.newLabel()
		if x.Then == nil {
			g.number(x.Cond)
			g.ifImm(bpf.Jne, bpf.R0, 0, end)
			g.number(x.Else)
			g.put(end)
			return
		}
		g.condition(x.Cond, other)
		g.number(x.Then)
		g.goTo(end)
		g.put(other)
		g.number(x.Else)
		g.put(end)
	case *syntax.Call:
		g.scoped(func() { g.callNumber(x) })
	case *syntax.Cast:
		g.number(x.X)
		g.fit(t)
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
		g.scoped(func() {
			p, f := g.part(x)
			size := 8
			if g.types[x.X].Name != "" {
				size = max(f.Type.Size, 1)
			}
			g.load(bpf.R0, p, size, f.Type.Signed)
			g.bits(f)
		})
	case *syntax.Index:
		g.scoped(func() { g.element2(x, t) })
	default:
		g.errorf(x, "this has no value")
	}
}

// element2 leaves in R0 an element of an array that the script keeps.
func (g *generator) element2(x *syntax.Index, t *types.Type) {
	n, ok := g.constant(x.I)
	if !ok {
		g.errorf(x.I, "the index of an array that is not in the target must be a literal")
		return
	}
	g.load(bpf.R0, g.memory(x.X).plus(int(n)*t.Size), max(t.Size, 1), t.Signed)
}

// readTarget reads a scalar of the target at the address in R0.
func (g *generator) readTarget(t *types.Type) {
	p := g.temp()
	g.storeImmKeeping(p)
	g.mov(bpf.R3, bpf.R0)
	g.addr(bpf.R1, p)
	g.imm(bpf.R2, uint64(max(t.Size, 1)))
	g.helper(bpf.FnProbeReadUser)
	g.load(bpf.R0, p, max(t.Size, 1), t.Signed)
}

// storeImmKeeping clears a word and leaves R0 as it is.
func (g *generator) storeImmKeeping(p place) {
	g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: p.base, Off: int16(p.off)})
}

// fit cuts R0 to the width of a type.
func (g *generator) fit(t *types.Type) {
	switch {
	case t.Kind == types.Bool:
		end, one := g.newLabel(), g.newLabel()
		g.ifImm(bpf.Jne, bpf.R0, 0, one)
		g.goTo(end)
		g.put(one)
		g.imm(bpf.R0, 1)
		g.put(end)
	case t.Kind != types.Int || t.Size == 8:
	case t.Signed:
		g.aluImm(bpf.Lsh, bpf.R0, int32(64-8*t.Size))
		g.aluImm(bpf.Arsh, bpf.R0, int32(64-8*t.Size))
	default:
		g.aluImm(bpf.Lsh, bpf.R0, int32(64-8*t.Size))
		g.aluImm(bpf.Rsh, bpf.R0, int32(64-8*t.Size))
	}
}

// mapNumber reads a map's number: 0 where there is none.
func (g *generator) mapNumber(x *syntax.Map) {
	m := g.maps[x.Name]
	if x.Key == nil {
		g.mapValue(bpf.R1, m.index, 0)
		g.mapWord(m.value, place{bpf.R1, KeylessHeader})
		return
	}
	none := g.newLabel()
	g.lookup(m, g.key(m, x.Key))
	g.ifImm(bpf.Jeq, bpf.R0, 0, none)
	g.mov(bpf.R1, bpf.R0)
	g.mapWord(m.value, place{bpf.R1, 0})
	g.put(none)
}

// mapWord reads the number that a map's value stands for.
func (g *generator) mapWord(t *types.Type, p place) {
	switch t.Kind {
	case types.Avg:
		g.load(bpf.R0, p.plus(8), 8, false)
		g.load(bpf.R1, p, 8, false)
		g.operate("/", !t.Signed)
	case types.Min, types.Max:
		g.load(bpf.R0, p.plus(8), 8, false)
		g.imm(bpf.R1, t.Mask())
		g.alu(bpf.Xor, bpf.R0, bpf.R1)
	default:
		g.load(bpf.R0, p, 8, false)
	}
}

func (g *generator) unaryNumber(x *syntax.Unary, t *types.Type) {
	switch x.Op {
	case "++", "--":
		if m, ok := x.X.(*syntax.Map); ok {
			g.step(x, m)
			return
		}
		v := g.uses[x.X.(*syntax.Var)]
		p := g.variable(v)
		by := int32(1)
		if v.typ.Kind == types.Pointer && v.typ.Elem != nil {
			by = int32(max(v.typ.Elem.Size, 1))
		}
		if x.Op == "--" {
			by = -by
		}
		g.load(bpf.R0, p, 8, false)
		old := g.save()
		g.aluImm(bpf.Add, bpf.R0, by)
		g.fit(v.typ)
		g.store(p, bpf.R0)
		if x.Post {
			g.load(bpf.R0, old, 8, false)
		}
	case "!":
		g.number(x.X)
		g.flag(func(yes label) { g.ifImm(bpf.Jeq, bpf.R0, 0, yes) })
	case "-":
		g.number(x.X)
		g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R0})
	case "~":
		g.number(x.X)
		g.aluImm(bpf.Xor, bpf.R0, -1)
	}
}

// flag leaves 1 in R0 where test goes to yes, else 0.
func (g *generator) flag(test func(yes label)) {
	yes, end := g.newLabel(), g.newLabel()
	test(yes)
	g.imm(bpf.R0, 0)
	g.goTo(end)
	g.put(yes)
	g.imm(bpf.R0, 1)
	g.put(end)
}

// comparisons by operator: unsigned and signed.
var comparisons = map[string][2]uint8{
	"==": {bpf.Jeq, bpf.Jeq}, "!=": {bpf.Jne, bpf.Jne}, "<": {bpf.Jlt, bpf.Jslt}, "<=": {bpf.Jle, bpf.Jsle},
	">": {bpf.Jgt, bpf.Jsgt}, ">=": {bpf.Jge, bpf.Jsge},
}

// unsigned tells whether a number reckons without a sign.
func unsigned(t *types.Type) bool { return t.Kind != types.Int || !t.Signed }

func (g *generator) binaryNumber(x *syntax.Binary, t *types.Type) {
	a, b := g.types[x.X], g.types[x.Y]
	switch {
	case x.Op == "&&":
		no, end := g.newLabel(), g.newLabel()
		g.condition(x.X, no)
		g.condition(x.Y, no)
		g.imm(bpf.R0, 1)
		g.goTo(end)
		g.put(no)
		g.imm(bpf.R0, 0)
		g.put(end)
		return
	case x.Op == "||":
		g.flag(func(yes label) {
			for _, side := range []syntax.Expr{x.X, x.Y} {
				g.number(side)
				g.ifImm(bpf.Jne, bpf.R0, 0, yes)
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
		both := joinInts(numeric(a), numeric(b))
		jump := jumps[1]
		if unsigned(both) {
			jump = jumps[0]
		}
		g.flag(func(yes label) { g.ifReg(jump, bpf.R0, bpf.R1, yes) })
		return
	}
	g.reckon(x.Op, t, x.X, x.Y)
}

// numeric is a type as a number.
func numeric(t *types.Type) *types.Type {
	if t = aggregateValue(t); t.Kind == types.Int {
		return t
	}
	if t.Kind == types.Bool {
		return types.Literal
	}
	return types.Uint64
}

// operands leaves x in R0 and y in R1.
func (g *generator) operands(x, y syntax.Expr) {
	if n, ok := g.constant(y); ok {
		g.number(x)
		g.imm(bpf.R1, n)
		return
	}
	g.number(x)
	left := g.save()
	g.number(y)
	g.mov(bpf.R1, bpf.R0)
	g.load(bpf.R0, left, 8, false)
	g.drop()
}

// reckon leaves x op y in R0.
func (g *generator) reckon(op string, t *types.Type, x, y syntax.Expr) {
	g.operands(x, y)
	if t.Kind == types.Pointer && t.Elem != nil && t.Elem.Size > 1 {
		by := bpf.R1
		if g.types[y].Kind == types.Pointer {
			by = bpf.R0
		}
		g.aluImm(bpf.Mul, by, int32(t.Elem.Size))
	}
	noSign := unsigned(joinInts(numeric(g.types[x]), numeric(g.types[y])))
	if op == ">>" {
		noSign = unsigned(numeric(g.types[x]))
	}
	g.operate(op, noSign)
}

// operate leaves R0 op R1 in R0.
func (g *generator) operate(op string, noSign bool) {
	codes := map[string]uint8{"+": bpf.Add, "-": bpf.Sub, "*": bpf.Mul, "/": bpf.Div, "%": bpf.Mod, "&": bpf.And, "|": bpf.Or,
		"^": bpf.Xor, "<<": bpf.Lsh, ">>": bpf.Rsh}
	i := bpf.Insn{Op: bpf.ClassALU64 | codes[op] | bpf.SrcX, Dst: bpf.R0, Src: bpf.R1}
	if !noSign {
		switch op {
		case "/", "%":
			i.Off = 1
		case ">>":
			i.Op = bpf.ClassALU64 | bpf.Arsh | bpf.SrcX
		}
	}
	g.emit(i)
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
	differ, end := g.newLabel(), g.newLabel()
	for i := 0; i < n; i += 8 {
		g.load(bpf.R0, a.plus(i), 8, false)
		g.load(bpf.R1, b.plus(i), 8, false)
		if mask := n - i; mask < 8 {
			g.aluImm(bpf.Lsh, bpf.R0, int32(64-8*mask))
			g.aluImm(bpf.Lsh, bpf.R1, int32(64-8*mask))
		}
		g.ifReg(bpf.Jne, bpf.R0, bpf.R1, differ)
	}
	g.imm(bpf.R0, word(want))
	g.goTo(end)
	g.put(differ)
	g.imm(bpf.R0, word(!want))
	g.put(end)
}

// into writes an expression's value as type t to memory.
func (g *generator) into(x syntax.Expr, dst place, t *types.Type) {
	own := g.types[x]
	switch x := x.(type) {
	case *syntax.Str:
		g.text(dst, x.Value, t.Slot())
		return
	case *syntax.Tuple:
		g.elements(x.Elems, dst, t)
		return
	case *syntax.Record:
		g.elements(x.Elems, dst, t)
		return
	case *syntax.Ternary:
		if !own.Scalar() && x.Then != nil {
			other, end := g.newLabel(), g.newLabel()
			g.condition(x.Cond, other)
			g.into(x.Then, dst, t)
			g.goTo(end)
			g.put(other)
			g.into(x.Else, dst, t)
			g.put(end)
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
		g.number(x)
		if _, lit := g.constant(x); !lit || own.Kind != types.Int {
			g.fit(t)
		}
		g.store(dst, bpf.R0)
		return
	}
	g.scoped(func() {
		g.convert(dst, t, g.memory(x), own)
	})
}

func (g *generator) elements(xs []syntax.Expr, dst place, t *types.Type) {
	for i, x := range xs {
		g.into(x, dst.plus(t.Fields[i].Offset), t.Fields[i].Type)
	}
}

// text writes a string that is known.
func (g *generator) text(dst place, s string, n int) {
	b := make([]byte, n)
	copy(b[:n-1], s)
	for i := 0; i < n; i += 8 {
		g.storeImm(dst.plus(i), binary.LittleEndian.Uint64(b[i:]))
	}
}

// convert copies a value to a type that holds it.
func (g *generator) convert(dst place, t *types.Type, src place, from *types.Type) {
	if (t.Kind == types.Tuple || t.Kind == types.Record) && !types.Same(t, from) {
		for i, f := range t.Fields {
			g.convert(dst.plus(f.Offset), f.Type, src.plus(from.Fields[i].Offset), from.Fields[i].Type)
		}
		return
	}
	n := min(t.Slot(), from.Slot())
	g.copy(dst, src, n)
	if t.Slot() > n {
		g.zero(dst.plus(n), t.Slot()-n)
	} else if t.Kind == types.String && t.Slot() < from.Slot() {
		// Cut: the last byte is a NUL.
		last := g.near(dst.plus(t.Slot()-8), regFar)
		g.load(bpf.R0, last, 8, false)
		g.aluImm(bpf.Lsh, bpf.R0, 8)
		g.aluImm(bpf.Rsh, bpf.R0, 8)
		g.store(last, bpf.R0)
	}
}

// memory gives the place of a value that is more than a word.
func (g *generator) memory(x syntax.Expr) place {
	t := g.types[x]
	if g.inTarget(x) {
		return g.targetMemory(x, t)
	}
	switch x := x.(type) {
	case *syntax.Var:
		return g.variable(g.uses[x])
	case *syntax.Field:
		p, _ := g.part(x)
		if g.types[x.X].Name == "" {
			return p
		}
		dst := g.room(t.Slot()) // in a structure of C, others follow at once
		g.zero(dst, t.Slot())
		g.copyBytes(dst, p, t.Size)
		return dst
	case *syntax.Index:
		if n, ok := g.constant(x.I); ok && t.Size%8 == 0 {
			return g.memory(x.X).plus(int(n) * t.Size)
		}
	case *syntax.Comptime:
		return g.memory(x.X)
	case *syntax.Cast:
		dst := g.room(t.Slot())
		g.into(x.X, dst, t)
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
		dst := g.room(t.Slot())
		switch x.Name {
		case "comm":
			g.zero(dst, t.Slot())
			g.addr(bpf.R1, dst)
			g.imm(bpf.R2, 16)
			g.helper(bpf.FnGetCurrentComm)
		case "probe":
			name, _ := g.probeName()
			g.text(dst, name, t.Slot())
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
			g.mapValue(regValue, m.index, 0)
			g.copy(dst, place{regValue, KeylessHeader}, t.Slot())
			return
		}
		key := g.key(m, x.Key)
		g.zero(dst, t.Slot())
		none := g.newLabel()
		g.lookup(m, key)
		g.ifImm(bpf.Jeq, bpf.R0, 0, none)
		g.mov(regValue, bpf.R0)
		g.copy(dst, place{regValue, 0}, t.Slot())
		g.put(none)
	})
	return dst
}

// part is the place of a field, and the field.
func (g *generator) part(x *syntax.Field) (place, types.Field) {
	p, f := g.memory(x.X), g.fieldOf(x)
	return p.plus(f.Offset), f
}

// tupleNames are how a tuple's elements are named.
var tupleNames = func() (names []string) {
	for i := range 64 {
		names = append(names, strconv.Itoa(i))
	}
	return names
}()
