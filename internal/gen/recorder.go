package gen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/event"
)

// Generate turns what a definition captures into a program that writes it to a
// ring, and Decode turns the record into the values again: a trace without stops.
// The code is straight: what cannot be read is noted and read on, so that only the
// filter branches.
//
// A record is
//
//	the fields that were asked for, 8 bytes each: time, thread, cookie, CPU
//	a bit for every element, 64 a word: it could not be read. Where nothing is
//	read from memory there are none
//	8 bytes for every element: a number, or of a text its place in the record
//	(low half) and length with the NUL (high half). What the target counts has two: how
//	many there are, and where their memory lies in the record, like a text
//	the texts
//
// Where its length is known it is made where it will lie in the ring.

const maxGenText = 4095 // bytes of a text, without its NUL

// FilterOp is a filter's operation.
type FilterOp uint8

const (
	FilterAnd FilterOp = iota // Left and Right
	FilterOr                  // Left or Right
	FilterNot                 // not Left
	FilterEq                  // the number of argument Arg, or its text, is N or Text
	FilterNotEq
	FilterLess
	FilterLessEq
	FilterGreater
	FilterGreaterEq
	FilterBits // the number and N have a bit in common
)

// Filter decides whether a hit is recorded. A comparison with what could not be
// read is false.
type Filter struct {
	Op          FilterOp
	Left, Right *Filter

	Arg    int // index of the argument; not of an array
	N      uint64
	Bytes  int    // of the number that are compared; 0: 8
	Signed bool   // they are a signed number
	Shift  uint   // of a bit field: they are shifted down ...
	Mask   uint64 // ... and masked; 0: all
	IsText bool
	Text   string
	Prefix bool // Text is the beginning of what is right

	A, B *Number // compared instead of Arg with N, where they are there
}

// texts tells whether it looks at a text.
func (f *Filter) texts() bool {
	return f != nil && (f.IsText || f.Left.texts() || f.Right.texts())
}

// Fields are what a record has besides the arguments.
type Fields uint8

const (
	FieldTime   Fields = 1 << iota // CLOCK_MONOTONIC, ns
	FieldThread                    // tgid << 32 | tid
	FieldCookie                    // of the attachment
	FieldCPU
)

// Trace is what Generate makes a program of.
type Trace struct {
	Name   string
	Kind   bpf.Kind
	Arch   *arch.Arch // of the target; nil is AMD64
	Fields Fields
	Args   []event.Load
	Filter *Filter // nil: every hit
	Ring   int     // bytes of a thread's ring, a power of two; 0: 64 KiB, or what the largest record needs
}

// Recorder is a generated program and the way its records are read.
type Recorder struct {
	Program *bpf.Program
	Entry   *bpf.Program // at the function's entry, with the same private data of calls; nil: none is needed
	trace   Trace
	entered []arch.Reg // registers of the entry that are wanted at the return, in the order of the data
	faults  int        // offset of the bits
	values  int        // offset of element 0; the bits' too where nothing can fault
	fixed   int        // bytes before the texts
	whole   int        // and with them, where these are names only, whose length is known; else 0
	elems   int
}

// RingIndex is the index of the recorder's ring in Program.Maps.
const RingIndex = 0

// Hit is a decoded record.
type Hit struct {
	Time   uint64
	Thread uint64 // tgid << 32 | tid
	Cookie uint64
	CPU    uint32
	Args   []Raw
}

// Raw is a captured value, before it has a type.
type Raw = event.Raw

// Generate makes the program. Errors say what is too large or makes no sense.
func Generate(t Trace) (*Recorder, error) {
	r := &Recorder{trace: t}
	texts, names, faults := 0, 0, false
	c, err := contextOf(t.Arch)
	if err != nil {
		return nil, err
	}
	for k := range t.Args {
		f := &t.Args[k]
		if err := c.reads(f); err != nil {
			return nil, fmt.Errorf("gen: argument %d: %w", k, err)
		}
		switch {
		case f.As == event.LoadNumber && f.Size != 1 && f.Size != 2 && f.Size != 4 && f.Size != 8:
			return nil, fmt.Errorf("gen: argument %d: a number of %d bytes", k, f.Size)
		case array(f) != 0 && (f.As == event.LoadWord || f.Source == event.LoadComm):
			return nil, fmt.Errorf("gen: argument %d: an array that is not in memory", k)
		case f.As == event.LoadCounted && (f.Length == nil || f.Length.As > event.LoadNumber || f.Size&(f.Size-1) != 0 || f.Most*max(1, f.Size) > maxGenText):
			return nil, fmt.Errorf("gen: argument %d: %d elements of %d bytes that are counted", k, f.Most, f.Size)
		}
		if t.Kind == bpf.Kretprobe {
			r.entered = wanted(r.entered, f)
		}
		r.elems += elems(f)
		faults = faults || canFault(f)
		texts += roomsOf(f)
		if f.Source == event.LoadComm {
			names++
		}
	}
	if texts > maxTexts {
		return nil, fmt.Errorf("gen: %d texts in a record: %d are possible", texts, maxTexts)
	}
	for b := FieldTime; b <= FieldCPU; b <<= 1 {
		if t.Fields&b != 0 {
			r.faults += 8
		}
	}
	r.values = r.faults
	if faults {
		r.values += (r.elems + 63) / 64 * 8
	}
	r.fixed = r.values + 8*r.elems
	most := r.fixed + texts*(maxGenText+1)
	if texts == names && !t.Filter.texts() {
		r.whole = r.fixed + names*commSize
		most = r.whole
	}
	most += layout.RecordHeader // a ring holds the largest record, wherever it begins
	ring := t.Ring
	if ring == 0 {
		ring = max(64<<10, 1<<bits.Len(uint(2*most-1)))
	}
	if most > ring/2 || max(r.fixed, r.whole) > math.MaxInt16 {
		return nil, fmt.Errorf("gen: a record of up to %d bytes: a ring of %d holds %d, and 32767 besides texts is the most", most, ring, ring/2)
	}
	g := &writer{r: r, t: &r.trace, ctx: c, pointer: c.arch.PtrSize}
	maps := []*bpf.MapSpec{{Name: "records", Type: bpf.RingBuf, MaxEntries: uint32(ring)}}
	switch {
	case r.whole != 0 && t.Filter == nil:
		g.room = inRecord
	case r.whole != 0 && r.whole <= bpf.MaxStack-64:
		g.room = onStack
	default:
		g.room = inScratch
		maps = append(maps, &bpf.MapSpec{Name: "scratch", Type: bpf.PerCPUArray, KeySize: 4, MaxEntries: 1,
			ValueSize: uint32(r.fixed+(texts+1)*(textMask+1)+7) &^ 7})
	}
	if err := g.write(); err != nil {
		return nil, err
	}
	r.Program = &bpf.Program{Name: t.Name, Kind: t.Kind, Context: c.Context, Insns: g.out, Maps: maps}
	for _, m := range maps {
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	if len(r.entered) > 0 {
		e := &writer{r: r, t: &r.trace, ctx: c, pointer: c.arch.PtrSize}
		r.Entry = &bpf.Program{Name: t.Name + "_entry", Kind: bpf.Kprobe, Context: c.Context, Insns: e.entryProgram()}
	}
	return r, nil
}

// textMask bounds a text's length where the verifier can see it, and so how many
// fit in the scratch room.
const (
	commSize = 16 // the room that get_current_comm is given
	textMask = 8191
	maxTexts = bpf.MaxValue/(textMask+1) - 8
)

// room is where a record is put together.
type room uint8

const (
	inRecord  room = iota // the ring itself
	onStack               // a filter may drop it
	inScratch             // its length is not known before
)

// writer writes the program. R6 is the context, R8 the room, R7 the bits of what
// could not be read, R9 where the next text goes.
type writer struct {
	r     *Recorder
	t     *Trace
	ctx   *context
	room  room
	out   []bpf.Insn
	outs  []int // jumps to the end
	names int   // of threads that are in their places

	guards int // of the argument that is written
	err    error

	pointer int // bytes
}

func (g *writer) emit(i ...bpf.Insn) { g.out = append(g.out, i...) }

func (g *writer) mov(dst, src uint8) {
	g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov | bpf.SrcX, Dst: dst, Src: src})
}
func (g *writer) set(dst uint8, v int32) {
	g.emit(bpf.Insn{Op: bpf.ClassALU64 | bpf.Mov, Dst: dst, Imm: v})
}
func (g *writer) alu(op, dst uint8, v int32) {
	g.emit(bpf.Insn{Op: bpf.ClassALU64 | op, Dst: dst, Imm: v})
}
func (g *writer) aluReg(op, dst, src uint8) {
	g.emit(bpf.Insn{Op: bpf.ClassALU64 | op | bpf.SrcX, Dst: dst, Src: src})
}
func (g *writer) call(id int32) { g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: id}) }
func (g *writer) load(dst, src uint8, off int) {
	g.emit(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | bpf.SizeDW, Dst: dst, Src: src, Off: int16(off)})
}
func (g *writer) store(dst uint8, off int, src uint8) {
	g.emit(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeMem | bpf.SizeDW, Dst: dst, Src: src, Off: int16(off)})
}

// set64 is any number, in the shortest form.
func (g *writer) set64(dst uint8, v uint64) {
	if int64(v) == int64(int32(v)) {
		g.set(dst, int32(v))
		return
	}
	g.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Imm: int32(v)}, bpf.Insn{Imm: int32(v >> 32)})
}

// add is any number added, by way of R0 where it is long.
func (g *writer) add(dst uint8, v uint64) {
	switch {
	case v == 0:
		return
	case int64(v) == int64(int32(v)):
		g.alu(bpf.Add, dst, int32(v))
	default:
		g.set64(bpf.R0, v)
		g.aluReg(bpf.Add, dst, bpf.R0)
	}
	if g.pointer == 4 { // addresses wrap
		g.emit(bpf.Insn{Op: bpf.ClassALU | bpf.Mov | bpf.SrcX, Dst: dst, Src: dst})
	}
}

func (g *writer) mapPtr(dst uint8, index int32) {
	g.emit(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: bpf.LoadMap, Imm: index}, bpf.Insn{})
}

// end jumps to the end where R0 is 0.
func (g *writer) endIfZero() {
	g.outs = append(g.outs, len(g.out))
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jeq, Dst: bpf.R0})
}

func (g *writer) write() error {
	r := g.r
	g.mov(bpf.R6, bpf.R1)
	switch g.room {
	case inRecord:
		g.mapPtr(bpf.R1, RingIndex)
		g.set(bpf.R2, int32(max(8, r.whole))) // there is no empty record
		g.set(bpf.R3, 0)
		g.call(bpf.FnRingbufReserve)
		g.endIfZero()
		g.mov(bpf.R8, bpf.R0)
	case onStack:
		g.mov(bpf.R8, bpf.R10)
		g.alu(bpf.Add, bpf.R8, -int32(r.whole))
	case inScratch:
		g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeW, Dst: bpf.R10, Off: -4})
		g.mov(bpf.R2, bpf.R10)
		g.alu(bpf.Add, bpf.R2, -4)
		g.mapPtr(bpf.R1, 1)
		g.call(bpf.FnMapLookupElem)
		g.endIfZero()
		g.mov(bpf.R8, bpf.R0)
		g.set(bpf.R9, int32(r.fixed))
	}
	elem := 0
	for k := range g.t.Args {
		f := &g.t.Args[k]
		for i := range elems(f) {
			if r.faults < r.values && elem%64 == 0 {
				g.set(bpf.R7, 0)
			}
			g.fetch(f, i, elem)
			if elem++; r.faults < r.values && (elem%64 == 0 || elem == r.elems) {
				g.store(bpf.R8, r.faults+(elem-1)/64*8, bpf.R7)
			}
		}
	}
	if g.t.Filter != nil {
		no := g.filter(g.t.Filter, false)
		if g.err != nil {
			return g.err
		}
		g.outs = append(g.outs, no...)
	}
	g.fields()
	switch g.room {
	case inRecord:
		g.mov(bpf.R1, bpf.R8)
		g.set(bpf.R2, 0)
		g.call(bpf.FnRingbufSubmit)
	case onStack, inScratch:
		g.mapPtr(bpf.R1, RingIndex)
		g.mov(bpf.R2, bpf.R8)
		g.set(bpf.R3, int32(r.whole))
		if g.room == inScratch {
			g.mov(bpf.R3, bpf.R9)
		}
		g.set(bpf.R4, 0)
		g.call(bpf.FnRingbufOutput)
	}
	for _, at := range g.outs {
		if n := len(g.out) - at - 1; n > math.MaxInt16 {
			return errors.New("gen: the program is too long for its jumps")
		} else {
			g.out[at].Off = int16(n)
		}
	}
	g.set(bpf.R0, 0)
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
	return nil
}

// fields writes those that were asked for.
func (g *writer) fields() {
	off := 0
	for _, f := range []struct {
		bit Fields
		id  int32
	}{{FieldTime, bpf.FnKtimeGetNs}, {FieldThread, bpf.FnGetCurrentPidTgid}, {FieldCookie, bpf.FnGetAttachCookie}, {FieldCPU, bpf.FnGetSmpProcessorID}} {
		if g.t.Fields&f.bit == 0 {
			continue
		}
		if f.bit == FieldCookie {
			g.mov(bpf.R1, bpf.R6)
		}
		g.call(f.id)
		g.store(bpf.R8, off, bpf.R0)
		off += 8
	}
}

// slot is the offset of an element's 8 bytes.
func (g *writer) slot(elem int) int { return g.r.values + 8*elem }

// read reads size bytes at R3 into an element's slot, and adds the fault.
func (g *writer) read(elem, size int) {
	if size < 8 {
		g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeDW, Dst: bpf.R8, Off: int16(g.slot(elem))})
	}
	g.mov(bpf.R1, bpf.R8)
	g.alu(bpf.Add, bpf.R1, int32(g.slot(elem)))
	g.set(bpf.R2, int32(size))
	g.call(bpf.FnProbeRead)
	g.fault(elem)
}

// fault notes that R0 is negative.
func (g *writer) fault(elem int) {
	g.alu(bpf.Rsh, bpf.R0, 63)
	if elem%64 != 0 {
		g.alu(bpf.Lsh, bpf.R0, int32(elem%64))
	}
	g.aluReg(bpf.Or, bpf.R7, bpf.R0)
}

// fetch writes element i of an argument.
func (g *writer) fetch(f *event.Load, i, elem int) {
	if f.As == event.LoadCounted {
		if i == 0 {
			g.fetch(f.Length, 0, elem)
		} else {
			g.counted(f, elem)
		}
		return
	}
	word := g.pointer
	if f.Source == event.LoadComm {
		g.comm(elem)
		return
	}
	g.guards = 0
	g.word(f, elem)
	if f.As == event.LoadWord {
		if g.add(bpf.R3, f.Off); len(f.Hops) == 0 || f.Off != 0 {
			g.store(bpf.R8, g.slot(elem), bpf.R3)
		}
		return
	}
	step := f.Size
	if f.As == event.LoadTextPtr {
		step = word
	} else if f.As == event.LoadTextAt {
		step = 0
	}
	var null []int
	if f.As == event.LoadNumber && f.Nil {
		null = g.unlessNull(elem)
	}
	g.add(bpf.R3, f.Off+uint64(i*step))
	switch f.As {
	case event.LoadNumber:
		g.read(elem, f.Size)
		g.here(null)
		return
	case event.LoadTextPtr:
		g.read(elem, word)
		g.load(bpf.R3, bpf.R8, g.slot(elem))
	}
	size := maxGenText + 1
	if f.As == event.LoadTextAt && f.Most > 0 {
		size = f.Most
		g.store(bpf.R8, g.slot(elem), bpf.R3)
	}
	g.textTo(bpf.R1)
	g.set(bpf.R2, int32(size))
	g.call(bpf.FnProbeReadStr)
	// r0 &= ~(r0 >> 63): a fault has no length; and a bound that can be seen.
	g.mov(bpf.R2, bpf.R0)
	g.mov(bpf.R1, bpf.R0)
	g.alu(bpf.Arsh, bpf.R1, 63)
	g.alu(bpf.Xor, bpf.R1, -1)
	g.aluReg(bpf.And, bpf.R2, bpf.R1)
	g.alu(bpf.And, bpf.R2, textMask)
	g.fault(elem)
	g.mov(bpf.R0, bpf.R2)
	if size == f.Most {
		g.full(f, elem)
	}
	g.textDone(elem)
}

// full reads the last byte of a text that no NUL has ended: the helper has written one there. R0 is its length, with the NUL.
func (g *writer) full(f *event.Load, elem int) {
	over := len(g.out)
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Jne, Dst: bpf.R0, Imm: int32(f.Most)})
	g.load(bpf.R3, bpf.R8, g.slot(elem))
	g.add(bpf.R3, uint64(f.Most-1))
	g.textTo(bpf.R1)
	g.alu(bpf.Add, bpf.R1, int32(f.Most-1))
	g.set(bpf.R2, 1)
	g.call(bpf.FnProbeRead)
	g.fault(elem)
	g.textTo(bpf.R1)
	g.emit(bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | bpf.SizeB, Dst: bpf.R1, Off: int16(f.Most)})
	g.set(bpf.R0, int32(f.Most+1))
	g.here([]int{over})
}

// word takes an argument's word from its source and along its hops to R3, by way of an element's slot.
func (g *writer) word(f *event.Load, elem int) {
	masks := g.masks(f, elem)
	switch f.Source {
	case event.LoadEntry:
		g.entryWord(f.Reg)
	case event.LoadComputed:
		g.computedWord(f, elem)
	case event.LoadReg:
		g.load(bpf.R3, bpf.R6, g.ctx.Word*g.ctx.word(f.Reg))
	case event.LoadVector:
		g.set(bpf.R1, int32(f.N+1))
		g.call(bpf.FnVector)
		g.mov(bpf.R3, bpf.R0)
	case event.LoadThread:
		g.call(bpf.FnGetCurrentPidTgid)
		g.mov(bpf.R3, bpf.R0)
	default:
		g.set64(bpf.R3, f.N)
	}
	for i, hop := range f.Hops {
		g.mask(f, i, masks)
		var null []int
		if f.Nulls>>i&1 != 0 {
			null = g.unlessNull(elem)
		}
		g.add(bpf.R3, hop)
		g.read(elem, g.pointer)
		g.here(null)
		g.load(bpf.R3, bpf.R8, g.slot(elem))
	}
	g.mask(f, len(f.Hops), masks)
}

// comm is the thread's name with all its NULs: Decode looks for the first.
func (g *writer) comm(elem int) {
	if g.room == inScratch {
		g.textTo(bpf.R1)
	} else {
		g.mov(bpf.R1, bpf.R8)
		g.alu(bpf.Add, bpf.R1, int32(g.r.fixed+g.names*commSize))
	}
	g.set(bpf.R2, commSize)
	g.call(bpf.FnGetCurrentComm)
	if g.room == inScratch {
		g.set(bpf.R0, commSize)
		g.textDone(elem)
		return
	}
	g.set64(bpf.R1, commSize<<32|uint64(g.r.fixed+g.names*commSize))
	g.store(bpf.R8, g.slot(elem), bpf.R1)
	g.names++
}

// textTo is where the next text goes.
func (g *writer) textTo(reg uint8) {
	g.mov(reg, bpf.R8)
	g.aluReg(bpf.Add, reg, bpf.R9)
}

// textDone notes a text of R0 bytes.
func (g *writer) textDone(elem int) {
	g.mov(bpf.R1, bpf.R0)
	g.alu(bpf.Lsh, bpf.R1, 32)
	g.aluReg(bpf.Or, bpf.R1, bpf.R9)
	g.store(bpf.R8, g.slot(elem), bpf.R1)
	g.aluReg(bpf.Add, bpf.R9, bpf.R0)
}

// filter writes a test and gives the jumps that leave it where its outcome is
// not as wanted: when negate, where it holds.
func (g *writer) filter(f *Filter, negate bool) (away []int) {
	if f == nil {
		g.err = errors.New("gen: filter: an operand is missing")
		return nil
	}
	op := f.Op
	if negate { // not (a and b) is not a or not b
		switch op {
		case FilterAnd:
			op = FilterOr
		case FilterOr:
			op = FilterAnd
		}
	}
	switch op {
	case FilterNot:
		return g.filter(f.Left, !negate)
	case FilterAnd:
		return append(g.filter(f.Left, negate), g.filter(f.Right, negate)...)
	case FilterOr:
		left := g.filter(f.Left, negate)
		over := len(g.out)
		g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Ja})
		g.here(left)
		away = g.filter(f.Right, negate)
		g.here([]int{over})
		return away
	}
	if f.A != nil || f.B != nil {
		return g.leave(g.computed(f), negate)
	}
	if f.Arg < 0 || f.Arg >= len(g.t.Args) || array(&g.t.Args[f.Arg]) != 0 || f.IsText != isText(&g.t.Args[f.Arg]) {
		g.err = fmt.Errorf("gen: filter: argument %d is not there, or not of the kind that it is compared with", f.Arg)
		return nil
	}
	return g.leave(g.compare(f), negate)
}

// leave gives the jumps away from a comparison, of which fails are those where it does not hold.
func (g *writer) leave(fails []int, negate bool) []int {
	if !negate {
		return fails
	}
	// It holds: away. It does not: on.
	at := len(g.out)
	g.emit(bpf.Insn{Op: bpf.ClassJMP | bpf.Ja})
	g.here(fails)
	return []int{at}
}

// here makes jumps come to the next instruction.
func (g *writer) here(jumps []int) {
	for _, at := range jumps {
		g.out[at].Off = int16(len(g.out) - at - 1)
	}
}

// compare writes one comparison and gives the jumps where it fails.
func (g *writer) compare(f *Filter) (fails []int) {
	fail := func(i bpf.Insn) {
		fails = append(fails, len(g.out))
		g.emit(i)
	}
	g.fails(f.Arg, fail)
	elem := g.elem(f.Arg)
	if g.t.Args[f.Arg].As == event.LoadCounted {
		elem++ // its memory: of the length the program has no need
	}
	g.load(bpf.R1, bpf.R8, g.slot(elem))
	if f.IsText {
		readable := len(fails)
		if g.t.Args[f.Arg].As == event.LoadCounted && !f.Prefix { // which may hold NULs
			g.load(bpf.R2, bpf.R8, g.slot(elem-1))
			fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Jne, Dst: bpf.R2, Imm: int32(len(f.Text))})
		}
		g.compareText(f, fail)
		if f.Op == FilterNotEq { // what failed is right, what came here is not
			differs := fails[readable:]
			fails = fails[:readable:readable]
			fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Ja})
			g.here(differs)
		}
		return fails
	}
	g.part(f.Bytes, f.Signed, f.Shift, f.Mask)
	g.set64(bpf.R2, f.N)
	if f.Op == FilterBits {
		g.aluReg(bpf.And, bpf.R1, bpf.R2)
		fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Jeq, Dst: bpf.R1})
		return fails
	}
	fail(bpf.Insn{Op: bpf.ClassJMP | f.otherwise() | bpf.SrcX, Dst: bpf.R1, Src: bpf.R2})
	return fails
}

// compareText compares the text that R1 tells of with one that is known, NUL
// included.
func (g *writer) compareText(f *Filter, fail func(bpf.Insn)) {
	if f.Op != FilterEq && f.Op != FilterNotEq || len(f.Text) > 255 {
		g.err = errors.New("gen: filter: texts of up to 255 bytes can be equal, or not")
		return
	}
	// The low half is the place; the verifier is shown that it is in the room.
	g.alu(bpf.Lsh, bpf.R1, 32)
	g.alu(bpf.Rsh, bpf.R1, 32)
	fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Jgt, Dst: bpf.R1, Imm: int32(g.scratch() - 512)})
	g.aluReg(bpf.Add, bpf.R1, bpf.R8)
	text := []byte(f.Text)
	if !f.Prefix {
		text = append(text, 0)
	}
	for k := 0; k < len(text); {
		size, n := uint8(bpf.SizeB), 1
		for _, s := range []struct {
			size uint8
			n    int
		}{{bpf.SizeDW, 8}, {bpf.SizeW, 4}, {bpf.SizeH, 2}} {
			if len(text)-k >= s.n {
				size, n = s.size, s.n
				break
			}
		}
		var want [8]byte
		copy(want[:], text[k:k+n])
		g.emit(bpf.Insn{Op: bpf.ClassLDX | bpf.ModeMem | size, Dst: bpf.R2, Src: bpf.R1, Off: int16(k)})
		g.set64(bpf.R3, binary.LittleEndian.Uint64(want[:]))
		fail(bpf.Insn{Op: bpf.ClassJMP | bpf.Jne | bpf.SrcX, Dst: bpf.R2, Src: bpf.R3})
		k += n
	}
}

// scratch is the bytes of the scratch room.
func (g *writer) scratch() int {
	texts := 0
	for k := range g.t.Args {
		texts += roomsOf(&g.t.Args[k])
	}
	return g.r.fixed + (texts+1)*(textMask+1)
}
