package s390x

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/testprog/qemurun"
)

// QEMU as the judge: an instruction runs in its place, in its slot, and on the registers
// alone, from one and the same state, and everything that a program can see must come out
// the same.

// Where things are: a slot nearby, and one that only instructions of six bytes lead to; not more
// than 2 GiB, beyond which QEMU (7.2) reckons addresses wrong.
const (
	textAt   = 0x40000000
	nearAt   = 0x40008000
	farAt    = 0x78000000
	away     = 0x2000000000 // beyond
	dataAt   = 0x50000000
	area     = 1 << 14
	instrAt  = textAt + area/2 + 2
	executed = textAt + 64 // an instruction for exrl
)

var slots = []arch.Addr{nearAt, farAt}

type sample struct {
	name        string
	mask, value uint64 // the bits that are given, from the highest of six bytes on
	fails       bool   // it never runs to its end
}

// samples are the classes: each is filled with random bits where the mask has none.
var samples = []sample{
	{name: "balr", mask: 0xff << 40, value: 0x05 << 40},
	{name: "basr", mask: 0xff << 40, value: 0x0d << 40},
	{name: "bcr", mask: 0xff << 40, value: 0x07 << 40},
	{name: "br %r14", mask: 0xffff << 32, value: 0x07fe << 32},
	{name: "bctr", mask: 0xff << 40, value: 0x06 << 40},
	{name: "bctgr", mask: 0xffffff << 24, value: 0xb94600 << 24},
	{name: "bc", mask: 0xff << 40, value: 0x47 << 40},
	{name: "bct", mask: 0xff << 40, value: 0x46 << 40},
	{name: "bctg", mask: 0xff00000000ff, value: 0xe30000000046},
	{name: "bxh", mask: 0xff << 40, value: 0x86 << 40},
	{name: "bxle", mask: 0xff << 40, value: 0x87 << 40},
	{name: "bxhg", mask: 0xff0000000fff, value: 0xeb0000000044},
	{name: "bxleg", mask: 0xff0000000fff, value: 0xeb0000000045},
	{name: "brc", mask: 0xff0f << 32, value: 0xa704 << 32},
	{name: "brcl", mask: 0xff0f << 32, value: 0xc004 << 32},
	{name: "j", mask: 0xffff << 32, value: 0xa7f4 << 32},
	{name: "jg", mask: 0xffff << 32, value: 0xc0f4 << 32},
	{name: "bras", mask: 0xff0f << 32, value: 0xa705 << 32},
	{name: "brasl", mask: 0xff0f << 32, value: 0xc005 << 32},
	{name: "brct", mask: 0xff0f << 32, value: 0xa706 << 32},
	{name: "brctg", mask: 0xff0f << 32, value: 0xa707 << 32},
	{name: "brcth", mask: 0xff0f << 32, value: 0xcc06 << 32},
	{name: "brxh", mask: 0xff << 40, value: 0x84 << 40},
	{name: "brxle", mask: 0xff << 40, value: 0x85 << 40},
	{name: "brxhg", mask: 0xff000000ffff, value: 0xec0000000044},
	{name: "brxlg", mask: 0xff000000ffff, value: 0xec0000000045},
	{name: "cgrj", mask: 0xff0000000fff, value: 0xec0000000064},
	{name: "clgrj", mask: 0xff0000000fff, value: 0xec0000000065},
	{name: "crj", mask: 0xff0000000fff, value: 0xec0000000076},
	{name: "clrj", mask: 0xff0000000fff, value: 0xec0000000077},
	{name: "cgij", mask: 0xff00000000ff, value: 0xec000000007c},
	{name: "clgij", mask: 0xff00000000ff, value: 0xec000000007d},
	{name: "cij", mask: 0xff00000000ff, value: 0xec000000007e},
	{name: "clij", mask: 0xff00000000ff, value: 0xec000000007f},
	{name: "cgrb", mask: 0xff0000000fff, value: 0xec00000000e4},
	{name: "clgrb", mask: 0xff0000000fff, value: 0xec00000000e5},
	{name: "crb", mask: 0xff0000000fff, value: 0xec00000000f6},
	{name: "clrb", mask: 0xff0000000fff, value: 0xec00000000f7},
	{name: "cgib", mask: 0xff00000000ff, value: 0xec00000000fc},
	{name: "clgib", mask: 0xff00000000ff, value: 0xec00000000fd},
	{name: "cib", mask: 0xff00000000ff, value: 0xec00000000fe},
	{name: "clib", mask: 0xff00000000ff, value: 0xec00000000ff},

	{name: "larl", mask: 0xff0f << 32, value: 0xc000 << 32},
	{name: "lrl", mask: 0xff0f << 32, value: 0xc40d << 32},
	{name: "lgrl", mask: 0xff0f << 32, value: 0xc408 << 32},
	{name: "lghrl", mask: 0xff0f << 32, value: 0xc404 << 32},
	{name: "llgfrl", mask: 0xff0f << 32, value: 0xc40e << 32},
	{name: "stgrl", mask: 0xff0f << 32, value: 0xc40b << 32},
	{name: "strl", mask: 0xff0f << 32, value: 0xc40f << 32},
	{name: "cgrl", mask: 0xff0f << 32, value: 0xc608 << 32},
	{name: "clrl", mask: 0xff0f << 32, value: 0xc60f << 32},
	{name: "pfdrl", mask: 0xff0f << 32, value: 0xc602 << 32},
	{name: "exrl", mask: 0xff0f << 32, value: 0xc600 << 32},

	{name: "ar", mask: 0xff << 40, value: 0x1a << 40},
	{name: "lgr", mask: 0xffffff << 24, value: 0xb90400 << 24},
	{name: "aghi", mask: 0xff0f << 32, value: 0xa70b << 32},
	{name: "tmll", mask: 0xff0f << 32, value: 0xa701 << 32},
	{name: "la", mask: 0xff << 40, value: 0x41 << 40},
	{name: "lg, by r15", mask: 0xff0ff000ffff, value: 0xe300f0000004},
	{name: "stg, by r15", mask: 0xff0ff000ffff, value: 0xe300f0000024},
	{name: "stmg, by r15", mask: 0xff00f000ffff, value: 0xeb00f0000024},
	{name: "mvc, by r15", mask: 0xfff0f000f000, value: 0xd200f000f000},
	{name: "risbg", mask: 0xff00000000ff, value: 0xec0000000055},
	{name: "ipm", mask: 0xffffff0f << 16, value: 0xb2220000 << 16},
	{name: "adbr", mask: 0xffffff << 24, value: 0xb31a00 << 24},
	{name: "lgdr", mask: 0xffffff << 24, value: 0xb3cd00 << 24},
	{name: "dlgr", mask: 0xffffff << 24, value: 0xb98700 << 24},
	{name: "no instruction", mask: 0xffff << 32, value: 0, fails: true},
}

type world struct {
	m    *qemurun.Machine
	data []byte
	r    *rand.Rand
}

var traps = bytes.Repeat([]byte{0, 1}, area/2)

// newWorld is text full of traps, so that wherever something branches to there is an end.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{m: qemurun.S390X(t), r: rand.New(rand.NewPCG(seed, 12))}
	for _, at := range []uint64{textAt, nearAt, farAt, dataAt} {
		w.m.Map(at, area)
		w.m.Write(at, traps)
	}
	w.m.Write(executed, []byte{0x1a, 0x00}) // ar, of registers that exrl names
	for range area / 8 {
		w.data = binary.BigEndian.AppendUint64(w.data, w.r.Uint64())
	}
	return w
}

// state is a random one: r15 leads to data, some of the others to text.
func (w *world) state() qemurun.S390XState {
	s := qemurun.S390XState{Mask: 0x0705000180000000 | uint64(w.r.IntN(4))<<44, PC: instrAt}
	for i := range s.R {
		switch w.r.IntN(5) {
		case 0:
			s.R[i] = w.r.Uint64()
		case 1:
			s.R[i] = uint64(w.r.IntN(3)) - 1
		case 2:
			s.R[i] = uint64(w.r.IntN(3)) << 32
		default:
			s.R[i] = textAt + 2*uint64(w.r.IntN(area/2))
		}
	}
	for i := range s.F {
		s.F[i] = w.r.Uint64()
	}
	for i := range s.A {
		s.A[i] = w.r.Uint32()
	}
	s.R[15] = dataAt + area/2
	return s
}

// run gives the state and the data at the end.
func (w *world) run(s qemurun.S390XState) (qemurun.S390XState, qemurun.Stop, []byte) {
	w.m.Write(dataAt, w.data)
	stop := w.m.RunS390X(&s)
	return s, stop, w.m.Read(dataAt, area)
}

func (w *world) with(at arch.Addr, code []byte, f func()) {
	w.m.Write(uint64(at), code)
	f()
	w.m.Write(uint64(at), traps[:len(code)])
}

// tame has operands that are addresses refer to mapped memory, and keeps branches away from the
// instruction itself, and from data. false where it is none of its class.
func (w *world) tame(s sample, from *qemurun.S390XState) (i insn, f form, ok bool) {
	bits := w.r.Uint64()&^s.mask&(1<<48-1) | s.value
	code := binary.BigEndian.AppendUint64(nil, bits<<16)
	_, f, _ = read(code)
	if f.rel != 0 {
		to := textAt + 2*w.r.IntN(area/2)
		switch {
		case s.name == "exrl":
			to = executed
		case f.flow == isa.Next:
			to = dataAt + 8*w.r.IntN(area/8)
		}
		offset := uint32(int64(to-instrAt) / 2)
		if f.rel == 2 {
			binary.BigEndian.PutUint16(code[2:], uint16(offset))
		} else {
			binary.BigEndian.PutUint32(code[2:], offset)
		}
	}
	i, f, err := read(code)
	if err != nil {
		return i, f, false
	}
	no := func(to uint64) bool { return to-(instrAt-8) < 24 || to-(dataAt-8192) < area+16384 }
	to := uint64(0)
	switch {
	case f.flow == isa.Next:
	case f.rel != 0:
		to = uint64(f.target(i, instrAt))
	case f.where != nil:
		r := regsOf(from)
		to = f.where(i, &r)
	case f.register != 0:
		to = from.R[i.field(f.register, 4)]
	}
	return i, f, !no(to) && !no(to&^1)
}

// regsOf are a state's registers as Emulate takes them.
func regsOf(s *qemurun.S390XState) (r arch.Regs) {
	r[0], r[1] = s.Mask, s.PC
	copy(r[2:], s.R[:])
	return r
}

// Every class does the same elsewhere, and on registers, as where it stands.
func TestElsewhere(t *testing.T) {
	w := newWorld(t, 1)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for _, s := range samples {
		ran, ended, copies, emulations, refused := 0, 0, 0, 0, 0
		for try := 0; ran < rounds && try < 400*rounds; try++ {
			from := w.state()
			i, f, ok := w.tame(s, &from)
			if !ok {
				continue
			}
			ran++
			v, whole := w.compare(t, s.name, i, &f, from)
			if t.Failed() {
				return
			}
			for _, c := range []struct {
				n   *int
				yes bool
			}{{&ended, whole}, {&copies, len(v.Code) > 0}, {&emulations, v.Emulate != nil}, {&refused, v.Kind == isa.Refuse}} {
				if c.yes {
					*c.n++
				}
			}
		}
		if ran < rounds || copies < ran*3/4 && !s.fails || (ended == 0) != s.fails || refused > 0 && !s.fails && s.name != "balr" && s.name != "basr" {
			t.Errorf("%s: %d of %d ran, %d to the end, %d in slots, %d on registers, %d refused", s.name, ran, rounds, ended, copies, emulations, refused)
		}
	}
}

// back is the state that the program is in when a slot's code has been interrupted.
func back(s qemurun.S390XState, v *isa.Verdict, at arch.Addr) qemurun.S390XState {
	for _, m := range v.Marks {
		if s.PC == uint64(at)+uint64(m.Off) {
			s.PC = uint64(m.PC)
			return s
		}
	}
	return s
}

// compare runs an instruction in all the ways that there are, and tells whether it came to an end
// by a trap.
func (w *world) compare(t *testing.T, name string, i insn, f *form, from qemurun.S390XState) (v isa.Verdict, ended bool) {
	code := i.bytes()
	var want, got qemurun.S390XState
	var stop, stopped qemurun.Stop
	var data, saw []byte
	w.with(instrAt, code, func() { want, stop, data = w.run(from) })
	if far, err := ISA.Place(code, instrAt, away); err != nil || far.Kind != isa.Refuse && f.decoded(i).Flow != isa.Return {
		t.Errorf("%s % x with a slot out of reach: %+v, %v", name, code, far, err)
	}
	for _, at := range slots {
		var err error
		if v, err = ISA.Place(code, instrAt, at); err != nil {
			t.Fatalf("%s % x: %v", name, code, err)
		}
		if len(v.Code) == 0 {
			continue
		}
		if len(v.Code) > ISA.SlotSize() || v.Marks[0] != (isa.Mark{PC: instrAt}) {
			t.Errorf("%s % x: a slot of %d bytes, %+v", name, code, len(v.Code), v.Marks)
		}
		from := from
		from.PC = uint64(at)
		w.with(at, v.Code, func() { got, stopped, saw = w.run(from) })
		got = back(got, &v, at)
		if got != want || stopped.Signal != stop.Signal || !bytes.Equal(saw, data) {
			t.Errorf("%s % x at %v in a slot % x, %+v instead of %+v: %s", name, code, at, v.Code, stopped, stop, differ(from, got, want))
		}
	}
	ended = stop.Signal == qemurun.SIGILL && stop.Addr != instrAt
	if v.Emulate != nil && ended {
		r := regsOf(&from)
		err := v.Emulate(&r, nil)
		got := from
		got.Mask, got.PC = r[0], r[1]+2 // the trap there
		copy(got.R[:], r[2:])
		if err != nil || got != want {
			t.Errorf("%s % x on registers: %v, %s", name, code, err, differ(from, got, want))
		}
	}
	return v, ended
}

// differ tells where two states do.
func differ(from, got, want qemurun.S390XState) (s string) {
	if got.PC != want.PC || got.Mask != want.Mask {
		s = fmt.Sprintf("\npsw %#x %#x, want %#x %#x", got.Mask, got.PC, want.Mask, want.PC)
	}
	for i := range got.R {
		if got.R[i] != want.R[i] {
			s += fmt.Sprintf("\nr%d from %#x to %#x, want %#x", i, from.R[i], got.R[i], want.R[i])
		}
	}
	for i := range got.F {
		if got.F[i] != want.F[i] {
			s += fmt.Sprintf("\nf%d from %#x to %#x, want %#x", i, from.F[i], got.F[i], want.F[i])
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
		for range 30 {
			from := w.state()
			i, _, ok := w.tame(s, &from)
			if !ok {
				continue
			}
			code := i.bytes()
			var want qemurun.S390XState
			var stop qemurun.Stop
			var data []byte
			w.with(instrAt, code, func() { want, stop, data = w.run(from) })
			if stop.Signal != qemurun.SIGILL || stop.Addr == instrAt {
				continue
			}
			for _, at := range slots {
				v, err := ISA.Place(code, instrAt, at)
				if err != nil || len(v.Code) == 0 {
					continue
				}
				for _, m := range v.Marks[1:] {
					cut := bytes.Clone(v.Code)
					copy(cut[m.Off:], traps[:2])
					from, got, saw := from, qemurun.S390XState{}, []byte(nil)
					from.PC = uint64(at)
					w.with(at, cut, func() { got, _, saw = w.run(from) })
					if got.PC != uint64(at)+uint64(m.Off)+2 {
						continue // another way
					}
					interrupted++
					if got.PC = uint64(m.PC) + 2; m.PC == instrAt {
						got.PC = instrAt
						w.with(instrAt, code, func() { got, stop, saw = w.run(got) })
					}
					if got != want || !bytes.Equal(saw, data) {
						t.Fatalf("%s % x at %v, interrupted at +%d of % x: %s", s.name, code, at, m.Off, v.Code, differ(from, got, want))
					}
				}
			}
		}
	}
	if interrupted < 1000 {
		t.Errorf("%d interruptions", interrupted)
	}
}

// An instruction that would end, or not run elsewhere, is not touched.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		code []byte
		kind isa.Kind
		why  string
	}{
		{[]byte{0, 1}, isa.Refuse, noBreakpoint},
		{[]byte{0xe5, 0x60, 0, 0, 0xff, 0}, isa.Refuse, noTransaction},
		{[]byte{0xe5, 0x61, 0, 0, 0xff, 0}, isa.Refuse, noTransaction},
		{[]byte{0xb2, 0xf8, 0, 0}, isa.Refuse, noTransaction},
		{[]byte{0xb2, 0xfc, 0, 0}, isa.Refuse, noTransaction},
		{[]byte{0x44, 0x20, 0x10, 0}, isa.InPlace, ""},
		{[]byte{0x82, 0, 0, 0}, isa.InPlace, ""},
	} {
		v, err := ISA.Place(c.code, 0x1000, 0x2000)
		if err != nil || v.Kind != c.kind || v.Reason != c.why {
			t.Errorf("% x: %v, %v", c.code, v, err)
		}
	}
	for _, code := range [][]byte{{}, {0xa7}, {0xa7, 0xf4, 0}, {0xc0, 0xf4, 0, 0, 0}} {
		if in, err := ISA.Decode(code, 0x1000); err == nil {
			t.Errorf("% x: %+v", code, in)
		}
	}
}
