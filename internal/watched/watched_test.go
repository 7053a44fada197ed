package watched_test

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/owner"
	"kprobe/internal/watched"
	"kprobe/target"
)

// cpu is a target with two debug registers.
type cpu struct {
	target.Target
	set   []target.Watch
	calls int
	err   error
	none  error
}

func (c *cpu) Watches() (int, error) { return 2, c.none }
func (*cpu) WatchesReads() bool      { return false }
func (c *cpu) Watch(set []target.Watch) error {
	c.calls++
	if c.err == nil {
		c.set = slices.Clone(set)
	}
	return c.err
}

type point struct {
	target.Watch
	off    bool
	placed int
}

type rules struct{}

func (rules) Data(p *point) (target.Watch, bool) { return p.Watch, !p.off }
func (rules) Placed(p *point)                    { p.placed++ }
func (rules) Unplaced(p *point)                  { p.placed-- }

func registers(c target.Target) (*watched.Registers[*point], *owner.Owner) {
	o := owner.New(c, false, nil)
	return watched.New(c, o, new(sync.RWMutex), rules{}), o
}

// add is a change that adds some, and fails t where that cannot be undone.
func add(t *testing.T, r *watched.Registers[*point], ps ...*point) *watched.Change[*point] {
	return &watched.Change[*point]{Of: r, Add: ps, Fail: func(err error) { t.Errorf("undo: %v", err) }}
}

func TestRegisters(t *testing.T) {
	c := new(cpu)
	r, o := registers(c)
	a, b := &point{Watch: target.Watch{Addr: 0x100, Len: 4}}, &point{Watch: target.Watch{Addr: 0x200, Len: 8, Write: true}}
	if !r.Spare(1) || r.Spare(2) {
		t.Fatal("of two registers, not just one is left beside a planned one")
	}
	if err := add(t, r, a, b).Commit(); err != nil || c.set[0] != a.Watch || c.set[1] != b.Watch || a.placed != 1 {
		t.Errorf("%v, %v, placed %d times", c.set, err, a.placed)
	}
	if r.Spare(0) {
		t.Error("a third register")
	}
	if _, err := r.Renew(); err != nil || c.calls != 1 {
		t.Errorf("nothing changes, and the target was told %d times: %v", c.calls, err)
	}
	for _, tt := range []struct {
		at    uint64
		n     int
		write bool
		want  uint
	}{{0x0ff, 2, false, 1}, {0x0ff, 1, false, 0}, {0x104, 1, true, 0}, {0x207, 1, true, 2}, {0x207, 1, false, 0}} {
		if got := r.Touched(arch.Addr(tt.at), tt.n, tt.write); got != tt.want {
			t.Errorf("%#x+%d, write %v: %b, want %b", tt.at, tt.n, tt.write, got, tt.want)
		}
	}
	o.Stops = []target.Stop{{Accessed: 3, Among: 3}}
	if err := r.Remove([]*point{b}); err != nil || len(r.All()) != 1 || len(r.In(2)) != 0 || o.Stops[0].Accessed != 1 || o.Stops[0].Among != 1 {
		t.Errorf("one of two was removed: %v left, accesses %b, %v", r.All(), o.Stops[0].Accessed, err)
	}
	a.off = true
	c2 := add(t, r)
	if err := c2.Commit(); err != nil || c.set[0].Len != 0 || c.set[1].Len != 0 {
		t.Errorf("off, and gone: %v, %v", c.set, err)
	}
	if c2.Undo(); c.set[0] != a.Watch {
		t.Errorf("undone: %v", c.set)
	}
}

// A change that fails, or is undone, leaves the registers as they were.
func TestUndone(t *testing.T) {
	c := new(cpu)
	r, _ := registers(c)
	a, b, more := &point{Watch: target.Watch{Addr: 0x100, Len: 4}}, &point{Watch: target.Watch{Addr: 0x200, Len: 8}}, new(point)
	if err := add(t, r, a).Commit(); err != nil {
		t.Fatal(err)
	}
	two := add(t, r, b)
	if err := two.Commit(); err != nil || two.Lines()[0] != "watch 8 bytes at 0x200" {
		t.Fatal(err, two.Lines())
	}
	if err := add(t, r, more).Commit(); !errors.Is(err, syscall.ENOSPC) || more.placed != -1 || r.Spare(0) {
		t.Errorf("a third one: %v, placed %d", err, more.placed)
	}
	if two.Undo(); b.placed != 0 || c.set[0] != a.Watch || c.set[1].Len != 0 || !r.Spare(0) {
		t.Errorf("undone: %v, placed %d", c.set, b.placed)
	}
	c.err = syscall.EINVAL
	failed := &watched.Change[*point]{Of: r, Add: []*point{b}, Fail: func(error) { t.Error("what the target had watches it still") }}
	if err := failed.Commit(); !errors.Is(err, syscall.EINVAL) || b.placed != 0 || !r.Spare(0) {
		t.Errorf("refused: %v, placed %d", err, b.placed)
	}
}

// What the target refuses is not taken for watched.
func TestRefused(t *testing.T) {
	c := &cpu{err: syscall.EINVAL}
	r, _ := registers(c)
	p := &point{Watch: target.Watch{Addr: 0x100, Len: 4}}
	err := add(t, r, p).Commit()
	if e := (*errno.Error)(nil); !errors.As(err, &e) || e.Errno != syscall.EINVAL {
		t.Errorf("%v", err)
	}
	if r.Touched(0x100, 4, true) != 0 {
		t.Error("refused, and touched")
	}
	c.err = nil
	if err := add(t, r, p).Commit(); err != nil || r.Touched(0x100, 4, true) != 1 {
		t.Errorf("again: %v", err)
	}
	r.Forget()
	if len(r.All()) != 0 || r.Touched(0x100, 4, true) != 0 {
		t.Error("another program is executed, and watched")
	}
}

// A target without debug registers has none free, nor has one whose do not work.
func TestNone(t *testing.T) {
	broken := errors.New("a hypervisor's quirk")
	for _, of := range []target.Target{struct{ target.Target }{}, &cpu{none: broken}} {
		r, _ := registers(of)
		if r.Spare(0) || r.Can() == nil || r.Reads() {
			t.Error("it can watch")
		}
		if _, err := r.Renew(); err != nil {
			t.Error(err)
		}
	}
	if r, _ := registers(&cpu{none: broken}); r.Can() != broken {
		t.Errorf("%v does not say why", r.Can())
	}
}
