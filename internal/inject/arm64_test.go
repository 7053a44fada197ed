package inject_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"kprobe/arch"
	"kprobe/internal/inject"
	arm64code "kprobe/internal/inject/arm64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/patch"
	"kprobe/internal/segment"
	"kprobe/internal/testprog/qemurun"
)

// Detours of arm64 run under QEMU's user mode, with a trap in place of one instruction after the other: the
// program's registers are found again wherever a thread stands, and each hit is counted once.
func TestARM64Detour(t *testing.T) {
	needARM64(t)
	const page, text, ours, shared, stack = 0x1000, 0x4000_0000, 0x4100_0000, 0x10_0000_0000, 0x5000_0000
	const site, counter = text + 0x40, 5
	l := segment.Layout{Threads: 1, Counters: 8}
	seg, err := segment.New(&arm64code.ARM64.Machine, l, shared, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	seg.Open()
	m := qemurun.ARM64(t)
	m.Map(text, page)
	m.Map(ours, page)
	m.Map(stack, 2*page)
	word := uint64(seg.Everyone(counter))
	m.Map(word&^(page-1), page)

	brk := arch.ARM64.Break
	probed := []byte{0x63, 0x04, 0x00, 0x91} // add x3, x3, #1
	for _, redZone := range []int{0, 16} {
		area := (&inject.Target{Machine: arm64code.ARM64, Segment: seg}).Area(ours)
		d := &inject.Detour{At: ours + 0x100, Site: site, Area: area, RedZone: redZone, Hits: counter, Missed: inject.NoCounter,
			Tail: func(at arch.Addr) (inject.Tail, error) {
				v, err := arm64.ISA.Displace(probed, site, at)
				return inject.Tail{v.Code, v.Marks}, err
			}}
		code, tailAt, err := d.Emit()
		if err != nil {
			t.Fatal(err)
		}
		const jumps = 2 // there and back
		if n := int(tailAt-d.At)/4 + jumps; n > 12 {
			t.Errorf("%d instructions for a hit, 12 are promised", n)
		}
		jump, err := arm64.ISA.Jump(site, d.At)
		if err != nil {
			t.Fatal(err)
		}
		m.Write(site, append(bytes.Clone(jump), brk...))
		count := func() uint64 { return binary.LittleEndian.Uint64(m.Read(word, 8)) }
		m.Write(word, make([]byte, 8))

		var before qemurun.State
		for i := range before.X {
			before.X[i] = 0x1111_1111_1111_1111 * uint64(i+1)
		}
		before.SP, before.PC, before.PState = stack+page, site, 0xb0000000
		below := bytes.Repeat([]byte{0x5a}, redZone)
		m.Write(before.SP-uint64(redZone), below)
		regs := func(s *qemurun.State) (r arch.Regs) {
			copy(r[:], s.X[:])
			r[arch.ARM64.SP], r[arch.ARM64.PC], r[arch.ARM64.Flags] = s.SP, s.PC, s.PState
			return r
		}
		read := func(at arch.Addr, p []byte) error {
			copy(p, m.Read(uint64(at), len(p)))
			return nil
		}

		m.Write(uint64(d.At), code)
		after := before
		if stop := m.Run(&after); stop.Signal != qemurun.SIGTRAP {
			t.Fatalf("it ends with %+v", stop)
		}
		want := before
		want.X[3]++
		want.PC = site + 4
		if after.X != want.X || after.SP != want.SP || after.PC != want.PC || after.PState != want.PState || count() != 1 {
			t.Errorf("after a hit\n%x, count %d; want\n%x, 1", after, count(), want)
		}
		if !bytes.Equal(m.Read(before.SP-uint64(redZone), redZone), below) {
			t.Error("what is below the stack pointer has changed")
		}

		served := uint64(1)
		for at := d.At; at < d.At+arch.Addr(len(code)); at += 4 {
			with := bytes.Clone(code)
			copy(with[at-d.At:], brk)
			m.Write(uint64(d.At), with)
			s := before
			m.Run(&s)
			if s.PC != uint64(at) {
				break // it is behind the last
			}
			r := regs(&s)
			w, err := d.Where(&r, read)
			if err != nil {
				t.Fatalf("%v: %v", at, err)
			}
			wantRegs, counted := regs(&before), uint64(0)
			switch {
			case at == tailAt+4: // the way back
				wantRegs = regs(&want)
				counted = 1
			case w.Counted:
				counted = 1
			}
			if w.Regs != wantRegs {
				t.Errorf("+%d: %v\n%x, want\n%x", at-d.At, w.Phase, w.Regs, wantRegs)
			}
			if w.Phase == inject.Before && w.Counted || at == tailAt && !w.Counted {
				t.Errorf("+%d: %v, counted: %v", at-d.At, w.Phase, w.Counted)
			}
			served += counted
			if got := count(); got != served {
				t.Errorf("+%d: %d hits were counted, %d are told of", at-d.At, got, served)
			}
		}
		if served < 4 {
			t.Errorf("%d hits: not every instruction was tried", served)
		}
	}
}

// A jump behind a landing pad that has signed the link register: the detour begins with the state behind the pad, and what it shows and
// counts by is that in front of it; wherever it is left, the state is that of the address that is told.
func TestARM64DetourBehindPad(t *testing.T) {
	needARM64(t)
	const page, text, ours, shared, stack = 0x1000, 0x4000_0000, 0x4100_0000, 0x10_0000_0000, 0x5000_0000
	const site, counter = text + 0x40, 5
	l := segment.Layout{Threads: 1, Counters: 8}
	seg, err := segment.New(&arm64code.ARM64.Machine, l, shared, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	seg.Open()
	m := qemurun.ARM64(t)
	m.Map(text, page)
	m.Map(ours, page)
	m.Map(stack, 2*page)
	word := uint64(seg.Everyone(counter))
	m.Map(word&^(page-1), page)
	brk := arch.ARM64.Break
	body := []byte{0x3f, 0x23, 0x03, 0xd5, 0x63, 0x04, 0x00, 0x91} // paciasp; add x3, x3, #1
	fn := patch.Part{Addr: site, Code: append(bytes.Clone(body), 0xc0, 0x03, 0x5f, 0xd6)}
	flow := patch.NewFlow(arm64.ISA, &patch.Image{Text: []patch.Part{fn}, Funcs: []arch.Addr{site}})
	j := patch.NewBody(arm64.ISA, fn, nil, flow).PlanJump(site)
	if len(j.Ways) != 1 {
		t.Fatal(j)
	}
	w := &j.Ways[0]
	tail := func(s *patch.Slot, err error) (inject.Tail, error) {
		if err != nil {
			return inject.Tail{}, err
		}
		return inject.Tail{s.Code, s.Marks}, nil
	}
	d := &inject.Detour{At: ours + 0x100, Site: site, Area: (&inject.Target{Machine: arm64code.ARM64, Segment: seg}).Area(ours), Hits: counter, Missed: inject.NoCounter,
		Head: func(at arch.Addr) (inject.Tail, error) { return tail(j.Undoing(w, at), nil) },
		Tail: func(at arch.Addr) (inject.Tail, error) { return tail(j.Emit(w, at)) }}
	code, tailAt, err := d.Emit()
	if err != nil {
		t.Fatal(err)
	}
	var before qemurun.State
	for i := range before.X {
		before.X[i] = 0x1111_1111_1111_1111 * uint64(i+1)
	}
	before.PC, before.X[30] = site, text+0x80
	// The program by itself, behind the pad and behind both. The signature hides in the address itself where its few
	// bits are those of an address, once in a hundred stack pointers or so: another one is taken then.
	var behind, want qemurun.State
	for before.SP = stack + page; ; before.SP -= 16 {
		m.Write(site, append(bytes.Clone(body[:4]), brk...))
		behind = before
		m.Run(&behind)
		m.Write(site, append(bytes.Clone(body), brk...))
		want = before
		m.Run(&want)
		if want.X[30] != behind.X[30] {
			t.Fatalf("the link register is signed as %#x, and then as %#x", behind.X[30], want.X[30])
		}
		if behind.X[30] != before.X[30] {
			break
		}
		if before.SP < stack+page-16*16 {
			t.Fatal("the link register is not signed")
		}
	}

	m.Write(site, append(bytes.Clone(j.Write(w, d.At).New), brk...))
	count := func() uint64 { return binary.LittleEndian.Uint64(m.Read(word, 8)) }
	m.Write(word, make([]byte, 8))
	served := uint64(0)
	for at := d.At; at <= tailAt+8; at += 4 { // the first time without a trap
		with := bytes.Clone(code)
		if at > d.At {
			copy(with[at-4-d.At:], brk)
		}
		m.Write(uint64(d.At), with)
		s := before
		m.Run(&s)
		if at == d.At {
			if served++; s.X != want.X || s.PC != want.PC || s.SP != want.SP || count() != 1 {
				t.Errorf("after a hit\n%x, count %d; want\n%x, 1", s, count(), want)
			}
			continue
		}
		r := a64Regs(&s)
		where, err := d.Where(&r, func(at arch.Addr, p []byte) error { copy(p, m.Read(uint64(at), len(p))); return nil })
		if err != nil {
			t.Fatalf("%v: %v", at-4, err)
		}
		shown, counted := before, where.Counted
		switch at - 4 {
		case d.At:
			shown = behind
		case tailAt + 4:
			shown, counted = behind, true
		}
		if where.Regs != a64Regs(&shown) {
			t.Errorf("+%d: %v\n%x, want\n%x", at-4-d.At, where.Phase, where.Regs, a64Regs(&shown))
		}
		if counted {
			served++
		}
		if count() != served {
			t.Errorf("+%d: %d hits were counted, %d are told of", at-4-d.At, count(), served)
		}
	}
}

// A store exclusive that has failed has counted nothing.
func TestARM64DetourTriesAgain(t *testing.T) {
	l := segment.Layout{Threads: 1, Counters: 1}
	seg, err := segment.New(&arm64code.ARM64.Machine, l, 0x10_0000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	d := &inject.Detour{At: 0x1000, Site: 0x2000, Area: (&inject.Target{Machine: arm64code.ARM64, Segment: seg}).Area(0), Missed: inject.NoCounter,
		Tail: func(arch.Addr) (inject.Tail, error) { return inject.Tail{Code: make([]byte, 4)}, nil }}
	code, err := d.Code()
	if err != nil {
		t.Fatal(err)
	}
	var r arch.Regs
	at := bytes.Index(code, []byte{0xa2, 0xff, 0xff, 0x35}) // cbnz
	r[arch.ARM64.PC] = uint64(d.At) + uint64(at)
	for status, want := range map[uint64]inject.Phase{0: inject.After, 1: inject.Before} {
		r[arm64code.StatusReg] = status
		w, err := d.Where(&r, func(_ arch.Addr, p []byte) error { clear(p); return nil })
		if err != nil || w.Phase != want || w.Counted != (want == inject.After) {
			t.Errorf("status %d: %+v, %v; want %v", status, w, err, want)
		}
	}
}

// What they do not do is refused, not left out.
func TestARM64DetourRefuses(t *testing.T) {
	l := segment.Layout{Threads: 1, Counters: 1}
	seg, err := segment.New(&arm64code.ARM64.Machine, l, 0x10_0000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*inject.Detour{
		"a return": {Return: &inject.Return{}},
		"a gate":   {Gate: true},
		"override": {Hits: inject.NoCounter, Programs: []inject.Program{{Override: true}}},
	} {
		d.Area, d.Tail = (&inject.Target{Machine: arm64code.ARM64, Segment: seg}).Area(0), func(arch.Addr) (inject.Tail, error) { return inject.Tail{}, errors.New("nobody should ask") }
		if _, err := d.Code(); err == nil || err.Error() == "nobody should ask" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
