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
	"kprobe/internal/isa/arm64"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
	"kprobe/internal/testprog/qemurun"
)

// whatItSees stores words of the context in an array, and has a helper change what those may.
const whatItSees = `
	r6 = r1
	call get_prandom_u32
	*(u32 *)(r10 -4) = 0
	r1 = map seen
	r2 = r10
	r2 += -4
	call map_lookup_elem
	if r0 == 0 goto out
	r8 = 1
	r9 = 2
	r1 = *(u64 *)(r6 +0)
	*(u64 *)(r0 +0) = r1
	r1 = *(u64 *)(r6 +24)
	*(u64 *)(r0 +8) = r1
	r1 = *(u64 *)(r6 +224)
	*(u64 *)(r0 +16) = r1
	r1 = *(u64 *)(r6 +240)
	*(u64 *)(r0 +24) = r1
	r1 = *(u64 *)(r6 +248)
	*(u64 *)(r0 +32) = r1
	r1 = *(u64 *)(r6 +256)
	*(u64 *)(r0 +40) = r1
	r1 = *(u64 *)(r6 +264)
	*(u64 *)(r0 +48) = r1
	r1 = *(u64 *)(r0 +56)
	r1 += 1
	*(u64 *)(r0 +56) = r1
out:	r0 = 0
	exit`

// A detour with programs, with a trap in place of one of its instructions after the other: the program's registers are
// found again wherever a thread stands, and from wherever it is sent on, each hit is counted and served once.
func TestARM64Programs(t *testing.T) {
	const page, text, stack = 0x1000, 0x4000_0000, 0x5000_0000
	const site, hits, missed, pointer = text + 0x40, 3, 5000, 0x7000_0010
	h := foreignHost(t, segment.Layout{Threads: 3, Counters: missed + 1, Extra: 1 << 16})
	h.seg.Open()
	h.seg.SetCareful(false)
	h.put(h.area.Addr, h.area.Image())
	m := h.foreign
	m.Map(text, page)
	m.Map(stack, 2*page)
	maps := h.maps(&bpf.MapSpec{Name: "seen", Type: bpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 1})
	insns, err := bpftest.Assemble(whatItSees, maps.Layout.Maps...)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := verify.Program(&bpf.Program{Name: "seen", Context: bpf.ARM64, Insns: insns, Maps: maps.Layout.Maps})
	if err != nil {
		t.Fatal(err)
	}
	made, err := jit.ARM64.Compile(proof, &jit.Env{Segment: h.seg.ExtraAddr(), Layout: maps.Layout})
	if err != nil {
		t.Fatal(err)
	}
	entry := h.code(len(made.Bytes))
	linked, err := made.Link(entry, h.area.Helper)
	if err != nil {
		t.Fatal(err)
	}
	h.put(entry, linked)
	p := inject.Program{Entry: entry, Clobbers: made.Clobbers, Context: made.Context, Needs: made.Needs}

	number := h.seg.Assign(segment.Thread{Key: pointer, TID: h.pid})
	clean := bytes.Clone(h.seg.Mem)
	var used [][2]int
	load := func(key uint64) {
		copy(h.seg.Mem, clean)
		if key != pointer {
			h.seg.Release(pointer) // it is unknown
		}
		used = append(headParts(h.seg, pointer, key), [][2]int{{h.seg.AwayAt(), h.seg.ExtraAt() + int(maps.Size)}, {h.seg.StatesAt(), h.seg.Size()}}...)
		for _, r := range used {
			m.Write(hostSegment+uint64(r[0]), h.seg.Mem[r[0]:r[1]])
		}
	}
	fetch := func() {
		for _, r := range used {
			copy(h.seg.Mem[r[0]:r[1]], m.Read(hostSegment+uint64(r[0]), r[1]-r[0]))
		}
	}

	brk := arch.ARM64.Break
	probed := []byte{0x63, 0x04, 0x00, 0x91} // add x3, x3, #1
	d := &inject.Detour{At: h.code(detourRoom), Site: site, Area: h.area, RedZone: 16, Hits: hits, Missed: missed, Programs: []inject.Program{p, p},
		Tail: func(at arch.Addr) (inject.Tail, error) {
			v, err := arm64.ISA.Displace(probed, site, at)
			return inject.Tail{v.Code, v.Marks}, err
		}}
	code, err := d.Code()
	if err != nil {
		t.Fatal(err)
	}
	jump, err := arm64.ISA.Jump(site, d.At)
	if err != nil {
		t.Fatal(err)
	}
	const setPointer = 0xd51bd040 // msr tpidr_el0, x0
	m.Write(site, append(bytes.Clone(jump), brk...))
	m.Write(text, binary.LittleEndian.AppendUint32(nil, setPointer))
	m.Write(text+4, brk)

	var before qemurun.State
	for i := range before.X {
		before.X[i] = 0x1111_1111_1111_1111 * uint64(i+1)
	}
	before.SP, before.PC, before.PState = stack+page, site, 0xb0000000
	for i := range before.V {
		before.V[i] = 0x0123_4567_89ab_cdef + uint64(i)
	}
	below := bytes.Repeat([]byte{0x5a}, 16)
	m.Write(before.SP-16, below)
	want := before
	want.X[3]++
	want.PC = site + 4
	read := func(at arch.Addr, p []byte) error {
		copy(p, m.Read(uint64(at), len(p)))
		return nil
	}
	regs := func(s *qemurun.State) (r arch.Regs) {
		copy(r[:], s.X[:])
		r[arch.ARM64.SP], r[arch.ARM64.PC], r[arch.ARM64.Flags] = s.SP, s.PC, s.PState
		return r
	}
	// done is what one hit leaves, wherever it was interrupted.
	done := func(where string, after *qemurun.State, served uint64) {
		t.Helper()
		if *after != want {
			t.Errorf("%s: after a hit\n%x; want\n%x", where, *after, want)
		}
		if !bytes.Equal(m.Read(before.SP-16, 16), below) {
			t.Errorf("%s: what is below the stack pointer has changed", where)
		}
		fetch()
		n, lost := h.seg.Counter(hits)
		other, _ := h.seg.Counter(missed)
		value, err := maps.Map(0).Lookup(make([]byte, 4))
		if err != nil || n != served || lost != 0 || n+other != 1 {
			t.Fatalf("%s: %d hits, %d lost, %d missed, %v", where, n, lost, other, err)
		}
		for i := range h.seg.Given() {
			if h.seg.Mem[h.seg.State(i)+segment.StateBusy] != 0 {
				t.Errorf("%s: the thread is busy still", where)
			}
		}
		if served == 0 {
			return
		}
		for i, w := range []uint64{before.X[0], before.X[3], before.X[28], before.X[30], before.SP, site, before.PState, 2} {
			if have := binary.LittleEndian.Uint64(value[8*i:]); have != w {
				t.Errorf("%s: word %d that the program has seen is %#x, not %#x", where, i, have, w)
			}
		}
	}
	for _, key := range []uint64{pointer, pointer + 0x100, 0} {
		s := qemurun.State{PC: text, SP: before.SP}
		s.X[0] = key
		m.Run(&s)
		load(key)
		m.Write(uint64(d.At), code)
		after := before
		m.Run(&after)
		done("undisturbed", &after, 1)

		tried, counts := 0, map[inject.Phase]int{}
		for at := d.At; at < d.At+arch.Addr(len(code)); at += 4 {
			load(key)
			with := bytes.Clone(code)
			copy(with[at-d.At:], brk)
			m.Write(uint64(d.At), with)
			s := before
			m.Run(&s)
			if s.PC != uint64(at) {
				continue // it does not come here
			}
			tried++
			r := regs(&s)
			w, err := d.Where(&r, read)
			if err != nil {
				t.Fatalf("+%d: %v", at-d.At, err)
			}
			counts[w.Phase]++
			program := regs(&before)
			if s.X[3] == want.X[3] && w.Phase == inject.Displaced { // the way back
				program = regs(&want)
			}
			if w.Regs != program {
				t.Errorf("+%d: %v\n%x, want\n%x", at-d.At, w.Phase, w.Regs, program)
			}
			m.Write(uint64(d.At), code)
			if w.Resume != 0 {
				copy(s.X[:], w.Regs[:])
				s.SP, s.PState, s.PC = w.Regs[arch.ARM64.SP], w.Regs[arch.ARM64.Flags], uint64(w.Resume)
				if w.Busy != 0 {
					m.Write(uint64(w.Busy), []byte{0})
				}
			}
			m.Run(&s)
			done(w.Phase.String(), &s, 1)
		}
		if tried < 60 || counts[inject.Before] < 20 || counts[inject.Running] < 10 || counts[inject.After] < 10 {
			t.Errorf("%d instructions were tried: %v", tried, counts)
		}
	}

	m.Write(uint64(d.At), code)

	// One that finds a program at work, or the controller dead, is missed.
	for where, at := range map[string]int{"at work": h.seg.State(number) + segment.StateBusy, "dead": segment.HeadDead} {
		s := qemurun.State{PC: text, SP: before.SP}
		s.X[0] = pointer
		m.Run(&s)
		load(pointer)
		m.Write(hostSegment+uint64(at), []byte{1})
		after := before
		m.Run(&after)
		m.Write(hostSegment+uint64(h.seg.State(number)+segment.StateBusy), []byte{0})
		done(where, &after, 0)
	}

	// Who is missed may have the counter in common with others: at whatever moment one of these counts, none is lost.
	counter, interrupted := hostSegment+uint64(h.seg.State(number)+segment.Counter(missed)), 0
	lose := h.area.Routine("lose")
	for _, part := range []arch.Range{{Start: d.At, End: d.At + arch.Addr(len(code))}, {Start: lose, End: lose + 7*4}} {
		for at := part.Start; at < part.End; at += 4 {
			s := qemurun.State{PC: text, SP: before.SP}
			s.X[0] = pointer
			m.Run(&s)
			load(pointer)
			m.Write(hostSegment+uint64(h.seg.State(number)+segment.StateBusy), []byte{1})
			word := bytes.Clone(m.Read(uint64(at), 4))
			m.Write(uint64(at), brk)
			s = before
			m.Run(&s)
			m.Write(uint64(at), word)
			if s.PC != uint64(at) {
				continue
			}
			interrupted++
			n := binary.LittleEndian.Uint64(m.Read(counter, 8))
			m.Write(counter, binary.LittleEndian.AppendUint64(nil, n+1))
			m.Run(&s)
			if n = binary.LittleEndian.Uint64(m.Read(counter, 8)); n != 2 {
				t.Errorf("at %v: %d of two are counted", at, n)
			}
		}
	}
	if interrupted < 20 {
		t.Errorf("interrupted %d times", interrupted)
	}

	// A program comes back by a trap, where the controller has asked for that.
	s := qemurun.State{PC: text, SP: before.SP}
	s.X[0] = pointer
	m.Run(&s)
	load(pointer)
	m.Write(uint64(entry), append(bytes.Clone(brk), linked[4:]...))
	s = before
	m.Run(&s)
	m.Write(uint64(entry), linked)
	r := regs(&s)
	slot, back := h.seg.ReturnTo(&r), h.seg.BackAt(&r)
	word := m.Read(uint64(slot), 8)
	if to := arch.Addr(binary.LittleEndian.Uint64(word)); to <= d.At || to >= d.At+arch.Addr(len(code)) {
		t.Fatalf("a program's detour goes on at %v", to)
	}
	m.Write(uint64(back), word)
	m.Write(uint64(slot), binary.LittleEndian.AppendUint64(nil, uint64(h.area.TrapExit())))
	if m.Run(&s); s.PC != uint64(h.area.TrapExit()) || !h.area.Exits(arch.Addr(s.PC)) {
		t.Fatalf("it comes to %#x", s.PC)
	}
	s.PC += 4 // as the lifeline has it go on
	m.Run(&s)
	done("by the trap", &s, 1)
}
