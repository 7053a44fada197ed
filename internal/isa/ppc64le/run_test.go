package ppc64le

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/arch"
	"kprobe/internal/asm/ppc64"
	"kprobe/internal/isa"
	"kprobe/internal/testprog/qemurun"
)

// QEMU as the judge: an instruction runs in its place, in its slot, and on the registers
// alone, from one and the same state, and everything that a program can see must come out
// the same.

// Where things are: a slot in reach of b, and one beyond.
const (
	textAt  = 0x40000000
	nearAt  = 0x40800000
	farAt   = 0x58000000
	dataAt  = 0x50000000
	area    = 1 << 16
	instrAt = textAt + area/2
)

var (
	slots = []arch.Addr{nearAt, farAt}
	traps = bytes.Repeat(arch.PPC64LE.Break, area/4)
)

type sample struct {
	name           string
	mask, value    uint32 // the bits that are given
	prefix, suffix uint32 // of instructions of two words: mask and value are the second's
	emulated       bool
	refused        bool
}

const (
	byR31 = 31 << 16 // in the field of the base register
	noRef = 0x1f << 16
)

// samples are the classes: each is filled with random bits where the mask has none.
var samples = []sample{
	{name: "b", mask: 0xfc000003, value: 18 << 26, emulated: true},
	{name: "bl", mask: 0xfc000003, value: 18<<26 | 1, emulated: true},
	{name: "bc", mask: 0xfc000003, value: 16 << 26, emulated: true},
	{name: "bcl", mask: 0xfc000003, value: 16<<26 | 1, emulated: true},
	{name: "blr", mask: 0xffffffff, value: 0x4e800020, emulated: true},
	{name: "bclr", mask: 0xfc00ffff, value: 0x4c000020, emulated: true},
	{name: "bclrl", mask: 0xfc00ffff, value: 0x4c000021, refused: true},
	{name: "bctr", mask: 0xffffffff, value: 0x4e800420, emulated: true},
	{name: "bctrl", mask: 0xffffffff, value: 0x4e800421, emulated: true},
	{name: "bcctr", mask: 0xfc80ffff, value: 0x4c800420, emulated: true}, // it must not count
	{name: "bcctrl", mask: 0xfc80ffff, value: 0x4c800421, emulated: true},
	{name: "addpcis", mask: 0xfc00003e, value: 19<<26 | 2<<1},
	{name: "nop", mask: 0xffffffff, value: ppc64.Nop},
	{name: "addi", mask: 0xfc000000, value: 14 << 26},
	{name: "addis", mask: 0xfc000000, value: 15 << 26},
	{name: "add.", mask: 0xfc0007ff, value: 31<<26 | 266<<1 | 1},
	{name: "cmpd", mask: 0xfc6007ff, value: 31<<26 | 1<<21},
	{name: "mflr", mask: 0xfc1fffff, value: 0x7c0802a6},
	{name: "mtlr", mask: 0xfc1fffff, value: 0x7c0803a6},
	{name: "mtctr", mask: 0xfc1fffff, value: 0x7c0903a6},
	{name: "mfcr", mask: 0xfc1fffff, value: 0x7c000026},
	{name: "ld, by r31", mask: 0xfc00f003 | noRef, value: 58<<26 | byR31},
	{name: "std, by r31", mask: 0xfc00f003 | noRef, value: 62<<26 | byR31},
	{name: "stdu, by r31", mask: 0xfc00f003 | noRef, value: 62<<26 | byR31 | 1},
	{name: "fadd", mask: 0xfc0007ff, value: 63<<26 | 21<<1},
	{name: "tw", mask: 0xfc0007ff, value: 31<<26 | 4<<1, refused: true},
	{name: "twi", mask: 0xfc000000, value: 3 << 26, refused: true},
	{name: "lwarx", mask: 0xfc0007ff, value: 31<<26 | 20<<1, refused: true},
	{name: "tbegin.", mask: 0xfc0007ff, value: 31<<26 | 654<<1 | 1, refused: true},
	{name: "paddi", mask: 0xfc000000, value: 14 << 26, prefix: 0xffffffff, suffix: 0x06000000},
	{name: "pla", mask: 0xfc000000 | noRef, value: 14 << 26, prefix: 0xffffc000, suffix: 0x06100000},
	{name: "pla, below", mask: 0xfc000000 | noRef, value: 14 << 26, prefix: 0xfffffc00, suffix: 0x0613fc00},
	{name: "pld, of data", mask: 0xfc00ffff | noRef, value: 57 << 26, prefix: 0xffffffff, suffix: 0x04100000 | (dataAt-instrAt)>>16},
	{name: "pstd, of data", mask: 0xfc00ffff | noRef, value: 61 << 26, prefix: 0xffffffff, suffix: 0x04100000 | (dataAt-instrAt)>>16},
}

type world struct {
	m    *qemurun.Machine
	data []byte
	r    *rand.Rand
}

// newWorld is text full of traps, so that wherever something branches to there is an end.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{m: qemurun.PPC64LE(t), r: rand.New(rand.NewPCG(seed, 12))}
	for _, at := range []uint64{textAt, nearAt, farAt, dataAt - area, dataAt} {
		w.m.Map(at, area)
		w.m.Write(at, traps)
	}
	for range area / 8 {
		w.data = binary.LittleEndian.AppendUint64(w.data, w.r.Uint64())
	}
	return w
}

// state is a random one: r31 leads to data, LR and CTR, and some of the others, to text.
func (w *world) state() qemurun.PPC64LEState {
	place := func() uint64 {
		for {
			if to := textAt + uint64(w.r.IntN(area)); to&^3 != instrAt {
				return to
			}
		}
	}
	s := qemurun.PPC64LEState{PC: instrAt, LR: place(), CTR: place(), CR: uint64(w.r.Uint32())}
	for i := range s.R {
		switch w.r.IntN(3) {
		case 0:
			s.R[i] = w.r.Uint64()
		case 1:
			s.R[i] = uint64(w.r.IntN(3)) - 1
		default:
			s.R[i] = place()
		}
	}
	if w.r.IntN(3) == 0 {
		s.CTR = uint64(w.r.IntN(3)) // of what counts
	}
	for i := range s.F {
		s.F[i] = w.r.Uint64()
	}
	s.R[31] = dataAt + area/2
	return s
}

// run gives the state and the data at the end.
func (w *world) run(s qemurun.PPC64LEState) (qemurun.PPC64LEState, qemurun.Stop, []byte) {
	w.m.Write(dataAt, w.data[:1<<12])
	w.m.Write(dataAt+area/2, w.data[:1<<13])
	stop := w.m.RunPPC64LE(&s)
	return s, stop, w.m.Read(dataAt, area)
}

func (w *world) with(at arch.Addr, code []byte, f func()) {
	w.m.Write(uint64(at), code)
	f()
	w.m.Write(uint64(at), traps[:len(code)])
}

// make makes an instruction of a class; false where it leads out of the text, or to itself.
func (w *world) make(s sample, from *qemurun.PPC64LEState) (code []byte, in isa.Insn, ok bool) {
	word := w.r.Uint32()&^s.mask | s.value
	if op := word >> 26; op == 18 || op == 16 { // nearer, where random ones would seldom lead there
		reach := uint32(area/2 - 4)
		if d := w.r.Uint32() & reach &^ 3; w.r.IntN(2) == 0 {
			word = word&^0xfffc | d&0x7ffc
			word &^= 0x03ff0000 * (op - 16) / 2
		} else {
			word |= 0xfffc &^ (d & 0x7ffc)
			word |= 0x03ff0000 * (op - 16) / 2
		}
	}
	if s.suffix != 0 {
		code = binary.LittleEndian.AppendUint32(nil, w.r.Uint32()&^s.prefix|s.suffix)
	}
	code = binary.LittleEndian.AppendUint32(code, word)
	in, err := ISA.Decode(code, instrAt)
	if err != nil || in.Len != len(code) {
		return code, in, false
	}
	switch in.Flow {
	case isa.Jump, isa.CondJump, isa.Call:
		ok = in.Target != instrAt && in.Target >= textAt && in.Target < textAt+area
	case isa.IndirectJump, isa.IndirectCall:
		ok = from.CTR >= textAt || word>>1&0x3ff == 16 && from.LR >= textAt
	default:
		ok = true
	}
	return code, in, ok
}

// goes is the place where a state goes on that has come to the end of a slot's code, or been
// interrupted in it.
func goes(s qemurun.PPC64LEState, v *isa.Verdict, at arch.Addr) qemurun.PPC64LEState {
	for _, e := range v.Exits {
		if s.PC == uint64(at)+uint64(e.Off) {
			s.PC = uint64(e.To)
			return s
		}
	}
	for _, m := range v.Marks {
		if s.PC == uint64(at)+uint64(m.Off) {
			s.PC = uint64(m.PC)
			return s
		}
	}
	return s
}

// Every class does the same elsewhere, and on registers, as where it stands.
func TestElsewhere(t *testing.T) {
	w := newWorld(t, 1)
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for _, s := range samples {
		ran, ended := 0, 0
		for try := 0; ran < rounds && try < 400*rounds; try++ {
			from := w.state()
			code, in, ok := w.make(s, &from)
			if !ok {
				continue
			}
			ran++
			if w.compare(t, s, code, in, from) {
				ended++
			}
			if t.Failed() {
				return
			}
		}
		if ran < rounds || ended < rounds/2 && !s.refused {
			t.Errorf("%s: %d of %d ran, %d to the end", s.name, ran, rounds, ended)
		}
	}
}

// compare runs an instruction in all the ways that there are, and tells whether it came to its end.
func (w *world) compare(t *testing.T, s sample, code []byte, in isa.Insn, from qemurun.PPC64LEState) bool {
	var want qemurun.PPC64LEState
	var stop qemurun.Stop
	var data []byte
	w.with(instrAt, code, func() { want, stop, data = w.run(from) })
	var v isa.Verdict
	for _, at := range slots {
		var err error
		if v, err = ISA.Place(code, instrAt, at); err != nil || (v.Kind == isa.Refuse) != s.refused || (v.Emulate != nil) != s.emulated {
			t.Fatalf("%s % x: %+v, %v", s.name, code, v, err)
		}
		if s.refused {
			return false
		}
		if len(v.Code) == 0 || len(v.Code) > ISA.SlotSize() || v.Marks[0] != (isa.Mark{PC: instrAt}) || in.Flow == isa.Next && (len(v.Exits) == 1) != (at == farAt) {
			t.Fatalf("%s % x: a slot of %d bytes, %+v, %+v", s.name, code, len(v.Code), v.Marks, v.Exits)
		}
		from := from
		from.PC = uint64(at)
		if binary.LittleEndian.Uint32(code)&link != 0 && s.emulated {
			from.LR = instrAt + 4 // the lifeline's handler has set it
		}
		var got qemurun.PPC64LEState
		var stopped qemurun.Stop
		var saw []byte
		w.with(at, v.Code, func() { got, stopped, saw = w.run(from) })
		if got = goes(got, &v, at); got != want || stopped.Signal != stop.Signal || !bytes.Equal(saw, data) {
			t.Errorf("%s % x at %v in a slot % x, %+v instead of %+v: %s", s.name, code, at, v.Code, stopped, stop, differ(from, got, want))
		}
	}
	if v.Emulate != nil {
		var r arch.Regs
		copy(r[:], from.R[:])
		r[regPC], r[regCR], r[regLR], r[regCTR] = from.PC, from.CR, from.LR, from.CTR
		err := v.Emulate(&r, nil)
		got := from
		copy(got.R[:], r[:])
		got.PC, got.CR, got.LR, got.CTR = r[regPC], r[regCR], r[regLR], r[regCTR]
		if err != nil || got != want {
			t.Errorf("%s % x on registers: %v, %s", s.name, code, err, differ(from, got, want))
		}
	}
	return stop.Signal == qemurun.SIGTRAP
}

// differ tells where two states do.
func differ(from, got, want qemurun.PPC64LEState) (s string) {
	add := func(name string, from, got, want uint64) {
		if got != want {
			s += fmt.Sprintf("\n%s from %#x to %#x, want %#x", name, from, got, want)
		}
	}
	add("pc", from.PC, got.PC, want.PC)
	add("lr", from.LR, got.LR, want.LR)
	add("ctr", from.CTR, got.CTR, want.CTR)
	add("cr", from.CR, got.CR, want.CR)
	add("xer", from.XER, got.XER, want.XER)
	for i := range got.R {
		add(fmt.Sprint("r", i), from.R[i], got.R[i], want.R[i])
		add(fmt.Sprint("f", i), from.F[i], got.F[i], want.F[i])
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
			from := w.state()
			code, _, ok := w.make(s, &from)
			if !ok || s.refused {
				continue
			}
			var want qemurun.PPC64LEState
			var data []byte
			w.with(instrAt, code, func() { want, _, data = w.run(from) })
			for _, at := range slots {
				v, err := ISA.Place(code, instrAt, at)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range v.Marks[1:] {
					cut := bytes.Clone(v.Code)
					copy(cut[m.Off:], arch.PPC64LE.Break)
					from, got, saw := from, qemurun.PPC64LEState{}, []byte(nil)
					from.PC = uint64(at)
					if binary.LittleEndian.Uint32(code)&link != 0 && s.emulated {
						from.LR = instrAt + 4
					}
					w.with(at, cut, func() { got, _, saw = w.run(from) })
					if got.PC != uint64(at)+uint64(m.Off) {
						continue // another way
					}
					interrupted++
					if got.PC = uint64(m.PC); m.PC == instrAt {
						w.with(instrAt, code, func() { got, _, saw = w.run(got) })
					}
					if got != want || !bytes.Equal(saw, data) {
						t.Fatalf("%s % x at %v, interrupted at +%d of % x: %s", s.name, code, at, m.Off, v.Code, differ(from, got, want))
					}
				}
			}
		}
	}
	if interrupted < 600 {
		t.Errorf("%d interruptions", interrupted)
	}
}
