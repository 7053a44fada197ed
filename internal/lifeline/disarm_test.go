package lifeline

import (
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog/qemurun"
)

// Each state that a controller can die in, and the ways in which a running program may have changed
// it.
func TestDisarm(t *testing.T) {
	const base, slot, back, trampoline = 0x10000, 0x20000, 0x3010, 0x21000
	probe := func(at arch.Addr, own ...byte) Entry {
		e := Entry{Addr: at, Slot: slot, Len: byte(len(own))}
		copy(e.Original[:], own)
		return e
	}
	end := Entry{Addr: slot + 5, Slot: back, Original: [7]byte{0xcc}, Len: 1}
	hidden, _ := end.Bypass(AMD64)
	trap := func(code []byte) []byte { return append([]byte{0xcc}, code[1:]...) }
	for _, c := range []struct {
		name    string
		entries []Entry
		ret     arch.Addr
		have    map[arch.Addr][]byte
		want    map[arch.Addr]byte
	}{
		{"a trap", []Entry{probe(0x3000, 0x55)}, 0,
			map[arch.Addr][]byte{0x3000: {0xcc}}, map[arch.Addr]byte{0x3000: 0x55}},
		{"one that can be a jump", []Entry{probe(0x3000, 0x55, 0x48, 0x89, 0xe5, 0x90)}, 0,
			map[arch.Addr][]byte{0x3000: {0xcc, 0x48, 0x89, 0xe5, 0x90}}, map[arch.Addr]byte{0x3000: 0x55}},
		{"with another under it", []Entry{probe(0x3000, 0x55, 0x48, 0x89, 0xe5, 0x90), probe(0x3001, 0x48)}, 0,
			map[arch.Addr][]byte{0x3000: {0xcc, 0xcc, 0x89, 0xe5, 0x90}}, map[arch.Addr]byte{0x3000: 0x55, 0x3001: 0x48}},
		{"the first half of a jump", []Entry{probe(0x3000, 0x55, 0x48, 0x89, 0xe5, 0x90)}, 0,
			map[arch.Addr][]byte{0x3000: {0xe9, 0x48, 0x89, 0xe5, 0x90}}, nil},
		{"its second half", []Entry{probe(0x3000, 0x55, 0x48, 0x89, 0xe5, 0x90)}, 0,
			map[arch.Addr][]byte{0x3000: {0xcc, 0x48, 0x89, 0x12, 0x34}}, nil},
		{"a trap within a jump", []Entry{{Addr: 0x3000, Slot: slot}}, 0,
			map[arch.Addr][]byte{0x3000: {0xcc}}, nil},
		{"the program's own trap", []Entry{probe(0x3000, 0xcc)}, 0,
			map[arch.Addr][]byte{0x3000: {0xcc}}, nil},
		{"not armed", []Entry{probe(0x3000, 0x55)}, 0,
			map[arch.Addr][]byte{0x3000: {0x55}}, nil},
		{"unmapped", []Entry{probe(0x3000, 0x55)}, 0, nil, nil},
		{"the end of a slot", []Entry{end}, 0,
			map[arch.Addr][]byte{slot + 5: trap(hidden)}, map[arch.Addr]byte{slot + 5: 0xe9}},
		{"and nothing behind it", []Entry{end}, 0,
			map[arch.Addr][]byte{slot + 5: {0xcc, 0xcc, 0xcc, 0xcc, 0xcc}}, nil},
		{"the trampoline", nil, trampoline,
			map[arch.Addr][]byte{trampoline: trap(AMD64.BypassReturn(base))}, map[arch.Addr]byte{trampoline: 0xff}},
		{"of another session", nil, trampoline,
			map[arch.Addr][]byte{trampoline: trap(AMD64.BypassReturn(base + 1))}, nil},
	} {
		m := make(memory)
		for at, code := range c.have {
			m.write(at, code)
		}
		f := &Found{Entries: c.entries, Return: c.ret}
		got := f.Disarm(AMD64, base, func(at arch.Addr, p []byte) error {
			if _, mapped := m[at]; !mapped {
				return ErrForeign
			}
			return m.read(at, p)
		})
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
		for _, w := range got {
			if b, ok := c.want[w.Addr]; !ok || len(w.New) != 1 || w.New[0] != b {
				t.Errorf("%s: % x at %v", c.name, w.New, w.Addr)
			}
		}
	}
}

// Where instructions have one length, one of them is written at a time.
func TestDisarmInstructions(t *testing.T) {
	const base, text, slot, trampoline = 0x10000, 0x3000, 0x20000, 0x21000
	brk := arch.ARM64.Break
	own := []byte{0xfd, 0x7b, 0xbf, 0xa9} // stp x29, x30, [sp, #-16]!
	end := Entry{Addr: slot + 4, Slot: text + 4, Len: 4}
	copy(end.Original[:], brk)
	back, ok := end.Bypass(ARM64)
	if !ok || len(back) != ARM64.BypassLen() || !ARM64.IsJump(back) || ARM64.IsJump(own) {
		t.Fatalf("the way back is % x, %v", back, ok)
	}
	m := make(memory)
	m.write(text, brk)
	m.write(slot, append(append([]byte{}, own...), brk...))
	over := ARM64.BypassReturn(base)
	m.write(trampoline, append(append([]byte{}, brk...), over[len(brk):]...))
	probe := Entry{Addr: text, Slot: slot, Len: 4}
	copy(probe.Original[:], own)
	f := &Found{Entries: []Entry{probe, end}, Return: trampoline}
	for _, w := range f.Disarm(ARM64, base, m.read) {
		if len(w.New) != 4 {
			t.Errorf("% x at %v is no instruction", w.New, w.Addr)
		}
		m.write(w.Addr, w.New)
	}
	for at, want := range map[arch.Addr][]byte{text: own, slot + 4: back, trampoline: over} {
		got := make([]byte, len(want))
		m.read(at, got)
		if string(got) != string(want) {
			t.Errorf("at %v is % x, want % x", at, got, want)
		}
	}
	far := Entry{Addr: 0x1000, Slot: 1 << 40, Original: end.Original, Len: 4}
	if _, ok := far.Bypass(ARM64); ok {
		t.Error("a branch reaches everywhere")
	}
}

// On riscv64 a trap is half of the instruction that it covers, or all of it; and from some slots no
// jump reaches.
func TestDisarmWithoutReach(t *testing.T) {
	const base, text, slot, far, trampoline = 0x10000, 0x3000, 0x20000, 0x40000000, 0x21000
	brk := arch.RISCV64.Break
	long, short := []byte{0x13, 0x01, 0x01, 0xfe}, []byte{0x01, 0x11} // addi sp, sp, -32; and compressed
	end := func(at, to arch.Addr) Entry {
		e := Entry{Addr: at, Slot: to, Len: 2}
		copy(e.Original[:], brk)
		return e
	}
	probe := func(at arch.Addr, own []byte) Entry {
		e := Entry{Addr: at, Slot: slot, Len: 2}
		copy(e.Original[:], own)
		return e
	}
	back, ok := end(slot+4, text+4).Bypass(RISCV64)
	if !ok || string(back) != "\x6f\x30\x0e\x80" { // jal zero, text+4, as objdump has it
		t.Fatalf("the way back is % x, %v", back, ok)
	}
	m := make(memory)
	m.write(text, append(append([]byte{}, brk...), long[2:]...))
	m.write(text+4, brk)
	m.write(slot+4, append(append([]byte{}, brk...), back[2:]...))
	m.write(far+4, append(append([]byte{}, brk...), brk...))
	over := RISCV64.BypassReturn(base)
	m.write(trampoline, append(append([]byte{}, brk...), over[2:]...))
	f := &Found{Entries: []Entry{probe(text, long[:2]), probe(text+4, short), end(slot+4, text+4)}, Return: trampoline}
	if f.Stays(RISCV64) {
		t.Error("the handler stays although jumps reach")
	}
	f.Entries = append(f.Entries, end(far+4, text+4))
	if !f.Stays(RISCV64) {
		t.Error("the handler goes although a thread may come to a trap that no jump replaces")
	}
	for _, w := range f.Disarm(RISCV64, base, m.read) {
		if len(w.New) != 2 {
			t.Errorf("% x at %v is not written at once", w.New, w.Addr)
		}
		m.write(w.Addr, w.New)
	}
	for at, want := range map[arch.Addr][]byte{text: long, text + 4: short, slot + 4: back, far + 4: brk, trampoline: over} {
		got := make([]byte, len(want))
		m.read(at, got)
		if string(got) != string(want) {
			t.Errorf("at %v is % x, want % x", at, got, want)
		}
	}
}

// A function that returns to the trampoline when its trap is no more comes to its caller, with its
// result.
func TestReturnerOfRISCV64(t *testing.T) {
	const base, trampoline, stack, caller = 0x40000000, 0x50000000, 0x60008000, 0x40ff0000
	tr := NewTrap(RISCV64, base, 1)
	m := qemurun.RISCV64(t)
	size := uint64(TrapSize()+4095) &^ 4095
	m.Map(base, size)
	m.Map(trampoline, 4096)
	m.Map(stack-1<<15, 1<<16)
	m.Map(caller, 4096)
	m.Write(base, tr.Image([SigactSize]byte{}))
	m.Write(trampoline, RISCV64.BypassReturn(base))
	m.Write(caller, arch.RISCV64.Break)
	// Its place in the table is taken by another: the search goes on.
	i := tr.FrameIndex(stack)
	m.Write(uint64(tr.FrameSlot(i)), Frame(arch.AMD64, stack-8*FrameSlots, 0x1234))
	m.Write(uint64(tr.FrameSlot(i+1)), Frame(arch.AMD64, stack, caller))
	s := qemurun.RISCV64State{PC: trampoline}
	for i := range s.X {
		s.X[i] = uint64(i) * 0x1111
	}
	s.X[1] = stack
	want := s
	want.PC = caller
	stop := m.RunRISCV64(&s)
	want.X[30] = s.X[30] // it goes by t6
	if stop.Signal != qemurun.SIGTRAP || s != want {
		t.Errorf("%+v: %+v, want %+v", stop, s, want)
	}
}
