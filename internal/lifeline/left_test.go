package lifeline

import (
	"errors"
	"slices"
	"testing"

	"kprobe/arch"
)

// A recovery's note is found by later sessions, once the session is over, and in no other memory.
func TestLeft(t *testing.T) {
	const base = 0x7000_0000
	for _, m := range []*Machine{AMD64, I386, ARM64, S390X} {
		mem := make([]byte, TrapSize())
		read := func(at arch.Addr, b []byte) error {
			if at < base || at+arch.Addr(len(b)) > base+arch.Addr(len(mem)) {
				return errors.New("no memory")
			}
			copy(b, mem[at-base:])
			return nil
		}
		write := func(w Write) { copy(mem[w.Addr-base:], w.New) }
		trap, a := NewTrap(m, base, 7), m.Arch
		write(Write{base, trap.Image([SigactSize]byte{})})
		for _, w := range trap.SetEntries(base+arch.Addr(tablesAt), nil) {
			write(w)
		}
		for _, code := range [][]arch.Range{{{Start: base, End: base + 0x1000}, {Start: 0x1234_5000, End: 0x1234_8000}}, {}} {
			found, err := Read(a, base, read)
			if err != nil {
				t.Fatal(err)
			}
			write(found.Left(a, base, code))
			if got := ReadLeft(a, base, read); got != nil {
				t.Errorf("%s: a session that is not over has left %v", a.Name, got)
			}
			before := slices.Clone(mem[:headerSize])
			write(Over(base))
			if got := ReadLeft(a, base, read); !slices.Equal(got, code) {
				t.Errorf("%s: %v is left, and told of %v", a.Name, code, got)
			}
			copy(mem, before)
		}
		clear(mem)
		if got := ReadLeft(a, base, read); got != nil {
			t.Errorf("%s: memory of others tells of %v", a.Name, got)
		}
	}
}

// A jump leads where the processor goes.
func TestJumpsTo(t *testing.T) {
	for _, tt := range []struct {
		m    *Machine
		at   arch.Addr
		code []byte
		to   arch.Addr
		ok   bool
	}{
		{AMD64, 0x40_1000, []byte{0xe9, 0xfb, 0xff, 0xff, 0xff}, 0x40_1000, true},
		{AMD64, 0x40_1000, []byte{0x2e, 0x2e, 0xe9, 0, 1, 0, 0}, 0x40_1107, true},
		{AMD64, 0x40_1000, []byte{0xe9, 0xfb, 0xff}, 0, false},
		{AMD64, 0x40_1000, []byte{0x55, 0xe9, 0, 0, 0, 0}, 0, false},
		{I386, 0x10, []byte{0xe9, 0, 0, 0, 0xf0}, 0xf000_0015, true},
		{ARM64, 0x40_1000, []byte{0xff, 0xff, 0xff, 0x17}, 0x40_0ffc, true},
		{ARM64, 0x40_1000, []byte{2, 0, 0, 0x14}, 0x40_1008, true},
		{RISCV64, 0x40_1000, []byte{2, 0, 0, 0x14}, 0, false},
	} {
		if to, ok := tt.m.JumpsTo(tt.at, tt.code); to != tt.to || ok != tt.ok {
			t.Errorf("%s: % x at %v leads to %v, %v; want %v, %v", tt.m.Name, tt.code, tt.at, to, ok, tt.to, tt.ok)
		}
	}
}
