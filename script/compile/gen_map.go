package compile

import (
	"strings"

	"kprobe/bpf"
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
	g.mapAddr(bpf.R1, m.index)
	g.addr(bpf.R2, key)
	g.helper(bpf.FnMapLookupElem)
}

// refused counts that a map could not be changed: R0 says why, 0 that it could.
func (g *generator) refused() {
	ok := g.newLabel()
	g.ifImm(bpf.Jeq, bpf.R0, 0, ok)
	g.countLoss()
	g.put(ok)
}

func (g *generator) countLoss() {
	g.mapValue(bpf.R1, g.losses, 0)
	g.imm(bpf.R2, 1)
	g.atomicAdd(place{bpf.R1, 0}, bpf.R2, false)
}

// element leaves in regValue the address of a value that is there or is made now, of
// zeros; without goes to no.
func (g *generator) element(m *mapInfo, x *syntax.Map, no label) {
	switch {
	case x.Key == nil && m.plan.Spec.Type == bpf.Array:
		g.mapValue(regValue, m.index, 0)
		g.storeImm(place{regValue, 0}, 1)
		g.aluImm(bpf.Add, regValue, KeylessHeader)
		return
	case x.Key == nil:
		key := g.temp()
		g.storeImm(key, 0)
		g.lookup(m, key)
		g.drop()
		g.ifImm(bpf.Jeq, bpf.R0, 0, no)
		g.mov(regValue, bpf.R0)
		g.storeImm(place{regValue, 0}, 1)
		g.aluImm(bpf.Add, regValue, KeylessHeader)
		return
	}
	key := g.key(m, x.Key)
	found := g.newLabel()
	g.lookup(m, key)
	g.ifImm(bpf.Jne, bpf.R0, 0, found)
	zeros := g.room(m.value.Slot())
	g.zero(zeros, m.value.Slot())
	g.mapAddr(bpf.R1, m.index)
	g.addr(bpf.R2, key)
	g.addr(bpf.R3, zeros)
	g.imm(bpf.R4, bpf.UpdateNoExist)
	g.helper(bpf.FnMapUpdateElem)
	g.lookup(m, key)
	g.ifImm(bpf.Jne, bpf.R0, 0, found)
	g.countLoss()
	g.goTo(no)
	g.put(found)
	g.mov(regValue, bpf.R0)
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
		t := g.arithmetic(strings.TrimSuffix(s.Op, "="), old, g.types[s.Value])
		g.reckon(strings.TrimSuffix(s.Op, "="), t, target, s.Value)
		g.fit(v.typ)
		g.store(g.variable(v), bpf.R0)
	case *syntax.Map:
		m := g.maps[target.Name]
		call, isCall := s.Value.(*syntax.Call)
		switch {
		case s.Op != "=":
			g.change(m, target, s)
		case isCall && m.value.Aggregate():
			g.gather(m, target, call)
		default:
			g.put2(m, target, s.Value)
		}
	}
}

// put2 stores a value in a map.
func (g *generator) put2(m *mapInfo, x *syntax.Map, value syntax.Expr) {
	if x.Key == nil {
		var from place
		if !m.value.Scalar() {
			from = g.room(m.value.Slot())
			g.into(value, from, m.value)
		} else {
			g.number(value)
			from = g.save()
		}
		g.mapValue(regValue, m.index, 0)
		g.copy(place{regValue, KeylessHeader}, from, m.value.Slot())
		g.storeImm(place{regValue, 0}, 1)
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
	g.mapAddr(bpf.R1, m.index)
	g.addr(bpf.R2, key)
	g.addr(bpf.R3, from)
	g.imm(bpf.R4, bpf.UpdateAny)
	g.helper(bpf.FnMapUpdateElem)
	g.refused()
}

// change is @x op= value. Adding is atomic: no thread's is lost.
func (g *generator) change(m *mapInfo, x *syntax.Map, s *syntax.Assign) {
	op := strings.TrimSuffix(s.Op, "=")
	g.number(s.Value)
	by := g.save()
	no := g.newLabel()
	g.element(m, x, no)
	if op == "+" || op == "-" {
		g.load(bpf.R0, by, 8, false)
		if op == "-" {
			g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Neg, Dst: bpf.R0})
		}
		g.atomicAdd(place{regValue, 0}, bpf.R0, false)
	} else {
		g.load(bpf.R0, place{regValue, 0}, 8, false)
		g.load(bpf.R1, by, 8, false)
		g.operate(op, !m.value.Signed)
		g.store(place{regValue, 0}, bpf.R0)
	}
	g.put(no)
}

// step is @x++ and the like; the value is left in R0.
func (g *generator) step(x *syntax.Unary, mx *syntax.Map) {
	m := g.maps[mx.Name]
	by := int32(1)
	if x.Op == "--" {
		by = -1
	}
	no, end := g.newLabel(), g.newLabel()
	g.element(m, mx, no)
	g.imm(bpf.R0, uint64(int64(by)))
	g.atomicAdd(place{regValue, 0}, bpf.R0, true)
	if !x.Post {
		g.aluImm(bpf.Add, bpf.R0, by)
	}
	g.goTo(end)
	g.put(no)
	g.imm(bpf.R0, 0)
	g.put(end)
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
			g.histBucket(t)
		case types.LHist:
			g.lhistBucket(t)
		}
		n = g.save()
	}
	no := g.newLabel()
	g.element(m, x, no)
	add := func(word int, src uint8) {
		p := place{regValue, 8 * word}
		if shared {
			g.atomicAdd(p, src, false)
			return
		}
		g.load(bpf.R0, p, 8, false)
		g.alu(bpf.Add, bpf.R0, src)
		g.store(p, bpf.R0)
	}
	switch t.Kind {
	case types.Count:
		g.imm(bpf.R1, 1)
		add(0, bpf.R1)
	case types.Sum:
		g.load(bpf.R1, n, 8, false)
		add(0, bpf.R1)
	case types.Avg, types.Stats:
		g.imm(bpf.R1, 1)
		add(0, bpf.R1)
		g.load(bpf.R1, n, 8, false)
		add(1, bpf.R1)
	case types.Min, types.Max:
		g.extreme(t, n, shared, no)
	case types.Hist, types.LHist:
		g.load(bpf.R1, n, 8, false)
		g.ifImm(bpf.Jge, bpf.R1, int32(t.Size/8), no)
		g.aluImm(bpf.Lsh, bpf.R1, 3)
		g.alu(bpf.Add, regValue, bpf.R1)
		g.imm(bpf.R1, 1)
		add(0, bpf.R1)
	}
	g.put(no)
}

// extremeTries is how often a shared minimum is tried again because another thread has
// come before: each time to a better value.
const extremeTries = 64

// extreme keeps the least or greatest. The word that says whether there is one is set
// behind the value, so that who finds it set finds a value.
func (g *generator) extreme(t *types.Type, n place, shared bool, end label) {
	worse := uint8(bpf.Jle)
	switch {
	case t.Kind == types.Max && t.Signed:
		worse = bpf.Jsle
	case t.Kind == types.Min && t.Signed:
		worse = bpf.Jsge
	case t.Kind == types.Min:
		worse = bpf.Jge
	}
	g.imm(bpf.R3, t.Mask())
	tries := g.temp()
	g.storeImm(tries, 0)
	again, done := g.newLabel(), g.newLabel()
	g.put(again)
	g.load(bpf.R0, place{regValue, 8}, 8, false)
	g.mov(bpf.R1, bpf.R0)
	g.alu(bpf.Xor, bpf.R1, bpf.R3) // what it stands for
	g.load(bpf.R2, n, 8, false)
	g.ifReg(worse, bpf.R2, bpf.R1, done)
	g.alu(bpf.Xor, bpf.R2, bpf.R3)
	if !shared {
		g.store(place{regValue, 8}, bpf.R2)
	} else {
		g.mov(bpf.R1, bpf.R0)
		g.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | bpf.SizeDW, Dst: regValue, Src: bpf.R2, Off: 8, Imm: bpf.AtomicCmpxchg})
		g.ifReg(bpf.Jeq, bpf.R0, bpf.R1, done)
		g.load(bpf.R0, tries, 8, false)
		g.aluImm(bpf.Add, bpf.R0, 1)
		g.store(tries, bpf.R0)
		g.ifImm(bpf.Jlt, bpf.R0, extremeTries, again)
		g.countLoss()
		g.goTo(end)
	}
	g.put(done)
	g.storeImm(place{regValue, 0}, 1)
	g.drop()
}

// histBucket makes of the number in R0 its bucket's index: 0 of negative ones, then one for
// each number below 2 << bits, then 2^bits for each power of two.
func (g *generator) histBucket(t *types.Type) {
	small, end, positive := g.newLabel(), g.newLabel(), g.newLabel()
	g.ifImm(bpf.Jsge, bpf.R0, 0, positive)
	g.imm(bpf.R0, 0)
	g.goTo(end)
	g.put(positive)
	g.ifImm(bpf.Jlt, bpf.R0, int32(2<<t.Bits), small)
	// R1 becomes the logarithm, in steps that need no jump.
	g.mov(bpf.R2, bpf.R0)
	g.imm(bpf.R1, 0)
	for step := 5; step >= 0; step-- {
		g.imm(bpf.R3, 1<<(1<<step)-1)
		g.alu(bpf.Sub, bpf.R3, bpf.R2)
		g.aluImm(bpf.Rsh, bpf.R3, 63)
		g.aluImm(bpf.Lsh, bpf.R3, int32(step))
		g.alu(bpf.Rsh, bpf.R2, bpf.R3)
		g.alu(bpf.Or, bpf.R1, bpf.R3)
	}
	g.aluImm(bpf.Sub, bpf.R1, int32(t.Bits)) // the power of a bucket's width
	g.alu(bpf.Rsh, bpf.R0, bpf.R1)
	g.aluImm(bpf.And, bpf.R0, int32(1<<t.Bits-1))
	g.aluImm(bpf.Add, bpf.R1, 1)
	g.aluImm(bpf.Lsh, bpf.R1, int32(t.Bits))
	g.alu(bpf.Add, bpf.R0, bpf.R1)
	g.put(small)
	g.aluImm(bpf.Add, bpf.R0, 1)
	g.put(end)
}

func (g *generator) lhistBucket(t *types.Type) {
	low, high, end := g.newLabel(), g.newLabel(), g.newLabel()
	g.imm(bpf.R1, uint64(t.Low))
	g.ifReg(bpf.Jslt, bpf.R0, bpf.R1, low)
	g.imm(bpf.R2, uint64(t.High))
	g.ifReg(bpf.Jsge, bpf.R0, bpf.R2, high)
	g.alu(bpf.Sub, bpf.R0, bpf.R1)
	g.imm(bpf.R1, uint64(t.Step))
	g.alu(bpf.Div, bpf.R0, bpf.R1)
	g.aluImm(bpf.Add, bpf.R0, 1)
	g.goTo(end)
	g.put(high)
	g.imm(bpf.R0, uint64(t.Size/8-1))
	g.goTo(end)
	g.put(low)
	g.imm(bpf.R0, 0)
	g.put(end)
}
