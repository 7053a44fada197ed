package lifeline

import (
	"testing"

	"kprobe/arch"
)

// Each state that a controller can die in, and what a running program may have
// done to it.
func TestDisarm(t *testing.T) {
	const base, slot, back, trampoline = 0x10000, 0x20000, 0x3010, 0x21000
	probe := func(at arch.Addr, own ...byte) Entry {
		e := Entry{Addr: at, Slot: slot, Len: byte(len(own))}
		copy(e.Original[:], own)
		return e
	}
	end := Entry{Addr: slot + 5, Slot: back, Original: [7]byte{0xcc}, Len: 1}
	hidden, _ := end.Bypass(arch.AMD64)
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
			map[arch.Addr][]byte{trampoline: trap(BypassReturn(arch.AMD64, base))}, map[arch.Addr]byte{trampoline: 0xff}},
		{"of another session", nil, trampoline,
			map[arch.Addr][]byte{trampoline: trap(BypassReturn(arch.AMD64, base+1))}, nil},
	} {
		m := make(memory)
		for at, code := range c.have {
			m.write(at, code)
		}
		f := &Found{Entries: c.entries, Return: c.ret}
		got := f.Disarm(arch.AMD64, base, func(at arch.Addr, p []byte) error {
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
