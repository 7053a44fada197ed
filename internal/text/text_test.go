package text

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/inside"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
	"kprobe/symbol"
	"kprobe/target"
)

const base = arch.Addr(0x1000)

// code is a target that is nothing but some code, and the breakpoints beside it. Writing
// to an address in bad fails.
type code struct {
	target.Target
	b      []byte
	bad    arch.Addr
	breaks map[arch.Addr]bool
}

func (c *code) ReadAt(a arch.Addr, p []byte) error {
	copy(p, c.b[a-base:])
	return nil
}

func (c *code) WriteAt(a arch.Addr, p []byte) error {
	if c.bad >= a && c.bad < a+arch.Addr(len(p)) {
		return syscall.EIO
	}
	copy(c.b[a-base:], p)
	return nil
}

func (c *code) Maps() ([]symbol.Mapping, error) {
	return []symbol.Mapping{{Start: base, End: base + arch.Addr(len(c.b))}}, nil
}

func (c *code) SetBreak(a arch.Addr) error {
	if a == c.bad {
		return syscall.ENOSPC
	}
	c.breaks[a] = true
	return nil
}

func (c *code) ClearBreak(a arch.Addr) error { delete(c.breaks, a); return nil }

// nops is code of one-byte instructions on two pages, and places on some of them.
func nops(t *testing.T, at ...arch.Addr) (*code, []*Place) {
	c := &code{b: bytes.Repeat([]byte{0x90}, 0x2000), breaks: make(map[arch.Addr]bool)}
	var ps []*Place
	for _, a := range at {
		site, err := patch.Analyse(amd64.ISA, c.b[a-base:][:15], a, a)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, &Place{Addr: a, Site: site})
	}
	return c, ps
}

func all(ps []*Place) func(func(*Place, bool) bool) {
	return func(yield func(*Place, bool) bool) {
		for _, p := range ps {
			if !yield(p, true) {
				return
			}
		}
	}
}

func to(ps []*Place, k Kind) (cs []Change) {
	for _, p := range ps {
		cs = append(cs, Change{Place: p, From: p.Text, To: k})
	}
	return cs
}

// A rewrite is carried out whole, whichever of its places fails.
func TestAllOrNone(t *testing.T) {
	for _, armed := range []Kind{Trap, Beside} {
		for _, bad := range []arch.Addr{0, base, base + 0x20, base + 0x1800} {
			c, ps := nops(t, base, base+0x20, base+0x1800)
			c.bad = bad
			before := bytes.Clone(c.b)
			var beside target.Breaker
			if armed == Beside {
				beside = c
			}
			w := NewWriter(c, beside, new(sync.Mutex), func(err error) {
				if err != nil {
					t.Errorf("cannot write at %v: reported: %v", bad, err)
				}
			})
			if w.Armed() != armed {
				t.Fatalf("armed is %d, want %d", w.Armed(), armed)
			}
			err := w.Plan(to(ps, armed), all(ps)).CarryOut()
			if bad != 0 {
				if err == nil || !bytes.Equal(c.b, before) || len(c.breaks) > 0 {
					t.Errorf("cannot write at %v: %v, and something is left", bad, err)
				}
				if i := slices.IndexFunc(ps, func(p *Place) bool { return p.Text != Own }); i >= 0 {
					t.Errorf("cannot write at %v: text of place %d is %d", bad, i, ps[i].Text)
				}
				continue
			}
			for _, p := range ps {
				there := c.breaks[p.Addr] || c.b[p.Addr-base] == 0xcc
				if err != nil || p.Text != armed || !there {
					t.Errorf("place at %v: %v, text %d, breakpoint %v", p.Addr, err, p.Text, there)
				}
			}
			if err := w.Plan(to(ps, Own), all(ps)).CarryOut(); err != nil || !bytes.Equal(c.b, before) || len(c.breaks) > 0 {
				t.Errorf("it did not go back: %v", err)
			}
		}
	}
}

// Bytes that others have written are theirs.
func TestForeignByte(t *testing.T) {
	c, ps := nops(t, base, base+4)
	w := NewWriter(c, nil, new(sync.Mutex), func(error) {})
	if err := w.Plan(to(ps, Trap), all(ps)).CarryOut(); err != nil {
		t.Fatal(err)
	}
	c.b[4] = 0xf4
	r := w.Plan(to(ps, Own), all(ps))
	if err := r.CarryOut(); !errors.Is(err, syscall.EBUSY) || c.b[0] != 0xcc || c.b[4] != 0xf4 {
		t.Errorf("%v, bytes %#x %#x; want EBUSY, and both as they were", err, c.b[0], c.b[4])
	}
	if r.Stale() {
		t.Error("stale, and no text has changed")
	}
	ps[0].Text = Own
	if !r.Stale() {
		t.Error("not stale, and a text has changed")
	}
}

// remapped is code of which a part has been unmapped, or has other memory in its place: of the file with an inode, or of none.
type remapped struct {
	*code
	part  arch.Range
	other bool
	inode uint64
	maps  error
}

func (r *remapped) ReadAt(a arch.Addr, p []byte) error {
	if r.part.Contains(a) && !r.other {
		return syscall.EFAULT
	}
	return r.code.ReadAt(a, p)
}

func (r *remapped) Maps() ([]symbol.Mapping, error) {
	whole := arch.Range{Start: base, End: base + arch.Addr(len(r.b))}
	maps := []symbol.Mapping{{Start: whole.Start, End: r.part.Start, Inode: 1}}
	if r.other {
		maps = append(maps, symbol.Mapping{Start: r.part.Start, End: r.part.End, Inode: r.inode})
	}
	return append(maps, symbol.Mapping{Start: r.part.End, End: whole.End, Inode: 1}), r.maps
}

// Nothing comes to code that was unmapped since it was looked at, be other memory there now or none. What stood there is gone with it, so
// that it goes, or another comes in its place, is no error; unless it is not known that the code is not there.
func TestUnmappedCode(t *testing.T) {
	const (
		gone    = "the code is not there any more: "
		changed = "memory at 0x2800 holds f4 instead of "
	)
	for _, tt := range []struct {
		from, to Kind
		other    bool
		inode    uint64
		maps     error
		errno    error
		want     string
	}{
		{from: Trap, to: Own},
		{from: Trap, to: Jump},
		{from: Trap, to: Own, maps: syscall.EIO, errno: syscall.EFAULT, want: gone},
		{from: Own, to: Trap, errno: syscall.EFAULT, want: gone},
		{from: Trap, to: Own, other: true, inode: 2},
		{from: Trap, to: Jump, other: true, inode: 2},
		{from: Trap, to: Own, other: true, inode: 2, maps: syscall.EIO, errno: syscall.EBUSY, want: changed},
		{from: Own, to: Trap, other: true, inode: 2, errno: syscall.EFAULT, want: gone},
		{from: Trap, to: Own, other: true, inode: 1, errno: syscall.EBUSY, want: changed},
		{from: Trap, to: Own, other: true, inode: 0, errno: syscall.EBUSY, want: changed}, // a program moves its text there
	} {
		c, ps := nops(t, base, base+0x1800)
		for _, p := range ps {
			p.Module = &symbol.Module{Mappings: []symbol.Mapping{{Inode: 1}}}
		}
		before := bytes.Clone(c.b)
		r := &remapped{code: c, maps: tt.maps, other: tt.other, inode: tt.inode}
		w := NewWriter(r, nil, new(sync.Mutex), func(error) {})
		if err := w.Plan(to(ps, tt.from), all(ps)).CarryOut(); err != nil {
			t.Fatal(err)
		}
		r.part = arch.Range{Start: base + 0x1000, End: base + 0x2000}
		if tt.other {
			copy(c.b[0x1000:], bytes.Repeat([]byte{0xf4}, 0x1000))
		}
		now := bytes.Clone(c.b)
		cs := to(ps, tt.to)
		if tt.to == Jump {
			for i, p := range ps {
				jump := patch.Write{Addr: p.Addr, Old: []byte{0x90, 0x90, 0x90, 0x90, 0x90}, New: []byte{0xe9, 1, 2, 3, 4}}
				cs[i].First = &inside.Detour{Detour: &inject.Detour{Site: p.Addr}, Way: new(patch.Way), Jump: jump}
			}
		}
		switch err := w.Plan(cs, all(ps)).CarryOut(); {
		case tt.want == "":
			if err != nil || ps[0].Text != tt.to || ps[1].Text != tt.to || !bytes.Equal(c.b[0x1000:], now[0x1000:]) {
				t.Errorf("%+v: %v, text %v and %v", tt, err, ps[0].Text, ps[1].Text)
			}
			if tt.to == Own && !bytes.Equal(c.b[:0x1000], before[:0x1000]) || tt.to == Jump && c.b[0] != 0xe9 {
				t.Errorf("%+v: the code that is there has % x", tt, c.b[:5])
			}
		case !errors.Is(err, tt.errno) || !strings.HasPrefix(err.Error(), tt.want) || !bytes.Equal(c.b, now):
			t.Errorf("%+v: %v, want %q and no change", tt, err, tt.want)
		}
	}
}

// Something else comes to one of the places than was planned. All of it is carried out, or nothing.
func TestInstead(t *testing.T) {
	const left, size = 1, 5
	jump := []byte{0xe9, 1, 2, 3, 4}
	for _, bad := range []arch.Addr{0, base, base + 0x20, base + 0x1800} {
		for _, other := range []Kind{Trap, Own} {
			c, ps := nops(t, base, base+0x20, base+0x1800)
			before := bytes.Clone(c.b)
			c.bad = bad
			w := NewWriter(c, nil, new(sync.Mutex), func(err error) {
				if err != nil {
					t.Errorf("reported: %v", err)
				}
			})
			cs := to(ps, Jump)
			for i, p := range ps {
				cs[i].First = &inside.Detour{
					Detour: &inject.Detour{Site: p.Addr}, Way: new(patch.Way),
					Jump: patch.Write{Addr: p.Addr, Old: before[:size], New: jump},
				}
			}
			r := w.Plan(cs, all(ps))
			r.Instead(map[*Place]Kind{ps[left]: other})
			want := bytes.Clone(before)
			fails := bad != 0
			if !fails {
				copy(want[ps[0].Addr-base:], jump)
				copy(want[ps[2].Addr-base:], jump)
				if other == Trap {
					want[ps[left].Addr-base] = 0xcc
				}
			}
			if err := r.CarryOut(); err != nil != fails || !bytes.Equal(c.b, want) {
				t.Errorf("cannot write at %v, %d instead: %v, % x ...", bad, other, err, c.b[:0x28])
			}
			if !fails && (ps[left].Text != other || ps[left].Detour != nil || ps[0].Text != Jump || ps[0].Detour == nil) {
				t.Errorf("the texts are %v and %v", ps[0].Text, ps[left].Text)
			}
		}
	}
}
