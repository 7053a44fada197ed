package mem

import (
	"errors"
	"testing"

	"kprobe/arch"
)

// region is memory that begins at an address.
type region struct {
	at    arch.Addr
	bytes []byte
	reads int
}

var errBad = errors.New("bad address")

func (r *region) ReadAt(addr arch.Addr, p []byte) error {
	r.reads++
	if addr < r.at || addr+arch.Addr(len(p)) > r.at+arch.Addr(len(r.bytes)) {
		return errBad
	}
	copy(p, r.bytes[addr-r.at:])
	return nil
}

func (r *region) WriteAt(addr arch.Addr, p []byte) error {
	if addr < r.at || addr+arch.Addr(len(p)) > r.at+arch.Addr(len(r.bytes)) {
		return errBad
	}
	copy(r.bytes[addr-r.at:], p)
	return nil
}

func TestWord(t *testing.T) {
	r := &region{at: 0x1000, bytes: make([]byte, 16)}
	if err := PutWord(r, arch.AMD64, 0x1008, 0x1122334455667788); err != nil {
		t.Fatal(err)
	}
	if v, err := Word(r, arch.AMD64, 0x1008); err != nil || v != 0x1122334455667788 || r.bytes[8] != 0x88 || r.bytes[7] != 0 {
		t.Errorf("%#x, %v in % x", v, err, r.bytes)
	}
	if _, err := Word(r, arch.AMD64, 0x100c); err != errBad {
		t.Errorf("half a word: %v", err)
	}
	if err := PutWord(r, arch.AMD64, 0x100c, 1); err != errBad {
		t.Errorf("half a word: %v", err)
	}
}

func TestText(t *testing.T) {
	r := &region{at: 0x1000, bytes: make([]byte, LeastPage)}
	copy(r.bytes[100:], "hello\x00world")
	copy(r.bytes[LeastPage-3:], "end")
	for _, c := range []struct {
		at   arch.Addr
		max  int
		want string
		err  error
	}{
		{0x1000 + 100, 64, "hello", nil},
		{0x1000 + 100, 3, "hel", nil},
		{0x1000 + LeastPage - 3, 3, "end", nil},
		{0x1000 + LeastPage - 3, 64, "end", errBad},
		{0x9000, 64, "", errBad},
	} {
		if got, err := Text(r, c.at, c.max); got != c.want || err != c.err {
			t.Errorf("%d bytes at %v: %q, %v", c.max, c.at, got, err)
		}
	}
}

func TestPages(t *testing.T) {
	r := &region{at: 0x1000, bytes: make([]byte, 2*LeastPage)}
	r.bytes[LeastPage-1], r.bytes[LeastPage] = 1, 2
	ps := NewPages(r)
	var b [2]byte
	for range 3 {
		if err := ps.ReadAt(0x1000+LeastPage-1, b[:]); err != nil || b != [2]byte{1, 2} {
			t.Errorf("%v, %v", b, err)
		}
		if err := ps.ReadAt(0x1000+2*LeastPage-1, b[:]); err != ErrAbsent {
			t.Errorf("beyond the end: %v", err)
		}
		r.bytes[LeastPage] = 9 // seen already
	}
	if r.reads != 3 {
		t.Errorf("%d reads of 3 pages", r.reads)
	}
}

func TestPadding(t *testing.T) {
	r := &region{at: 0x2000, bytes: make([]byte, LeastPage)}
	copy(r.bytes[10:], "\xcc\xcc\xcc")     // a number
	copy(r.bytes[50:], "\xcc\xcc\xcc\xcc") // padding
	if at, ok := Padding(r, arch.AMD64, 0x1000, 0x3000); !ok || at != 0x2000+51 {
		t.Errorf("%v, %v", at, ok)
	}
	if at, ok := Padding(r, arch.AMD64, 0x3000, 0x4000); ok {
		t.Errorf("padding at %v, where nothing is", at)
	}
}
