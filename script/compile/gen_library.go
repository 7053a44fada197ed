package compile

import (
	"encoding/binary"
	"strings"
	"syscall"

	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

func (g *generator) macaddr(x *syntax.Call) { g.macAddress(x.Args[0]) }

func (g *generator) cgroupID(x *syntax.Call) {
	path := x.Args[0].(*syntax.Str).Value
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		g.errorf(x, "Failed to resolve cgroup path %s: %v", path, err)
	}
	g.Imm(bpf.R0, st.Ino)
}

func (g *generator) uaddr(x *syntax.Call) {
	g.MapValue(bpf.R1, g.start, 0)
	g.Load(bpf.R0, cell(bpf.R1, plan.FactVariables+8*g.addressOf[x]), 8, false)
}

func (g *generator) kaddr(x *syntax.Call) {
	if g.opts.KernelSymbol == nil {
		g.errorf(x, "%s() is not supported yet", x.Name)
		return
	}
	addr, _ := g.opts.KernelSymbol(x.Args[0].(*syntax.Str).Value)
	g.Imm(bpf.R0, addr)
}

// isErr leaves in R0 whether a word is one of the 4,095 highest, as MAX_ERRNO of Linux has it.
func (g *generator) isErr(x *syntax.Call) {
	g.number(x.Args[0])
	g.flag(func(yes label) { g.IfImm(bpf.Jge, bpf.R0, -4095, yes) })
}

func (g *generator) strcap(x *syntax.Call) { g.Imm(bpf.R0, uint64(g.types[x.Args[0]].Size)) }

// bytes writes what is known.
func (g *generator) bytes(dst place, b []byte, n int) {
	all := make([]byte, (n+7)&^7)
	copy(all, b)
	for i := 0; i < n; i += 8 {
		g.StoreImm(dst.Plus(i), binary.LittleEndian.Uint64(all[i:]))
	}
}

// macAddress leaves the six bytes at an address, or of an array, in R0.
func (g *generator) macAddress(x syntax.Expr) {
	if t := g.types[x]; !t.Scalar() && !g.inTarget(x) {
		g.Load(bpf.R0, g.memory(x), 8, false)
	} else {
		g.source(x)
		p := g.temp()
		g.storeImmKeeping(p)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, p)
		g.Imm(bpf.R2, 6)
		g.read(false)
		g.Load(bpf.R0, p, 8, false)
	}
	g.AluImm(bpf.Lsh, bpf.R0, 16)
	g.AluImm(bpf.Rsh, bpf.R0, 16)
}

// find puts a key's value into a variable, where there is one.
func (g *generator) find(x *syntax.Call) {
	m := g.maps[x.Args[0].(*syntax.Map).Name]
	v := g.uses[x.Args[2].(*syntax.Var)]
	none, end := g.NewLabel(), g.NewLabel()
	g.lookup(m, g.key(m, x.Args[1]))
	g.IfImm(bpf.Jeq, bpf.R0, 0, none)
	g.Mov(regValue, bpf.R0)
	to := g.variable(v)
	if v.typ.Scalar() {
		g.mapWord(m.value, cell(regValue, 0))
		g.fit(v.typ)
		g.Store(to, bpf.R0)
	} else {
		g.convert(to, v.typ, cell(regValue, 0), types.ValueOf(m.value))
	}
	g.Imm(bpf.R0, 1)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// each goes over the bytes of a string: body finds the address of one in R1, and its number at i.
func (g *generator) each(p place, n int, body func(i place, end label)) {
	i := g.counter()
	g.StoreImm(i, 0)
	again, end := g.NewLabel(), g.NewLabel()
	g.Put(again)
	g.rounds(end)
	g.Load(bpf.R2, i, 8, false)
	g.IfImm(bpf.Jge, bpf.R2, int32(n), end)
	g.Addr(bpf.R1, p)
	g.Alu(bpf.Add, bpf.R1, bpf.R2)
	body(i, end)
	g.Load(bpf.R2, i, 8, false)
	g.AluImm(bpf.Add, bpf.R2, 1)
	g.Store(i, bpf.R2)
	g.GoTo(again)
	g.Put(end)
}

// strlen counts the bytes before the NUL.
func (g *generator) strlen(x *syntax.Call) {
	p := g.memory(x.Args[0])
	var at place
	g.each(p, g.types[x.Args[0]].Size, func(i place, end label) {
		at = i
		g.Load(bpf.R0, cell(bpf.R1, 0), 1, false)
		g.IfImm(bpf.Jeq, bpf.R0, 0, end)
	})
	g.Load(bpf.R0, at, 8, false)
}

// compare leaves in R0 whether two strings differ within their first n bytes.
func (g *generator) compare(a, b place, ta, tb *types.Type, n uint64) {
	differ, end := g.NewLabel(), g.NewLabel()
	for i := 0; i < int(min(n, uint64(max(ta.Size, tb.Size)))); i++ {
		// Behind its end a string has a NUL.
		for j, s := range []struct {
			p place
			t *types.Type
		}{{a, ta}, {b, tb}} {
			if i < s.t.Size {
				g.Load(uint8(j), s.p.Plus(i), 1, false)
			} else {
				g.Imm(uint8(j), 0)
			}
		}
		g.IfReg(bpf.Jne, bpf.R0, bpf.R1, differ)
		g.IfImm(bpf.Jeq, bpf.R0, 0, end) // and R0 says that they do not differ
	}
	g.Imm(bpf.R0, 0)
	g.GoTo(end)
	g.Put(differ)
	g.Imm(bpf.R0, 1)
	g.Put(end)
}

// memcmp leaves in R0 how the first bytes that differ do: 0 where none does.
func (g *generator) memcmp(x *syntax.Call) {
	n, _ := g.constant(x.Args[2])
	var at [2]place
	for i, a := range x.Args[:2] {
		t := g.types[a]
		at[i] = g.room(t.Slot())
		g.into(a, at[i], t)
	}
	end := g.NewLabel()
	for i := range int(n) {
		g.Load(bpf.R0, at[0].Plus(i), 1, false)
		g.Load(bpf.R1, at[1].Plus(i), 1, false)
		g.Alu(bpf.Sub, bpf.R0, bpf.R1)
		g.IfImm(bpf.Jne, bpf.R0, 0, end)
	}
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// search is strcontains and strstr: at each byte of the one string the other may begin.
func (g *generator) search(x *syntax.Call) {
	hay, needle := g.types[x.Args[0]], g.types[x.Args[1]]
	found := g.room(8)
	text, known := g.stringLiteral(x.Args[1])
	text, _, _ = strings.Cut(text, "\x00")
	var b place
	if !known {
		b = g.memory(x.Args[1])
	}
	// Behind the string there is a NUL, and room for as much as may be looked at.
	n := needle.Size
	if known {
		n = len(text)
	}
	a := g.room(hay.Slot() + (n+8)&^7)
	g.Zero(a.Plus(hay.Slot()), (n+8)&^7)
	g.into(x.Args[0], a, hay)
	g.StoreImm(found, ^uint64(0))
	if n == 0 {
		g.StoreImm(found, 0)
	} else {
		g.each(a, hay.Size, func(i place, end label) {
			next, yes := g.NewLabel(), g.NewLabel()
			for j := range n {
				g.Load(bpf.R0, cell(bpf.R1, j), 1, false)
				if !known {
					g.Load(bpf.R3, b.Plus(j), 1, false)
					g.IfImm(bpf.Jeq, bpf.R3, 0, yes)
				}
				if j == 0 { // what is behind the string's NUL is no part of it
					g.IfImm(bpf.Jeq, bpf.R0, 0, end)
				}
				if known {
					g.IfImm(bpf.Jne, bpf.R0, int32(text[j]), next)
				} else {
					g.IfReg(bpf.Jne, bpf.R0, bpf.R3, next)
				}
			}
			g.Put(yes)
			g.Load(bpf.R0, i, 8, false)
			g.Store(found, bpf.R0)
			g.GoTo(end)
			g.Put(next)
		})
	}
	g.Load(bpf.R0, found, 8, false)
	if x.Name == "strcontains" {
		g.flag(func(yes label) { g.IfImm(bpf.Jsge, bpf.R0, 0, yes) })
	}
}

// ownBuffer makes a buffer of a value that the script keeps.
func (g *generator) ownBuffer(x *syntax.Call, dst place, t, own *types.Type) {
	from := g.memory(x.Args[0])
	g.Zero(dst, t.Slot())
	g.Copy(dst.Plus(8), from, min(own.Slot(), t.Slot()-8))
	g.bufferLength(x, t)
	g.Store(dst, bpf.R0)
}

// bufferLength leaves in R0 how many bytes buf() is to give: those that fit, where that is asked for, fewer.
func (g *generator) bufferLength(x *syntax.Call, t *types.Type) {
	most := t.Size - 8
	if len(x.Args) == 2 {
		if _, known := g.constant(x.Args[1]); !known {
			short := g.NewLabel()
			g.number(x.Args[1])
			g.IfImm(bpf.Jle, bpf.R0, int32(most), short)
			g.Imm(bpf.R0, uint64(most))
			g.Put(short)
			return
		}
	}
	g.Imm(bpf.R0, uint64(most))
}

// signal asks the controller to send one.
func (g *generator) signal(x *syntax.Call) {
	a := &plan.Action{At: x.Span, Kind: plan.Signal, Thread: x.Name == "signal_thread", Args: []*types.Type{types.Uint64, types.Uint64}}
	rec := g.room(plan.RecordArgs + 16)
	if name, ok := g.stringLiteral(x.Args[0]); ok {
		g.Imm(bpf.R0, signalNumber(name))
	} else {
		g.number(x.Args[0])
	}
	g.Store(rec.Plus(plan.RecordArgs), bpf.R0)
	g.Helper(bpf.FnGetCurrentPidTgid)
	g.Store(rec.Plus(plan.RecordArgs+8), bpf.R0)
	g.emitRecord(a, rec, plan.RecordArgs+16)
}

// joinMost is how many strings join shows, and joinSize the bytes of each.
const (
	joinMost = 16
	joinSize = 1024
)

// join sends the strings that an array of pointers points to.
func (g *generator) join(x *syntax.Call) {
	a := &plan.Action{At: x.Span, Kind: plan.Join, Format: " "}
	if len(x.Args) == 2 {
		a.Format = x.Args[1].(*syntax.Str).Value
	}
	size := min(joinSize, g.set.MaxStrlen)
	for range joinMost {
		a.Args = append(a.Args, types.StringOf(size))
	}
	slot := a.Args[0].Slot()
	rec := g.room(plan.RecordArgs + joinMost*slot)
	g.number(x.Args[0])
	at, end := g.save(), g.NewLabel()
	g.Zero(rec, plan.RecordArgs+joinMost*slot)
	for i := range joinMost {
		g.Load(bpf.R0, at, 8, false)
		g.AluImm(bpf.Add, bpf.R0, int32(8*i))
		g.readTarget(types.Uint64)
		g.IfImm(bpf.Jeq, bpf.R0, 0, end)
		g.Mov(bpf.R3, bpf.R0)
		g.Addr(bpf.R1, rec.Plus(plan.RecordArgs+i*slot))
		g.Imm(bpf.R2, uint64(size))
		g.read(true)
	}
	g.Put(end)
	g.emitRecord(a, rec, plan.RecordArgs+joinMost*slot)
}

// assert ends the script where its condition does not hold.
func (g *generator) assert(x *syntax.Call) {
	no, end := g.NewLabel(), g.NewLabel()
	g.condition(x.Args[0], no)
	g.GoTo(end)
	g.Put(no)
	text := "assert failed"
	if len(x.Args) == 2 {
		text += ": " + x.Args[1].(*syntax.Str).Value
	}
	g.send(&plan.Action{At: x.Span, Kind: plan.Errorf, Format: strings.ReplaceAll(text, "%", "%%")}, nil)
	g.send(&plan.Action{At: x.Span, Kind: plan.Exit, Code: 1}, nil)
	g.GoTo(g.end)
	g.Put(end)
}

// percpu leaves in R0 the address of a processor's own variable; 0 where there is no such processor.
func (g *generator) percpu(x *syntax.Call) {
	if g.opts.KernelSymbol == nil {
		g.Imm(bpf.R0, 0)
		return
	}
	at := func(name string) uint64 {
		addr, err := g.opts.KernelSymbol(name)
		if err != nil {
			g.errorf(x, "percpu_kaddr(): the kernel has no %s%v", name, err)
		}
		return addr
	}
	if len(x.Args) == 2 {
		g.number(x.Args[1])
	} else {
		g.Helper(bpf.FnGetSmpProcessorID)
	}
	cpu := g.save()
	none, end := g.NewLabel(), g.NewLabel()
	g.Imm(bpf.R0, at("nr_cpu_ids"))
	g.readTarget(types.Uint32)
	g.Load(bpf.R1, cpu, 8, false)
	g.IfReg(bpf.Jge, bpf.R1, bpf.R0, none)
	g.AluImm(bpf.Lsh, bpf.R1, 3)
	g.Imm(bpf.R0, at("__per_cpu_offset"))
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
	g.readTarget(types.Uint64)
	g.Imm(bpf.R1, at(x.Args[0].(*syntax.Str).Value))
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// writeUser writes a value into the target, and leaves in R0 what the helper says.
func (g *generator) writeUser(x *syntax.Call) {
	to, t := g.types[x.Args[0]], g.types[x.Args[1]]
	size := max(t.Size, 1)
	var from place
	text, literal := x.Args[1].(*syntax.Str)
	switch {
	case literal:
		size = len(text.Value) + 1
		from = g.memory(text)
	case t.Scalar():
		if to.Kind == types.Pointer && to.Elem != nil && to.Elem.Scalar() {
			size = max(to.Elem.Size, 1)
		}
		g.number(x.Args[1])
		from = g.save()
	default:
		from = g.memory(x.Args[1])
	}
	g.number(x.Args[0])
	g.Mov(bpf.R1, bpf.R0)
	g.Addr(bpf.R2, from)
	g.Imm(bpf.R3, uint64(size))
	g.Helper(bpf.FnProbeWriteUser)
}
