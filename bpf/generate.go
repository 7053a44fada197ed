package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
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
//	(low half) and length with the NUL (high half)
//	the texts
//
// Where its length is known it is made where it will lie in the ring.

// From is where a fetch starts.
type From uint8

const (
	FromConst  From = iota // N
	FromReg                // word N of the context
	FromComm               // the thread's name, a text
	FromThread             // tgid << 32 | tid
)

// As is what is made of the word that a fetch arrives at.
type As uint8

const (
	AsWord     As     = iota // the word itself
	AsNumber                 // the Size bytes at the word + Off
	AsText                   // the text at the word + Off
	AsTextAt                 // the text at the pointer that lies at the word + Off
	maxGenText = 4095        // bytes of a text, without its NUL
)

// Fetch is one argument: a word from its source, replaced by the word in memory
// at word + hop for every hop, then made into Count values (0: one that is no
// array), Size or a pointer apart.
type Fetch struct {
	From  From
	N     uint64
	Hops  []uint64
	As    As
	Off   uint64
	Size  int // AsNumber: 1, 2, 4 or 8
	Count int
}

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
	Name    string
	Kind    Kind
	Context Context // the zero value is AMD64's
	Pointer int     // bytes of a pointer in the target; 0: of a word of the context
	Fields  Fields
	Args    []Fetch
	Filter  *Filter // nil: every hit
	Ring    int     // bytes of a thread's ring, a power of two; 0: 64 KiB, or what the largest record needs
}

// Recorder is a generated program and the way its records are read.
type Recorder struct {
	Program *Program
	trace   Trace
	faults  int // offset of the bits
	values  int // offset of element 0; the bits' too where nothing can fault
	fixed   int // bytes before the texts
	whole   int // and with them, where these are names only, whose length is known; else 0
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
type Raw struct {
	Fault bool
	Bits  uint64 // a number
	Text  string
	Elems []Raw // of an array
}

func (f *Fetch) elems() int   { return max(1, f.Count) }
func (f *Fetch) faults() bool { return f.From != FromComm && (f.As != AsWord || len(f.Hops) > 0) }
func (f *Fetch) text() bool   { return f.From == FromComm || f.As == AsText || f.As == AsTextAt }

// Generate makes the program. Errors say what is too large or makes no sense.
func Generate(t Trace) (*Recorder, error) {
	r := &Recorder{trace: t}
	texts, names, faults := 0, 0, false
	for k, f := range t.Args {
		c := (&Program{Context: t.Context}).context()
		switch {
		case f.From == FromReg && f.N >= uint64(len(c.Regs)):
			return nil, fmt.Errorf("bpf: argument %d: there is no word %d of %d in the context", k, f.N, len(c.Regs))
		case f.As == AsNumber && f.Size != 1 && f.Size != 2 && f.Size != 4 && f.Size != 8:
			return nil, fmt.Errorf("bpf: argument %d: a number of %d bytes", k, f.Size)
		case f.Count != 0 && (f.As == AsWord || f.From == FromComm):
			return nil, fmt.Errorf("bpf: argument %d: an array that is not in memory", k)
		}
		r.elems += f.elems()
		faults = faults || f.faults()
		if f.text() {
			texts += f.elems()
		}
		if f.From == FromComm {
			names++
		}
	}
	if texts > maxTexts {
		return nil, fmt.Errorf("bpf: %d texts in a record: %d are possible", texts, maxTexts)
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
	most += RecordHeader // a ring holds the largest record, wherever it begins
	ring := t.Ring
	if ring == 0 {
		ring = max(64<<10, 1<<bits.Len(uint(2*most-1)))
	}
	if most > ring/2 || max(r.fixed, r.whole) > math.MaxInt16 {
		return nil, fmt.Errorf("bpf: a record of up to %d bytes: a ring of %d holds %d, and 32767 besides texts is the most", most, ring, ring/2)
	}
	g := &writer{r: r, t: &r.trace, ctx: (&Program{Context: t.Context}).context(), pointer: t.Pointer}
	if g.pointer == 0 {
		g.pointer = g.ctx.Word
	}
	maps := []*MapSpec{{Name: "records", Type: RingBuf, MaxEntries: uint32(ring)}}
	switch {
	case r.whole != 0 && t.Filter == nil:
		g.room = inRecord
	case r.whole != 0 && r.whole <= MaxStack-64:
		g.room = onStack
	default:
		g.room = inScratch
		maps = append(maps, &MapSpec{Name: "scratch", Type: PerCPUArray, KeySize: 4, MaxEntries: 1,
			ValueSize: uint32(roundUp(uint64(r.fixed+(texts+1)*(textMask+1)), 8))})
	}
	if err := g.write(); err != nil {
		return nil, err
	}
	r.Program = &Program{Name: t.Name, Kind: t.Kind, Context: t.Context, Insns: g.out, Maps: maps}
	for _, m := range maps {
		if err := m.check(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// textMask bounds a text's length where the verifier can see it, and so how many
// fit in the scratch room.
const (
	commSize = 16 // the room that get_current_comm is given
	textMask = 8191
	maxTexts = maxValue/(textMask+1) - 8
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
	ctx   *Context
	room  room
	out   []Insn
	outs  []int // jumps to the end
	names int   // of threads that are in their places
	err   error

	pointer int // bytes
}

func (g *writer) emit(i ...Insn) { g.out = append(g.out, i...) }

func (g *writer) mov(dst, src uint8) { g.emit(Insn{Op: ClassALU64 | Mov | SrcX, Dst: dst, Src: src}) }
func (g *writer) set(dst uint8, v int32) {
	g.emit(Insn{Op: ClassALU64 | Mov, Dst: dst, Imm: v})
}
func (g *writer) alu(op, dst uint8, v int32) { g.emit(Insn{Op: ClassALU64 | op, Dst: dst, Imm: v}) }
func (g *writer) aluReg(op, dst, src uint8) {
	g.emit(Insn{Op: ClassALU64 | op | SrcX, Dst: dst, Src: src})
}
func (g *writer) call(id int32) { g.emit(Insn{Op: ClassJMP | Call, Imm: id}) }
func (g *writer) load(dst, src uint8, off int) {
	g.emit(Insn{Op: ClassLDX | ModeMem | SizeDW, Dst: dst, Src: src, Off: int16(off)})
}
func (g *writer) store(dst uint8, off int, src uint8) {
	g.emit(Insn{Op: ClassSTX | ModeMem | SizeDW, Dst: dst, Src: src, Off: int16(off)})
}

// set64 is any number, in the shortest form.
func (g *writer) set64(dst uint8, v uint64) {
	if int64(v) == int64(int32(v)) {
		g.set(dst, int32(v))
		return
	}
	g.emit(Insn{Op: OpLoadImm64, Dst: dst, Imm: int32(v)}, Insn{Imm: int32(v >> 32)})
}

// add is any number added, by way of R0 where it is long.
func (g *writer) add(dst uint8, v uint64) {
	switch {
	case v == 0:
		return
	case int64(v) == int64(int32(v)):
		g.alu(Add, dst, int32(v))
	default:
		g.set64(R0, v)
		g.aluReg(Add, dst, R0)
	}
	if g.pointer == 4 { // addresses wrap
		g.emit(Insn{Op: ClassALU | Mov | SrcX, Dst: dst, Src: dst})
	}
}

func (g *writer) mapPtr(dst uint8, index int32) {
	g.emit(Insn{Op: OpLoadImm64, Dst: dst, Src: LoadMap, Imm: index}, Insn{})
}

// end jumps to the end where R0 is 0.
func (g *writer) endIfZero() {
	g.outs = append(g.outs, len(g.out))
	g.emit(Insn{Op: ClassJMP | Jeq, Dst: R0})
}

func (g *writer) write() error {
	r := g.r
	g.mov(R6, R1)
	switch g.room {
	case inRecord:
		g.mapPtr(R1, RingIndex)
		g.set(R2, int32(max(8, r.whole))) // there is no empty record
		g.set(R3, 0)
		g.call(FnRingbufReserve)
		g.endIfZero()
		g.mov(R8, R0)
	case onStack:
		g.mov(R8, R10)
		g.alu(Add, R8, -int32(r.whole))
	case inScratch:
		g.emit(Insn{Op: ClassST | ModeMem | SizeW, Dst: R10, Off: -4})
		g.mov(R2, R10)
		g.alu(Add, R2, -4)
		g.mapPtr(R1, 1)
		g.call(FnMapLookupElem)
		g.endIfZero()
		g.mov(R8, R0)
		g.set(R9, int32(r.fixed))
	}
	elem := 0
	for k := range g.t.Args {
		f := &g.t.Args[k]
		for i := range f.elems() {
			if r.faults < r.values && elem%64 == 0 {
				g.set(R7, 0)
			}
			g.fetch(f, i, elem)
			if elem++; r.faults < r.values && (elem%64 == 0 || elem == r.elems) {
				g.store(R8, r.faults+(elem-1)/64*8, R7)
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
		g.mov(R1, R8)
		g.set(R2, 0)
		g.call(FnRingbufSubmit)
	case onStack, inScratch:
		g.mapPtr(R1, RingIndex)
		g.mov(R2, R8)
		g.set(R3, int32(r.whole))
		if g.room == inScratch {
			g.mov(R3, R9)
		}
		g.set(R4, 0)
		g.call(FnRingbufOutput)
	}
	for _, at := range g.outs {
		if n := len(g.out) - at - 1; n > math.MaxInt16 {
			return errors.New("bpf: the program is too long for its jumps")
		} else {
			g.out[at].Off = int16(n)
		}
	}
	g.set(R0, 0)
	g.emit(Insn{Op: ClassJMP | Exit})
	return nil
}

// fields writes those that were asked for.
func (g *writer) fields() {
	off := 0
	for _, f := range []struct {
		bit Fields
		id  int32
	}{{FieldTime, FnKtimeGetNs}, {FieldThread, FnGetCurrentPidTgid}, {FieldCookie, FnGetAttachCookie}, {FieldCPU, FnGetSmpProcessorID}} {
		if g.t.Fields&f.bit == 0 {
			continue
		}
		if f.bit == FieldCookie {
			g.mov(R1, R6)
		}
		g.call(f.id)
		g.store(R8, off, R0)
		off += 8
	}
}

// slot is the offset of an element's 8 bytes.
func (g *writer) slot(elem int) int { return g.r.values + 8*elem }

// read reads size bytes at R3 into an element's slot, and adds the fault.
func (g *writer) read(elem, size int) {
	if size < 8 {
		g.emit(Insn{Op: ClassST | ModeMem | SizeDW, Dst: R8, Off: int16(g.slot(elem))})
	}
	g.mov(R1, R8)
	g.alu(Add, R1, int32(g.slot(elem)))
	g.set(R2, int32(size))
	g.call(FnProbeRead)
	g.fault(elem)
}

// fault notes that R0 is negative.
func (g *writer) fault(elem int) {
	g.alu(Rsh, R0, 63)
	if elem%64 != 0 {
		g.alu(Lsh, R0, int32(elem%64))
	}
	g.aluReg(Or, R7, R0)
}

// fetch writes element i of an argument.
func (g *writer) fetch(f *Fetch, i, elem int) {
	word := g.pointer
	switch f.From {
	case FromComm:
		g.comm(elem)
		return
	case FromReg:
		op := uint8(SizeDW)
		if g.ctx.Word == 4 {
			op = SizeW
		}
		g.emit(Insn{Op: ClassLDX | ModeMem | op, Dst: R3, Src: R6, Off: int16(g.ctx.Word * int(f.N))})
	case FromThread:
		g.call(FnGetCurrentPidTgid)
		g.mov(R3, R0)
	default:
		g.set64(R3, f.N)
	}
	for _, hop := range f.Hops {
		g.add(R3, hop)
		g.read(elem, word)
		g.load(R3, R8, g.slot(elem))
	}
	if f.As == AsWord {
		if len(f.Hops) == 0 {
			g.store(R8, g.slot(elem), R3)
		}
		return
	}
	step := f.Size
	if f.As == AsTextAt {
		step = word
	} else if f.As == AsText {
		step = 0
	}
	g.add(R3, f.Off+uint64(i*step))
	switch f.As {
	case AsNumber:
		g.read(elem, f.Size)
		return
	case AsTextAt:
		g.read(elem, word)
		g.load(R3, R8, g.slot(elem))
	}
	g.textTo(R1)
	g.set(R2, maxGenText+1)
	g.call(FnProbeReadStr)
	// r0 &= ~(r0 >> 63): a fault has no length; and a bound that can be seen.
	g.mov(R2, R0)
	g.mov(R1, R0)
	g.alu(Arsh, R1, 63)
	g.alu(Xor, R1, -1)
	g.aluReg(And, R2, R1)
	g.alu(And, R2, textMask)
	g.fault(elem)
	g.mov(R0, R2)
	g.textDone(elem)
}

// comm is the thread's name with all its NULs: Decode looks for the first.
func (g *writer) comm(elem int) {
	if g.room == inScratch {
		g.textTo(R1)
	} else {
		g.mov(R1, R8)
		g.alu(Add, R1, int32(g.r.fixed+g.names*commSize))
	}
	g.set(R2, commSize)
	g.call(FnGetCurrentComm)
	if g.room == inScratch {
		g.set(R0, commSize)
		g.textDone(elem)
		return
	}
	g.set64(R1, commSize<<32|uint64(g.r.fixed+g.names*commSize))
	g.store(R8, g.slot(elem), R1)
	g.names++
}

// textTo is where the next text goes.
func (g *writer) textTo(reg uint8) {
	g.mov(reg, R8)
	g.aluReg(Add, reg, R9)
}

// textDone notes a text of R0 bytes.
func (g *writer) textDone(elem int) {
	g.mov(R1, R0)
	g.alu(Lsh, R1, 32)
	g.aluReg(Or, R1, R9)
	g.store(R8, g.slot(elem), R1)
	g.aluReg(Add, R9, R0)
}

// filter writes a test and gives the jumps that leave it where its outcome is
// not as wanted: when negate, where it holds.
func (g *writer) filter(f *Filter, negate bool) (away []int) {
	if f == nil {
		g.err = errors.New("bpf: filter: an operand is missing")
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
		g.emit(Insn{Op: ClassJMP | Ja})
		g.here(left)
		away = g.filter(f.Right, negate)
		g.here([]int{over})
		return away
	}
	if f.Arg < 0 || f.Arg >= len(g.t.Args) || g.t.Args[f.Arg].Count != 0 || f.IsText != g.t.Args[f.Arg].text() {
		g.err = fmt.Errorf("bpf: filter: argument %d is not there, or not of the kind that it is compared with", f.Arg)
		return nil
	}
	fails := g.compare(f)
	if !negate {
		return fails
	}
	// It holds: away. It does not: on.
	at := len(g.out)
	g.emit(Insn{Op: ClassJMP | Ja})
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
	fail := func(i Insn) {
		fails = append(fails, len(g.out))
		g.emit(i)
	}
	elem := 0
	for k := range f.Arg {
		elem += g.t.Args[k].elems()
	}
	if g.t.Args[f.Arg].faults() { // what could not be read is equal to nothing
		g.load(R1, R8, g.r.faults+elem/64*8)
		g.set64(R2, 1<<(elem%64))
		fail(Insn{Op: ClassJMP | Jset | SrcX, Dst: R1, Src: R2})
	}
	g.load(R1, R8, g.slot(elem))
	if f.IsText {
		readable := len(fails)
		g.compareText(f, fail)
		if f.Op == FilterNotEq { // what failed is right, what came here is not
			differs := fails[readable:]
			fails = fails[:readable:readable]
			fail(Insn{Op: ClassJMP | Ja})
			g.here(differs)
		}
		return fails
	}
	if f.Bytes > 0 && f.Bytes < 8 {
		n, back := int32(64-8*f.Bytes), uint8(Rsh)
		if f.Signed {
			back = Arsh
		}
		g.alu(Lsh, R1, n)
		g.alu(back, R1, n)
	}
	if f.Shift != 0 {
		g.alu(Rsh, R1, int32(f.Shift&63))
	}
	if f.Mask != 0 {
		g.set64(R2, f.Mask)
		g.aluReg(And, R1, R2)
	}
	g.set64(R2, f.N)
	op := map[FilterOp]uint8{FilterEq: Jne, FilterNotEq: Jeq, FilterLess: Jge, FilterLessEq: Jgt, FilterGreater: Jle, FilterGreaterEq: Jlt}[f.Op]
	if f.Signed && f.Op >= FilterLess {
		op = map[FilterOp]uint8{FilterLess: Jsge, FilterLessEq: Jsgt, FilterGreater: Jsle, FilterGreaterEq: Jslt}[f.Op]
	}
	if f.Op == FilterBits {
		g.aluReg(And, R1, R2)
		fail(Insn{Op: ClassJMP | Jeq, Dst: R1})
		return fails
	}
	fail(Insn{Op: ClassJMP | op | SrcX, Dst: R1, Src: R2})
	return fails
}

// compareText compares the text that R1 tells of with one that is known, NUL
// included.
func (g *writer) compareText(f *Filter, fail func(Insn)) {
	if f.Op != FilterEq && f.Op != FilterNotEq || len(f.Text) > 255 {
		g.err = errors.New("bpf: filter: texts of up to 255 bytes can be equal, or not")
		return
	}
	// The low half is the place; the verifier is shown that it is in the room.
	g.alu(Lsh, R1, 32)
	g.alu(Rsh, R1, 32)
	fail(Insn{Op: ClassJMP | Jgt, Dst: R1, Imm: int32(g.scratch() - 512)})
	g.aluReg(Add, R1, R8)
	text := append([]byte(f.Text), 0)
	for k := 0; k < len(text); {
		size, n := uint8(SizeB), 1
		for _, s := range []struct {
			size uint8
			n    int
		}{{SizeDW, 8}, {SizeW, 4}, {SizeH, 2}} {
			if len(text)-k >= s.n {
				size, n = s.size, s.n
				break
			}
		}
		var want [8]byte
		copy(want[:], text[k:k+n])
		g.emit(Insn{Op: ClassLDX | ModeMem | size, Dst: R2, Src: R1, Off: int16(k)})
		g.set64(R3, binary.LittleEndian.Uint64(want[:]))
		fail(Insn{Op: ClassJMP | Jne | SrcX, Dst: R2, Src: R3})
		k += n
	}
}

// scratch is the bytes of the scratch room.
func (g *writer) scratch() int {
	texts := 0
	for k := range g.t.Args {
		if g.t.Args[k].text() {
			texts += g.t.Args[k].elems()
		}
	}
	return g.r.fixed + (texts+1)*(textMask+1)
}

// Decode reads a record. Every number in it is looked at before it is believed:
// the target may have overwritten it.
func (r *Recorder) Decode(rec []byte) (h Hit, err error) {
	bad := fmt.Errorf("bpf: a record of %d bytes is none of program %q", len(rec), r.trace.Name)
	if len(rec) < r.fixed {
		return h, bad
	}
	off := 0
	word := func() uint64 {
		off += 8
		return binary.LittleEndian.Uint64(rec[off-8:])
	}
	if r.trace.Fields&FieldTime != 0 {
		h.Time = word()
	}
	if r.trace.Fields&FieldThread != 0 {
		h.Thread = word()
	}
	if r.trace.Fields&FieldCookie != 0 {
		h.Cookie = word()
	}
	if r.trace.Fields&FieldCPU != 0 {
		h.CPU = uint32(word())
	}
	elem := 0
	for k := range r.trace.Args {
		f := &r.trace.Args[k]
		elems := make([]Raw, f.elems())
		for i := range elems {
			v := binary.LittleEndian.Uint64(rec[r.values+8*elem:])
			var faults uint64
			if r.faults < r.values {
				faults = binary.LittleEndian.Uint64(rec[r.faults+elem/64*8:])
			}
			e := &elems[i]
			switch place, n := uint64(uint32(v)), v>>32; {
			case faults>>(elem%64)&1 != 0:
				e.Fault = true
			case !f.text():
				e.Bits = v
			case place > uint64(len(rec)) || n > uint64(len(rec))-place:
				return h, bad
			default:
				e.Text = cString(rec[place : place+n])
			}
			elem++
		}
		if f.Count == 0 {
			h.Args = append(h.Args, elems[0])
		} else {
			h.Args = append(h.Args, Raw{Elems: elems})
		}
	}
	return h, nil
}
