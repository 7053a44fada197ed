package arm64

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/testprog/qemurun"
)

// QEMU as the judge: an instruction runs in its place, in its slot, and on the registers
// alone, from one and the same state, and everything that a program can see must come out
// the same.

// Where things are. Slots are near: as near as an instruction's own fields may reach, or not.
const (
	textAt  = 0x40000000
	slotAt  = 0x40080000 // in reach of a literal's load
	farSlot = 0x44000000 // in a branch's reach only
	dataAt  = 0x50000000
	area    = 1 << 14
	instrAt = textAt + area/2
)

type sample struct {
	name        string
	mask, value uint32 // the bits that are given
}

// samples are the classes: each is filled with random bits where the mask has none, and those
// whose branch leads out of the text are left out.
var samples = []sample{
	{name: "b", mask: 0xfc000000, value: 0x14000000},
	{name: "bl", mask: 0xfc000000, value: 0x94000000},
	{name: "b.cond", mask: 0xff000010, value: 0x54000000},
	{name: "cbz", mask: 0x7f000000, value: 0x34000000},
	{name: "cbnz x", mask: 0xff000000, value: 0xb5000000},
	{name: "cbnz w", mask: 0xff000000, value: 0x35000000},
	{name: "tbz", mask: 0x7f000000, value: 0x36000000},
	{name: "tbnz", mask: 0x7f000000, value: 0x37000000},
	{name: "br", mask: 0xfffffc1f, value: 0xd61f0000},
	{name: "blr", mask: 0xfffffc1f, value: 0xd63f0000},
	{name: "ret", mask: 0xfffffc1f, value: 0xd65f0000},
	{name: "braa", mask: 0xfefff800, value: 0xd61f0800},
	{name: "blraa", mask: 0xfefff800, value: 0xd63f0800},
	{name: "retaa", mask: 0xfffffbff, value: 0xd65f0bff},
	{name: "adr", mask: 0x9f000000, value: 0x10000000},
	{name: "adrp", mask: 0x9f000000, value: 0x90000000},
	{name: "ldr literal", mask: 0xbf000000, value: 0x18000000},
	{name: "ldrsw literal", mask: 0xff000000, value: 0x98000000},
	{name: "ldr s literal", mask: 0xff000000, value: 0x1c000000},
	{name: "ldr d literal", mask: 0xff000000, value: 0x5c000000},
	{name: "ldr q literal", mask: 0xff000000, value: 0x9c000000},
	{name: "prfm literal", mask: 0xff000000, value: 0xd8000000},
	{name: "nop and hints", mask: 0xfffff01f, value: 0xd503201f},
	{name: "add immediate", mask: 0x1f800000, value: 0x11000000},
	{name: "logical", mask: 0x1f000000, value: 0x0a000000},
	{name: "add shifted", mask: 0x1f200000, value: 0x0b000000},
	{name: "data of 2 sources", mask: 0x7fe0c000, value: 0x1ac00000},
	{name: "data of 3 sources", mask: 0xffe00000, value: 0x9b000000},
	{name: "conditional select", mask: 0x3fe00800, value: 0x1a800000},
	{name: "move wide", mask: 0x1f800000, value: 0x12800000},
	{name: "ldr x, [x28]", mask: 0xffc003e0, value: 0xf9400380},
	{name: "str x, [x28]", mask: 0xffc003e0, value: 0xf9000380},
	{name: "ldp", mask: 0xffc003e0, value: 0xa9400380},
	{name: "ldadd", mask: 0xff20ffe0, value: 0xb8200380},
	{name: "swp", mask: 0xff20ffe0, value: 0xf8208380},
	{name: "vector add", mask: 0xbf20fc00, value: 0x0e208400},
	{name: "float add", mask: 0xffe0fc00, value: 0x1e602800},
	{name: "paciasp", mask: 0xffffff3f, value: 0xd503231f},
	{name: "udf", mask: 0xffff0000, value: 0x00000000},
}

// memory is the memory of QEMU's program, for emulation.
type memory struct{ m *qemurun.Machine }

func (m memory) ReadAt(a arch.Addr, p []byte) error {
	if !mapped(a) || !mapped(a+arch.Addr(len(p))-1) {
		return fmt.Errorf("nothing is mapped at %v", a)
	}
	copy(p, m.m.Read(uint64(a), len(p)))
	return nil
}

func (m memory) WriteAt(arch.Addr, []byte) error { panic("no instruction that is emulated stores") }

func mapped(a arch.Addr) bool {
	for _, at := range []arch.Addr{textAt, slotAt, farSlot, dataAt} {
		if a >= at && a < at+area {
			return true
		}
	}
	return false
}

// world is text full of traps, so that wherever something branches to there is an end.
type world struct {
	m    *qemurun.Machine
	data []byte
	r    *rand.Rand
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{m: qemurun.ARM64(t), r: rand.New(rand.NewPCG(seed, 12))}
	for _, at := range []uint64{textAt, slotAt, farSlot, dataAt} {
		w.m.Map(at, area)
		w.m.Write(at, traps)
	}
	for range area / 8 {
		w.data = binary.LittleEndian.AppendUint64(w.data, w.r.Uint64())
	}
	return w
}

var traps = bytes.Repeat([]byte{0, 0, 0x20, 0xd4}, area/length)

// state is a random one: x28 and the stack pointer lead to data, some of the others to text.
func (w *world) state() qemurun.State {
	var s qemurun.State
	for i := range s.X {
		switch w.r.IntN(4) {
		case 0:
			s.X[i] = w.r.Uint64()
		case 1:
			s.X[i] = uint64(w.r.IntN(3)) - 1
		default:
			s.X[i] = textAt + uint64(w.r.IntN(area/length))*length
			if w.r.IntN(4) == 0 {
				s.X[i] |= w.r.Uint64() << 56 // a tag
			}
		}
	}
	s.X[28], s.SP = dataAt+area/8, dataAt+area/2
	s.PC, s.PState = instrAt, uint64(w.r.IntN(16))<<28
	for i := range s.V {
		s.V[i] = w.r.Uint64()
	}
	return s
}

// run gives the state and the data at the end.
func (w *world) run(s qemurun.State) (qemurun.State, qemurun.Stop, []byte) {
	w.m.Write(dataAt, w.data)
	stop := w.m.Run(&s)
	s.PState &^= btype // set by a branch to a register, but not by one in another's place
	return s, stop, w.m.Read(dataAt, area)
}

func (w *world) code(at uint64, code []byte, f func()) {
	w.m.Write(at, code)
	f()
	w.m.Write(at, traps[:len(code)])
}

// Every class does the same elsewhere, and on registers, as where it stands.
func TestElsewhere(t *testing.T) {
	w := newWorld(t, 1)
	rounds := 60
	if testing.Short() {
		rounds = 12
	}
	kinds := map[isa.Kind]int{}
	for _, s := range samples {
		ran, copies, emulations := 0, 0, 0
		for try := 0; ran < rounds && try < 400*rounds; try++ {
			word := w.r.Uint32()&^s.mask | s.value
			if word, ok := w.tame(word); ok {
				ran++
				v := w.compare(t, s.name, word)
				kinds[v.Kind]++
				if len(v.Code) > 0 {
					copies++
				}
				if v.Emulate != nil {
					emulations++
				}
				if t.Failed() {
					return
				}
			}
		}
		if ran < rounds || copies == 0 && emulations == 0 {
			t.Errorf("%s: %d of %d ran, %d in slots, %d on registers", s.name, ran, rounds, copies, emulations)
		}
	}
	t.Logf("%v", kinds)
}

// tame shortens what an instruction refers to, so that it is mapped; false where the instruction is
// none, or makes the state useless for a comparison.
func (w *world) tame(word uint32) (uint32, bool) {
	f := formOf(word)
	near := func(field, at uint32) {
		d := uint32(w.r.IntN(area/2)-area/4) / length
		word = word&^(field<<at) | d&field<<at
	}
	switch {
	case f.refuse != "":
		return 0, false
	case f.offset == nil || f.page:
	case f.flow == isa.Jump || f.flow == isa.Call:
		near(1<<26-1, 0)
	case word>>25&0x3f == 0x1b: // tbz
		near(1<<14-1, 5)
	default:
		near(1<<19-1, 5)
	}
	if f.offset != nil && f.target(word, instrAt) == instrAt {
		return 0, false // it would run for ever
	}
	if refusal(word, formOf(word)) != "" {
		return 0, false // it reads its own bytes
	}
	_, err := ISA.Decode(binary.LittleEndian.AppendUint32(nil, word), instrAt)
	return word, err == nil
}

// compare runs an instruction in all the ways that there are.
func (w *world) compare(t *testing.T, name string, word uint32) isa.Verdict {
	code := binary.LittleEndian.AppendUint32(nil, word)
	from := w.state()
	if f := formOf(word); f.flow == isa.IndirectJump || f.flow == isa.IndirectCall || f.flow == isa.Return {
		// Not to itself, for ever. The address that it signs is not known here.
		if from.X[word>>5&31%31]&(1<<56-1) == instrAt {
			from.X[word>>5&31%31] += length
		}
	}
	var want, got qemurun.State
	var stop, stopped qemurun.Stop
	var data, saw []byte
	w.code(instrAt, code, func() { want, stop, data = w.run(from) })

	var best isa.Verdict
	for _, at := range []uint64{farSlot, slotAt} {
		v, err := ISA.Place(code, instrAt, arch.Addr(at))
		if err != nil {
			t.Fatalf("%s %08x: %v", name, word, err)
		}
		if best = v; len(v.Code) == 0 {
			continue
		}
		if len(v.Code) > ISA.SlotSize() {
			t.Errorf("%s %08x: a slot of %d bytes", name, word, len(v.Code))
		}
		from := from
		from.PC = at
		w.code(at, v.Code, func() { got, stopped, saw = w.run(from) })
		got = back(got, &v, at)
		if f := formOf(word); stop.Signal != qemurun.SIGTRAP && f.move != nil {
			// Half of the work may be done, on a register whose value is of no use any more.
			got.X, want.X = settle(got.X, want.X, word, f)
		}
		if got != want || stopped.Signal != stop.Signal || !bytes.Equal(saw, data) {
			t.Errorf("%s %08x at %#x in a slot % x, %+v instead of %+v: %s", name, word, at, v.Code, stopped, stop, differ(from, got, want))
		}
	}
	if best.Emulate != nil {
		var r arch.Regs
		copy(r[:], from.X[:])
		r[arch.ARM64.SP], r[arch.ARM64.PC], r[arch.ARM64.Flags] = from.SP, from.PC, from.PState|uint64(w.r.IntN(4))<<10
		err := best.Emulate(&r, memory{w.m})
		got := from
		copy(got.X[:], r[:])
		got.SP, got.PC, got.PState = r[arch.ARM64.SP], r[arch.ARM64.PC], r[arch.ARM64.Flags]
		switch {
		case err != nil && stop.Signal == qemurun.SIGTRAP:
			t.Errorf("%s %08x on registers: %v", name, word, err)
		case err == nil && (got.X != want.X || got.PC != want.PC || got.SP != want.SP || got.PState != want.PState):
			t.Errorf("%s %08x on registers: %s", name, word, differ(from, got, want))
		}
	}
	return best
}

// differ tells where two states do.
func differ(from, got, want qemurun.State) string {
	flat := func(s qemurun.State) []uint64 { return slices.Concat(s.X[:], []uint64{s.SP, s.PC, s.PState}, s.V[:]) }
	f, g, w := flat(from), flat(got), flat(want)
	var b strings.Builder
	for i := range f {
		if g[i] != w[i] {
			fmt.Fprintf(&b, "\n%d (x0-x30, sp, pc, pstate, v): from %#x to %#x, want %#x", i, f[i], g[i], w[i])
		}
	}
	return b.String()
}

// settle takes a register out of a comparison that the instruction would have set.
func settle(got, want [31]uint64, word uint32, f *form) (a, b [31]uint64) {
	n := word & 31
	if f.flow == isa.Call || f.flow == isa.IndirectCall {
		n = link
	}
	if n < 31 {
		got[n] = want[n]
	}
	return got, want
}

// back is the state that the program is in when a slot's code has been interrupted.
func back(s qemurun.State, v *isa.Verdict, at uint64) qemurun.State {
	for _, m := range v.Marks {
		if s.PC == at+uint64(m.Off) {
			s.PC = uint64(m.PC)
		}
	}
	return s
}

// A thread that is interrupted at any instruction of a slot goes on from the place that the mark
// has, and comes to the same end.
func TestMarks(t *testing.T) {
	w := newWorld(t, 2)
	interrupted := 0
	for _, s := range samples {
		for range 20 {
			word, ok := w.tame(w.r.Uint32()&^s.mask | s.value)
			if !ok {
				continue
			}
			code := binary.LittleEndian.AppendUint32(nil, word)
			v, err := ISA.Place(code, instrAt, farSlot)
			if err != nil || len(v.Code) <= 2*length {
				continue
			}
			from := w.state()
			if formOf(word).flow == isa.IndirectCall {
				from.X[word>>5&31%31] = textAt // one that leads somewhere
			}
			var want qemurun.State
			var stop qemurun.Stop
			var data []byte
			w.code(instrAt, code, func() { want, stop, data = w.run(from) })
			if stop.Signal != qemurun.SIGTRAP {
				continue
			}
			for _, m := range v.Marks[1:] {
				cut := bytes.Clone(v.Code)
				copy(cut[m.Off:], traps[:length])
				from := from
				from.PC = farSlot
				var got qemurun.State
				w.code(farSlot, cut, func() { got, _, _ = w.run(from) })
				if got.PC != farSlot+uint64(m.Off) {
					continue // another way
				}
				interrupted++
				got.PC = uint64(m.PC)
				var saw []byte
				if got.PC != want.PC {
					w.code(instrAt, code, func() { got, stop, saw = w.run(got) })
				} else {
					saw = data
				}
				if got != want || !bytes.Equal(saw, data) {
					t.Fatalf("%s %08x, interrupted at +%d of % x: %s", s.name, word, m.Off, v.Code, differ(from, got, want))
				}
			}
		}
	}
	if interrupted < 200 {
		t.Errorf("%d interruptions", interrupted)
	}
}
