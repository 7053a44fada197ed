package compile

import (
	"fmt"
	"strings"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// key puts a map's key into memory and gives its place.
func (g *generator) key(m *mapInfo, x syntax.Expr) place {
	var p place
	if m.key.Slot() == 8 {
		p = g.temp()
	} else {
		p = g.room(m.key.Slot())
	}
	g.into(x, p, m.key)
	return p
}

// lookup leaves in R0 the address of a key's value, or 0.
func (g *generator) lookup(m *mapInfo, key place) {
	g.MapAddr(bpf.R1, m.index)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapLookupElem)
}

// refused counts that a map could not be changed at a place: R0 says why, 0 that it could.
func (g *generator) refused(m *mapInfo, at syntax.Span) {
	end := g.NewLabel()
	g.IfImm(bpf.Jeq, bpf.R0, 0, end)
	g.countRefusal(m, at, bpf.R0)
	g.Put(end)
}

// countRefusal counts that a map could not be changed at a place, for the reason in a register, without a jump: what follows is one
// way to the verifier.
func (g *generator) countRefusal(m *mapInfo, at syntax.Span, why uint8) {
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
	g.AtomicAdd(cell(bpf.R1, 0), bpf.R2, false)
}

// losses2 are the words where what a place loses is counted: because another thread kept the map, and because the map was full,
// one behind the other.
func (g *generator) losses2(m *mapInfo, at syntax.Span) (busy, full int) {
	return g.loss(plan.Loss{At: at, Map: m.name, Busy: true}), g.loss(plan.Loss{At: at, Map: m.name})
}

// element leaves in regValue the address of a value that is there or is made now, of
// zeros; without goes to no. What could not be done is told of at a place.
func (g *generator) element(m *mapInfo, x *syntax.Map, at syntax.Span, no label) {
	switch {
	case x.Key == nil && m.plan.Spec.Type == bpf.Array:
		g.MapValue(regValue, m.index, 0)
		g.StoreImm(cell(regValue, 0), plan.KeylessSet)
		g.AluImm(bpf.Add, regValue, plan.KeylessHeader)
		return
	case x.Key == nil:
		key := g.temp()
		g.StoreImm(key, 0)
		g.lookup(m, key)
		g.drop()
		g.IfImm(bpf.Jeq, bpf.R0, 0, no)
		g.Mov(regValue, bpf.R0)
		g.StoreImm(cell(regValue, 0), plan.KeylessSet)
		g.AluImm(bpf.Add, regValue, plan.KeylessHeader)
		return
	}
	key := g.key(m, x.Key)
	found := g.NewLabel()
	g.lookup(m, key)
	g.IfImm(bpf.Jne, bpf.R0, 0, found)
	zeros := g.room(m.value.Slot())
	g.Zero(zeros, m.value.Slot())
	full := g.NewLabel()
	g.insert(m, key, zeros, full)
	g.Put(full)
	g.Mov(regValue, bpf.R0)
	g.lookup(m, key) // another thread may have put it there
	g.IfImm(bpf.Jne, bpf.R0, 0, found)
	g.countRefusal(m, at, regValue)
	g.GoTo(no)
	g.Put(found)
	g.Mov(regValue, bpf.R0)
}

// insert puts a new key into a map, or goes to full; why it was not put is in R0, 0 where it was. A hash takes more
// keys than it is defined for before it is full: so they are counted here.
func (g *generator) insert(m *mapInfo, key, value place, full label) {
	if m.plan.Count >= 0 {
		room := g.NewLabel()
		g.MapValue(bpf.R1, g.keyCounts, m.plan.Count)
		g.Imm(bpf.R2, 1)
		g.AtomicAdd(cell(bpf.R1, 0), bpf.R2, true)
		g.Mov(bpf.R0, bpf.R2)
		g.Imm(bpf.R2, uint64(m.plan.Spec.MaxEntries))
		g.IfReg(bpf.Jlt, bpf.R0, bpf.R2, room)
		g.uncounted(m)
		g.GoTo(full)
		g.Put(room)
	}
	g.MapAddr(bpf.R1, m.index)
	g.Addr(bpf.R2, key)
	g.Addr(bpf.R3, value)
	g.Imm(bpf.R4, bpf.UpdateNoExist)
	g.Helper(bpf.FnMapUpdateElem)
	if m.plan.Count >= 0 {
		put := g.NewLabel()
		g.IfImm(bpf.Jeq, bpf.R0, 0, put)
		g.uncounted(m)
		g.Put(put)
	}
}

// uncounted counts a key less; R0 stays.
func (g *generator) uncounted(m *mapInfo) {
	if m.plan.Count < 0 {
		return
	}
	g.MapValue(bpf.R1, g.keyCounts, m.plan.Count)
	g.Imm(bpf.R2, ^uint64(0))
	g.AtomicAdd(cell(bpf.R1, 0), bpf.R2, false)
}

func (g *generator) assign(s *syntax.Assign) {
	switch target := s.Target.(type) {
	case *syntax.Ident:
		g.effect(s.Value)
	case *syntax.Var:
		v := g.uses[target]
		if s.Op == "=" {
			g.into(s.Value, g.variable(v), v.typ)
			return
		}
		old := g.types[target]
		t := types.Arithmetic(strings.TrimSuffix(s.Op, "="), old, g.types[s.Value])
		g.reckon(strings.TrimSuffix(s.Op, "="), t, target, s.Value)
		g.fit(v.typ)
		g.Store(g.variable(v), bpf.R0)
	case *syntax.Map:
		m := g.maps[target.Name]
		call, isCall := s.Value.(*syntax.Call)
		switch {
		case s.Op != "=":
			g.change(m, target, s)
		case isCall && m.value.Aggregate():
			g.gather(m, target, call)
		default:
			g.put2(m, target, s.Value, s.At())
		}
	}
}

// put2 stores a value in a map.
func (g *generator) put2(m *mapInfo, x *syntax.Map, value syntax.Expr, at syntax.Span) {
	if x.Key == nil {
		var from place
		if !m.value.Scalar() {
			from = g.room(m.value.Slot())
			g.into(value, from, m.value)
		} else {
			g.number(value)
			from = g.save()
		}
		g.MapValue(regValue, m.index, 0)
		g.Copy(cell(regValue, plan.KeylessHeader), from, m.value.Slot())
		g.StoreImm(cell(regValue, 0), plan.KeylessSet)
		return
	}
	var from place
	if m.value.Slot() == 8 {
		from = g.temp()
	} else {
		from = g.room(m.value.Slot())
	}
	g.into(value, from, m.value)
	key := g.key(m, x.Key)
	update := func(flags uint64) {
		g.MapAddr(bpf.R1, m.index)
		g.Addr(bpf.R2, key)
		g.Addr(bpf.R3, from)
		g.Imm(bpf.R4, flags)
		g.Helper(bpf.FnMapUpdateElem)
	}
	if m.plan.Count < 0 {
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
	g.Mov(regValue, bpf.R0)
	lost := g.NewLabel()
	if m.value.Slot() == 8 {
		g.lookup(m, key)
		g.IfImm(bpf.Jeq, bpf.R0, 0, lost)
		g.Mov(regValue, bpf.R0)
		g.Load(bpf.R0, from, 8, false)
		g.Store(cell(regValue, 0), bpf.R0)
		g.GoTo(done)
	} else {
		update(bpf.UpdateExist)
		g.IfImm(bpf.Jeq, bpf.R0, 0, done)
	}
	g.Put(lost)
	g.countRefusal(m, at, regValue)
	g.Put(done)
}

// change is @x op= value. Adding is atomic: no thread's is lost.
func (g *generator) change(m *mapInfo, x *syntax.Map, s *syntax.Assign) {
	op := strings.TrimSuffix(s.Op, "=")
	g.number(s.Value)
	if step := m.value.Stride(); step > 1 {
		g.AluImm(bpf.Mul, bpf.R0, step)
	}
	by := g.save()
	no := g.NewLabel()
	g.element(m, x, s.At(), no)
	if op == "+" || op == "-" {
		g.Load(bpf.R0, by, 8, false)
		if op == "-" {
			g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R0})
		}
		g.AtomicAdd(cell(regValue, 0), bpf.R0, false)
	} else {
		g.Load(bpf.R0, cell(regValue, 0), 8, false)
		g.Load(bpf.R1, by, 8, false)
		g.divide(op, !m.value.Signed, s.Value)
		g.Store(cell(regValue, 0), bpf.R0)
	}
	g.Put(no)
}

// step is @x++ and the like; the value is left in R0.
func (g *generator) step(x *syntax.Unary, mx *syntax.Map) {
	m := g.maps[mx.Name]
	by := m.value.Stride()
	if x.Op == "--" {
		by = -by
	}
	no, end := g.NewLabel(), g.NewLabel()
	g.element(m, mx, x.At(), no)
	g.Imm(bpf.R0, uint64(int64(by)))
	g.AtomicAdd(cell(regValue, 0), bpf.R0, true)
	if !x.Post {
		g.AluImm(bpf.Add, bpf.R0, by)
	}
	g.GoTo(end)
	g.Put(no)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// gather is @x = count() and all others.
func (g *generator) gather(m *mapInfo, x *syntax.Map, call *syntax.Call) {
	t := m.value
	shared := m.plan.Spec.Type != bpf.PerCPUArray
	var n place
	if len(call.Args) > 0 {
		g.number(call.Args[0])
		switch t.Kind {
		case types.Hist:
			g.PowerBucket(t.Bits)
		case types.LHist:
			g.StepBucket(t.Low, t.High, t.Step, t.Size/8-1)
		}
		n = g.save()
	}
	no := g.NewLabel()
	g.element(m, x, call.At(), no)
	add := func(word int, src uint8) {
		p := cell(regValue, 8*word)
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
		g.Alu(bpf.Add, regValue, bpf.R1)
		g.Imm(bpf.R1, 1)
		add(0, bpf.R1)
	}
	g.Put(no)
}

// moment puts a number into the slot of now's interval, which begins with a multiple of its length of atomic time. What the slot
// held of an older one goes: an update of another thread that comes between may go with it.
func (g *generator) moment(t *types.Type, n place, no label) {
	g.Helper(bpf.FnKtimeGetBootNs)
	g.MapValue(bpf.R1, g.start, plan.FactTAI)
	g.Load(bpf.R1, cell(bpf.R1, 0), 8, false)
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
	g.Imm(bpf.R1, uint64(t.Step))
	g.Alu(bpf.Div, bpf.R0, bpf.R1)
	g.Mov(bpf.R2, bpf.R0)
	g.AluImm(bpf.Add, bpf.R2, 1)
	g.Imm(bpf.R1, uint64(t.Len))
	g.Alu(bpf.Mod, bpf.R0, bpf.R1)
	g.IfImm(bpf.Jge, bpf.R0, int32(t.Len), no)
	g.AluImm(bpf.Mul, bpf.R0, 24)
	g.Alu(bpf.Add, regValue, bpf.R0)
	same := g.NewLabel()
	g.Load(bpf.R0, cell(regValue, 0), 8, false)
	g.IfReg(bpf.Jeq, bpf.R0, bpf.R2, same)
	g.Store(cell(regValue, 0), bpf.R2)
	g.StoreImm(cell(regValue, 8), 0)
	g.StoreImm(cell(regValue, 16), 0)
	g.Put(same)
	g.Load(bpf.R2, n, 8, false)
	g.Load(bpf.R1, cell(regValue, 8), 8, false)
	switch t.Name {
	case "avg", "sum":
		g.AtomicAdd(cell(regValue, 16), bpf.R2, false)
	case "min", "max":
		first, done := g.NewLabel(), g.NewLabel()
		g.IfImm(bpf.Jeq, bpf.R1, 0, first)
		g.Load(bpf.R0, cell(regValue, 16), 8, false)
		worse := map[string]uint8{"mintrue": bpf.Jsge, "minfalse": bpf.Jge, "maxtrue": bpf.Jsle, "maxfalse": bpf.Jle}[fmt.Sprint(t.Name, t.Signed)]
		g.IfReg(worse, bpf.R2, bpf.R0, done)
		g.Put(first)
		g.Store(cell(regValue, 16), bpf.R2)
		g.Put(done)
	default:
		g.Store(cell(regValue, 16), bpf.R2)
	}
	g.Imm(bpf.R1, 1)
	g.AtomicAdd(cell(regValue, 8), bpf.R1, false)
}

// extremeTries is how often a shared minimum is tried again because another thread has
// come before: each time to a better value.
const extremeTries = 64

// extreme keeps the least or greatest. The word that says whether there is one is set
// behind the value, so that who finds it set finds a value.
func (g *generator) extreme(m *mapInfo, t *types.Type, n place, shared bool, at syntax.Span, end label) {
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
	tries := g.temp()
	g.StoreImm(tries, 0)
	again, done := g.NewLabel(), g.NewLabel()
	g.Put(again)
	g.Load(bpf.R0, cell(regValue, 8), 8, false)
	g.Mov(bpf.R1, bpf.R0)
	g.Alu(bpf.Xor, bpf.R1, bpf.R3) // what it stands for
	g.Load(bpf.R2, n, 8, false)
	g.IfReg(worse, bpf.R2, bpf.R1, done)
	g.Alu(bpf.Xor, bpf.R2, bpf.R3)
	if !shared {
		g.Store(cell(regValue, 8), bpf.R2)
	} else {
		g.Mov(bpf.R1, bpf.R0)
		g.Emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | bpf.SizeDW, Dst: regValue, Src: bpf.R2, Off: 8, Imm: bpf.AtomicCmpxchg})
		g.IfReg(bpf.Jeq, bpf.R0, bpf.R1, done)
		g.Load(bpf.R0, tries, 8, false)
		g.AluImm(bpf.Add, bpf.R0, 1)
		g.Store(tries, bpf.R0)
		g.IfImm(bpf.Jlt, bpf.R0, extremeTries, again)
		busy, _ := g.losses2(m, at)
		g.MapValue(bpf.R1, g.losses, busy)
		g.Imm(bpf.R2, 1)
		g.AtomicAdd(cell(bpf.R1, 0), bpf.R2, false)
		g.GoTo(end)
	}
	g.Put(done)
	g.StoreImm(cell(regValue, 0), 1)
	g.drop()
}
