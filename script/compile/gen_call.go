package compile

import (
	"kprobe/bpf"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Words of the context that the System V convention passes arguments in.
var argRegs = []string{"rdi", "rsi", "rdx", "rcx", "r8", "r9"}

// register is the index of a register in the context; -1 for none. Names go with and
// without the r in front.
func register(name string) int {
	for i, r := range bpf.AMD64.Regs {
		if r == name || r == "r"+name || name == "flags" && r == "eflags" {
			return i
		}
	}
	return -1
}

// context reads a word of the context.
func (g *generator) context(reg string) {
	g.load(bpf.R0, place{regCtx, 8 * register(reg)}, 8, false)
}

// builtin leaves the value of a name in R0.
func (g *generator) builtin(x *syntax.Ident) {
	if n, stack, ok := argument(x.Name); ok {
		if !stack {
			g.context(argRegs[n])
			return
		}
		g.scoped(func() {
			g.context("rsp")
			g.aluImm(bpf.Add, bpf.R0, int32(8*n+8)) // the return address is first
			g.readTarget(types.Uint64)
		})
		return
	}
	switch x.Name {
	case "pid", "tid", "uid", "gid", "username":
		g.identity(x.Name)
	case "cpu":
		g.helper(bpf.FnGetSmpProcessorID)
	case "rand":
		g.helper(bpf.FnGetPrandomU32)
	case "nsecs":
		g.helper(bpf.FnKtimeGetBootNs)
	case "jiffies":
		g.helper(bpf.FnKtimeGetNs)
		g.aluImm(bpf.Div, bpf.R0, 4000000)
	case "elapsed":
		g.helper(bpf.FnKtimeGetBootNs)
		g.mapValue(bpf.R1, g.start, 0)
		g.load(bpf.R1, place{bpf.R1, 0}, 8, false)
		g.alu(bpf.Sub, bpf.R0, bpf.R1)
	case "retval":
		g.context("rax")
	case "func":
		g.mov(bpf.R1, regCtx)
		g.helper(bpf.FnGetFuncIP)
	case "probe":
		g.mov(bpf.R1, regCtx)
		g.helper(bpf.FnGetAttachCookie)
	case "ncpus":
		g.errorf(x, "ncpus is not supported yet")
	case "cpid":
		g.imm(bpf.R0, uint64(g.opts.CPID))
	case "usermode":
		g.imm(bpf.R0, word(!g.opts.Kernel))
	case "ustack", "kstack":
		g.trace(&syntax.Call{Span: x.Span, Name: x.Name}, g.types[x])
	default:
		g.callNumber(&syntax.Call{Span: x.Span, Name: x.Name})
	}
}

func (g *generator) identity(name string) {
	switch name {
	case "pid", "tid":
		g.helper(bpf.FnGetCurrentPidTgid)
	default:
		g.helper(bpf.FnGetCurrentUidGid)
	}
	if name == "pid" || name == "gid" {
		g.aluImm(bpf.Rsh, bpf.R0, 32)
		return
	}
	g.aluImm(bpf.Lsh, bpf.R0, 32)
	g.aluImm(bpf.Rsh, bpf.R0, 32)
}

// trace leaves the id of a stack in R0, 1 more so that 0 says that there is none.
func (g *generator) trace(x *syntax.Call, t *types.Type) {
	if t.Kind == types.KStack && !g.opts.Kernel || t.Kind == types.UStack && g.opts.Kernel {
		g.imm(bpf.R0, 0)
		return
	}
	g.plan.Specs[g.stacks].MaxEntries = 4096
	end, none := g.newLabel(), g.newLabel()
	g.mov(bpf.R1, regCtx)
	g.mapAddr(bpf.R2, g.stacks)
	flags := uint64(0)
	if t.Kind == types.UStack {
		flags = 1 << 8
	}
	g.imm(bpf.R3, flags)
	g.helper(bpf.FnGetStackid)
	g.ifImm(bpf.Jslt, bpf.R0, 0, none)
	g.aluImm(bpf.Add, bpf.R0, 1)
	g.goTo(end)
	g.put(none)
	g.imm(bpf.R0, 0)
	g.put(end)
}

// callNumber leaves a function's value in R0.
func (g *generator) callNumber(x *syntax.Call) {
	switch x.Name {
	case "usym", "ksym", "strerror", "strftime":
		g.number(x.Args[len(x.Args)-1])
	case "nsecs":
		if len(x.Args) == 1 && x.Args[0].(*syntax.Ident).Name == "monotonic" {
			g.helper(bpf.FnKtimeGetNs)
			return
		}
		g.helper(bpf.FnKtimeGetBootNs)
	case "pid", "tid":
		g.identity(x.Name)
	case "reg":
		g.load(bpf.R0, place{regCtx, 8 * register(x.Args[0].(*syntax.Str).Value)}, 8, false)
	case "ustack", "kstack":
		g.trace(x, g.types[x])
	case "delete":
		g.deleteKey(x.Args[0].(*syntax.Map))
	case "has_key":
		m := g.maps[x.Args[0].(*syntax.Map).Name]
		g.lookup(m, g.key(m, x.Args[1]))
		g.flag(func(yes label) { g.ifImm(bpf.Jne, bpf.R0, 0, yes) })
	case "len":
		m := g.maps[x.Args[0].(*syntax.Map).Name]
		key, at, n := g.room(max(m.key.Slot(), 8)), g.counter(), g.counter()
		g.storeImm(at, 0)
		g.storeImm(n, 0)
		again, end := g.newLabel(), g.newLabel()
		g.put(again)
		g.nextKey(m, key, at, end)
		g.load(bpf.R0, n, 8, false)
		g.aluImm(bpf.Add, bpf.R0, 1)
		g.store(n, bpf.R0)
		g.goTo(again)
		g.put(end)
		g.load(bpf.R0, n, 8, false)
	case "strncmp":
		n, _ := g.constant(x.Args[2])
		a, b := g.memory(x.Args[0]), g.memory(x.Args[1])
		size := min(g.types[x.Args[0]].Slot(), g.types[x.Args[1]].Slot(), int(n))
		g.same(a, b, size, false)
	case "bswap":
		g.number(x.Args[0])
		if bits := int32(8 * g.types[x].Size); bits > 8 {
			g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.End, Dst: bpf.R0, Imm: bits})
		}
	case "sizeof":
		n, _ := g.constant(x)
		g.imm(bpf.R0, n)
	default:
		g.errorf(x, "%s() is not supported yet", x.Name)
	}
}

func (g *generator) deleteKey(x *syntax.Map) {
	m := g.maps[x.Name]
	if x.Key == nil {
		g.mapValue(regValue, m.index, 0)
		g.zero(place{regValue, 0}, KeylessHeader+m.value.Slot())
		g.imm(bpf.R0, 1)
		return
	}
	key := g.key(m, x.Key)
	g.mapAddr(bpf.R1, m.index)
	g.addr(bpf.R2, key)
	g.helper(bpf.FnMapDeleteElem)
	g.flag(func(yes label) { g.ifImm(bpf.Jeq, bpf.R0, 0, yes) })
}

// callMemory writes a function's value to memory.
func (g *generator) callMemory(x *syntax.Call, dst place, t *types.Type) {
	switch x.Name {
	case "getopt":
		if value, given := g.opts.Named[x.Args[0].(*syntax.Str).Value]; given {
			g.text(dst, value, t.Slot())
		} else {
			g.into(x.Args[1], dst, t)
		}
		return
	case "buf":
		g.buffer(x, dst, t)
		return
	case "ntop":
		g.inet(x, dst)
		return
	case "str":
	default:
		g.errorf(x, "%s() is not supported yet", x.Name)
		return
	}
	if g.types[x.Args[0]].Kind == types.String {
		g.into(x.Args[0], dst, t)
		return
	}
	g.number(x.Args[0])
	from := g.save()
	limit := place{}
	if len(x.Args) == 2 {
		if _, known := g.constant(x.Args[1]); !known {
			g.number(x.Args[1])
			limit = g.save()
		}
	}
	g.zero(dst, t.Slot())
	g.addr(bpf.R1, dst)
	g.imm(bpf.R2, uint64(t.Size+1)) // with a NUL behind a string that is cut
	if len(x.Args) == 2 {
		if n, known := g.constant(x.Args[1]); known && int(n) < t.Size {
			g.imm(bpf.R2, n+1)
		} else if !known {
			long := g.newLabel()
			g.load(bpf.R0, limit, 8, false)
			g.ifImm(bpf.Jgt, bpf.R0, int32(t.Size), long)
			g.aluImm(bpf.Add, bpf.R0, 1)
			g.mov(bpf.R2, bpf.R0)
			g.put(long)
		}
	}
	g.load(bpf.R3, from, 8, false)
	g.helper(bpf.FnProbeReadUserStr)
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
	g.source(x.Args[0])
	from, n := g.save(), g.temp()
	g.zero(dst, t.Slot())
	g.imm(bpf.R0, uint64(t.Size-8))
	if len(x.Args) == 2 {
		if _, known := g.constant(x.Args[1]); !known {
			short := g.newLabel()
			g.number(x.Args[1])
			g.ifImm(bpf.Jle, bpf.R0, int32(t.Size-8), short)
			g.imm(bpf.R0, uint64(t.Size-8))
			g.put(short)
		}
	}
	g.store(n, bpf.R0)
	g.store(dst, bpf.R0)
	g.addr(bpf.R1, dst.plus(8))
	g.load(bpf.R2, n, 8, false)
	g.load(bpf.R3, from, 8, false)
	g.helper(bpf.FnProbeReadUser)
}

// inet puts a family, and an address as it goes over the network, into memory.
func (g *generator) inet(x *syntax.Call, dst place) {
	last := x.Args[len(x.Args)-1]
	t := g.types[last]
	family := uint64(2) // AF_INET
	if t.Size == 16 {
		family = 10 // AF_INET6
	}
	g.zero(dst, 24)
	if len(x.Args) == 2 {
		g.number(x.Args[0])
	} else {
		g.imm(bpf.R0, family)
	}
	g.store(dst, bpf.R0)
	if t.Scalar() {
		g.number(last)
		g.store(dst.plus(8), bpf.R0)
		return
	}
	g.copyBytes(dst.plus(8), g.memory(last), t.Size)
}

// action sends a record for the controller to act on, or acts.
func (g *generator) action(x *syntax.Call) {
	switch x.Name {
	case "override":
		g.number(x.Args[0])
		g.mov(bpf.R2, bpf.R0)
		g.mov(bpf.R1, regCtx)
		g.helper(bpf.FnOverrideReturn)
		g.goTo(g.end)
		return
	case "static_assert":
		return
	}
	a := &Action{At: x.Span}
	var args []syntax.Expr
	switch x.Name {
	case "printf", "errorf", "warnf", "cat", "system":
		a.Kind = map[string]ActionKind{"printf": Printf, "errorf": Errorf, "warnf": Warnf, "cat": Cat, "system": System}[x.Name]
		a.Format, args = x.Args[0].(*syntax.Str).Value, x.Args[1:]
	case "time":
		a.Kind, a.Format = Clock, "%H:%M:%S\n"
		if len(x.Args) == 1 {
			a.Format = x.Args[0].(*syntax.Str).Value
		}
	case "print":
		m, ok := x.Args[0].(*syntax.Map)
		if !ok || m.Key != nil {
			a.Kind, args = PrintValue, x.Args
			break
		}
		a.Kind, a.Map, args = PrintMap, g.maps[m.Name].plan, x.Args[1:]
	case "clear", "zero":
		a.Kind = map[string]ActionKind{"clear": Clear, "zero": Zero}[x.Name]
		a.Map = g.maps[x.Args[0].(*syntax.Map).Name].plan
	case "exit":
		a.Kind, args = Exit, x.Args
	}
	g.send(a, args)
	if a.Kind == Exit {
		g.goTo(g.end)
	}
}

// send puts a record together and sends it.
func (g *generator) send(a *Action, args []syntax.Expr) {
	size := RecordArgs
	for _, x := range args {
		t := g.types[x]
		if g.counts(x, t) && a.Kind != PrintValue {
			t = aggregateValue(t)
		}
		a.Args = append(a.Args, t)
		size += t.Slot()
	}
	rec := g.room(size)
	off := RecordArgs
	for i, x := range args {
		t := a.Args[i]
		if t.Aggregate() {
			g.copy(rec.plus(off), g.mapMemory(x.(*syntax.Map), t), t.Slot())
		} else {
			g.into(x, rec.plus(off), t)
		}
		off += t.Slot()
	}
	g.storeImm(rec.plus(RecordID), uint64(len(g.plan.Actions)))
	g.plan.Actions = append(g.plan.Actions, a)
	g.helper(bpf.FnKtimeGetNs)
	g.store(rec.plus(RecordTime), bpf.R0)
	g.mapAddr(bpf.R1, g.ring)
	g.addr(bpf.R2, rec)
	g.imm(bpf.R3, uint64(size))
	g.imm(bpf.R4, 0)
	g.helper(bpf.FnRingbufOutput)
}
