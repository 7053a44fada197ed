package returns_test

import (
	"errors"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/returns"
)

// A word is a return address by what it leads to, and by what is in front of that, as far as there is memory.
func TestCalled(t *testing.T) {
	const page = arch.Addr(0x10000) // nothing is mapped in front of it, nor behind its 4096 bytes
	none := []byte{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}
	for _, tt := range []struct {
		name   string
		m      *arch.Arch
		at     arch.Addr // from page on
		before []byte
		behind []byte
		file   bool
		want   bool
	}{
		{"a direct call", arch.AMD64, 0x105, []byte{0xe8, 1, 2, 3, 4}, nil, false, true},
		{"a call by a register", arch.AMD64, 0x102, []byte{0xff, 0xd0}, nil, false, true},
		{"with a prefix", arch.AMD64, 0x103, []byte{0x41, 0xff, 0xd3}, nil, false, true},
		{"by memory", arch.AMD64, 0x107, []byte{0xff, 0x94, 0x24, 0, 1, 0, 0}, nil, false, true},
		{"at the beginning of memory", arch.AMD64, 2, []byte{0xff, 0xd0}, nil, false, true},
		{"a page begins within", arch.AMD64, 3, []byte{2, 3, 4}, nil, false, false},
		{"i386: by its system calls' page", arch.I386, 0x107, []byte{0x65, 0xff, 0x15, 16, 0, 0, 0}, nil, false, true},
		{"a jump by a register", arch.AMD64, 0x102, []byte{0xff, 0xe0}, nil, false, false},
		{"behind that, in a file", arch.AMD64, 0x102, []byte{0xff, 0xe0}, nil, true, true},
		{"behind a return, in a file", arch.AMD64, 0x101, []byte{0xc3}, nil, true, true},
		{"anywhere, in a file", arch.AMD64, 0x109, none, nil, true, false},
		{"a function, in a file", arch.AMD64, 0x110, none, nil, true, true},
		{"a function, in no file", arch.AMD64, 0x110, none, nil, false, false},
		{"a signal's end", arch.AMD64, 0x109, none, []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}, false, true},
		{"another call", arch.AMD64, 0x109, none, []byte{0x48, 0xc7, 0xc0, 14, 0, 0, 0, 0x0f, 0x05}, false, false},
		{"i386: a signal's end", arch.I386, 0x109, none, []byte{0x58, 0xb8, 119, 0, 0, 0, 0xcd, 0x80}, false, true},
		{"nowhere", arch.AMD64, 0x2000, nil, nil, true, false},
	} {
		memory := make([]byte, 4096)
		for i := range memory {
			memory[i] = 0x90
		}
		if len(tt.before) <= int(tt.at) && int(tt.at) < len(memory) {
			copy(memory[int(tt.at)-len(tt.before):], tt.before)
			copy(memory[tt.at:], tt.behind)
		}
		mapped := func(a arch.Addr) bool { return a >= page && a < page+arch.Addr(len(memory)) }
		o := &returns.Origin{
			ISA:  amd64.New(tt.m),
			Code: mapped,
			File: func(arch.Addr) bool { return tt.file },
			Read: func(a arch.Addr, p []byte) error {
				if !mapped(a) || !mapped(a+arch.Addr(len(p))-1) {
					return errors.New("no memory")
				}
				copy(p, memory[a-page:])
				return nil
			},
		}
		if got := o.Called(page + tt.at); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
