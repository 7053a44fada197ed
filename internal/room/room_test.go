package room

import (
	"errors"
	"runtime"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
	"kprobe/symbol"
	"kprobe/target"
)

// memory is a target that is nothing but its mappings. The n-th that is made from now on fails.
type memory struct {
	target.Target
	maps  []symbol.Mapping
	page  int
	fails int
}

func (m *memory) Maps() ([]symbol.Mapping, error) { return m.maps, nil }

func (m *memory) PageSize() int { return m.page }

func (m *memory) Alloc(a arch.Addr, n int) error {
	if m.fails--; m.fails == 0 {
		return syscall.ENOMEM
	}
	m.maps = append(m.maps, symbol.Mapping{Start: a, End: a + arch.Addr(n)})
	return nil
}

func (m *memory) Free(a arch.Addr, n int) error {
	for i, o := range m.maps {
		if o.Start == a && o.End == a+arch.Addr(n) {
			m.maps = append(m.maps[:i], m.maps[i+1:]...)
			return nil
		}
	}
	return syscall.EINVAL
}

func newRoom() (*memory, *Room[string]) {
	m := &memory{page: 4096, maps: []symbol.Mapping{{Start: 0x400000, End: 0x500000}}}
	r := New[string](m)
	r.Become(arch.AMD64, amd64.ISA.SlotSize(), amd64.ISA.Reach())
	return m, r
}

var near = arch.Range{Start: 0x400000, End: 0x500000}

// Slots of one batch never overlap, with each other's arenas or with mappings, and At
// finds each from its first address to its last, once it is adopted.
func TestSlots(t *testing.T) {
	m, r := newRoom()
	const n = 20000 // more than an arena holds
	refs := make([]Ref[string], n)
	names := map[string]bool{}
	for i := range refs {
		a, at, err := r.Take(near, 1)
		if err != nil {
			t.Fatal(err)
		}
		name := at.String()
		if names[name] {
			t.Fatalf("slot at %v given out twice", at)
		}
		names[name] = true
		refs[i] = Ref[string]{name, &patch.Site{Addr: 0x400000 + arch.Addr(i)}, &patch.Slot{Addr: at, Code: make([]byte, 20), BreakAt: 10}}
		a.Enter(refs[i])
	}
	if _, ok := r.At(refs[0].Slot.Addr); ok {
		t.Error("a slot is found that is only planned")
	}
	if err := r.MapPlanned(); err != nil || !r.Adopt() {
		t.Fatal(err)
	}
	if len(r.Spans()) < 2 || len(m.maps) != 1+len(r.Spans()) {
		t.Errorf("%d arenas, %d mappings", len(r.Spans()), len(m.maps))
	}
	for _, want := range refs {
		for _, off := range []arch.Addr{0, 10, 19} {
			got, ok := r.At(want.Slot.Addr + off)
			if !ok || got.Of != want.Of || got.AtBreak(want.Slot.Addr+off) != (off == 10) {
				t.Fatalf("slot at %v, byte %d: found %v %q", want.Slot.Addr, off, ok, got.Of)
			}
		}
	}
	if err := r.Leave(); err != nil || len(m.maps) != 1 {
		t.Errorf("%v, %d mappings left", err, len(m.maps))
	}
}

// Where single pages lie all about, as detours do, a large piece is found further away for a caller
// that may have it there.
func TestStrewn(t *testing.T) {
	m, r := newRoom()
	const gap = 1 << 20
	for at := arch.Addr(gap); at < near.End+r.reach+gap; at += gap {
		if near.Contains(at) {
			continue
		}
		m.maps = append(m.maps, symbol.Mapping{Start: at, End: at + 4096})
	}
	if at, err := r.Find(near, 2*gap); !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("near by: %v, %v", at, err)
	}
	at, err := r.FindPreferring(near, 2*gap)
	if last := m.maps[len(m.maps)-1]; err != nil || at < last.End {
		t.Errorf("anywhere: %v, %v", at, err)
	}
	if at, err := r.FindPreferring(near, gap/2); err != nil || at > near.End+gap {
		t.Errorf("what fits near by is at %v, %v", at, err)
	}
}

// Memory that is found is of the target's pages, with a free one of them on both sides.
func TestLargePages(t *testing.T) {
	for _, page := range []arch.Addr{4 << 10, 16 << 10, 64 << 10} {
		m, r := newRoom()
		m.page = int(page)
		m.maps = []symbol.Mapping{{Start: 0x400000, End: 0x500000}, {Start: 0x520000, End: 0x600000}}
		above, err := r.FindAbove(0x400000, 100)
		if err != nil || above%page != 0 {
			t.Errorf("pages of %#x: above at %v, %v", page, above, err)
		}
		if _, _, err := r.Take(near, arenaSize/r.slot+1); err != nil {
			t.Fatal(err)
		}
		if err := r.MapPlanned(); err != nil {
			t.Fatal(err)
		}
		got := m.maps[len(m.maps)-1]
		if (got.Start|got.End)%page != 0 || got.End+page > 0x400000 && got.Start < 0x500000+page {
			t.Errorf("pages of %#x: an arena at %#x to %#x", page, got.Start, got.End)
		}
		if n := r.Round(int(page) + 1); n != 2*int(page) {
			t.Errorf("pages of %#x: %#x bytes for one page and a byte", page, n)
		}
	}
}

// Nothing of ours is where a sanitizer may be about to have its shadow. Once the shadow is there,
// or memory of the program, the free rest may be used.
func TestShadow(t *testing.T) {
	m, r := newRoom()
	m.maps = []symbol.Mapping{{Start: 0x400000, End: 0x500000}, {Start: 0x502000, End: 0x7fe00000}}
	const size = 0x400000 // not below the first one
	if at, err := r.Find(arch.Range{Start: 0x400000, End: 0x500000}, size); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%v, %v; want ENOMEM", at, err)
	}
	m.maps = append(m.maps, symbol.Mapping{Start: 0x90000000, End: 0x90001000})
	if at, err := r.Find(arch.Range{Start: 0x400000, End: 0x500000}, size); at != 0x7fe01000 {
		t.Errorf("%v, %v; want what is behind the program", at, err)
	}
}

// A slot that was given back has no owner, and is given out again.
func TestGive(t *testing.T) {
	_, r := newRoom()
	a, at, err := r.Take(near, 1)
	if err != nil {
		t.Fatal(err)
	}
	a.Enter(Ref[string]{"x", &patch.Site{}, &patch.Slot{Addr: at, Code: make([]byte, 8)}})
	r.Adopt()
	a.Give(at)
	if ref, ok := r.At(at); ok {
		t.Errorf("%q is found in a slot that was given back", ref.Of)
	}
	if _, again, _ := r.Take(near, 1); again != at {
		t.Errorf("the next slot is at %v, and %v is free", again, at)
	}
}

// A batch of which nothing came leaves no memory behind.
func TestDrop(t *testing.T) {
	m, r := newRoom()
	for range 2 {
		if _, _, err := r.Take(near, arenaSize); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Take(arch.Range{Start: 1 << 46, End: 1<<46 + 1}, 1); err != nil {
			t.Fatal(err)
		}
		m.fails = 2
		if err := r.MapPlanned(); !errors.Is(err, syscall.ENOMEM) || len(m.maps) != 2 {
			t.Fatalf("%v, %d mappings; want ENOMEM after the first", err, len(m.maps))
		}
		r.Drop(func(f func() error) error { return f() })
		if len(m.maps) != 1 || r.Planned() || r.Adopt() {
			t.Errorf("%d mappings left", len(m.maps))
		}
	}
}

// A session with one slot does not pay for an arena's index: a family of processes has many such.
func TestOneSlotIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, r := newRoom()
	if _, _, err := r.Take(near, 1); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes for one slot", n)
	}
}
