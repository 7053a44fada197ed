package inject_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/internal/inject"
	arm64code "kprobe/internal/inject/arm64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
	"kprobe/internal/testprog/qemurun"
)

// A call's beginning keeps an argument, and its end stores that, the result, and where it returns to.
const (
	callBegins = `
	r6 = r1
	r2 = 16
	call call_data
	r1 = *(u64 *)(r6 +0)
	*(u64 *)(r0 +8) = r1
	r0 = 0
	exit`
	callEnds = `
	r6 = r1
	r2 = 16
	call call_data
	r7 = *(u64 *)(r0 +8)
	*(u32 *)(r10 -4) = 0
	r1 = map seen
	r2 = r10
	r2 += -4
	call map_lookup_elem
	if r0 == 0 goto out
	*(u64 *)(r0 +0) = r7
	r1 = *(u64 *)(r6 +0)
	*(u64 *)(r0 +8) = r1
	r1 = *(u64 *)(r6 +256)
	*(u64 *)(r0 +16) = r1
	r1 = *(u64 *)(r0 +24)
	r1 += 1
	*(u64 *)(r0 +24) = r1
out:	r0 = 0
	exit`
)

// a64Caller runs a function of two instructions, with detours at both, that is called from a trap.
type a64Caller struct {
	*host
	m           *qemurun.Machine
	maps        *bpf.Segment
	clean       []byte
	enter, exit *inject.Detour
	codes       map[*inject.Detour][]byte
	before      qemurun.State
}

const (
	a64Text, a64Stack, a64Page = 0x4000_0000, 0x5000_0000, 0x1000
	a64Site, a64Back           = a64Text + 0x40, a64Text + 0x80
	a64Pointer                 = 0x7000_0010

	// counters
	a64Hits, a64Missed, a64Probe, a64Ended, a64Full, a64Counters = 3, 4, 10, 20, 5000, 5001
)

func newA64Caller(t *testing.T, calls int, e inject.Enter, withEnd bool) *a64Caller {
	h := foreignHost(t, segment.Layout{Threads: 3, Counters: a64Counters, Calls: calls, Extra: 1 << 16})
	h.seg.Open()
	h.seg.SetCareful(false)
	h.put(h.area.Addr, h.area.Image())
	c := &a64Caller{host: h, m: h.foreign, codes: map[*inject.Detour][]byte{}}
	c.m.Map(a64Text, a64Page)
	c.m.Map(a64Stack, 2*a64Page)
	c.maps = h.maps(&bpf.MapSpec{Name: "seen", Type: bpf.Array, KeySize: 4, ValueSize: 32, MaxEntries: 1})
	program := func(text string, kind bpf.Kind) inject.Program {
		insns, err := bpftest.Assemble(text, c.maps.Layout.Maps...)
		if err != nil {
			t.Fatal(err)
		}
		proof, err := verify.Program(&bpf.Program{Name: "p", Kind: kind, Context: bpf.ARM64, Insns: insns, Maps: c.maps.Layout.Maps})
		if err != nil {
			t.Fatal(err)
		}
		made, err := jit.ARM64.Compile(proof, &jit.Env{Segment: h.seg.ExtraAddr(), Layout: c.maps.Layout})
		if err != nil {
			t.Fatal(err)
		}
		at := h.code(len(made.Bytes))
		linked, err := made.Link(at, h.area.Helper)
		if err != nil {
			t.Fatal(err)
		}
		h.put(at, linked)
		return inject.Program{Entry: at, Clobbers: made.Clobbers, Context: made.Context, Needs: made.Needs}
	}
	e.ID, e.Missed, e.Data = a64Probe, a64Full, 16
	e.Programs = []inject.Program{program(callBegins, bpf.Kprobe)}
	x := inject.Exit{ID: a64Probe, Hits: a64Ended}
	if withEnd {
		x.Programs = []inject.Program{program(callEnds, bpf.Kretprobe)}
	}
	site := func(pc arch.Addr, insn []byte, d inject.Detour) *inject.Detour {
		d.At, d.Site, d.Area = h.code(detourRoom), pc, h.area
		d.Tail = func(at arch.Addr) (inject.Tail, error) {
			v, err := arm64.ISA.Displace(insn, pc, at)
			return inject.Tail{v.Code, v.Marks}, err
		}
		code, err := d.Code()
		if err != nil {
			t.Fatal(err)
		}
		jump, err := arm64.ISA.Jump(pc, d.At)
		if err != nil {
			t.Fatal(err)
		}
		c.m.Write(uint64(pc), jump)
		c.codes[&d] = code
		return &d
	}
	c.enter = site(a64Site, []byte{0x00, 0x00, 0x03, 0x8b}, inject.Detour{Hits: a64Hits, Missed: inject.NoCounter, Enters: []inject.Enter{e}}) // add x0, x0, x3
	c.exit = site(a64Site+4, []byte{0xc0, 0x03, 0x5f, 0xd6}, inject.Detour{Hits: a64Hits, Missed: inject.NoCounter, Exits: []inject.Exit{x}})  // ret
	const setPointer = 0xd51bd040                                                                                                              // msr tpidr_el0, x0
	c.m.Write(a64Text, binary.LittleEndian.AppendUint32(nil, setPointer))
	c.m.Write(a64Text+4, arch.ARM64.Break)
	c.m.Write(a64Back, arch.ARM64.Break)
	s := qemurun.State{PC: a64Text, SP: a64Stack + a64Page}
	s.X[0] = a64Pointer
	c.m.Run(&s)
	h.seg.Assign(segment.Thread{Key: a64Pointer, TID: h.pid, StackLow: a64Stack, StackHigh: a64Stack + 2*a64Page})
	c.clean = bytes.Clone(h.seg.Mem)
	for i := range c.before.X {
		c.before.X[i] = 0x1111_1111_1111_1111 * uint64(i+1)
	}
	c.before.X[30], c.before.SP, c.before.PC, c.before.PState = a64Back, a64Stack+a64Page, a64Site, 0xb0000000
	for i := range c.before.V {
		c.before.V[i] = 0x0123_4567_89ab_cdef + uint64(i)
	}
	return c
}

// used are the parts of the segment that code works with: all but the table of goroutines.
func (c *a64Caller) used() [][2]int {
	return append(headParts(c.seg, a64Pointer), [][2]int{{c.seg.AwayAt(), c.seg.PoolAt()}, {c.seg.PoolAt() + segment.OwnersSize, c.seg.ExtraAt() + int(c.maps.Size)}, {c.seg.StatesAt(), c.seg.Size()}}...)
}

func (c *a64Caller) store() {
	for _, r := range c.used() {
		c.m.Write(hostSegment+uint64(r[0]), c.seg.Mem[r[0]:r[1]])
	}
}

func (c *a64Caller) fetch() {
	for _, r := range c.used() {
		copy(c.seg.Mem[r[0]:r[1]], c.m.Read(hostSegment+uint64(r[0]), r[1]-r[0]))
	}
}

func (c *a64Caller) reset() {
	copy(c.seg.Mem, c.clean)
	c.store()
	for d, code := range c.codes {
		c.m.Write(uint64(d.At), code)
	}
}

func a64Regs(s *qemurun.State) (r arch.Regs) {
	copy(r[:], s.X[:])
	r[arch.ARM64.SP], r[arch.ARM64.PC], r[arch.ARM64.Flags] = s.SP, s.PC, s.PState
	return r
}

// A call is noted at its beginning and known at its end, with a trap in place of one instruction of both detours after the
// other: the program's registers are found again wherever a thread stands, and from wherever it is sent on, the call is
// watched once, and nothing is left of it.
func TestARM64Calls(t *testing.T) {
	c := newA64Caller(t, 8, inject.Enter{Max: 4}, true)
	between := c.before // behind the first instruction
	between.X[0] += between.X[3]
	between.PC = a64Site + 4
	want := between
	want.PC = a64Back
	read := func(at arch.Addr, p []byte) error { copy(p, c.m.Read(uint64(at), len(p))); return nil }
	done := func(where string, after *qemurun.State) {
		t.Helper()
		if *after != want {
			t.Errorf("%s: after a call\n%x; want\n%x", where, *after, want)
		}
		c.fetch()
		value, err := c.maps.Map(0).Lookup(make([]byte, 4))
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range []uint64{c.before.X[0], want.X[0], a64Back, 1} {
			if have := binary.LittleEndian.Uint64(value[8*i:]); have != w {
				t.Errorf("%s: word %d of what its end has stored is %#x, not %#x", where, i, have, w)
			}
		}
		hits, _ := c.seg.Counter(a64Hits)
		ended, _ := c.seg.Counter(a64Ended)
		full, _ := c.seg.Counter(a64Full)
		lost, _ := c.seg.Counter(a64Probe + segment.LostUnwound)
		if hits != 2 || ended != 1 || full+lost != 0 || c.seg.Active(a64Probe) != 0 || c.seg.Mem[c.seg.State(1)+segment.StateBusy] != 0 {
			t.Fatalf("%s: %d hits, %d ended, %d and %d lost, %d under way", where, hits, ended, full, lost, c.seg.Active(a64Probe))
		}
	}
	c.reset()
	after := c.before
	c.m.Run(&after)
	done("undisturbed", &after)

	for _, d := range []*inject.Detour{c.enter, c.exit} {
		tried, counts := 0, map[inject.Phase]int{}
		code := c.codes[d]
		for off := 0; off < len(code); off += 4 {
			c.reset()
			with := bytes.Clone(code)
			copy(with[off:], arch.ARM64.Break)
			c.m.Write(uint64(d.At), with)
			s := c.before
			c.m.Run(&s)
			if s.PC != uint64(d.At)+uint64(off) {
				continue // it does not come here
			}
			tried++
			r := a64Regs(&s)
			w, err := d.Where(&r, read)
			if err != nil {
				t.Fatalf("%v+%d: %v", d.Site, off, err)
			}
			counts[w.Phase]++
			program := c.before
			if d == c.exit || w.Phase == inject.Displaced && w.Regs[0] == between.X[0] {
				program = between
			}
			if w.Regs != a64Regs(&program) {
				t.Errorf("%v+%d: %v\n%x, want\n%x", d.Site, off, w.Phase, w.Regs, a64Regs(&program))
			}
			c.m.Write(uint64(d.At), code)
			if w.Resume != 0 {
				copy(s.X[:], w.Regs[:])
				s.SP, s.PState, s.PC = w.Regs[arch.ARM64.SP], w.Regs[arch.ARM64.Flags], uint64(w.Resume)
				if w.Busy != 0 {
					c.m.Write(uint64(w.Busy), []byte{0})
				}
			}
			c.m.Run(&s)
			done(w.Phase.String(), &s)
		}
		if tried < 60 || counts[inject.Before] < 20 || counts[inject.Running] < 20 || counts[inject.After] < 2 {
			t.Errorf("%v: %d instructions were tried: %v", d.Site, tried, counts)
		}
	}
}

// The pool: calls that nest and such as never return, more than may be under way, batches that are given away and taken,
// and the pool's end.
func TestARM64CallPool(t *testing.T) {
	c := newA64Caller(t, 8, inject.Enter{Max: 3}, false)
	c.reset()
	out := c.m.Read(a64Site+4, 4)
	enter := func(sp, link uint64) {
		t.Helper()
		s := c.before
		s.SP, s.X[30] = sp, link
		c.m.Write(a64Site+4, arch.ARM64.Break)
		if c.m.Run(&s); s.PC != a64Site+4 {
			t.Fatalf("it comes to %#x", s.PC)
		}
		c.m.Write(a64Site+4, out)
	}
	leave := func(sp, link uint64) {
		t.Helper()
		s := c.before
		s.SP, s.X[30], s.PC = sp, link, a64Site+4
		if c.m.Run(&s); s.PC != a64Back {
			t.Fatalf("it comes to %#x", s.PC)
		}
	}
	expect := func(when string, active int, ended, full, lost uint64) {
		t.Helper()
		c.fetch()
		e, _ := c.seg.Counter(a64Ended)
		f, _ := c.seg.Counter(a64Full)
		l, _ := c.seg.Counter(a64Probe + segment.LostUnwound)
		if n := c.seg.Active(a64Probe); n != active || e != ended || f != full || l != lost {
			t.Fatalf("%s: %d under way, %d ended, %d not watched, %d lost; want %d, %d, %d, %d", when, n, e, f, l, active, ended, full, lost)
		}
	}
	const top = a64Stack + a64Page
	for i := range uint64(4) {
		enter(top-64*i, a64Back)
	}
	expect("four that nest", 3, 0, 1, 0)
	leave(top-64*3, a64Back)
	leave(top-64*2, a64Back)
	expect("the inner ones return", 2, 1, 1, 0)
	leave(top, a64Back)
	expect("one below is passed over", 0, 2, 1, 1)
	enter(top-64, a64Back)
	enter(top-64, a64Back)
	expect("a place is used again", 1, 2, 1, 2)
	s := c.before
	s.SP, s.X[30], s.PC = top-64, a64Text+4, a64Site+4
	c.m.Run(&s)
	expect("another return address", 0, 2, 1, 3)

	// Another stack, of which nothing is known: its calls are not compared with these by their places.
	enter(top, a64Back)
	c.m.Map(0x6000_0000, a64Page)
	enter(0x6000_0000+a64Page, a64Back)
	leave(0x6000_0000+a64Page, a64Back)
	leave(top, a64Back)
	expect("two stacks", 0, 4, 1, 3)

	// Max is of one probe's.
	c = newA64Caller(t, 2*segment.PoolBatch+8, inject.Enter{Max: 1 << 20}, false)
	c.reset()
	calls := uint64(c.seg.Layout.Calls)
	deep := uint64(a64Stack + 2*a64Page)
	for round := range uint64(2) {
		for i := range calls {
			enter(deep-16*i, a64Back)
		}
		expect("as many as there are", int(calls), round*calls, round, 0)
		enter(deep-16*calls, a64Back)
		expect("and one more", int(calls), round*calls, round+1, 0)
		for i := range calls {
			leave(deep-16*(calls-1-i), a64Back)
		}
		expect("all return", 0, (round+1)*calls, round+1, 0)
	}
	if given := c.seg.Get(segment.PoolGiven); uint32(given) == 0 || given>>32 == 0 {
		t.Errorf("no batch was given away: %#x", given)
	}
}

// What a step cannot pass is done by the controller: each pair of exclusives, where it wins and where it loses.
func TestARM64Pairs(t *testing.T) {
	l := segment.Layout{Threads: 1, Counters: 1}
	seg, err := segment.New(&arm64code.ARM64.Machine, l, 0x10_0000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	a := (&inject.Target{Machine: arm64code.ARM64, Segment: seg}).Area(0x4000)
	const word = segment.HeadTable // any
	for _, p := range arm64code.ARM64.Pairs {
		for _, wins := range []bool{true, false} {
			if p.Expects == 0 && !wins {
				continue
			}
			var r arch.Regs
			seg.Put(word, 41)
			r[p.Addr], r[8], r[arch.ARM64.PC] = uint64(seg.Addr)+word, 1, uint64(a.Routine(p.At))
			to, left := p.Done, uint64(42)
			if p.Expects != 0 {
				r[p.Expects], r[p.Set] = 41, 42
				if !wins {
					r[p.Expects], to, left = 40, p.Lost, 41
				}
			}
			if !a.Atomically(&r) || r[arch.ARM64.PC] != uint64(a.Routine(to)) || seg.Get(word) != left || r[p.Was] != 41 || r[p.Set] != 42 && p.Expects == 0 {
				t.Errorf("%s, %v: %x, and the word is %d", p.At, wins, r, seg.Get(word))
			}
		}
	}
	var r arch.Regs
	r[arch.ARM64.PC] = uint64(a.Routine("enter_call"))
	if a.Atomically(&r) {
		t.Error("there is no pair where a routine begins")
	}
}

// A return by the link register and a direct jump are exits, whatever follows; others lead who knows where.
func TestARM64Leaves(t *testing.T) {
	for _, tt := range []struct {
		words []uint32
		want  bool
	}{
		{[]uint32{0xd65f03c0}, true},             // ret
		{[]uint32{0xd65f03c0, 0xd503201f}, true}, // and a nop
		{[]uint32{0x14000001, 0}, true},          // b
		{[]uint32{0xd65f0100}, false},            // ret x8
		{[]uint32{0xd65f0bff}, false},            // retaa
		{[]uint32{0xd61f0200}, false},            // br x16
		{[]uint32{0x54000041}, false},            // b.ne
		{[]uint32{0x94000001}, false},            // bl
		{nil, false},
	} {
		var code []byte
		for _, w := range tt.words {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		if cond, ok := arm64code.ARM64.Leaves(code); ok != tt.want || cond != 0 {
			t.Errorf("%x: %v, condition %#x", tt.words, ok, cond)
		}
	}
}
