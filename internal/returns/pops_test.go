package returns

import (
	"errors"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/symbol"
)

func TestPopsArguments(t *testing.T) {
	for code, want := range map[string]bool{
		"\x90\xc3":             false,
		"\xf3\xc3":             false, // rep ret
		"\x74\x03\xc2\x08\x00": true,  // a branch over it does not make it go away
		"\x90\x06":             true,  // no instruction
	} {
		p := Planner{ISA: amd64.ISA, Text: func(at arch.Addr, b []byte) error {
			if copy(b, code[at-0x1000:]) != len(b) {
				return errors.New("not there")
			}
			return nil
		}}
		loc := symbol.Loc{Addr: 0x1000, Func: symbol.Symbol{Addr: 0x1000, Size: uint64(len(code))}}
		if got := p.PopsArguments(loc); got != want {
			t.Errorf("% x: %v, want %v", code, got, want)
		}
	}
}
