package jumps_test

import (
	"os"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/jumps"
	"kprobe/symbol"
)

// On a machine whose jump is one instruction, nearly every entry and site of the C library can
// have one.
func TestFixedLength(t *testing.T) {
	r, err := os.Open("/usr/aarch64-linux-gnu/lib/libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := symbol.Open(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	code, err := jumps.Open(arm64.ISA, f)
	if err != nil {
		t.Fatal(err)
	}
	s := code.At(0x7fff00000000).Survey(arch.Range{Start: 0x7fff00000000, End: 0x7fff00200000}, nil, 200)
	if s.Entries.Sites < 3000 || s.Entries.Traps()*100 > s.Entries.Sites || s.Sites.Traps()*1000 > s.Sites.Sites {
		t.Errorf("%v", s)
	}
}
