package compile

import (
	"fmt"
	"slices"

	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Compile makes a plan of a script. The error is a syntax.Errors; of warnings alone
// there is none, they are in the plan.
func Compile(src *syntax.Source, o Options) (*Plan, error) {
	f, err := syntax.Parse(src)
	if err != nil {
		return nil, err
	}
	c := &checker{opts: o, src: src, told: map[syntax.Span]bool{}, points: map[*syntax.Probe][]*Point{},
		types: map[syntax.Expr]*types.Type{}, vars: map[syntax.Node]*variable{}, uses: map[*syntax.Var]*variable{},
		maps: map[string]*mapInfo{}, consts: map[string]uint64{}, named: map[string]*types.Type{}}
	c.file(f)
	c.errs.Sort()
	if len(c.errs.Fatal()) > 0 {
		return nil, c.errs
	}
	p := &Plan{Source: src, File: f, Settings: c.set, Warnings: c.errs}
	g := &generator{checker: c, plan: p}
	c.errs, c.told = nil, map[syntax.Span]bool{}
	g.specs()
	for _, it := range f.Items {
		if pr, ok := it.(*syntax.Probe); ok {
			g.probe(pr)
		}
	}
	p.Specs[g.scratchMap].ValueSize = uint32(max(g.most, 8))
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return p, nil
}

// generator makes the programs.
type generator struct {
	*checker
	plan *Plan

	ring, scratchMap, stacks, start, losses int // among the plan's specs
	most                                    int // bytes of scratch that any program takes

	// Of the program that is being made.
	asm
	lines   []bpf.Line
	places  map[*variable]place
	stack   int  // bytes of stack in use, and the most
	scratch int  // bytes of scratch in use
	bare    bool // the program turned out to need no scratch memory
	deepest int
	end     label
	breaks  []label
	nexts   []label
}

// specs defines the maps.
func (g *generator) specs() {
	add := func(s *bpf.MapSpec) int {
		g.plan.Specs = append(g.plan.Specs, s)
		return len(g.plan.Specs) - 1
	}
	var names []string
	for name := range g.maps {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m := g.maps[name]
		if m.value.Kind == types.None {
			continue
		}
		spec := &bpf.MapSpec{Name: name, Type: bpf.Hash, KeySize: uint32(max(m.key.Slot(), 8)), ValueSize: uint32(m.value.Slot()), MaxEntries: uint32(g.set.MaxMapKeys)}
		m.plan = &Map{Name: name, Value: m.value, Spec: spec}
		if m.size > 0 {
			spec.MaxEntries = uint32(m.size)
		}
		if m.kind == "lruhash" || m.kind == "percpulruhash" {
			spec.Type = bpf.LRUHash
		}
		switch {
		case m.keyed:
			m.plan.Key = m.key
		default:
			spec.Type, spec.KeySize, spec.MaxEntries = bpf.Array, 4, 1
			if m.value.Aggregate() && !m.walked {
				spec.Type = bpf.PerCPUArray
			}
			spec.ValueSize += KeylessHeader
		}
		m.index = add(spec)
		g.plan.Maps = append(g.plan.Maps, m.plan)
	}
	g.ring = add(&bpf.MapSpec{Name: RingName, Type: bpf.RingBuf, MaxEntries: 256 << 10})
	g.scratchMap = add(&bpf.MapSpec{Name: ScratchName, Type: bpf.PerCPUArray, KeySize: 4, MaxEntries: 1})
	g.stacks = add(&bpf.MapSpec{Name: StackName, Type: bpf.StackTrace, KeySize: 4, ValueSize: 8 * 127, MaxEntries: 1}) // see trace
	g.start = add(&bpf.MapSpec{Name: StartName, Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	g.losses = add(&bpf.MapSpec{Name: LossName, Type: bpf.Array, KeySize: 4, ValueSize: 8 * MaxLosses, MaxEntries: 1})
}

// probe makes a body's programs: one for the points that fire at returns, one for the others.
func (g *generator) probe(pr *syntax.Probe) {
	points := g.points[pr]
	for _, kind := range []bpf.Kind{bpf.Controller, bpf.Kprobe, bpf.Kretprobe} {
		var some []*Point
		for _, p := range points {
			if p.kind() == kind {
				some = append(some, p)
			}
		}
		if len(some) == 0 {
			continue
		}
		name := fmt.Sprintf("probe_%d", len(g.plan.Probes))
		program := g.program(name, pr, some)
		if program == nil {
			return
		}
		program.Kind = kind
		g.plan.Probes = append(g.plan.Probes, &Probe{Points: some, Program: program, At: pr.Span})
	}
}

// program makes a body's program. Few need scratch memory: the code that finds it is left
// out where nothing asked for any.
func (g *generator) program(name string, pr *syntax.Probe, points []*Point) *bpf.Program {
	most, actions := g.most, len(g.plan.Actions)
	g.most, g.bare = 0, false
	g.body(pr, points)
	if g.most == 0 {
		g.plan.Actions, g.bare = g.plan.Actions[:actions], true
		g.body(pr, points)
	}
	g.most = max(g.most, most)
	if !g.link() || len(g.insns) > bpf.MaxInsns {
		g.errorf(pr, "the probe's program is too long: %d instructions", len(g.insns))
	}
	if g.deepest > bpf.MaxStack {
		g.errorf(pr, "the probe's expressions are too deep: they take %d bytes of stack, and %d are there", g.deepest, bpf.MaxStack)
	}
	if g.most > 1<<20 {
		g.errorf(pr, "the probe's strings take %d bytes, more than %d", g.most, 1<<20)
	}
	if len(g.errs) > 0 {
		return nil
	}
	return &bpf.Program{Name: name, Insns: g.insns, Lines: g.lines, Maps: g.plan.Specs}
}

func (g *generator) body(pr *syntax.Probe, points []*Point) {
	g.asm = asm{}
	g.lines, g.places = nil, map[*variable]place{}
	g.stack, g.scratch, g.deepest, g.at = 0, 0, 0, points
	g.end = g.newLabel()
	g.mov(regCtx, bpf.R1)
	if !g.bare {
		// It is there, but that has to be shown.
		key := g.temp()
		g.storeImm(key, 0)
		g.mapAddr(bpf.R1, g.scratchMap)
		g.addr(bpf.R2, key)
		g.helper(bpf.FnMapLookupElem)
		g.drop()
		g.ifImm(bpf.Jeq, bpf.R0, 0, g.end)
		g.mov(regScratch, bpf.R0)
	}
	if pr.Pred != nil {
		g.line(pr.Pred)
		g.condition(pr.Pred, g.end)
	}
	g.block(pr.Body)
	g.put(g.end)
	g.imm(bpf.R0, 0)
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
}

// line notes where the code that follows comes from, for the verifier's words.
func (g *generator) line(n syntax.Node) {
	at := n.At()
	g.lines = append(g.lines, bpf.Line{Insn: len(g.insns), Text: fmt.Sprintf("%s:%d: %s", g.src.Name, g.src.Line(at.From), g.src.Text[at.From:at.To])})
}

// Memory.

// temp takes a word of stack, until drop gives the last one back.
func (g *generator) temp() place {
	g.stack += 8
	g.deepest = max(g.deepest, g.stack)
	return place{bpf.R10, -g.stack}
}

func (g *generator) drop() { g.stack -= 8 }

// save puts R0 into a new word of stack.
func (g *generator) save() place {
	p := g.temp()
	g.store(p, bpf.R0)
	return p
}

// room takes scratch memory, until the statement ends.
func (g *generator) room(n int) place {
	p := place{regScratch, g.scratch}
	g.scratch += (n + 7) &^ 7
	g.most = max(g.most, g.scratch)
	return p
}

// scoped gives back what memory f takes.
func (g *generator) scoped(f func()) {
	stack, scratch := g.stack, g.scratch
	f()
	g.stack, g.scratch = stack, scratch
}

// variable is where a variable lies: numbers on the stack, as long as there is much of it.
func (g *generator) variable(v *variable) place {
	p, ok := g.places[v]
	if !ok {
		if v.typ.Scalar() && g.stack < bpf.MaxStack/2 && g.at[0].Inside() {
			p = g.temp()
		} else {
			p = g.room(v.typ.Slot())
		}
		g.places[v] = p
	}
	return p
}

// Statements.

func (g *generator) block(b *syntax.Block) {
	g.scoped(func() { g.inner(b) })
}

func (g *generator) inner(b *syntax.Block) {
	for _, s := range b.Stmts {
		g.declared(s)
		g.scoped(func() { g.stmt(s) })
	}
	if b.Value != nil {
		g.effect(b.Value)
	}
}

// declared finds room for a variable that the statement declares: it stays.
func (g *generator) declared(s syntax.Stmt) {
	v := g.vars[s]
	if v == nil || v.typ.Kind == types.None {
		return
	}
	_, known := g.places[v]
	p := g.variable(v)
	if let, ok := s.(*syntax.Let); !known && (!ok || let.Value == nil) {
		g.zero(p, v.typ.Slot()) // on paths that do not come by the assignment too
	}
}

func (g *generator) stmt(s syntax.Stmt) {
	g.line(s)
	switch s := s.(type) {
	case *syntax.Block:
		g.block(s)
	case *syntax.ExprStmt:
		g.effect(s.X)
	case *syntax.Assign:
		g.assign(s)
	case *syntax.Let:
		if v := g.vars[s]; v != nil && s.Value != nil {
			g.into(s.Value, g.variable(v), v.typ)
		}
	case *syntax.If:
		g.ifStmt(s)
	case *syntax.While:
		g.loop(func(end label) { g.condition(s.Cond, end) }, s.Body, func() {})
	case *syntax.Unroll:
		n, _ := g.constant(s.Times)
		end := g.newLabel()
		for range n {
			next := g.newLabel()
			g.breaks, g.nexts = append(g.breaks, end), append(g.nexts, next)
			g.forget(s.Body)
			g.block(s.Body)
			g.breaks, g.nexts = g.breaks[:len(g.breaks)-1], g.nexts[:len(g.nexts)-1]
			g.put(next)
		}
		g.put(end)
	case *syntax.For:
		if s.Over != nil {
			g.forMap(s)
		} else {
			g.forRange(s)
		}
	case *syntax.Jump:
		switch s.Kind {
		case "break":
			g.goTo(g.breaks[len(g.breaks)-1])
		case "continue":
			g.goTo(g.nexts[len(g.nexts)-1])
		default:
			g.goTo(g.end)
		}
	}
}

// forget makes the variables of a body that is repeated new ones.
func (g *generator) forget(b *syntax.Block) {
	for _, s := range b.Stmts {
		if v := g.vars[s]; v != nil {
			delete(g.places, v)
		}
	}
}

func (g *generator) ifStmt(s *syntax.If) {
	if n, ok := g.constant(s.Cond); ok {
		if n != 0 {
			g.block(s.Then)
		} else if s.Else != nil {
			g.stmt(s.Else)
		}
		return
	}
	other, end := g.newLabel(), g.newLabel()
	g.condition(s.Cond, other)
	g.block(s.Then)
	if s.Else != nil {
		g.goTo(end)
	}
	g.put(other)
	if s.Else != nil {
		g.stmt(s.Else)
	}
	g.put(end)
}

// loop is a while: test goes to end when the loop is over, step follows the body.
func (g *generator) loop(test func(end label), body *syntax.Block, step func()) {
	again, next, end := g.newLabel(), g.newLabel(), g.newLabel()
	g.put(again)
	g.scoped(func() { test(end) })
	g.breaks, g.nexts = append(g.breaks, end), append(g.nexts, next)
	g.block(body)
	g.breaks, g.nexts = g.breaks[:len(g.breaks)-1], g.nexts[:len(g.nexts)-1]
	g.put(next)
	g.scoped(step)
	g.goTo(again)
	g.put(end)
}

// counter is a word for a loop. In a target it is on the stack, where the verifier follows it
// round by round to the end; in the controller it is where the verifier knows nothing of
// it, so that all rounds are one to it.
func (g *generator) counter() place {
	if g.at[0].Inside() {
		return g.temp()
	}
	return g.room(8)
}

// forMap goes over a map's elements.
func (g *generator) forMap(s *syntax.For) {
	m := g.maps[s.Over.(*syntax.Map).Name]
	v := g.vars[s]
	kv, at := g.variable(v), g.counter()
	g.storeImm(at, 0)
	value := v.typ.Fields[1]
	g.loop(func(end label) {
		again := g.newLabel()
		g.put(again)
		g.nextKey(m, kv, at, end)
		g.lookup(m, kv)
		g.ifImm(bpf.Jeq, bpf.R0, 0, again) // gone meanwhile
		g.mov(regValue, bpf.R0)
		if value.Type.Scalar() {
			g.mapWord(m.value, place{regValue, 0})
			g.store(kv.plus(value.Offset), bpf.R0)
		} else {
			g.copy(kv.plus(value.Offset), place{regValue, 0}, value.Type.Slot())
		}
	}, s.Body, func() {})
}

// nextKey puts the next key into memory and its number into at, or goes to end.
func (g *generator) nextKey(m *mapInfo, key, at place, end label) {
	g.mapAddr(bpf.R1, m.index)
	g.addr(bpf.R2, key)
	g.imm(bpf.R3, uint64(m.key.Slot()))
	g.load(bpf.R4, at, 8, false)
	g.helper(bpf.FnMapNext)
	g.ifImm(bpf.Jeq, bpf.R0, 0, end)
	g.store(at, bpf.R0)
}

func (g *generator) forRange(s *syntax.For) {
	v := g.variable(g.vars[s])
	i, last := g.counter(), g.counter()
	g.number(s.From)
	g.store(i, bpf.R0)
	g.number(s.To)
	g.store(last, bpf.R0)
	g.loop(func(end label) {
		g.load(bpf.R0, i, 8, false)
		g.load(bpf.R1, last, 8, false)
		g.ifReg(bpf.Jsge, bpf.R0, bpf.R1, end)
		g.store(v, bpf.R0)
	}, s.Body, func() {
		g.load(bpf.R0, i, 8, false)
		g.aluImm(bpf.Add, bpf.R0, 1)
		g.store(i, bpf.R0)
	})
}

// effect evaluates an expression whose value nobody wants.
func (g *generator) effect(x syntax.Expr) {
	t := g.types[x]
	if b, ok := x.(*syntax.Block); ok {
		g.block(b)
		return
	}
	if call, ok := x.(*syntax.Call); ok && functions[call.Name].action {
		g.action(call)
		return
	}
	g.scoped(func() {
		if _, ok := x.(*syntax.Map); ok && t.Aggregate() {
			return
		}
		if t.Scalar() {
			g.number(x)
		} else if t.Kind != types.Void && t.Kind != types.None {
			g.memory(x)
		} else if tern, ok := x.(*syntax.Ternary); ok {
			other, end := g.newLabel(), g.newLabel()
			g.condition(tern.Cond, other)
			if tern.Then != nil {
				g.effect(tern.Then)
			}
			g.goTo(end)
			g.put(other)
			g.effect(tern.Else)
			g.put(end)
		}
	})
}

// condition goes to no where x is 0.
func (g *generator) condition(x syntax.Expr, no label) {
	g.scoped(func() {
		if b, ok := x.(*syntax.Binary); ok && b.Op == "&&" {
			g.condition(b.X, no)
			g.condition(b.Y, no)
			return
		}
		g.number(x)
		g.ifImm(bpf.Jeq, bpf.R0, 0, no)
	})
}
