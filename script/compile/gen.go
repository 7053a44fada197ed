package compile

import (
	"cmp"
	"fmt"
	"slices"

	"kprobe/bpf"
	"kprobe/script/asm"
	"kprobe/script/cdecl"
	"kprobe/script/machine"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Compile makes a plan of a script. The error is a syntax.Errors; of warnings alone
// there is none, they are in the plan.
func Compile(src *syntax.Source, lib *Library, o Options) (*plan.Plan, error) {
	f, err := syntax.Parse(src)
	if err != nil {
		return nil, err
	}
	c := &Checker{Opts: o, lib: lib, src: src, Machine: cmp.Or(o.Target, machine.AMD64), told: map[syntax.Span]bool{}, points: map[*syntax.Probe][]*point.Point{},
		Types: map[syntax.Expr]*types.Type{}, Stored: map[syntax.Expr]*types.Type{}, vars: map[syntax.Node]*variable{}, Uses: map[*syntax.Var]*variable{},
		Declared: cdecl.None(), Maps: map[string]*mapInfo{}, Asked: map[string]plan.Option{}, Defaults: map[string]string{}, fns: map[string]*fnInfo{}, AddressOf: map[*syntax.Call]int{}, parts: map[*syntax.Index]*syntax.Field{}}
	c.file(f)
	c.errs.Sort()
	if len(c.errs.Fatal()) > 0 {
		return nil, c.errs
	}
	p := &plan.Plan{Source: src, File: f, Settings: c.Set, Warnings: c.errs, Asked: c.Asked, Variables: c.Variables}
	g := &Generator{Checker: c, Plan: p, lossAt: map[plan.Loss]int{}}
	c.errs, c.told = nil, map[syntax.Span]bool{}
	g.specs()
	for _, it := range f.Items {
		if pr, ok := it.(*syntax.Probe); ok {
			g.probe(pr)
		}
	}
	if len(g.errs) == 0 && p.Leaves() {
		p.Noter = g.noter()
	}
	p.Specs[g.scratchMap].ValueSize = uint32(max(g.most, 8))
	p.Specs[g.losses].ValueSize = uint32(8 * (1 + len(p.Losses)))
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	return p, nil
}

// generator makes the programs.
type Generator struct {
	*Checker
	Plan *plan.Plan

	ring, scratchMap, Stacks, Start, losses, notes, keyCounts int // among the plan's specs
	most                                                      int // bytes of scratch that any program takes

	lossAt map[plan.Loss]int // where they are counted

	// Of the program that is being made.
	asm.Asm
	lines   []bpf.Line
	doing   syntax.Span // the expression whose code is being made
	places  map[*variable]Place
	Call    Place // the system call's number, where the probe is at one
	stack   int   // bytes of stack in use, and the most
	scratch int   // bytes of scratch in use
	bare    bool  // the program turned out to need no scratch memory
	deepest int
	End     Label
	breaks  []Label
	nexts   []Label
	returns []ret
	far     bool         // its end is too far for the jumps at its beginning
	kept    []point.Word // what the program at a return asks for of the call's entry
}

// specs defines the maps.
func (g *Generator) specs() {
	add := func(s *bpf.MapSpec) int {
		g.Plan.Specs = append(g.Plan.Specs, s)
		return len(g.Plan.Specs) - 1
	}
	var names []string
	for name := range g.Maps {
		names = append(names, name)
	}
	slices.Sort(names)
	counted := 0
	for _, name := range names {
		m := g.Maps[name]
		if m.Value.Kind == types.None {
			continue
		}
		spec := &bpf.MapSpec{Name: name, Type: bpf.Hash, KeySize: uint32(max(m.Key.Slot(), 8)), ValueSize: uint32(max(m.Value.Slot(), 8)), MaxEntries: uint32(g.Set.MaxMapKeys)}
		m.Plan = &plan.Map{Name: name, Value: m.Value, Spec: spec, Count: -1}
		if m.size > 0 {
			spec.MaxEntries = uint32(m.size)
		}
		if m.kind == "lruhash" || m.kind == "percpulruhash" {
			spec.Type = bpf.LRUHash
		}
		switch {
		case m.Keyed:
			m.Plan.Key = m.Key
			if spec.Type == bpf.Hash {
				m.Plan.Count = counted
				counted += 8
			}
		default:
			spec.Type, spec.KeySize, spec.MaxEntries = bpf.Array, 4, 1
			if m.Value.Aggregate() && !m.Walked && !g.Opts.Several {
				spec.Type = bpf.PerCPUArray
			}
			spec.ValueSize += plan.KeylessHeader
		}
		m.Index = add(spec)
		g.Plan.Maps = append(g.Plan.Maps, m.Plan)
	}
	g.ring = add(&bpf.MapSpec{Name: plan.RingName, Type: bpf.RingBuf, MaxEntries: 256 << 10})
	g.scratchMap = add(&bpf.MapSpec{Name: plan.ScratchName, Type: bpf.PerCPUArray, KeySize: 4, MaxEntries: 1})
	g.Stacks = add(&bpf.MapSpec{Name: plan.StackName, Type: bpf.StackTrace, KeySize: 4, ValueSize: 8 * 127, MaxEntries: 1, Flags: bpf.FlagReadOnly}) // see trace
	g.Start = add(&bpf.MapSpec{Name: plan.StartName, Type: bpf.Array, KeySize: 4, ValueSize: uint32(plan.FactVariables + 8*len(g.Plan.Variables)), MaxEntries: 1, Apart: true})
	g.notes = add(&bpf.MapSpec{Name: plan.NoteName, Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	g.keyCounts = add(&bpf.MapSpec{Name: plan.CountName, Type: bpf.Array, KeySize: 4, ValueSize: uint32(max(counted, 8)), MaxEntries: 1})
	g.losses = add(&bpf.MapSpec{Name: plan.LossName, Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
}

// probe makes a body's programs: one for the points that fire at returns, one for those at functions' beginnings, one for the others, and of static
// probes one for each way that their arguments lie.
func (g *Generator) probe(pr *syntax.Probe) {
	shape := func(p *point.Point) string {
		if p.Static != nil {
			return fmt.Sprint("usdt ", p.Static.Args)
		}
		if p.Event != nil {
			return fmt.Sprint("event ", p.Text)
		}
		if p.Syscall != nil {
			return fmt.Sprint("syscall ", p.Text, p.Syscall.Exit)
		}
		return fmt.Sprint(p.Provider, p.AtEntry(), p.Layout())
	}
	var shapes []string
	groups := map[string][]*point.Point{}
	for _, p := range g.points[pr] {
		s := shape(p)
		if groups[s] == nil {
			shapes = append(shapes, s)
		}
		groups[s] = append(groups[s], p)
	}
	slices.SortStableFunc(shapes, func(a, b string) int { return cmp.Compare(groups[a][0].Kind(), groups[b][0].Kind()) })
	for _, s := range shapes {
		some := groups[s]
		name := fmt.Sprintf("probe_%d", len(g.Plan.Probes))
		program := g.program(name, pr, some)
		if program == nil {
			return
		}
		program.Kind = some[0].Kind()
		made := &plan.Probe{Points: some, Program: program, At: pr.Span}
		if len(g.kept) > 0 {
			made.Entry, made.Kept = g.keeper(name+"_entry", g.kept), 8*len(g.kept)
		}
		g.Plan.Probes = append(g.Plan.Probes, made)
	}
}

// program makes a body's program. Few need scratch memory: the code that finds it is left
// out where nothing asked for any.
func (g *Generator) program(name string, pr *syntax.Probe, points []*point.Point) *bpf.Program {
	most, actions := g.most, len(g.Plan.Actions)
	g.most, g.bare = 0, false
	g.body(pr, points)
	if g.most == 0 {
		g.Plan.Actions, g.bare = g.Plan.Actions[:actions], true
		g.body(pr, points)
	}
	g.most = max(g.most, most)
	linked := g.Link()
	if !linked { // from its beginning to its end
		g.Plan.Actions, g.far = g.Plan.Actions[:actions], true
		g.body(pr, points)
		linked, g.far = g.Link(), false
	}
	if !linked || len(g.Insns) > bpf.MaxInsns {
		g.Errorf(pr, "the probe's program is too long: %d instructions", len(g.Insns))
	}
	if g.deepest > bpf.MaxStack {
		g.Errorf(pr, "the probe's expressions are too deep: they take %d bytes of stack, and %d are there", g.deepest, bpf.MaxStack)
	}
	if g.most > 1<<20 {
		g.Errorf(pr, "the probe's strings take %d bytes, more than %d", g.most, 1<<20)
	}
	if len(g.errs) > 0 {
		return nil
	}
	return &bpf.Program{Name: name, Insns: g.Insns, Lines: g.lines, Maps: g.Plan.Specs, Context: g.Machine.Context, Writes: g.Opts.Unsafe}
}

func (g *Generator) body(pr *syntax.Probe, points []*point.Point) {
	g.Asm = asm.Asm{}
	g.lines, g.places, g.kept = nil, map[*variable]Place{}, nil
	g.stack, g.scratch, g.deepest, g.At = 0, 0, 0, points
	g.End = g.NewLabel()
	end := g.End
	if g.far {
		g.End = g.NewLabel()
	}
	g.Mov(RegCtx, bpf.R1)
	if !g.bare {
		// It is there, but that has to be shown.
		key := g.Temp()
		g.StoreImm(key, 0)
		g.MapAddr(bpf.R1, g.scratchMap)
		g.Addr(bpf.R2, key)
		g.Helper(bpf.FnMapLookupElem)
		g.drop()
		g.IfImm(bpf.Jeq, bpf.R0, 0, g.End)
		g.Mov(regScratch, bpf.R0)
	}
	if s := points[0].Syscall; s != nil {
		g.calledFor(s)
	}
	if e := points[0].Event; e != nil {
		g.recordOf(e)
	}
	if pr.Pred != nil {
		g.line(pr.Pred)
		g.Condition(pr.Pred, g.End)
	}
	if g.far { // a jump that asks for something reaches less far than one that does not
		body := g.NewLabel()
		g.GoTo(body)
		g.Put(g.End)
		g.GoTo(end)
		g.Put(body)
		g.End = end
	}
	g.block(pr.Body)
	g.Put(g.End)
	g.Imm(bpf.R0, 0)
	g.Emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
}

// line notes where the code that follows comes from, for the verifier's words.
func (g *Generator) line(n syntax.Node) {
	at := n.At()
	g.lines = append(g.lines, bpf.Line{Insn: len(g.Insns), Text: fmt.Sprintf("%s:%d: %s", g.src.PartName(at.From), g.src.Line(at.From), g.src.Text[at.From:at.To])})
}

// Memory.

// Temp takes a word of stack, until drop gives the last one back.
func (g *Generator) Temp() Place {
	g.stack += 8
	g.deepest = max(g.deepest, g.stack)
	return Cell(bpf.R10, -g.stack)
}

func (g *Generator) drop() { g.stack -= 8 }

// Save puts R0 into a new word of stack.
func (g *Generator) Save() Place {
	p := g.Temp()
	g.Store(p, bpf.R0)
	return p
}

// Room takes scratch memory, until the statement ends.
func (g *Generator) Room(n int) Place {
	p := Cell(regScratch, g.scratch)
	g.scratch += max((n+7)&^7, 8) // a tuple of nothing has a place, too
	g.most = max(g.most, g.scratch)
	return p
}

// Scoped gives back what memory f takes.
func (g *Generator) Scoped(f func()) {
	stack, scratch := g.stack, g.scratch
	f()
	g.stack, g.scratch = stack, scratch
}

// Variable gives the place of a variable. Numbers lie on the stack while half of it is free.
func (g *Generator) Variable(v *variable) Place {
	p, ok := g.places[v]
	if !ok {
		if v.Typ.Scalar() && g.stack < bpf.MaxStack/2 && g.At[0].Inside() {
			p = g.Temp()
		} else {
			p = g.Room(v.Typ.Slot())
		}
		g.places[v] = p
	}
	return p
}

// Statements.

func (g *Generator) block(b *syntax.Block) {
	g.Scoped(func() { g.inner(b) })
}

func (g *Generator) inner(b *syntax.Block) {
	for _, s := range b.Stmts {
		g.declared(s)
		g.Scoped(func() { g.stmt(s) })
	}
	if b.Value != nil {
		g.effect(b.Value)
	}
}

// declared finds room for a variable that the statement declares: it stays.
func (g *Generator) declared(s syntax.Stmt) {
	v := g.vars[s]
	if v == nil || v.Typ.Kind == types.None {
		return
	}
	_, known := g.places[v]
	p := g.Variable(v)
	if let, ok := s.(*syntax.Let); !known && (!ok || let.Value == nil) {
		g.Zero(p, v.Typ.Slot()) // on paths that do not come by the assignment too
	}
}

func (g *Generator) stmt(s syntax.Stmt) {
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
			g.Into(s.Value, g.Variable(v), v.Typ)
		}
	case *syntax.If:
		if k, ok := s.Cond.(*syntax.Comptime); ok || s.Comptime {
			cond := s.Cond
			if ok {
				cond = k.X
			}
			if n, _ := g.Constant(cond); n != 0 {
				g.block(s.Then)
			} else if s.Else != nil {
				g.stmt(s.Else)
			}
			return
		}
		g.ifStmt(s)
	case *syntax.While:
		g.loop(func(end Label) { g.Condition(s.Cond, end) }, s.Body, func() {})
	case *syntax.Unroll:
		n, _ := g.Constant(s.Times)
		end := g.NewLabel()
		for range n {
			next := g.NewLabel()
			g.breaks, g.nexts = append(g.breaks, end), append(g.nexts, next)
			g.forget(s.Body)
			g.block(s.Body)
			g.breaks, g.nexts = g.breaks[:len(g.breaks)-1], g.nexts[:len(g.nexts)-1]
			g.Put(next)
		}
		g.Put(end)
	case *syntax.For:
		if s.Over != nil {
			g.forMap(s)
		} else {
			g.forRange(s)
		}
	case *syntax.Jump:
		switch s.Kind {
		case "break":
			g.GoTo(g.breaks[len(g.breaks)-1])
		case "continue":
			g.GoTo(g.nexts[len(g.nexts)-1])
		default:
			g.leave(s)
		}
	}
}

// forget makes the variables of a body that is repeated new ones.
func (g *Generator) forget(b *syntax.Block) {
	for _, s := range b.Stmts {
		if v := g.vars[s]; v != nil {
			delete(g.places, v)
		}
	}
}

func (g *Generator) ifStmt(s *syntax.If) {
	if n, ok := g.Constant(s.Cond); ok {
		if n != 0 {
			g.block(s.Then)
		} else if s.Else != nil {
			g.stmt(s.Else)
		}
		return
	}
	other, end := g.NewLabel(), g.NewLabel()
	g.Condition(s.Cond, other)
	g.block(s.Then)
	if s.Else != nil {
		g.GoTo(end)
	}
	g.Put(other)
	if s.Else != nil {
		g.stmt(s.Else)
	}
	g.Put(end)
}

// loop is a while: test goes to end when the loop is over, step follows the body.
func (g *Generator) loop(test func(end Label), body *syntax.Block, step func()) {
	again, next, end := g.NewLabel(), g.NewLabel(), g.NewLabel()
	g.Put(again)
	g.Rounds(end)
	g.Scoped(func() { test(end) })
	g.breaks, g.nexts = append(g.breaks, end), append(g.nexts, next)
	g.block(body)
	g.breaks, g.nexts = g.breaks[:len(g.breaks)-1], g.nexts[:len(g.nexts)-1]
	g.Put(next)
	g.Scoped(step)
	g.GoTo(again)
	g.Put(end)
}

// Rounds goes to end when the program has gone round too often: so every loop of one in a target
// ends. Those of the controller end with all that it may do in a run.
func (g *Generator) Rounds(end Label) {
	if g.Inside() {
		g.Branch(bpf.Insn{Op: bpf.ClassJMP | bpf.MayGoto}, end)
	}
}

// Inside tells whether the program runs in a target.
func (g *Generator) Inside() bool { return len(g.At) > 0 && g.At[0].Inside() }

// Counter is a word for a loop: where the verifier knows nothing of it, so that all rounds are one to it.
func (g *Generator) Counter() Place { return g.Room(8) }

// Walk goes over a map's elements: the key of each is put into memory, and its value is at regValue.
func (g *Generator) Walk(m *mapInfo, key Place, body func(end, next Label)) {
	again, end := g.NewLabel(), g.NewLabel()
	at := g.Temp()
	g.StoreImm(at, 0)
	g.Put(again)
	g.Rounds(end)
	g.MapAddr(bpf.R1, m.Index)
	g.Addr(bpf.R2, at)
	g.Addr(bpf.R3, key)
	g.Helper(bpf.FnMapWalk)
	g.IfImm(bpf.Jeq, bpf.R0, 0, end)
	g.Mov(RegValue, bpf.R0)
	body(end, again)
	g.GoTo(again)
	g.Put(end)
	g.drop()
}

// forMap goes over a map's elements.
func (g *Generator) forMap(s *syntax.For) {
	m := g.Maps[s.Over.(*syntax.Map).Name]
	v := g.vars[s]
	delete(g.places, v)
	kv := g.Room(v.Typ.Slot())
	g.places[v] = kv
	value := v.Typ.Fields[1]
	g.Walk(m, kv, func(end, next Label) {
		if value.Type.Scalar() {
			g.MapWord(m.Value, Cell(RegValue, 0))
			g.Store(kv.Plus(value.Offset), bpf.R0)
		} else {
			g.Copy(kv.Plus(value.Offset), Cell(RegValue, 0), value.Type.Slot())
		}
		g.breaks, g.nexts = append(g.breaks, end), append(g.nexts, next)
		g.block(s.Body)
		g.breaks, g.nexts = g.breaks[:len(g.breaks)-1], g.nexts[:len(g.nexts)-1]
	})
}

func (g *Generator) forRange(s *syntax.For) {
	v := g.Variable(g.vars[s])
	i, last := g.Counter(), g.Counter()
	g.Number(s.From)
	g.Store(i, bpf.R0)
	g.Number(s.To)
	g.Store(last, bpf.R0)
	g.loop(func(end Label) {
		g.Load(bpf.R0, i, 8, false)
		g.Load(bpf.R1, last, 8, false)
		g.IfReg(bpf.Jsge, bpf.R0, bpf.R1, end)
		g.Store(v, bpf.R0)
	}, s.Body, func() {
		g.Load(bpf.R0, i, 8, false)
		g.AluImm(bpf.Add, bpf.R0, 1)
		g.Store(i, bpf.R0)
	})
}

// effect evaluates an expression whose value nobody wants.
func (g *Generator) effect(x syntax.Expr) {
	t := g.Types[x]
	if b, ok := x.(*syntax.Block); ok {
		g.block(b)
		return
	}
	if call, ok := x.(*syntax.Call); ok {
		if info := g.fns[call.Name]; info != nil {
			g.Scoped(func() { g.callFn(call, g.Room(max(info.result.Slot(), 8))) })
			return
		}
		if act := g.lib.Functions[call.Name].Act; act != nil {
			act(g, call)
			return
		}
	}
	g.Scoped(func() {
		if _, ok := x.(*syntax.Map); ok && t.Aggregate() {
			return
		}
		if t.Scalar() {
			g.Number(x)
		} else if t.Kind != types.Void && t.Kind != types.None {
			g.Memory(x)
		} else if tern, ok := x.(*syntax.Ternary); ok {
			other, end := g.NewLabel(), g.NewLabel()
			g.Condition(tern.Cond, other)
			if tern.Then != nil {
				g.effect(tern.Then)
			}
			g.GoTo(end)
			g.Put(other)
			g.effect(tern.Else)
			g.Put(end)
		}
	})
}

// Condition goes to no where x is 0.
func (g *Generator) Condition(x syntax.Expr, no Label) {
	g.Scoped(func() {
		if b, ok := x.(*syntax.Binary); ok && b.Op == "&&" {
			g.Condition(b.X, no)
			g.Condition(b.Y, no)
			return
		}
		g.Number(x)
		g.IfImm(bpf.Jeq, bpf.R0, 0, no)
	})
}
