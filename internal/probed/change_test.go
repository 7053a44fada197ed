package probed

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/patch"
	"kprobe/internal/text"
	"kprobe/symbol"
	"kprobe/target"
)

var update = flag.Bool("update", false, "write the golden file")

const base = arch.Addr(0x1000)

// program is a target that is nothing but some code. A write to bad fails.
type program struct {
	target.Target
	b      []byte
	bad    arch.Addr
	frozen bool
	t      *testing.T
}

func (p *program) Arch() *arch.Arch { return arch.AMD64 }

func (p *program) ReadAt(a arch.Addr, b []byte) error {
	copy(b, p.b[a-base:])
	return nil
}

func (p *program) WriteAt(a arch.Addr, b []byte) error {
	if !p.frozen {
		p.t.Errorf("%v is written while threads run", a)
	}
	if p.bad >= a && p.bad < a+arch.Addr(len(b)) {
		return syscall.EIO
	}
	copy(p.b[a-base:], b)
	return nil
}

func (p *program) Frozen(f func() error) error {
	p.frozen = true
	defer func() { p.frozen = false }()
	return f()
}

func (p *program) Insist(try func(last bool) error) error { return try(true) }
func (p *program) Meanwhile(f func() error) error         { return f() }

// role answers for a probe with handlers, which is on or off.
type role struct {
	Role // a question that no such probe is asked panics
	off  bool
}

func (r *role) Disabled() bool { return r.off }
func (*role) Inside() bool     { return false }
func (*role) Post() bool       { return false }

type rules struct{}

func (rules) Forbidden(arch.Addr) bool { return false }
func (rules) OnCPUs() bool             { return false }
func (rules) Gateless() string         { return "no gate" }
func (rules) Taken(List)               {}
func (rules) Renewed(*Point)           {}

func (p *program) Maps() ([]symbol.Mapping, error) {
	return []symbol.Mapping{{Start: base, End: base + arch.Addr(len(p.b))}}, nil
}

// fixture is a program of one-byte instructions on two pages, and a table of its points.
func fixture(t *testing.T) (*program, *Table) {
	p := &program{b: bytes.Repeat([]byte{0x90}, 0x2000), t: t}
	report := func(err error) {
		if err != nil {
			t.Errorf("reported: %v", err)
		}
	}
	return p, NewTable(text.NewWriter(p, nil, new(sync.RWMutex), report), rules{})
}

func point(t *testing.T, p *program, a arch.Addr) *Point {
	code := bytes.Repeat([]byte{0x90}, 15)
	site, err := patch.Analyse(amd64.ISA, code, a, a)
	if err != nil {
		t.Fatal(err)
	}
	return &Point{Place: text.Place{Addr: a, Site: site}}
}

// links puts points, with probes, into the table or takes them out.
type links struct {
	change.Nothing
	table     *Table
	add, gone List
	old       List
}

func (l *links) Commit() error {
	l.old = l.table.List
	all := l.old.With(l.add...)
	for _, pt := range l.add {
		pt.Live = true
	}
	for _, pt := range l.gone {
		pt.Live = false
	}
	l.table.List = all.Live()
	return nil
}

func (l *links) Undo() {
	for _, pt := range l.add {
		pt.Live = false
	}
	for _, pt := range l.gone {
		pt.Live = true
	}
	l.table.List = l.old
}

func (l *links) Lines() []string {
	return []string{fmt.Sprintf("%d points come, %d go", len(l.add), len(l.gone))}
}

// changeOf brings points and takes others away.
func changeOf(table *Table, what string, add, gone List) *change.Change {
	l := &links{table: table, add: add, gone: gone}
	none := map[*Point][]*Probe{}
	for _, pt := range gone {
		none[pt] = nil
	}
	w := &Rewriting{Table: table, Points: func() List { return add.With(gone...) }, Report: func(error) {}} // the text of a failed change was put back already
	w.As = func() *Outlook {
		return &Outlook{Table: table, Points: table.List.With(add...), Probes: none}
	}
	return &change.Change{What: what, Parts: []change.Part{l}, Text: w}
}

// Changes of the text print themselves, and leave the bytes that they say.
func TestChangesOfText(t *testing.T) {
	p, table := fixture(t)
	var out strings.Builder
	do := func(c *change.Change) {
		if err := c.Do(p); err != nil {
			fmt.Fprintf(&out, "%s: %v\n", c.What, err)
		}
		fmt.Fprint(&out, c)
		for i, b := range p.b {
			if b != 0x90 {
				fmt.Fprintf(&out, "  %v: %02x\n", base+arch.Addr(i), b)
			}
		}
	}
	a, b, c := point(t, p, 0x1010), point(t, p, 0x1011), point(t, p, 0x2345)
	for _, pt := range []*Point{a, b, c} {
		pt.Probes = []*Probe{{Role: &role{}}}
	}
	b.Probes[0].Role.(*role).off = true
	do(changeOf(table, "register three, one of them disabled", List{a, b, c}, nil))
	do(changeOf(table, "unregister the first", nil, List{a}))
	b.Probes[0].Role.(*role).off = false
	do(&change.Change{What: "enable", Text: &Rewriting{Table: table, Points: func() List { return table.List }}})
	p.b[0x2345-base] = 0xf4 // somebody's
	do(changeOf(table, "unregister all", nil, List{b, c}))

	const file = "testdata/changes.golden"
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// After any changes, some of which fail, the text is what the table says, and failed changes have
// changed nothing.
func TestRandomChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p, table := fixture(t)
	failed := 0
	for range 300 {
		var add, gone List
		for range 1 + r.IntN(4) {
			a := base + arch.Addr(r.IntN(0x40)*0x80)
			switch pt := table.At(a); {
			case pt != nil:
				gone = gone.With(pt)
			case add.With().At(a) == nil:
				pt = point(t, p, a)
				pt.Probes = []*Probe{{Role: &role{off: r.IntN(4) == 0}}}
				add = add.With(pt)
			}
		}
		if p.bad = 0; r.IntN(3) == 0 {
			p.bad = base + arch.Addr(r.IntN(0x40)*0x80)
		}
		before, was := bytes.Clone(p.b), table.List
		err := changeOf(table, "", add, gone).Do(p)
		if err != nil {
			failed++
			if !errors.Is(err, syscall.EIO) || !bytes.Equal(p.b, before) || len(table.List) != len(was) {
				t.Fatalf("a change failed with %v, and has changed something", err)
			}
		}
		for i, b := range p.b {
			pt := table.At(base + arch.Addr(i))
			if armed := pt != nil && !pt.Probes[0].Disabled(); armed != (b == 0xcc) {
				t.Fatalf("at %v there is %02x, and a probe: %v", base+arch.Addr(i), b, armed)
			}
		}
	}
	if failed == 0 {
		t.Error("no change failed")
	}
}

// What a point in the middle of memory reads is the program's own.
func TestOverlayAndRestore(t *testing.T) {
	p, table := fixture(t)
	pt := point(t, p, 0x1100)
	pt.Probes = []*Probe{{Role: &role{}}}
	if err := changeOf(table, "", List{pt}, nil).Do(p); err != nil {
		t.Fatal(err)
	}
	got := bytes.Clone(p.b[0x100:0x102])
	if got[0] != 0xcc {
		t.Fatalf("no breakpoint: % x", got)
	}
	table.Overlay(0x1100, got)
	if !bytes.Equal(got, []byte{0x90, 0x90}) {
		t.Errorf("read as the program has it: % x", got)
	}
	child := &program{b: bytes.Clone(p.b), t: t, frozen: true}
	if err := table.RestoreIn(child); err != nil || child.b[0x100] != 0x90 {
		t.Errorf("a child's byte is %02x, %v", child.b[0x100], err)
	}
}
