package links_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/ground"
	"kprobe/internal/links"
	"kprobe/internal/parts"
	"kprobe/internal/probed"
	"kprobe/internal/standing"
	"kprobe/internal/text"
	"kprobe/internal/within"
	"kprobe/symbol"
	"kprobe/target"
)

const (
	code = arch.Addr(0x10000)
	page = 4096
)

// process is a target that is nothing but memory and threads, whose owner is the test.
type process struct {
	target.Target
	t       *testing.T
	mem     map[arch.Addr][]byte // by page
	bad     arch.Addr            // writing there fails
	thawed  func()               // nil: nothing is to be done when it has run on
	frozen  bool
	threads map[target.Thread]*arch.Regs
	stops   []target.Stop
	resumed []target.Thread
}

func (p *process) Arch() *arch.Arch { return arch.AMD64 }
func (p *process) PID() int         { return 1 }
func (p *process) OnOwner() bool    { return true }
func (p *process) Stuck() int       { return 0 }

func (p *process) Maps() (ms []symbol.Mapping, err error) {
	for at := range p.mem {
		ms = append(ms, symbol.Mapping{Start: at, End: at + page, Exec: true})
	}
	slices.SortFunc(ms, func(a, b symbol.Mapping) int { return int(int64(a.Start) - int64(b.Start)) })
	return ms, nil
}

func (p *process) at(a arch.Addr, n int) ([]byte, error) {
	b := p.mem[a&^(page-1)]
	off := int(a & (page - 1))
	if off+n > len(b) {
		return nil, syscall.EFAULT
	}
	return b[off:][:n], nil
}

func (p *process) ReadAt(a arch.Addr, b []byte) error {
	m, err := p.at(a, len(b))
	copy(b, m)
	return err
}

func (p *process) WriteAt(a arch.Addr, b []byte) error {
	m, err := p.at(a, len(b))
	switch {
	case err != nil:
		return err
	case p.bad >= a && p.bad < a+arch.Addr(len(b)):
		return syscall.EIO
	case !p.frozen && a&^(page-1) == code:
		p.t.Errorf("the text at %v is written while threads run", a)
	}
	copy(m, b)
	return nil
}

func (p *process) PageSize() int { return page }

func (p *process) Alloc(a arch.Addr, size int) error {
	for ; size > 0; a, size = a+page, size-page {
		p.mem[a] = make([]byte, page)
	}
	return nil
}

func (p *process) Free(a arch.Addr, size int) error {
	for ; size > 0; a, size = a+page, size-page {
		delete(p.mem, a)
	}
	return nil
}

func (p *process) Freeze() ([]target.Stop, error) {
	p.frozen = true
	stops := p.stops
	p.stops = nil
	return stops, nil
}

func (p *process) Thaw() error {
	p.frozen = false
	if p.thawed != nil {
		p.thawed()
	}
	return nil
}

func (p *process) Threads() (ths []target.Thread) {
	for th := range p.threads {
		ths = append(ths, th)
	}
	return ths
}

func (p *process) Regs(th target.Thread, r *arch.Regs) error {
	*r = *p.threads[th]
	return nil
}

func (p *process) SetRegs(th target.Thread, r *arch.Regs) error {
	*p.threads[th] = *r
	return nil
}

func (p *process) Resume(th target.Thread, _ int) error {
	p.resumed = append(p.resumed, th)
	return nil
}

// probe is one with handlers, which does nothing inside.
type probe struct {
	probed.Probe
	name              string
	post, trails, off bool
	of                *probe // nil: itself
}

// known is the probe as the engine knows it.
func (p *probe) known() *probed.Probe {
	p.Role = role{probe: p}
	return &p.Probe
}

func known(ps []*probe) (all []*probed.Probe) {
	for _, p := range ps {
		all = append(all, p.known())
	}
	return all
}

// role answers for a probe.
type role struct {
	probed.Role // a question that no handler's probe is asked panics
	*probe
}

func (r role) Disabled() bool { return r.off }
func (role) Inside() bool     { return false }
func (r role) Post() bool     { return r.post }
func (r role) Trails() bool   { return r.trails }
func (role) Swaps() bool      { return false }

func (r role) Entry() *probed.Probe {
	if r.of != nil {
		return r.of.known()
	}
	return &r.Probe
}

func (role) Linked()        {}
func (role) Unlinked()      {}
func (r role) Line() string { return r.name }

// rules answer the engine's questions about the session.
type rules struct {
	threads func() *standing.Threads
}

func (rules) Forbidden(arch.Addr) bool   { return false }
func (rules) OnCPUs() bool               { return false }
func (rules) Gateless() string           { return "no gate" }
func (r rules) Taken(jumps probed.List)  { r.threads().TakenOff(jumps) }
func (r rules) Renewed(pt *probed.Point) { r.threads().Renew(pt) }
func (rules) Comm(target.Thread) string  { return "" }
func (rules) Doubted()                   {}

// none are no calls under way.
type none struct{ at arch.Addr }

func (n *none) Trampoline() arch.Addr                             { return n.at }
func (n *none) SetTrampoline(a arch.Addr)                         { n.at = a }
func (*none) Retire(f func(func(slot, from, to arch.Addr) error)) { f(nil) }
func (n *none) IsTrampoline(a arch.Addr) bool                     { return n.at != 0 && a == n.at }
func (*none) Popped(arch.Addr) (arch.Addr, bool)                  { return 0, false }
func (*none) Restore(arch.Memory) error                           { return nil }
func (*none) GiveBack(bool, func(slot, from, to arch.Addr)) error { return nil }
func (*none) Forget()                                             {}

// engine is as much of one as handlers need, on a page of push %rbp, push %rbp ...
type engine struct {
	*process
	on      *ground.Ground
	links   *links.Links
	threads *standing.Threads
}

const push = 0x55

func start(t *testing.T) *engine {
	p := &process{t: t, mem: map[arch.Addr][]byte{code: bytes.Repeat([]byte{push}, page)}, threads: map[target.Thread]*arch.Regs{}}
	e := &engine{process: p}
	r := rules{func() *standing.Threads { return e.threads }}
	var err error
	e.on, err = ground.New(p, false, nil, r, func(err error) {
		if err != nil {
			t.Errorf("reported: %v", err)
		}
	})
	if err == nil {
		_, err = e.on.Image.Look()
	}
	if err != nil {
		t.Fatal(err)
	}
	calls := new(none)
	w := within.New(e.on, calls, r)
	e.links = links.New(&parts.Kit{On: e.on, Within: w, Calls: calls})
	e.threads = standing.New(e.on, w, calls)
	return e
}

// register brings probes to an instruction.
func (e *engine) register(at arch.Addr, ps ...*probe) error {
	b := e.links.Batch()
	for _, p := range ps {
		pt, err := b.Point(symbol.Loc{Addr: at})
		if err != nil {
			e.t.Fatal(err)
		}
		b.Add(p.known(), pt)
	}
	return e.apply(b)
}

// apply carries a batch out.
func (e *engine) apply(b *links.Batch) error {
	return e.links.Apply(b, change.Nothing{}, func(come []*probed.Probe) {
		if err := e.leaveAll(come); err != nil {
			e.t.Error(err)
		}
	})
}

func (e *engine) leave(ps ...*probe) error { return e.leaveAll(known(ps)) }

func (e *engine) leaveAll(ps []*probed.Probe) error {
	return e.links.Leave(ps, func(_ []*probed.Probe, gone []*probed.Point) error {
		e.threads.Retire(gone)
		return nil
	})
}

// text is the byte at an address as threads execute it, own as the program wrote it.
func (e *engine) text(at arch.Addr) byte { return e.mem[code][at-code] }
func (e *engine) own(at arch.Addr) byte {
	b := make([]byte, 1)
	if err := e.on.Read(at, b); err != nil {
		e.t.Error(err)
	}
	return b[0]
}

func names(pt *probed.Point) string {
	var ns []string
	for _, p := range pt.Probes {
		ns = append(ns, p.Line())
	}
	return strings.Join(ns, " ")
}

// The newest probe comes first at a point, and those that trail last. A point goes with its last
// probe.
func TestProbesOfAPoint(t *testing.T) {
	e := start(t)
	a, b, j, c := &probe{name: "a"}, &probe{name: "b"}, &probe{name: "j", trails: true}, &probe{name: "c"}
	for _, ps := range [][]*probe{{a, j, b}, {c}} {
		if err := e.register(code+8, ps...); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(a.Point); got != "c b a j" || a.Point != c.Point {
		t.Errorf("%q", got)
	}
	if e.text(code+8) != 0xcc || e.own(code+8) != push {
		t.Errorf("text %#x, own %#x", e.text(code+8), e.own(code+8))
	}
	if err := e.leave(b, j); err != nil || names(a.Point) != "c a" || e.text(code+8) != 0xcc {
		t.Errorf("%q, text %#x, %v", names(a.Point), e.text(code+8), err)
	}
	if err := e.leave(a, c); err != nil || len(e.on.Points.List) != 0 || e.text(code+8) != push {
		t.Errorf("%d points, text %#x, %v", len(e.on.Points.List), e.text(code+8), err)
	}
}

// A write that fails leaves everything as it was.
func TestRefused(t *testing.T) {
	e := start(t)
	a, b := &probe{name: "a"}, &probe{name: "b"}
	if err := e.register(code+8, a); err != nil {
		t.Fatal(err)
	}
	e.bad = code + 100
	batch := e.links.Batch()
	for _, at := range []arch.Addr{code + 8, code + 100} {
		pt, err := batch.Point(symbol.Loc{Addr: at})
		if err != nil {
			t.Fatal(err)
		}
		batch.Add((&probe{name: "x"}).known(), pt)
	}
	batch.Add(b.known(), batch.At(batch.Probes[0]))
	if err := e.apply(batch); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	if b.Point != nil || names(a.Point) != "a" || len(e.on.Points.List) != 1 || e.text(code+100) != push || e.text(code+8) != 0xcc {
		t.Errorf("%v, %q, %d points", b.Point, names(a.Point), len(e.on.Points.List))
	}
}

// A mark takes out of a batch all that has come in since, and nothing else.
func TestMark(t *testing.T) {
	e := start(t)
	b := e.links.Batch()
	add := func(p *probe, at arch.Addr) {
		pt, err := b.Point(symbol.Loc{Addr: at})
		if err != nil {
			t.Fatal(err)
		}
		b.Add(p.known(), pt)
	}
	first, second, third := new(probe), &probe{post: true}, new(probe)
	add(first, code)
	m := b.Mark()
	add(second, code+1)
	add(third, code)
	b.Back(m)
	if len(b.Probes) != 1 || b.At(&first.Probe) == nil || b.At(&second.Probe) != nil || len(b.Others(code)) != 1 || len(b.Others(code+1)) != 0 {
		t.Errorf("%d probes", len(b.Probes))
	}
	if err := e.apply(b); err != nil || e.text(code) != 0xcc || e.text(code+1) != push {
		t.Errorf("%v", err)
	}
}

// turn switches probes.
func (e *engine) turn(t *testing.T, off bool, ps ...*probe) {
	t.Helper()
	set := func([]*probed.Probe, bool) {
		for _, p := range ps {
			p.off = off
			e.on.Points.Refresh(p.Point)
		}
	}
	if err := e.links.Switch(known(ps), off, set, change.Nothing{}); err != nil {
		t.Error(err)
	}
}

func TestSwitch(t *testing.T) {
	e := start(t)
	a, b := &probe{name: "a"}, &probe{name: "b"}
	if err := e.register(code, a, b); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		off  bool
		ps   []*probe
		want byte
	}{{true, []*probe{a}, 0xcc}, {true, []*probe{b}, push}, {false, []*probe{a, b}, 0xcc}} {
		if e.turn(t, tt.off, tt.ps...); e.text(code) != tt.want {
			t.Errorf("%d probes off %v: text %#x, want %#x", len(tt.ps), tt.off, e.text(code), tt.want)
		}
	}
}

// Threads that stand in memory that goes are moved first: one in the slot, one in front of its
// handlers. One that stands in no memory of ours stays.
func TestEvacuated(t *testing.T) {
	e := start(t)
	a := &probe{name: "a", post: true}
	other := &probe{name: "other"}
	if err := errors.Join(e.register(code+8, a), e.register(code+20, other)); err != nil {
		t.Fatal(err)
	}
	slot := a.Point.Site.Step
	if slot == nil {
		t.Fatal("no slot for a post-handler")
	}
	regs := func(th target.Thread, pc arch.Addr) {
		e.threads.Forget()
		e.process.threads[th] = &arch.Regs{}
		e.process.threads[th][arch.AMD64.PC] = uint64(pc)
	}
	regs(1, slot.Addr)
	regs(2, code+8)
	regs(3, slot.Addr+arch.Addr(slot.BreakAt))
	regs(4, code+21)
	e.stops = []target.Stop{{Kind: target.StopTrap, Thread: 2, Back: true}, {Kind: target.StopTrap, Thread: 3, Back: true}}
	if err := e.leave(a); err != nil {
		t.Fatal(err)
	}
	for th, want := range map[target.Thread]arch.Addr{1: code + 8, 2: code + 8, 3: code + 9, 4: code + 21} {
		if pc := arch.Addr(e.process.threads[th][arch.AMD64.PC]); pc != want {
			t.Errorf("thread %d at %v, want %v", th, pc, want)
		}
	}
	if slices.Sort(e.resumed); !slices.Equal(e.resumed, []target.Thread{2, 3}) {
		t.Errorf("resumed: %v", e.resumed)
	}
	if other.Point.Text != text.Trap || e.text(code+20) != 0xcc {
		t.Error("the other probe has lost its trap")
	}
}

// A pass through a point that a signal took a thread away from is served once, whatever thread goes
// on with it, but not when the point is another one.
func TestBack(t *testing.T) {
	e := start(t)
	a := &probe{name: "a"}
	if err := e.register(code, a); err != nil {
		t.Fatal(err)
	}
	e.threads.Take(1, a.Point, 0x7000, true)
	if back, _ := e.threads.Back(1, a.Point, 0x6000); back {
		t.Error("another call is taken for the one that is away")
	}
	if back, inside := e.threads.Back(1, a.Point, 0x7000); !back || !inside {
		t.Error("it has come back, and would be served again")
	}
	if back, _ := e.threads.Back(1, a.Point, 0x7000); back {
		t.Error("it comes a second time, and would not be served")
	}
	e.threads.Take(1, a.Point, 0x7000, false)
	e.threads.Ended(1)
	if back, _ := e.threads.Back(1, a.Point, 0x7000); back {
		t.Error("its thread has ended, and comes back")
	}
}

// While a point has no handlers, a thread that was away from a pass comes through it unseen. The
// next pass that handlers see is another one, but for a thread that stands in front of it all the
// time.
func TestBackUnseen(t *testing.T) {
	e := start(t)
	a := &probe{name: "a"}
	if err := e.register(code, a); err != nil {
		t.Fatal(err)
	}
	stands := func(th target.Thread, pc arch.Addr, sp uint64) {
		e.process.threads[th] = &arch.Regs{}
		e.process.threads[th][arch.AMD64.PC], e.process.threads[th][arch.AMD64.SP] = uint64(pc), sp
		e.threads.Take(th, a.Point, arch.Addr(sp), false)
	}
	stands(1, code, 0x7000)
	stands(2, code+20, 0x9000)
	e.turn(t, true, a)
	e.turn(t, false, a)
	if back, _ := e.threads.Back(2, a.Point, 0x9000); back {
		t.Error("it went through unseen, and its next pass would not be served")
	}
	if back, _ := e.threads.Back(1, a.Point, 0x7000); !back {
		t.Error("it stands in front of the point, and would be served twice")
	}
}

// copied is a child with a copy of a process's memory.
type copied struct {
	target.Child
	*process
}

func (c copied) ReadAt(a arch.Addr, b []byte) error  { return c.process.ReadAt(a, b) }
func (c copied) WriteAt(a arch.Addr, b []byte) error { return c.process.WriteAt(a, b) }
func (c copied) Free(a arch.Addr, n int) error       { return c.process.Free(a, n) }
func (c copied) PID() int                            { return 2 }
func (c copied) Regs(r *arch.Regs) error             { return c.process.Regs(1, r) }
func (c copied) SetRegs(r *arch.Regs) error          { return c.process.SetRegs(1, r) }

// A child has nothing of ours, and stands where the program thinks it stands.
func TestCleanChild(t *testing.T) {
	e := start(t)
	a := &probe{name: "a"}
	if err := e.register(code+8, a); err != nil {
		t.Fatal(err)
	}
	c := copied{process: &process{t: t, frozen: true, mem: map[arch.Addr][]byte{}, threads: map[target.Thread]*arch.Regs{1: {}}}}
	for at, b := range e.mem {
		c.mem[at] = slices.Clone(b)
	}
	c.process.threads[1][arch.AMD64.PC] = uint64(a.Point.Site.Boost.Addr)
	e.threads.CleanChild(c, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if !bytes.Equal(c.mem[code], bytes.Repeat([]byte{push}, page)) || len(c.mem) != 1 {
		t.Errorf("%d pages, text %#x", len(c.mem), c.mem[code][8])
	}
	if pc := arch.Addr(c.process.threads[1][arch.AMD64.PC]); pc != code+8 {
		t.Errorf("it stands at %v", pc)
	}
	if e.text(code+8) != 0xcc {
		t.Error("its parent has lost the trap")
	}
}
