package compile

import (
	"fmt"
	"strings"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Key puts a map's key into memory and gives its place.
func (g *Generator) Key(m *mapInfo, x syntax.Expr) Place {
	var p Place
	if m.Key.Slot() == 8 {
		p = g.Temp()
	} else {
		p = g.Room(m.Key.Slot())
	}
	g.Into(x, p, m.Key)
	return p
}

// Lookup leaves in R0 the address of a key's value, or 0.
func (g *Generator) Lookup(m *mapInfo, key Place) {
	g.MapAddr(bpf.R1, m.Index)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapLookupElem)
}

// refused counts that a map could not be changed at a place: R0 says why, 0 that it could.
func (g *Generator) refused(m *mapInfo, at syntax.Span) {
	end := g.NewLabel()
	g.IfImm(bpf.Jeq, bpf.R0, 0, end)
	g.countRefusal(m, at, bpf.R0)
	g.Put(end)
}

// countRefusal counts that a map could not be changed at a place, for the reason in a register, without a jump: what follows is one
// way to the verifier.
func (g *Generator) countRefusal(m *mapInfo, at syntax.Span, why uint8) {
	busy, _ := g.losses2(m, at)
	g.Mov(bpf.R0, why)
	g.AluImm(bpf.Add, bpf.R0, bpf.EBUSY)
	g.Mov(bpf.R2, bpf.R0)
	g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R2})
	g.Alu(bpf.Or, bpf.R2, bpf.R0)
	g.AluImm(bpf.Rsh, bpf.R2, 63) // 1 where it is another
	g.AluImm(bpf.Lsh, bpf.R2, 3)
	g.MapValue(bpf.R1, g.losses, busy)
	g.Alu(bpf.Add, bpf.R1, bpf.R2)
	g.Imm(bpf.R2, 1)
	g.AtomicAdd(Cell(bpf.R1, 0), bpf.R2, false)
}

// losses2 are the words where what a place loses is counted: because another thread kept the map, and because the map was full,
// one behind the other.
func (g *Generator) losses2(m *mapInfo, at syntax.Span) (busy, full int) {
	return g.loss(plan.Loss{At: at, Map: m.name, Busy: true}), g.loss(plan.Loss{At: at, Map: m.name})
}

// element leaves in regValue the address of a value that is there or is made now, of
// zeros; without goes to no. What could not be done is told of at a place.
func (g *Generator) element(m *mapInfo, x *syntax.Map, at syntax.Span, no Label) {
	switch {
	case x.Key == nil && m.Plan.Spec.Type == bpf.Array:
		g.MapValue(RegValue, m.Index, 0)
		g.StoreImm(Cell(RegValue, 0), plan.KeylessSet)
		g.AluImm(bpf.Add, RegValue, plan.KeylessHeader)
		return
	case x.Key == nil:
		key := g.Temp()
		g.StoreImm(key, 0)
		g.Lookup(m, key)
		g.drop()
		g.IfImm(bpf.Jeq, bpf.R0, 0, no)
		g.Mov(RegValue, bpf.R0)
		g.StoreImm(Cell(RegValue, 0), plan.KeylessSet)
		g.AluImm(bpf.Add, RegValue, plan.KeylessHeader)
		return
	}
	key := g.Key(m, x.Key)
	found := g.NewLabel()
	g.Lookup(m, key)
	g.IfImm(bpf.Jne, bpf.R0, 0, found)
	zeros := g.Room(m.Value.Slot())
	g.Zero(zeros, m.Value.Slot())
	full := g.NewLabel()
	g.insert(m, key, zeros, full)
	g.Put(full)
	g.Mov(RegValue, bpf.R0)
	g.Lookup(m, key) // another thread may have put it there
	g.IfImm(bpf.Jne, bpf.R0, 0, found)
	g.countRefusal(m, at, RegValue)
	g.GoTo(no)
	g.Put(found)
	g.Mov(RegValue, bpf.R0)
}

// insert puts a new key into a map, or goes to full; why it was not put is in R0, 0 where it was. A hash takes more
// keys than it is defined for before it is full: so they are counted here.
func (g *Generator) insert(m *mapInfo, key, value Place, full Label) {
	if m.Plan.Count >= 0 {
		room := g.NewLabel()
		g.MapValue(bpf.R1, g.keyCounts, m.Plan.Count)
		g.Imm(bpf.R2, 1)
		g.AtomicAdd(Cell(bpf.R1, 0), bpf.R2, true)
		g.Mov(bpf.R0, bpf.R2)
		g.Imm(bpf.R2, uint64(m.Plan.Spec.MaxEntries))
		g.IfReg(bpf.Jlt, bpf.R0, bpf.R2, room)
		g.Uncounted(m)
		g.GoTo(full)
		g.Put(room)
	}
	g.MapAddr(bpf.R1, m.Index)
	g.Addr(bpf.R2, key)
	g.Addr(bpf.R3, value)
	g.Imm(bpf.R4, bpf.UpdateNoExist)
	g.Helper(bpf.FnMapUpdateElem)
	if m.Plan.Count >= 0 {
		put := g.NewLabel()
		g.IfImm(bpf.Jeq, bpf.R0, 0, put)
		g.Uncounted(m)
		g.Put(put)
	}
}

// Uncounted counts a key less; R0 stays.
func (g *Generator) Uncounted(m *mapInfo) {
	if m.Plan.Count < 0 {
		return
	}
	g.MapValue(bpf.R1, g.keyCounts, m.Plan.Count)
	g.Imm(bpf.R2, ^uint64(0))
	g.AtomicAdd(Cell(bpf.R1, 0), bpf.R2, false)
}

func (g *Generator) assign(s *syntax.Assign) {
	switch target := s.Target.(type) {
	case *syntax.Ident:
		g.effect(s.Value)
	case *syntax.Var:
		v := g.Uses[target]
		if s.Op == "=" {
			g.Into(s.Value, g.Variable(v), v.Typ)
			return
		}
		old := g.Types[target]
		t := types.Arithmetic(strings.TrimSuffix(s.Op, "="), old, g.Types[s.Value])
		g.reckon(strings.TrimSuffix(s.Op, "="), t, target, s.Value)
		g.Fit(v.Typ)
		g.Store(g.Variable(v), bpf.R0)
	case *syntax.Map:
		m := g.Maps[target.Name]
		call, isCall := s.Value.(*syntax.Call)
		switch {
		case s.Op != "=":
			g.change(m, target, s)
		case isCall && m.Value.Aggregate():
			g.gather(m, target, call)
		default:
			g.put2(m, target, s.Value, s.At())
		}
	}
}

// put2 stores a value in a map.
func (g *Generator) put2(m *mapInfo, x *syntax.Map, value syntax.Expr, at syntax.Span) {
	if x.Key == nil {
		var from Place
		if !m.Value.Scalar() {
			from = g.Room(m.Value.Slot())
			g.Into(value, from, m.Value)
		} else {
			g.Number(value)
			from = g.Save()
		}
		g.MapValue(RegValue, m.Index, 0)
		g.Copy(Cell(RegValue, plan.KeylessHeader), from, m.Value.Slot())
		g.StoreImm(Cell(RegValue, 0), plan.KeylessSet)
		return
	}
	var from Place
	if m.Value.Slot() == 8 {
		from = g.Temp()
	} else {
		from = g.Room(m.Value.Slot())
	}
	g.Into(value, from, m.Value)
	key := g.Key(m, x.Key)
	update := func(flags uint64) {
		g.MapAddr(bpf.R1, m.Index)
		g.Addr(bpf.R2, key)
		g.Addr(bpf.R3, from)
		g.Imm(bpf.R4, flags)
		g.Helper(bpf.FnMapUpdateElem)
	}
	if m.Plan.Count < 0 {
		update(bpf.UpdateAny)
		g.refused(m, at)
		return
	}
	done, full := g.NewLabel(), g.NewLabel()
	update(bpf.UpdateExist)
	g.IfImm(bpf.Jeq, bpf.R0, 0, done)
	g.insert(m, key, from, full)
	g.IfImm(bpf.Jeq, bpf.R0, 0, done)
	g.Put(full) // or another thread has put the key there meanwhile, or kept the bucket for too long
	g.Mov(RegValue, bpf.R0)
	lost := g.NewLabel()
	if m.Value.Slot() == 8 {
		g.Lookup(m, key)
		g.IfImm(bpf.Jeq, bpf.R0, 0, lost)
		g.Mov(RegValue, bpf.R0)
		g.Load(bpf.R0, from, 8, false)
		g.Store(Cell(RegValue, 0), bpf.R0)
		g.GoTo(done)
	} else {
		update(bpf.UpdateExist)
		g.IfImm(bpf.Jeq, bpf.R0, 0, done)
	}
	g.Put(lost)
	g.countRefusal(m, at, RegValue)
	g.Put(done)
}

// change is @x op= value. Adding is atomic: no thread's is lost.
func (g *Generator) change(m *mapInfo, x *syntax.Map, s *syntax.Assign) {
	op := strings.TrimSuffix(s.Op, "=")
	g.Number(s.Value)
	if step := m.Value.Stride(); step > 1 {
		g.AluImm(bpf.Mul, bpf.R0, step)
	}
	by := g.Save()
	no := g.NewLabel()
	g.element(m, x, s.At(), no)
	if op == "+" || op == "-" {
		g.Load(bpf.R0, by, 8, false)
		if op == "-" {
			g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R0})
		}
		g.AtomicAdd(Cell(RegValue, 0), bpf.R0, false)
	} else {
		g.Load(bpf.R0, Cell(RegValue, 0), 8, false)
		g.Load(bpf.R1, by, 8, false)
		g.divide(op, !m.Value.Signed, s.Value)
		g.Store(Cell(RegValue, 0), bpf.R0)
	}
	g.Put(no)
}

// step is @x++ and the like; the value is left in R0.
func (g *Generator) step(x *syntax.Unary, mx *syntax.Map) {
	m := g.Maps[mx.Name]
	by := m.Value.Stride()
	if x.Op == "--" {
		by = -by
	}
	no, end := g.NewLabel(), g.NewLabel()
	g.element(m, mx, x.At(), no)
	g.Imm(bpf.R0, uint64(int64(by)))
	g.AtomicAdd(Cell(RegValue, 0), bpf.R0, true)
	if !x.Post {
		g.AluImm(bpf.Add, bpf.R0, by)
	}
	g.GoTo(end)
	g.Put(no)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// gather is @x = count() and all others.
func (g *Generator) gather(m *mapInfo, x *syntax.Map, call *syntax.Call) {
	t := m.Value
	shared := m.Plan.Spec.Type != bpf.PerCPUArray
	var n Place
	if len(call.Args) > 0 {
		g.Number(call.Args[0])
		switch t.Kind {
		case types.Hist:
			g.PowerBucket(t.Bits)
		case types.LHist:
			g.StepBucket(t.Low, t.High, t.Step, t.Size/8-1)
		}
		n = g.Save()
	}
	no := g.NewLabel()
	g.element(m, x, call.At(), no)
	add := func(word int, src uint8) {
		p := Cell(RegValue, 8*word)
		if shared {
			g.AtomicAdd(p, src, false)
			return
		}
		g.Load(bpf.R0, p, 8, false)
		g.Alu(bpf.Add, bpf.R0, src)
		g.Store(p, bpf.R0)
	}
	switch t.Kind {
	case types.Count:
		g.Imm(bpf.R1, 1)
		add(0, bpf.R1)
	case types.Sum:
		g.Load(bpf.R1, n, 8, false)
		add(0, bpf.R1)
	case types.Avg, types.Stats:
		g.Imm(bpf.R1, 1)
		add(0, bpf.R1)
		g.Load(bpf.R1, n, 8, false)
		add(1, bpf.R1)
	case types.Min, types.Max:
		g.extreme(m, t, n, shared, call.At(), no)
	case types.TSeries:
		g.moment(t, n, no)
	case types.Hist, types.LHist:
		g.Load(bpf.R1, n, 8, false)
		g.IfImm(bpf.Jge, bpf.R1, int32(t.Size/8), no)
		g.AluImm(bpf.Lsh, bpf.R1, 3)
		g.Alu(bpf.Add, RegValue, bpf.R1)
		g.Imm(bpf.R1, 1)
		add(0, bpf.R1)
	}
	g.Put(no)
}

// moment puts a number into the slot of now's interval, which begins with a multiple of its length of atomic time. What the slot
// held of an older one goes: an update of another thread that comes between may go with it.
func (g *Generator) moment(t *types.Type, n Place, no Label) {
	g.Helper(bpf.FnKtimeGetBootNs)
	g.MapValue(bpf.R1, g.Start, plan.FactTAI)
	g.Load(bpf.R1, Cell(bpf.R1, 0), 8, false)
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
	g.Imm(bpf.R1, uint64(t.Step))
	g.Alu(bpf.Div, bpf.R0, bpf.R1)
	g.Mov(bpf.R2, bpf.R0)
	g.AluImm(bpf.Add, bpf.R2, 1)
	g.Imm(bpf.R1, uint64(t.Len))
	g.Alu(bpf.Mod, bpf.R0, bpf.R1)
	g.IfImm(bpf.Jge, bpf.R0, int32(t.Len), no)
	g.AluImm(bpf.Mul, bpf.R0, 24)
	g.Alu(bpf.Add, RegValue, bpf.R0)
	same := g.NewLabel()
	g.Load(bpf.R0, Cell(RegValue, 0), 8, false)
	g.IfReg(bpf.Jeq, bpf.R0, bpf.R2, same)
	g.Store(Cell(RegValue, 0), bpf.R2)
	g.StoreImm(Cell(RegValue, 8), 0)
	g.StoreImm(Cell(RegValue, 16), 0)
	g.Put(same)
	g.Load(bpf.R2, n, 8, false)
	g.Load(bpf.R1, Cell(RegValue, 8), 8, false)
	switch t.Name {
	case "avg", "sum":
		g.AtomicAdd(Cell(RegValue, 16), bpf.R2, false)
	case "min", "max":
		first, done := g.NewLabel(), g.NewLabel()
		g.IfImm(bpf.Jeq, bpf.R1, 0, first)
		g.Load(bpf.R0, Cell(RegValue, 16), 8, false)
		worse := map[string]uint8{"mintrue": bpf.Jsge, "minfalse": bpf.Jge, "maxtrue": bpf.Jsle, "maxfalse": bpf.Jle}[fmt.Sprint(t.Name, t.Signed)]
		g.IfReg(worse, bpf.R2, bpf.R0, done)
		g.Put(first)
		g.Store(Cell(RegValue, 16), bpf.R2)
		g.Put(done)
	default:
		g.Store(Cell(RegValue, 16), bpf.R2)
	}
	g.Imm(bpf.R1, 1)
	g.AtomicAdd(Cell(RegValue, 8), bpf.R1, false)
}

// extremeTries is how often a shared minimum is tried again because another thread has
// come before: each time to a better value.
const extremeTries = 64

// extreme keeps the least or greatest. The word that says whether there is one is set
// behind the value, so that who finds it set finds a value.
func (g *Generator) extreme(m *mapInfo, t *types.Type, n Place, shared bool, at syntax.Span, end Label) {
	worse := uint8(bpf.Jle)
	switch {
	case t.Kind == types.Max && t.Signed:
		worse = bpf.Jsle
	case t.Kind == types.Min && t.Signed:
		worse = bpf.Jsge
	case t.Kind == types.Min:
		worse = bpf.Jge
	}
	g.Imm(bpf.R3, t.Mask())
	tries := g.Temp()
	g.StoreImm(tries, 0)
	again, done := g.NewLabel(), g.NewLabel()
	g.Put(again)
	g.Load(bpf.R0, Cell(RegValue, 8), 8, false)
	g.Mov(bpf.R1, bpf.R0)
	g.Alu(bpf.Xor, bpf.R1, bpf.R3) // what it stands for
	g.Load(bpf.R2, n, 8, false)
	g.IfReg(worse, bpf.R2, bpf.R1, done)
	g.Alu(bpf.Xor, bpf.R2, bpf.R3)
	if !shared {
		g.Store(Cell(RegValue, 8), bpf.R2)
	} else {
		g.Mov(bpf.R1, bpf.R0)
		g.Emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | bpf.SizeDW, Dst: RegValue, Src: bpf.R2, Off: 8, Imm: bpf.AtomicCmpxchg})
		g.IfReg(bpf.Jeq, bpf.R0, bpf.R1, done)
		g.Load(bpf.R0, tries, 8, false)
		g.AluImm(bpf.Add, bpf.R0, 1)
		g.Store(tries, bpf.R0)
		g.IfImm(bpf.Jlt, bpf.R0, extremeTries, again)
		busy, _ := g.losses2(m, at)
		g.MapValue(bpf.R1, g.losses, busy)
		g.Imm(bpf.R2, 1)
		g.AtomicAdd(Cell(bpf.R1, 0), bpf.R2, false)
		g.GoTo(end)
	}
	g.Put(done)
	g.StoreImm(Cell(RegValue, 0), 1)
	g.drop()
}
