package compile

import (
	"net/netip"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// context reads a word of the context.
func (g *generator) context(reg string) {
	g.Load(bpf.R0, cell(regCtx, 8*g.machine.Register(reg)), 8, false)
}

// builtin leaves the value of a name in R0.
func (g *generator) builtin(x *syntax.Ident) {
	if n, stack, ok := point.Argument(x.Name); ok {
		if !stack && len(g.at) > 0 && g.at[0].Provider == "usdt" {
			g.scoped(func() { g.staticArg(x, n) })
			return
		}
		w := point.Word{Stack: g.machine.FirstStack + 8*n}
		if !stack {
			w = point.Word{Reg: g.machine.Args[n+g.at[0].First()]}
		}
		g.atEntry(w)
		return
	}
	if v := values[x.Name]; v != nil && v.leave != nil {
		v.leave(g, x)
		return
	}
	g.callNumber(&syntax.Call{Span: x.Span, Name: x.Name})
}

// helped is the value that a helper without arguments has.
func helped(helper int32) func(*generator, *syntax.Ident) {
	return func(g *generator, _ *syntax.Ident) { g.Helper(helper) }
}

// known is a value that does not change.
func known(n func(*generator) uint64) func(*generator, *syntax.Ident) {
	return func(g *generator, _ *syntax.Ident) { g.Imm(bpf.R0, n(g)) }
}

func (g *generator) cgroup(*syntax.Ident) {
	at := plan.FactCgroup
	if g.inside() {
		at = plan.FactTargetCgroup
	}
	g.MapValue(bpf.R1, g.start, 0)
	g.Load(bpf.R0, cell(bpf.R1, at), 8, false)
}

func (g *generator) jiffies(*syntax.Ident) {
	g.Helper(bpf.FnKtimeGetNs)
	g.AluImm(bpf.Div, bpf.R0, 4000000)
}

func (g *generator) elapsed(*syntax.Ident) {
	g.Helper(bpf.FnKtimeGetBootNs)
	from := plan.FactStart
	if g.opts.Kernel && g.inside() {
		from = plan.FactTargetStart // its clock is its own: the first who asks begins
	}
	g.MapValue(bpf.R2, g.start, 0)
	g.Load(bpf.R1, cell(bpf.R2, from), 8, false)
	if from == plan.FactTargetStart {
		begun := g.NewLabel()
		g.IfImm(bpf.Jne, bpf.R1, 0, begun)
		g.Store(cell(bpf.R2, from), bpf.R0)
		g.Mov(bpf.R1, bpf.R0)
		g.Put(begun)
	}
	g.Alu(bpf.Sub, bpf.R0, bpf.R1)
}

func (g *generator) retval(*syntax.Ident) {
	g.context(g.machine.Result)
	if t := g.result(); t.Kind == types.Int {
		g.fit(t)
	}
}

func (g *generator) function(x *syntax.Ident) {
	g.Mov(bpf.R1, regCtx)
	g.Helper(bpf.FnGetFuncIP)
	g.ofProcess(g.types[x])
}

// probeNumber leaves the number of the attach point in R0, which stands for its name.
func (g *generator) probeNumber(*syntax.Ident) {
	g.Mov(bpf.R1, regCtx)
	g.Helper(bpf.FnGetAttachCookie)
	if s := g.at[0].Syscall; s != nil {
		g.fit(types.Uint32)
		if s.Glob {
			g.Load(bpf.R1, g.call, 8, false)
			g.Alu(bpf.Add, bpf.R0, bpf.R1)
		}
	}
}

func (g *generator) wholeStack(x *syntax.Ident) {
	g.trace(&syntax.Call{Span: x.Span, Name: x.Name}, g.types[x])
}

// staticArg leaves an argument of a static probe in R0.
func (g *generator) staticArg(x *syntax.Ident, n int) {
	if g.at[0].Static == nil {
		g.Imm(bpf.R0, 0) // only checked
		return
	}
	args := g.at[0].Static.Args
	if n >= len(args) {
		g.errorf(x, "%s: the probe %s has %d arguments that can be read", x.Name, g.at[0].Text, len(args))
		return
	}
	a := args[n]
	t := types.IntOf(a.Size, a.Signed)
	switch {
	case a.Memory:
		g.context(a.Base)
		if a.Index != "" {
			at := g.save()
			g.context(a.Index)
			g.AluImm(bpf.Mul, bpf.R0, int32(a.Scale))
			g.Load(bpf.R1, at, 8, false)
			g.Alu(bpf.Add, bpf.R0, bpf.R1)
		}
		g.Imm(bpf.R1, uint64(a.Value))
		g.Alu(bpf.Add, bpf.R0, bpf.R1)
		g.readTarget(t)
	case a.Base != "":
		g.context(a.Base)
		g.fit(t)
	default:
		g.Imm(bpf.R0, uint64(a.Value))
		g.fit(t)
	}
}

func (g *generator) identity(x *syntax.Ident) { g.identityNamed(x.Name) }

func (g *generator) identityOf(x *syntax.Call) { g.identityNamed(x.Name) }

func (g *generator) identityNamed(name string) {
	switch name {
	case "pid", "tid":
		g.Helper(bpf.FnGetCurrentPidTgid)
	default:
		g.Helper(bpf.FnGetCurrentUidGid)
	}
	if name == "pid" || name == "gid" {
		g.AluImm(bpf.Rsh, bpf.R0, 32)
		return
	}
	g.AluImm(bpf.Lsh, bpf.R0, 32)
	g.AluImm(bpf.Rsh, bpf.R0, 32)
}

// trace leaves the id of a stack in R0, 1 more so that 0 says that there is none.
func (g *generator) trace(x *syntax.Call, t *types.Type) {
	if !g.inside() || t.Kind == types.KStack && !g.opts.Kernel || t.Kind == types.UStack && g.opts.Kernel {
		g.Imm(bpf.R0, 0)
		return
	}
	g.plan.Specs[g.stacks].MaxEntries = 4096
	if g.opts.Kernel {
		g.plan.Specs[g.stacks].MaxEntries = 256 // memory of a kernel's is scarce
	}
	end, none := g.NewLabel(), g.NewLabel()
	g.Mov(bpf.R1, regCtx)
	g.MapAddr(bpf.R2, g.stacks)
	flags := uint64(0)
	if t.Kind == types.UStack {
		flags = 1 << 8
	}
	if g.at[0].AtEntry() {
		flags |= bpf.StackEntry
	}
	g.Imm(bpf.R3, flags)
	g.Helper(bpf.FnGetStackid)
	g.IfImm(bpf.Jslt, bpf.R0, 0, none)
	g.AluImm(bpf.Add, bpf.R0, 1)
	g.ofProcess(t)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// frames leaves in R0 how many addresses a stack has: its map knows them by the stack's number, and a 0 is behind the last.
func (g *generator) frames(x syntax.Expr) {
	t, key, none, next, end := g.types[x], g.temp(), g.NewLabel(), g.NewLabel(), g.NewLabel()
	most := int(g.plan.Specs[g.stacks].ValueSize) / 8
	if t.Len > 0 {
		most = min(most, t.Len)
	}
	g.number(x)
	g.fit(types.Uint32) // without its process
	g.AluImm(bpf.Sub, bpf.R0, 1)
	g.Store(key, bpf.R0)
	g.MapAddr(bpf.R1, g.stacks)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapLookupElem) // of none for the stack that is none
	g.IfImm(bpf.Jeq, bpf.R0, 0, none)
	g.Mov(bpf.R1, bpf.R0)
	g.Imm(bpf.R0, 0)
	g.Put(next)
	g.Load(bpf.R2, cell(bpf.R1, 0), 8, false)
	g.IfImm(bpf.Jeq, bpf.R2, 0, end)
	g.AluImm(bpf.Add, bpf.R1, 8)
	g.AluImm(bpf.Add, bpf.R0, 1)
	g.IfImm(bpf.Jlt, bpf.R0, int32(most), next)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// ofProcess puts the number of its process above a value in R0 that means nothing without: of several. It changes R1.
func (g *generator) ofProcess(t *types.Type) {
	shift := int32(plan.ProcessShift)
	switch {
	case !g.opts.Several:
		return
	case t.Kind == types.UStack:
		shift = 32
	case t.Kind != types.USym:
		return
	}
	g.AluImm(bpf.Lsh, bpf.R0, 64-shift)
	g.AluImm(bpf.Rsh, bpf.R0, 64-shift)
	g.MapValue(bpf.R1, g.start, 0)
	g.Load(bpf.R1, cell(bpf.R1, plan.FactProcess), 8, false)
	g.AluImm(bpf.Lsh, bpf.R1, shift)
	g.Alu(bpf.Or, bpf.R0, bpf.R1)
}

// callNumber leaves a function's value in R0.
func (g *generator) callNumber(x *syntax.Call) {
	if g.fns[x.Name] != nil {
		g.fnNumber(x)
		return
	}
	if f := functions[x.Name]; f != nil && f.number != nil {
		f.number(g, x)
		return
	}
	g.errorf(x, "%s() is not supported yet", x.Name)
}

// first leaves the first argument in R0: the function says what it is shown as.
func (g *generator) first(x *syntax.Call) { g.number(x.Args[0]) }

func (g *generator) last(x *syntax.Call) {
	g.number(x.Args[len(x.Args)-1])
	g.ofProcess(g.types[x])
}

func (g *generator) nsecs(x *syntax.Call) {
	if len(x.Args) == 1 && x.Args[0].(*syntax.Ident).Name == "monotonic" {
		g.Helper(bpf.FnKtimeGetNs)
		return
	}
	g.Helper(bpf.FnKtimeGetBootNs)
}

func (g *generator) reg(x *syntax.Call) { g.context(x.Args[0].(*syntax.Str).Value) }

func (g *generator) stackOf(x *syntax.Call) { g.trace(x, g.types[x]) }

func (g *generator) deletes(x *syntax.Call) { g.deleteKey(x.Args[0].(*syntax.Map)) }

func (g *generator) hasKey(x *syntax.Call) {
	m := g.maps[x.Args[0].(*syntax.Map).Name]
	g.lookup(m, g.key(m, x.Args[1]))
	g.flag(func(yes label) { g.IfImm(bpf.Jne, bpf.R0, 0, yes) })
}

func (g *generator) length(x *syntax.Call) {
	if t := g.types[x.Args[0]]; t != nil && t.Kind.Stack() {
		g.frames(x.Args[0])
		return
	}
	m := g.maps[x.Args[0].(*syntax.Map).Name]
	key, n := g.room(max(m.key.Slot(), 8)), g.room(8)
	g.StoreImm(n, 0)
	g.walk(m, key, func(_, _ label) {
		g.Load(bpf.R0, n, 8, false)
		g.AluImm(bpf.Add, bpf.R0, 1)
		g.Store(n, bpf.R0)
	})
	g.Load(bpf.R0, n, 8, false)
}

func (g *generator) strncmp(x *syntax.Call) {
	ta, tb := g.types[x.Args[0]], g.types[x.Args[1]]
	n, _ := g.constant(x.Args[2])
	g.compare(g.memory(x.Args[0]), g.memory(x.Args[1]), ta, tb, n)
}

func (g *generator) bswap(x *syntax.Call) {
	g.number(x.Args[0])
	if bits := int32(8 * g.types[x].Size); bits > 8 {
		g.Emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.End, Dst: bpf.R0, Imm: bits})
	}
}

func (g *generator) constantNumber(x *syntax.Call) {
	n, _ := g.constant(x)
	g.Imm(bpf.R0, n)
}

func (g *generator) deleteKey(x *syntax.Map) {
	m := g.maps[x.Name]
	if x.Key == nil {
		g.MapValue(regValue, m.index, 0)
		g.StoreImm(cell(regValue, 0), plan.KeylessGone)
		g.Zero(cell(regValue, plan.KeylessHeader), m.value.Slot())
		g.Imm(bpf.R0, 1)
		return
	}
	key := g.key(m, x.Key)
	g.MapAddr(bpf.R1, m.index)
	g.Addr(bpf.R2, key)
	g.Helper(bpf.FnMapDeleteElem)
	if m.plan.Count >= 0 {
		absent := g.NewLabel()
		g.IfImm(bpf.Jne, bpf.R0, 0, absent)
		g.uncounted(m)
		g.Put(absent)
	}
	g.flag(func(yes label) { g.IfImm(bpf.Jeq, bpf.R0, 0, yes) })
}

// undeleted tells of a delete, whose answer nobody wants, that found nothing.
func (g *generator) undeleted(x *syntax.Call) {
	there := g.NewLabel()
	g.IfImm(bpf.Jne, bpf.R0, 0, there)
	rec := g.room(plan.RecordArgs + 8)
	g.StoreImm(rec.Plus(plan.RecordArgs), ^uint64(1)) // -ENOENT
	g.emitRecord(&plan.Action{At: x.Span, Kind: plan.Failed, Format: plan.DeleteFailed, Args: []*types.Type{types.Int64}}, rec, plan.RecordArgs+8)
	g.Put(there)
}

// callMemory writes a function's value to memory.
func (g *generator) callMemory(x *syntax.Call, dst place, t *types.Type) {
	if g.fns[x.Name] != nil {
		g.callFn(x, dst)
		return
	}
	if f := functions[x.Name]; f != nil && f.memory != nil {
		f.memory(g, x, dst, t)
		return
	}
	g.errorf(x, "%s() is not supported yet", x.Name)
}

func (g *generator) pton(x *syntax.Call, dst place, t *types.Type) {
	addr, _ := netip.ParseAddr(x.Args[0].(*syntax.Str).Value)
	g.bytes(dst, addr.AsSlice(), t.Slot())
}

func (g *generator) typeinfo(x *syntax.Call, dst place, t *types.Type) {
	about := g.sized(x.Args[0])
	g.text(dst.Plus(t.Fields[0].Offset), about.Family(), t.Fields[0].Type.Slot())
	g.text(dst.Plus(t.Fields[1].Offset), about.String(), t.Fields[1].Type.Slot())
	g.StoreImm(dst.Plus(t.Fields[2].Offset), 0)
}

func (g *generator) getopt(x *syntax.Call, dst place, t *types.Type) {
	if value, given := g.opts.Named[x.Args[0].(*syntax.Str).Value]; given {
		g.text(dst, value, t.Slot())
	} else {
		g.into(x.Args[1], dst, t)
	}
}

func (g *generator) str(x *syntax.Call, dst place, t *types.Type) {
	text, known := g.paramText(x.Args[0])
	if !known {
		text, known = g.stringLiteral(x.Args[0])
	}
	switch own := g.types[x.Args[0]]; {
	case known:
		g.text(dst, text[:min(len(text), t.Size-1)], t.Slot())
	case own.Kind == types.String && own.Size <= t.Size:
		g.into(x.Args[0], dst, t)
	case own.Kind == types.String, own.Kind == types.Array:
		g.Zero(dst, t.Slot())
		if t.Size > 1 {
			g.convert(dst, types.StringOf(t.Size-1), g.memory(x.Args[0]), types.StringOf(own.Size)) // a NUL comes behind them
		}
	default:
		g.readText(x, dst, t)
	}
}

// readText reads a string of the target, its NUL included.
func (g *generator) readText(x *syntax.Call, dst place, t *types.Type) {
	g.number(x.Args[0])
	from := g.save()
	limited, limit := false, place{}
	if len(x.Args) == 2 {
		if _, known := g.constant(x.Args[1]); !known {
			g.number(x.Args[1])
			limited, limit = true, g.save()
		}
	}
	g.Zero(dst, t.Slot())
	g.Addr(bpf.R1, dst)
	g.Imm(bpf.R2, uint64(t.Size))
	if limited {
		long := g.NewLabel()
		g.Load(bpf.R0, limit, 8, false)
		g.IfImm(bpf.Jgt, bpf.R0, int32(t.Size), long)
		g.Mov(bpf.R2, bpf.R0)
		g.Put(long)
	}
	g.Load(bpf.R3, from, 8, false)
	g.read(true)
}

// source leaves the address that str and buf read at in R0.
func (g *generator) source(x syntax.Expr) {
	if g.types[x].Scalar() {
		g.number(x)
	} else if g.inTarget(x) {
		g.address(x)
	} else {
		g.errorf(x, "only values of the target can be read here, not those that the script keeps")
	}
}

// buffer reads bytes of the target, their number before them.
func (g *generator) buffer(x *syntax.Call, dst place, t *types.Type) {
	if own := g.types[x.Args[0]]; !own.Scalar() && !g.inTarget(x.Args[0]) {
		g.ownBuffer(x, dst, t, own)
		return
	}
	g.source(x.Args[0])
	from, n := g.save(), g.temp()
	g.Zero(dst, t.Slot())
	g.bufferLength(x, t)
	g.Store(n, bpf.R0)
	g.Store(dst, bpf.R0)
	g.Addr(bpf.R1, dst.Plus(8))
	g.Load(bpf.R2, n, 8, false)
	g.Load(bpf.R3, from, 8, false)
	g.read(false)
}

// inet puts a family, and an address as it goes over the network, into memory.
func (g *generator) inet(x *syntax.Call, dst place, _ *types.Type) {
	last := x.Args[len(x.Args)-1]
	t := g.stored[last]
	family := uint64(2) // AF_INET
	if t.Size == 16 {
		family = 10 // AF_INET6
	}
	g.Zero(dst, 24)
	if len(x.Args) == 2 {
		g.number(x.Args[0])
	} else {
		g.Imm(bpf.R0, family)
	}
	g.Store(dst, bpf.R0)
	if t.Scalar() {
		g.number(last)
		g.Store(dst.Plus(8), bpf.R0)
	} else if g.inTarget(last) { // characters, too, are bytes here: a NUL ends nothing
		g.source(last)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, dst.Plus(8))
		g.Imm(bpf.R2, uint64(t.Size))
		g.read(false)
	} else {
		g.CopyBytes(dst.Plus(8), g.memory(last), t.Size)
	}
}

// Statements that send a record for the controller to act on, or act.

// nothing is for what was done before the script runs.
func nothing(*generator, *syntax.Call) {}

func (g *generator) override(x *syntax.Call) {
	g.number(x.Args[0])
	g.Mov(bpf.R2, bpf.R0)
	g.Mov(bpf.R1, regCtx)
	g.Helper(bpf.FnOverrideReturn)
	g.GoTo(g.end)
}

// formatted sends what a format is filled with.
func formatted(kind plan.ActionKind) func(*generator, *syntax.Call) {
	return func(g *generator, x *syntax.Call) {
		g.send(&plan.Action{At: x.Span, Kind: kind, Format: x.Args[0].(*syntax.Str).Value}, x.Args[1:])
	}
}

func (g *generator) clock(x *syntax.Call) {
	a := &plan.Action{At: x.Span, Kind: plan.Clock, Format: "%H:%M:%S\n"}
	if len(x.Args) == 1 {
		a.Format = x.Args[0].(*syntax.Str).Value
	}
	g.send(a, nil)
}

func (g *generator) print(x *syntax.Call) {
	m, ok := x.Args[0].(*syntax.Map)
	if !ok || m.Key != nil {
		g.send(&plan.Action{At: x.Span, Kind: plan.PrintValue}, x.Args)
		return
	}
	g.send(&plan.Action{At: x.Span, Kind: plan.PrintMap, Map: g.maps[m.Name].plan}, x.Args[1:])
}

// ofMap sends an order about a map.
func ofMap(kind plan.ActionKind) func(*generator, *syntax.Call) {
	return func(g *generator, x *syntax.Call) {
		g.send(&plan.Action{At: x.Span, Kind: kind, Map: g.maps[x.Args[0].(*syntax.Map).Name].plan}, nil)
	}
}

func (g *generator) exit(x *syntax.Call) {
	g.send(&plan.Action{At: x.Span, Kind: plan.Exit}, x.Args)
	g.GoTo(g.end)
}

func (g *generator) unwatch(x *syntax.Call) {
	g.send(&plan.Action{At: x.Span, Kind: plan.Unwatch}, x.Args)
}

// send puts a record together and sends it.
func (g *generator) send(a *plan.Action, args []syntax.Expr) {
	size := plan.RecordArgs
	for _, x := range args {
		t := g.types[x]
		if g.counts(x, t) && a.Kind != plan.PrintValue {
			t = types.ValueOf(t)
		}
		a.Args = append(a.Args, t)
		size += t.Slot()
	}
	rec := g.room(size)
	off := plan.RecordArgs
	for i, x := range args {
		t := a.Args[i]
		if t.Aggregate() {
			g.Copy(rec.Plus(off), g.mapMemory(x.(*syntax.Map), t), t.Slot())
		} else {
			g.into(x, rec.Plus(off), t)
		}
		off += t.Slot()
	}
	g.emitRecord(a, rec, size)
}

// emitRecord sends a record that is complete but for its head.
func (g *generator) emitRecord(a *plan.Action, rec place, size int) {
	g.StoreImm(rec.Plus(plan.RecordID), uint64(len(g.plan.Actions)))
	g.plan.Actions = append(g.plan.Actions, a)
	g.Helper(bpf.FnKtimeGetNs)
	g.Store(rec.Plus(plan.RecordTime), bpf.R0)
	g.MapAddr(bpf.R1, g.ring)
	g.Addr(bpf.R2, rec)
	g.Imm(bpf.R3, uint64(size))
	g.Imm(bpf.R4, 0)
	g.Helper(bpf.FnRingbufOutput)
}
