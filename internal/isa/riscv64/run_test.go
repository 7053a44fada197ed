package riscv64

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/testprog/qemurun"
)

// QEMU as the judge: an instruction runs in its place, in its slot, and on the registers
// alone, from one and the same state, and everything that a program can see must come out
// the same.

// Where things are: a slot in reach of jal, one in reach of auipc, and one beyond.
const (
	textAt  = 0x40000000
	nearAt  = 0x40080000
	farAt   = 0x58000000
	away    = 0x2000000000
	dataAt  = 0x50000000
	area    = 1 << 14
	instrAt = textAt + area/2 + 2 // aligned as a compressed instruction is
)

var slots = []arch.Addr{nearAt, farAt, away}

type sample struct {
	name        string
	size        int
	mask, value uint32 // the bits that are given
	fails       bool   // it never runs to its end
}

// samples are the classes: each is filled with random bits where the mask has none.
var samples = []sample{
	{name: "jal", size: 4, mask: 0x7f, value: 0x6f},
	{name: "j", size: 4, mask: 0xfff, value: 0x6f},
	{name: "jalr", size: 4, mask: 0x707f, value: 0x67},
	{name: "jr", size: 4, mask: 0x7fff, value: 0x67},
	{name: "ret", size: 4, mask: 0xffffffff, value: 0x8067},
	{name: "beq", size: 4, mask: 0x707f, value: 0x63},
	{name: "bne", size: 4, mask: 0x707f, value: 0x1063},
	{name: "blt", size: 4, mask: 0x707f, value: 0x4063},
	{name: "bge", size: 4, mask: 0x707f, value: 0x5063},
	{name: "bltu", size: 4, mask: 0x707f, value: 0x6063},
	{name: "bgeu", size: 4, mask: 0x707f, value: 0x7063},
	{name: "auipc", size: 4, mask: 0x7f, value: 0x17},
	{name: "c.j", size: 2, mask: 0xe003, value: 0xa001},
	{name: "c.beqz", size: 2, mask: 0xe003, value: 0xc001},
	{name: "c.bnez", size: 2, mask: 0xe003, value: 0xe001},
	{name: "c.jr", size: 2, mask: 0xf07f, value: 0x8002},
	{name: "c.jalr", size: 2, mask: 0xf07f, value: 0x9002},
	{name: "c.ret", size: 2, mask: 0xffff, value: 0x8082},

	{name: "nop", size: 4, mask: 0xffffffff, value: nop},
	{name: "addi", size: 4, mask: 0x707f, value: 0x13},
	{name: "addiw", size: 4, mask: 0x707f, value: 0x1b},
	{name: "lui", size: 4, mask: 0x7f, value: 0x37},
	{name: "c.nop", size: 2, mask: 0xffff, value: shortNop},
	{name: "c.addi4spn", size: 2, mask: 0xe003, value: 0x0000},
	{name: "c.addi", size: 2, mask: 0xe003, value: 0x0001},
	{name: "c.addiw", size: 2, mask: 0xe003, value: 0x2001},
	{name: "c.li", size: 2, mask: 0xe003, value: 0x4001},
	{name: "c.addi16sp", size: 2, mask: 0xef83, value: 0x6101},
	{name: "c.lui", size: 2, mask: 0xe003, value: 0x6001},
	{name: "c.mv", size: 2, mask: 0xf003, value: 0x8002},

	{name: "c.add", size: 2, mask: 0xf003, value: 0x9002},
	{name: "c.slli", size: 2, mask: 0xe003, value: 0x0002},
	{name: "c arithmetic", size: 2, mask: 0xe003, value: 0x8001},
	{name: "op-imm", size: 4, mask: 0x207f, value: 0x2013},
	{name: "op", size: 4, mask: 0xfe00007f, value: 0x33},
	{name: "op-32", size: 4, mask: 0xfe00707f, value: 0x3b},
	{name: "mul and div", size: 4, mask: 0xfe00007f, value: 0x02000033},
	{name: "ld, by t6", size: 4, mask: 0xfff | 31<<15 | 7<<12, value: 0x03 | 31<<15 | 3<<12 | 10<<7},
	{name: "sd, by t6", size: 4, mask: 0x7f | 31<<15 | 7<<12, value: 0x23 | 31<<15 | 3<<12},
	{name: "c.ldsp", size: 2, mask: 0xe003, value: 0x6002},
	{name: "c.sdsp", size: 2, mask: 0xe003, value: 0xe002},
	{name: "c.ld", size: 2, mask: 0xe383, value: 0x6100}, // by a0
	{name: "c.sd", size: 2, mask: 0xe383, value: 0xe100},
	{name: "c.fsdsp", size: 2, mask: 0xe003, value: 0xa002},
	{name: "amoadd, by t6", size: 4, mask: 0xf800607f | 31<<15, value: 0x0000202f | 31<<15},
	{name: "amoswap, by t6", size: 4, mask: 0xf800607f | 31<<15, value: 0x0800202f | 31<<15},
	{name: "fadd.d", size: 4, mask: 0xfe00707f, value: 0x02000053},
	{name: "fmv.x.d", size: 4, mask: 0xfff0707f, value: 0xe2000053},
	{name: "fence", size: 4, mask: 0xf00fffff, value: 0x0000000f},
	{name: "no instruction", size: 2, mask: 0xffff, value: 0, fails: true},
}

type world struct {
	m    *qemurun.Machine
	data []byte
	r    *rand.Rand
}

// newWorld is text full of traps, so that wherever something branches to there is an end.
func newWorld(t *testing.T, seed uint64) *world {
	w := &world{m: qemurun.RISCV64(t), r: rand.New(rand.NewPCG(seed, 12))}
	for _, at := range []uint64{textAt, nearAt, farAt, away, dataAt} {
		w.m.Map(at, area)
		w.m.Write(at, traps)
	}
	for range area / 8 {
		w.data = binary.LittleEndian.AppendUint64(w.data, w.r.Uint64())
	}
	return w
}

var traps = bytes.Repeat([]byte{0x02, 0x90}, area/2)

// state is a random one: of the registers sp, a0 and t6 lead to data, some of the others to text.
func (w *world) state() qemurun.RISCV64State {
	s := qemurun.RISCV64State{PC: instrAt}
	for i := range s.X {
		switch w.r.IntN(4) {
		case 0:
			s.X[i] = w.r.Uint64()
		case 1:
			s.X[i] = uint64(w.r.IntN(3)) - 1
		default:
			s.X[i] = textAt + area/4 + uint64(w.r.IntN(area/2)) // any byte: the lowest bit is ignored
		}
	}
	for i := range s.F {
		s.F[i] = w.r.Uint64()
	}
	for _, n := range []int{2, 10, 31} {
		s.X[n-1] = dataAt + area/2 + 64*uint64(n)
	}
	return s
}

// run gives the state and the data at the end.
func (w *world) run(s qemurun.RISCV64State) (qemurun.RISCV64State, qemurun.Stop, []byte) {
	w.m.Write(dataAt, w.data)
	stop := w.m.RunRISCV64(&s)
	return s, stop, w.m.Read(dataAt, area)
}

func (w *world) with(at arch.Addr, code []byte, f func()) {
	w.m.Write(uint64(at), code)
	f()
	w.m.Write(uint64(at), traps[:len(code)+len(code)%2])
}

// tame keeps branches within the text; false where that is not so, or the instruction is none, or
// leads to itself, for ever.
func (w *world) tame(s sample) (i insn, f *form, ok bool) {
	i = insn{w.r.Uint32()&^s.mask | s.value, s.size}
	if s.size == 2 {
		i.w &= 0xffff
	}
	if s.size == 4 && i.w&0x7f == 0x6f { // shorter, where random ones would seldom lead there
		i.w = i.w &^ 0x801ff000
		if w.r.IntN(2) == 0 {
			i.w |= 0x801ff000
		}
		i.w &^= 1 << 29
		i.w |= i.w >> 2 & (1 << 29)
	}
	j, f, err := read(i.bytes())
	if err != nil || j.size != s.size {
		return i, nil, false
	}
	if f.offset == nil || f.flow == isa.Next {
		return i, f, true
	}
	to := f.target(i, instrAt)
	return i, f, to != instrAt && to >= textAt && to < textAt+area
}

// awayFrom keeps the registers of a jump from leading to the instruction itself, or to data.
func awayFrom(i insn, f *form, s *qemurun.RISCV64State) {
	switch f.flow {
	case isa.IndirectJump, isa.IndirectCall, isa.Return:
	default:
		return
	}
	n := i.rd()
	off := uint64(0)
	if i.size == 4 {
		n, off = i.rs1(), uint64(immI(i))
	}
	if n == 0 {
		return
	}
	switch to := (s.X[n-1] + off) &^ 1; {
	case to == instrAt:
		s.X[n-1] += 2
	case to >= dataAt-8 && to < dataAt+area: // there is no code there
		s.X[n-1] -= dataAt - textAt
	}
}

// Every class does the same elsewhere, and on registers, as where it stands.
func TestElsewhere(t *testing.T) {
	w := newWorld(t, 1)
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for _, s := range samples {
		ran, ended, copies, emulations, refused := 0, 0, 0, 0, 0
		for try := 0; ran < rounds && try < 400*rounds; try++ {
			i, f, ok := w.tame(s)
			if !ok {
				continue
			}
			ran++
			v, whole := w.compare(t, s.name, i, f)
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
		if ran < rounds || copies < ran*3/4 || (ended == 0) != s.fails || refused > 0 && !slices.Contains([]string{"jalr", "c.jalr", "auipc"}, s.name) {
			t.Errorf("%s: %d of %d ran, %d to the end, %d in slots, %d on registers, %d refused", s.name, ran, rounds, ended, copies, emulations, refused)
		}
	}
}

// follow goes where the traps of a slot lead.
func follow(s qemurun.RISCV64State, v *isa.Verdict, at arch.Addr) qemurun.RISCV64State {
	for _, e := range v.Exits {
		if s.PC == uint64(at)+uint64(e.Off) {
			s.PC = uint64(e.To)
			return s
		}
	}
	return back(s, v, at)
}

// back is the state that the program is in when a slot's code has been interrupted.
func back(s qemurun.RISCV64State, v *isa.Verdict, at arch.Addr) qemurun.RISCV64State {
	for _, m := range v.Marks {
		if s.PC == uint64(at)+uint64(m.Off) {
			s.PC = uint64(m.PC)
			return s
		}
	}
	return s
}

// compare runs an instruction in all the ways that there are, and tells whether it came to its end.
func (w *world) compare(t *testing.T, name string, i insn, f *form) (v isa.Verdict, ended bool) {
	code := i.bytes()
	from := w.state()
	awayFrom(i, f, &from)
	var want, got qemurun.RISCV64State
	var stop, stopped qemurun.Stop
	var data, saw []byte
	w.with(instrAt, code, func() { want, stop, data = w.run(from) })
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
		if at != nearAt && f.flow == isa.Next && len(v.Exits) != 1 || at == nearAt && len(v.Exits) != 0 {
			t.Errorf("%s % x at %v: the way back is by %v", name, code, at, v.Exits)
		}
		from := from
		from.PC = uint64(at)
		w.with(at, v.Code, func() { got, stopped, saw = w.run(from) })
		got = follow(got, &v, at)
		if stop.Signal != qemurun.SIGTRAP && f.move != nil && i.rd() > 0 {
			got.X[i.rd()-1] = want.X[i.rd()-1] // half of the work may be done
		}
		if got != want || stopped.Signal != stop.Signal || !bytes.Equal(saw, data) {
			t.Errorf("%s % x at %v in a slot % x, %+v instead of %+v: %s", name, code, at, v.Code, stopped, stop, differ(from, got, want))
		}
	}
	if v.Emulate != nil {
		var r arch.Regs
		copy(r[1:], from.X[:])
		r[0] = 1
		r[arch.RISCV64.PC] = from.PC
		err := v.Emulate(&r, nil)
		got := from
		copy(got.X[:], r[1:])
		got.PC = r[arch.RISCV64.PC]
		if err != nil || r[0] != 0 || got.X != want.X || got.PC != want.PC {
			t.Errorf("%s % x on registers: %v, x0 %#x, %s", name, code, err, r[0], differ(from, got, want))
		}
	}
	return v, stop.Signal == qemurun.SIGTRAP
}

// differ tells where two states do.
func differ(from, got, want qemurun.RISCV64State) (s string) {
	if got.PC != want.PC {
		s = fmt.Sprintf("\npc %#x, want %#x", got.PC, want.PC)
	}
	for i := range got.X {
		if got.X[i] != want.X[i] {
			s += fmt.Sprintf("\nx%d from %#x to %#x, want %#x", i+1, from.X[i], got.X[i], want.X[i])
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
			i, f, ok := w.tame(s)
			if !ok {
				continue
			}
			from := w.state()
			awayFrom(i, f, &from)
			code := i.bytes()
			var want qemurun.RISCV64State
			var stop qemurun.Stop
			var data []byte
			w.with(instrAt, code, func() { want, stop, data = w.run(from) })
			if stop.Signal != qemurun.SIGTRAP {
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
					from, got, saw := from, qemurun.RISCV64State{}, []byte(nil)
					from.PC = uint64(at)
					w.with(at, cut, func() { got, _, saw = w.run(from) })
					if got.PC != uint64(at)+uint64(m.Off) {
						continue // another way
					}
					interrupted++
					if got.PC = uint64(m.PC); m.PC == instrAt {
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
