package bpftest

import (
	"math/rand/v2"

	"kprobe/bpf"
)

// Maps returns a map of each kind for Random's programs, small so that their limits are met.
func Maps() []*bpf.MapSpec {
	return []*bpf.MapSpec{
		{Name: "array", Type: bpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 4},
		{Name: "threads", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 24, MaxEntries: 3},
		{Name: "hash", Type: bpf.Hash, KeySize: 8, ValueSize: 32, MaxEntries: 8},
		{Name: "words", Type: bpf.Hash, KeySize: 12, ValueSize: 8, MaxEntries: 3},
		{Name: "counts", Type: bpf.PerCPUHash, KeySize: 4, ValueSize: 8, MaxEntries: 5},
		{Name: "recent", Type: bpf.LRUHash, KeySize: 8, ValueSize: 16, MaxEntries: 8},
		{Name: "ring", Type: bpf.RingBuf, MaxEntries: 4096},
		{Name: "perf", Type: bpf.PerfEventArray, KeySize: 4, ValueSize: 4},
		{Name: "global", Type: bpf.Array, KeySize: 4, ValueSize: 48, MaxEntries: 1},
	}
}

// Options say what Random's programs consist of. The zero value: arithmetic, jumps,
// loops, the stack, the context and functions.
type Options struct {
	Size int // about how many statements; 0: 30

	// Maps are Maps(), to use maps and rings; nil: none.
	Maps []*bpf.MapSpec

	// Helpers are of those without a map that may be called: by their numbers. Clocks,
	// random numbers, thread, CPU, IP and cookie, comm, and the reads of memory.
	Helpers []int32

	// Memory are addresses of the target to read from, readable or not, where
	// Helpers has a read of memory.
	Memory []uint64
}

// Random makes a program that Verify accepts, of every instruction that there is. Its
// result depends on all that it computed, and on no address: two machines that run it
// right agree in R0 and in the maps' bytes. The same r gives the same program.
func Random(r *rand.Rand, o Options) *bpf.Program {
	g := &generator{r: r, o: o, nums: pool}
	if o.Size == 0 {
		g.o.Size = 30
	}
	g.body(2+r.IntN(g.o.Size), true)
	for len(g.calls) > 0 {
		// Each function is called from one place; g.depth has bounded the nesting.
		c := g.calls[0]
		g.calls = g.calls[1:]
		g.out[c.at].Imm = int32(len(g.out) - c.at - 1)
		g.depth = c.depth
		g.body(1+r.IntN(8), false)
	}
	return &bpf.Program{Name: "random", Insns: g.out, Maps: o.Maps}
}

// Numbers live in these registers; R6 has the context, R1 is for addresses and
// passing. R9 counts loops where it is not a number.
var pool = []uint8{bpf.R0, bpf.R2, bpf.R3, bpf.R4, bpf.R5, bpf.R7, bpf.R8, bpf.R9}

// stackBytes below R10 are numbers from the start; the rest is for helpers.
const stackBytes = 48

type call struct{ at, depth int }

type generator struct {
	r     *rand.Rand
	o     Options
	out   []bpf.Insn
	nums  []uint8
	calls []call
	depth int
	nest  int
	ctx   bool // R6 is the context
}

func (g *generator) emit(i ...bpf.Insn) { g.out = append(g.out, i...) }

func (g *generator) pick(of ...uint8) uint8 { return of[g.r.IntN(len(of))] }

func (g *generator) num() uint8 { return g.pick(g.nums...) }

// imm is a number at which arithmetic has its corner cases.
func (g *generator) imm() int32 {
	switch g.r.IntN(5) {
	case 0:
		return int32(g.r.IntN(9)) - 4
	case 1:
		return []int32{127, 128, -128, -129, 255, 256, 1<<31 - 1, -1 << 31, 0xffff, 1 << 16}[g.r.IntN(10)]
	case 2:
		return 1 << g.r.IntN(31)
	case 3:
		return int32(g.r.IntN(1000))
	}
	return int32(g.r.Uint32())
}

func mov(dst, src uint8) bpf.Insn {
	return bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: dst, Src: src}
}

func movImm(dst uint8, v int32) bpf.Insn {
	return bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: dst, Imm: v}
}

func (g *generator) loadImm(dst uint8) {
	v := g.r.Uint64() >> g.r.IntN(64)
	if g.r.IntN(3) == 0 {
		v = -v
	}
	g.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Imm: int32(v)}, bpf.Insn{Imm: int32(v >> 32)})
}

func (g *generator) loadMap(dst uint8, index int) {
	g.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: bpf.LoadMap, Imm: int32(index)}, bpf.Insn{})
}

// fresh puts numbers into registers that have none.
func (g *generator) fresh(regs ...uint8) {
	for _, reg := range regs {
		switch g.r.IntN(4) {
		case 0:
			g.emit(movImm(reg, g.imm()))
		case 1:
			g.loadImm(reg)
		case 2:
			g.emit(g.load(reg))
		default:
			g.emit(mov(reg, g.pick(bpf.R7, bpf.R8)))
		}
	}
}

// body is a function.
func (g *generator) body(n int, entry bool) {
	g.ctx = entry
	g.nums = pool
	for _, reg := range []uint8{bpf.R7, bpf.R8} {
		switch {
		case entry:
			g.emit(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: reg, Src: bpf.R1, Off: int16(8 * g.r.IntN(21))})
		default:
			g.emit(mov(reg, g.pick(bpf.R2, bpf.R3, bpf.R4, bpf.R5)))
		}
	}
	if entry {
		g.emit(mov(bpf.R6, bpf.R1))
	}
	for off := int16(-stackBytes); off < 0; off += 8 {
		if g.r.IntN(2) == 0 {
			g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Off: off, Imm: g.imm()})
		} else {
			g.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R10, Off: off, Src: g.pick(bpf.R7, bpf.R8)})
		}
	}
	g.fresh(bpf.R0, bpf.R2, bpf.R3, bpf.R4, bpf.R5, bpf.R9)
	g.block(n)
	// All that was computed goes into the result.
	for _, reg := range []uint8{bpf.R2, bpf.R3, bpf.R4, bpf.R5, bpf.R7, bpf.R8, bpf.R9} {
		g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mul, Dst: bpf.R0, Imm: 31},
			bpf.Insn{Op: bpf.ClassALU64 | g.pick(bpf.Add, bpf.Xor) | bpf.SrcX, Dst: bpf.R0, Src: reg})
	}
	for off := int16(-stackBytes); off < 0; off += 8 {
		g.emit(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R2, Src: bpf.R10, Off: off},
			bpf.Insn{Op: bpf.ClassALU64 | bpf.Add | bpf.SrcX, Dst: bpf.R0, Src: bpf.R2})
	}
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
}

func (g *generator) block(n int) {
	for range n {
		g.statement()
	}
}

func (g *generator) statement() {
	switch n := g.r.IntN(32); {
	case n < 12:
		g.alu()
	case n < 14:
		g.loadImm(g.num())
	case n < 16:
		g.emit(g.load(g.num()))
	case n < 18:
		g.store()
	case n < 19:
		g.atomic(bpf.R10, -stackBytes, stackBytes)
	case n < 22:
		g.condition()
	case n < 23:
		g.loop()
	case n < 24:
		g.function()
	case n < 26:
		g.helper()
	case n < 30:
		g.mapStatement()
	default:
		if g.ctx {
			size := g.pick(bpf.SizeB, bpf.SizeH, bpf.SizeW, bpf.SizeDW)
			i := bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | size, Dst: g.num(), Src: bpf.R6}
			i.Off = int16(g.r.IntN(168/i.Size()) * i.Size())
			g.emit(i)
		}
	}
}

func (g *generator) alu() {
	i := bpf.Insn{Op: g.pick(bpf.ClassALU, bpf.ClassALU64), Dst: g.num()}
	width := int32(64)
	if i.Class() == bpf.ClassALU {
		width = 32
	}
	op := uint8(g.r.IntN(14)) << 4
	i.Op |= op
	switch {
	case op == bpf.Neg:
	case op == bpf.End:
		i.Imm = []int32{16, 32, 64}[g.r.IntN(3)]
		if width == 32 {
			i.Op |= g.pick(0, bpf.SrcX)
		}
	case g.r.IntN(2) == 0:
		i.Op |= bpf.SrcX
		i.Src = g.num()
		if op == bpf.Mov {
			i.Off = []int16{0, 0, 8, 16, 32}[g.r.IntN(5)]
			if width == 32 && i.Off == 32 {
				i.Off = 0
			}
		}
	default:
		i.Imm = g.imm()
		if op == bpf.Lsh || op == bpf.Rsh || op == bpf.Arsh {
			i.Imm = g.r.Int32N(width)
		}
		if i.Imm == 0 && (op == bpf.Div || op == bpf.Mod) {
			i.Imm = 3
		}
	}
	if op == bpf.Div || op == bpf.Mod {
		i.Off = int16(g.r.IntN(2))
	}
	g.emit(i)
}

// load is one of the stack's numbers.
func (g *generator) load(dst uint8) bpf.Insn {
	i := bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | g.pick(bpf.SizeB, bpf.SizeH, bpf.SizeW, bpf.SizeDW), Dst: dst, Src: bpf.R10}
	if g.r.IntN(3) == 0 && i.Size() < 8 {
		i.Op = i.Op&^0xe0 | bpf.ModeMemSX
	}
	i.Off = int16(g.r.IntN(stackBytes/i.Size())*i.Size()) - stackBytes
	return i
}

func (g *generator) store() {
	i := bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | g.pick(bpf.SizeB, bpf.SizeH, bpf.SizeW, bpf.SizeDW), Dst: bpf.R10, Imm: g.imm()}
	if g.r.IntN(2) == 0 {
		i.Op, i.Src, i.Imm = i.Op&^0x07|bpf.ClassSTX, g.num(), 0
	}
	i.Off = int16(g.r.IntN(stackBytes/i.Size())*i.Size()) - stackBytes
	g.emit(i)
}

// atomic is an operation somewhere in size aligned bytes at base+off.
func (g *generator) atomic(base uint8, off, size int) {
	ops := []int32{bpf.AtomicAdd, bpf.AtomicOr, bpf.AtomicAnd, bpf.AtomicXor}
	i := bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | g.pick(bpf.SizeW, bpf.SizeDW), Dst: base, Src: g.num()}
	for i.Src == base {
		i.Src = g.num()
	}
	switch g.r.IntN(4) {
	case 0:
		i.Imm = bpf.AtomicXchg
	case 1:
		if base != bpf.R0 {
			i.Imm = bpf.AtomicCmpxchg
			break
		}
		fallthrough
	default:
		i.Imm = ops[g.r.IntN(4)] | int32(g.r.IntN(2))
	}
	i.Off = int16(off + g.r.IntN(size/i.Size())*i.Size())
	g.emit(i)
}

// condition is an if, sometimes with an else.
func (g *generator) condition() {
	if g.nest > 3 {
		return
	}
	g.nest++
	defer func() { g.nest-- }()
	i := bpf.Insn{Op: g.pick(bpf.ClassJMP, bpf.ClassJMP32) |
		g.pick(bpf.Jeq, bpf.Jgt, bpf.Jge, bpf.Jset, bpf.Jne, bpf.Jsgt, bpf.Jsge, bpf.Jlt, bpf.Jle, bpf.Jslt, bpf.Jsle), Dst: g.num(), Imm: g.imm()}
	if g.r.IntN(2) == 0 {
		i.Op, i.Src, i.Imm = i.Op|bpf.SrcX, g.num(), 0
	}
	at := len(g.out)
	g.emit(i)
	g.block(1 + g.r.IntN(4))
	if g.r.IntN(2) == 0 {
		over := len(g.out)
		g.emit(bpf.Insn{Op: g.pick(bpf.ClassJMP, bpf.ClassJMP32) | bpf.Ja})
		g.out[at].Off = int16(len(g.out) - at - 1)
		g.block(1 + g.r.IntN(3))
		if n := len(g.out) - over - 1; g.out[over].Class() == bpf.ClassJMP {
			g.out[over].Off = int16(n)
		} else {
			g.out[over].Imm = int32(n)
		}
		return
	}
	g.out[at].Off = int16(len(g.out) - at - 1)
}

// loop goes round a few times, counting in R9.
func (g *generator) loop() {
	if g.nest > 0 {
		return
	}
	g.nest += 2
	old := g.nums
	g.nums = pool[:len(pool)-1]
	g.emit(movImm(bpf.R9, 0))
	at := len(g.out)
	g.block(1 + g.r.IntN(3))
	g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Add, Dst: bpf.R9, Imm: 1})
	i := bpf.Insn{Op: bpf.ClassJMP | g.pick(bpf.Jlt, bpf.Jne, bpf.Jslt), Dst: bpf.R9, Imm: 2 + g.r.Int32N(4)}
	i.Off = int16(at - len(g.out) - 1)
	g.emit(i)
	g.nums = old
	g.nest -= 2
}

// function calls one that will be generated.
func (g *generator) function() {
	if g.depth >= 3 { // with 128 bytes of stack each, that is all there is
		return
	}
	g.calls = append(g.calls, call{len(g.out) + 1, g.depth + 1})
	g.emit(mov(bpf.R1, g.num()), bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Src: bpf.CallLocal})
	g.fresh(bpf.R2, bpf.R3, bpf.R4, bpf.R5)
}

func (g *generator) callHelper(id int32) {
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: id})
}

// buffer puts an address above size bytes of stack for helpers into a register.
func (g *generator) buffer(reg uint8, size int32) {
	g.emit(mov(reg, bpf.R10), bpf.Insn{Op: bpf.ClassALU64 | bpf.Add, Dst: reg, Imm: -stackBytes - size})
}

// fill writes that buffer, with few different numbers so that keys meet again.
func (g *generator) fill(size int32) {
	for off := int32(0); off < size; off += 4 {
		g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeW, Dst: bpf.R10, Off: int16(-stackBytes - size + off), Imm: g.r.Int32N(3)})
	}
}

func (g *generator) helper() {
	if len(g.o.Helpers) == 0 {
		return
	}
	id := g.o.Helpers[g.r.IntN(len(g.o.Helpers))]
	h := bpf.Helpers[id]
	const size = 16
	switch {
	case len(h.Args) == 0:
	case h.Args[0] == bpf.ArgCtx && len(h.Args) == 1:
		if !g.ctx {
			return
		}
		g.emit(mov(bpf.R1, bpf.R6))
	case h.Args[0] == bpf.ArgMemOut:
		n := 1 + g.r.Int32N(size)
		g.fill(size)
		g.buffer(bpf.R1, size)
		g.emit(movImm(bpf.R2, n))
		if len(h.Args) == 3 {
			g.address()
		}
	default:
		return
	}
	g.callHelper(id)
	if h.Args != nil && h.Args[0] == bpf.ArgMemOut {
		for off := int16(0); off < size; off += 8 {
			g.emit(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R2, Src: bpf.R10, Off: -stackBytes - size + off},
				bpf.Insn{Op: bpf.ClassALU64 | bpf.Xor | bpf.SrcX, Dst: g.pick(bpf.R7, bpf.R8), Src: bpf.R2})
		}
	}
	g.fresh(bpf.R2, bpf.R3, bpf.R4, bpf.R5)
}

// address puts one into R3, to be read: of the target, or in the context and around it. R1 and R2
// stay.
func (g *generator) address() {
	if g.ctx && g.r.IntN(2) == 0 {
		g.emit(mov(bpf.R3, bpf.R6))
		if g.r.IntN(2) == 0 {
			g.emit(mov(bpf.R4, g.pick(bpf.R7, bpf.R8)), bpf.Insn{Op: bpf.ClassALU64 | bpf.And, Dst: bpf.R4, Imm: 255},
				bpf.Insn{Op: bpf.ClassALU64 | g.pick(bpf.Add, bpf.Sub) | bpf.SrcX, Dst: bpf.R3, Src: bpf.R4})
		}
		g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Add, Dst: bpf.R3, Imm: g.r.Int32N(200) - 16})
		return
	}
	addr := uint64(g.imm())
	if len(g.o.Memory) > 0 {
		addr = g.o.Memory[g.r.IntN(len(g.o.Memory))]
	}
	g.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: bpf.R3, Imm: int32(addr)}, bpf.Insn{Imm: int32(addr >> 32)})
}

// inside works on size bytes of memory at R0 that is ours, then R0 is a number again.
func (g *generator) inside(size int) {
	old := g.nums
	g.nums = []uint8{bpf.R2, bpf.R3, bpf.R4, bpf.R5, bpf.R7, bpf.R8}
	g.fresh(bpf.R2, bpf.R3, bpf.R4, bpf.R5)
	for range 1 + g.r.IntN(4) {
		width := g.pick(bpf.SizeB, bpf.SizeH, bpf.SizeW, bpf.SizeDW)
		i := bpf.Insn{Op: bpf.ModeMem | width}
		i.Off = int16(g.r.IntN(size - i.Size() + 1)) // aligned or not
		switch g.r.IntN(5) {
		case 0:
			i.Op, i.Src, i.Dst = i.Op|bpf.ClassLDX, bpf.R0, g.num()
			g.emit(i)
		case 1:
			i.Op, i.Dst, i.Src = i.Op|bpf.ClassSTX, bpf.R0, g.num()
			g.emit(i)
		case 2:
			i.Op, i.Dst, i.Imm = i.Op|bpf.ClassST, bpf.R0, g.imm()
			g.emit(i)
		case 3:
			g.atomic(bpf.R0, 0, size)
		case 4:
			// By an index that is bounded here.
			mask := int32(3)
			g.emit(mov(bpf.R1, g.num()), bpf.Insn{Op: bpf.ClassALU64 | bpf.And, Dst: bpf.R1, Imm: mask},
				bpf.Insn{Op: bpf.ClassALU64 | bpf.Add | bpf.SrcX, Dst: bpf.R1, Src: bpf.R0},
				bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeB, Dst: g.num(), Src: bpf.R1, Off: int16(g.r.IntN(size - int(mask)))})
		}
	}
	g.nums = old
}

// mapStatement uses a map. It leaves a number in R0 and R2 to R5.
func (g *generator) mapStatement() {
	if len(g.o.Maps) == 0 {
		return
	}
	k := g.r.IntN(len(g.o.Maps))
	m := g.o.Maps[k]
	flags := int32(0)
	if g.r.IntN(3) == 0 {
		flags = g.r.Int32N(4)
	}
	key, value := int32(roundUp4(m.KeySize)), int32(roundUp4(m.ValueSize))
	switch op := g.r.IntN(6); {
	case m.Type == bpf.RingBuf && op < 3:
		size := 8 * (1 + g.r.Int32N(8))
		g.loadMap(bpf.R1, k)
		g.emit(movImm(bpf.R2, size), movImm(bpf.R3, 0))
		g.callHelper(bpf.FnRingbufReserve)
		at := g.ifNull()
		// The ring's earlier content does not belong to the program.
		for off := int16(0); off < int16(size); off += 8 {
			g.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R0, Src: g.pick(bpf.R7, bpf.R8), Off: off})
		}
		g.inside(int(size))
		g.emit(mov(bpf.R1, bpf.R0), movImm(bpf.R2, 0))
		g.callHelper([]int32{bpf.FnRingbufSubmit, bpf.FnRingbufSubmit, bpf.FnRingbufDiscard}[g.r.IntN(3)])
		g.endIf(at)
	case m.Type == bpf.RingBuf:
		g.fill(24)
		g.loadMap(bpf.R1, k)
		g.buffer(bpf.R2, 24)
		g.emit(movImm(bpf.R3, g.r.Int32N(25)), movImm(bpf.R4, 0))
		g.callHelper(bpf.FnRingbufOutput)
	case m.Type == bpf.PerfEventArray:
		if !g.ctx {
			return
		}
		g.fill(24)
		g.emit(mov(bpf.R1, bpf.R6))
		g.loadMap(bpf.R2, k)
		g.emit(bpf.Insn{Op: bpf.ClassALU | bpf.Mov, Dst: bpf.R3, Imm: -1})
		g.buffer(bpf.R4, 24)
		g.emit(movImm(bpf.R5, g.r.Int32N(25)))
		g.callHelper(bpf.FnPerfEventOutput)
	case m.Type == bpf.Array && m.MaxEntries == 1 && op < 2:
		g.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: bpf.R0, Src: bpf.LoadMapValue, Imm: int32(k)}, bpf.Insn{Imm: 8})
		g.inside(int(m.ValueSize) - 8)
	case op < 3:
		g.fill(key)
		g.loadMap(bpf.R1, k)
		g.buffer(bpf.R2, key)
		g.callHelper(bpf.FnMapLookupElem)
		at := g.ifNull()
		g.inside(int(m.ValueSize))
		g.endIf(at)
	case op < 5:
		g.fill(key + value)
		g.loadMap(bpf.R1, k)
		g.buffer(bpf.R2, key+value)
		g.buffer(bpf.R3, value)
		g.emit(movImm(bpf.R4, flags))
		g.callHelper(bpf.FnMapUpdateElem)
	default:
		g.fill(key)
		g.loadMap(bpf.R1, k)
		g.buffer(bpf.R2, key)
		g.callHelper(bpf.FnMapDeleteElem)
	}
	if last := g.out[len(g.out)-1]; !last.IsCall(bpf.CallHelper) {
		g.fresh(bpf.R0) // it was an address
	}
	g.fresh(bpf.R2, bpf.R3, bpf.R4, bpf.R5)
}

// ifNull begins the code for an R0 that is not NULL.
func (g *generator) ifNull() (at int) {
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jeq, Dst: bpf.R0})
	return len(g.out) - 1
}

func (g *generator) endIf(at int) {
	g.out[at].Off = int16(len(g.out) - at - 1)
	g.fresh(bpf.R0)
}

func roundUp4(n uint32) uint32 { return (n + 3) &^ 3 }
