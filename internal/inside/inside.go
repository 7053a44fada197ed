// Package inside is what a session has in its target besides slots: memory that
// both see, compiled programs, and detours. It decides what is to be where and
// keeps the account of it. The caller maps and writes; threads that stand in code of
// ours are moved from here.
package inside

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/machine"
	"kprobe/internal/patch"
	"kprobe/internal/segment"
	"kprobe/target"
)

// Apart is a place for shared memory in a process: code refers to it by whole addresses, so
// it need not take room where programs, and detours, are. That of a controller that was
// killed is there still, so it is a different place each time.
//
// It is where the system itself puts what may lie anywhere, but below where it begins with
// that. A program that was made with a sanitizer takes most other addresses for its shadow when it begins, all of them at once,
// and ends if it finds something there.
//
// From there to the lowest libraries are 512 GiB. A segment and two maps of 16,383 threads take half of that. What reached
// into the libraries' room would have no place in a program that the process executes, where they lie elsewhere.
func Apart(a *arch.Arch) arch.Addr {
	lowest, step, places := a.UserEnd-3<<39, arch.Addr(16<<30), uint64(8)
	if a.PtrSize == 4 { // between the heap and the libraries
		lowest, step, places = 6<<28, 16<<20, 1<<7
	}
	return (lowest+step-1)&^(step-1) + step*arch.Addr(rand.Uint64N(places))
}

// Wide is the start of a lower region, for shared memory that is too large for the one of Apart: large rings of many threads. It is 0 in 32 bits.
func Wide(a *arch.Arch) arch.Addr {
	if a.PtrSize == 4 {
		return 0
	}
	return a.UserEnd / 4
}

// Config says what the target is like.
type Config struct {
	Machine            *machine.Machine
	TGID               int
	Key                segment.ThreadKey
	RedZone, GoRedZone int // of C's functions, and of Go's: see inject.Detour

	// Goroutine is where a thread of a Go program keeps its goroutine (inject.Detour), and GoID
	// where that has its id, 0 for unknown (inject.Segment).
	Goroutine int32
	GoID      int

	refuses error // why no programs can run, though probes count

	readsBase bool                                // threads may read their fs base, or thread pointer
	pointer   func(target.Thread) (uint64, error) // where that is no register of arch.Regs
	counter   func() uint64                       // the processor's time-stamp counter, for those that may not read it

	// Clock is how programs tell the time; nil where they cannot. Boot is what
	// CLOCK_BOOTTIME is ahead of it.
	Clock *jit.Clock
	Boot  uint64

	// UID and GID are whose process it is.
	UID, GID uint32

	// Page is the unit of memory; below Floor and from Limit on there is none.
	Page, Floor, Limit arch.Addr

	Room  Room
	Slots *Slots // the session's, where it has one already

	// Of a kernel (ForMachine): the numbers of its CPUs, where its tracer is called, and
	// how it reads memory.
	cpus    []int
	traced  func(arch.Addr) bool
	readers inject.Readers

	carriers []arch.Addr // and what it puts in the place of return addresses
}

// Room is how many threads can be in probes at once, how many probes can be counted,
// how many calls be away (see inject.Layout), and how many be under way that are seen at exits or have private data.
type Room struct {
	Threads, Counters, Away, Calls int

	Slots   bool // calls are found by their stack slots: a kernel's
	Gate    bool // traps can be led to detours without a stop: a kernel's
	Grouped bool // memory comes as it is needed
}

// Processes have room for all that they may need: memory is taken as it is used, and what is
// reserved is addresses, 130 GiB of them.
var Processes = Room{Threads: segment.MaxThreads, Counters: segment.MaxCounters, Away: 64 << 10, Calls: 32 << 10, Grouped: true}

// fewThreads are as many as have room where addresses are dear.
const fewThreads = 1023

// narrow is for processes whose addresses have 32 bits: 60 MiB of them, and more for more threads.
var narrow = Room{Threads: 255, Counters: 8 << 10, Away: 16 << 10, Calls: 4 << 10}

// least is for processes that may not have more addresses (RLIMIT_AS), or not have more of them
// locked (RLIMIT_MEMLOCK): reserved addresses count at once there. 36 MiB, and more for more threads.
var least = Room{Threads: 255, Counters: 4 << 10, Away: 16 << 10, Calls: 4 << 10}

// For is a room that a process with so many threads fits in, and three times as many more.
func (r Room) For(threads int) Room {
	const most = 4095
	for r.Threads < most && r.Threads < 4*threads {
		r.Threads = 2*r.Threads + 1
	}
	return r
}

// Less is the next smaller room for so many threads; false where there is none.
func (r Room) Less(threads int) (Room, bool) {
	switch {
	case r.Slots || r == least:
		return r, false
	case r.Threads > fewThreads && threads < fewThreads/2:
		r.Threads = fewThreads
	case r.Counters > 32<<10:
		r.Counters = 32 << 10
	case r.Grouped && r != least.For(threads):
		return least.For(threads), true
	default:
		return least, true
	}
	return r, true
}

// traceLayout is the ring for what programs print.
func (r Room) traceLayout() *bpf.Layout {
	l, err := bpf.Arrange([]*bpf.MapSpec{bpf.TraceMap()}, r.Threads+1)
	if err != nil {
		panic(err)
	}
	return l
}

func (r Room) layout() segment.Layout {
	return segment.Layout{Threads: r.Threads, Counters: r.Counters, Away: r.Away, Calls: r.Calls, Slots: r.Slots, Gate: r.Gate,
		Extra: int(r.traceLayout().Size), Grouped: r.Grouped}
}

// Size is that of the memory that the target and its controller share, in bytes.
func (r Room) Size() int { return r.layout().Size() }

// SizeFor is as far as it is used by so many threads at first.
func (r Room) SizeFor(threads int) int {
	l := r.layout()
	if !r.Grouped {
		return l.Size()
	}
	at, _ := l.Group(0)
	return at + l.GroupFor(0, min(threads+segment.Spare, r.Threads), 1)
}

// Inside is the account. It belongs to whoever plans; Find and what it answers may
// be used at the same time by the one who serves the target's stops.
type Inside struct {
	Seg     *segment.Segment
	Printed *bpf.Map // the ring of what programs print; nil until one is there that does

	// More has a part of the segment be there that is needed from now on; nil where all of it is. Errors: the target's.
	More func(segment.Part) error

	made      *inject.Target // what areas and detours are made for
	cfg       Config
	arch      *arch.Arch
	places    *patch.Detours
	mapped    []arch.Range
	areas     []*area
	codes     []*copied  // compiled programs, by address
	detours   []*Detour  // by address; replaced, never changed in place
	stubs     []*Detour  // those that have one, by its address; as above
	retired   []*Detour  // those that nothing leads to any more
	redirects []Redirect // not asked for yet

	cramped  []*Detour   // that threads had no room for, and nobody was told of yet
	trapping bool        // a trap was led to a detour, some time
	betrayed atomic.Bool // a thread lost its pointer while it was relied on

	unused  []int // counters that were given back
	next    int   // the first that was never given out
	returns accounts
}

// New takes over memory that target and controller share: zeros, of Size bytes.
// occupied is the target's memory.
func New(c Config, addr arch.Addr, ours []byte, occupied []arch.Range) (*Inside, error) {
	seg, err := segment.New(&c.Machine.Detours.Machine, c.Room.layout(), addr, ours, c.TGID)
	if err != nil {
		return nil, err
	}
	seg.SetUser(c.UID, c.GID)
	if c.cpus != nil {
		seg.SetTask(c.Key.Task)
	}
	if c.Goroutine != 0 {
		seg.SetGoroutines(c.GoID)
	}
	if c.Clock != nil {
		seg.SetClock(*c.Clock, c.Boot)
	}
	made := &inject.Target{Machine: c.Machine.Detours, Segment: seg}
	if c.readers != (inject.Readers{}) {
		made.Readers = &c.readers
	}
	seg.SetCarriers(c.carriers)
	if c.Machine.Detours.Together() {
		seg.Open()
	}
	for _, number := range c.cpus {
		seg.AssignCPU(number)
	}
	if c.readsBase && c.Machine.Arch.PtrSize == 8 {
		seg.SetReadsBase()
	}
	if c.Key.Kind == segment.FSSelf {
		seg.SetCareful(true) // until Trust
	}
	if c.Slots == nil {
		c.Slots = new(Slots)
	}
	seg.Hold(c.Slots.Count())
	c.Slots.follow(seg)
	return &Inside{Seg: seg, made: made, cfg: c, arch: c.Machine.Arch, places: patch.NewDetours(c.Machine.ISA, occupied, c.Floor, c.Limit, c.Page)}, nil
}

// SizeFor tells how far so many threads use the memory in common at first.
func (in *Inside) SizeFor(threads int) int { return in.cfg.Room.SizeFor(threads) }

// PrintedFor gives the size of the ring that so many threads print to, in bytes.
func (in *Inside) PrintedFor(threads int) int { return int(in.cfg.Room.traceLayout().SizeFor(threads)) }

// needs has a part of the segment be there.
func (in *Inside) needs(p segment.Part) error {
	if in.More == nil {
		return nil
	}
	return in.More(p)
}

// prints has the ring be there for what programs print.
func (in *Inside) prints() error {
	if in.Printed != nil {
		return nil
	}
	if err := in.needs(segment.ExtraPart); err != nil {
		return err
	}
	trace, err := in.cfg.Room.traceLayout().Bind(in.Seg.Extra(), uint64(in.Seg.ExtraAddr()))
	if err == nil {
		err = trace.Init()
	}
	if err != nil {
		return err
	}
	trace.Given = in.cfg.Slots.Count
	in.Seg.SetTrace(arch.Addr(trace.Map(0).Addr))
	in.Printed = trace.Map(0)
	return nil
}

// Leave says that the memory which target and controller share is about to be given up.
func (in *Inside) Leave() { in.cfg.Slots.follow(nil) }

// TGID is the target's id as its programs see it.
func (in *Inside) TGID() int { return in.cfg.TGID }

// Goroutines tells whether calls are told apart by goroutines.
func (in *Inside) Goroutines() bool { return in.cfg.Goroutine != 0 }

// Mapped tells that the target has one of a batch's ranges now. It keeps that,
// whatever becomes of the batch.
func (in *Inside) Mapped(r arch.Range) { in.mapped = append(in.mapped, r) }

// Unmapped tells that it has the first of them no more.
func (in *Inside) Unmapped(n int) { in.mapped = slices.Clone(in.mapped[n:]) }

// Ranges are those that were Mapped.
func (in *Inside) Ranges() []arch.Range { return in.mapped }

// Planned are the ranges of code that the target has or will have.
func (in *Inside) Planned() []arch.Range { return in.places.Areas() }

// Avoid tells of memory that will be the target's, or somebody else's in it.
func (in *Inside) Avoid(r arch.Range) { in.places.Lose(r) }

// Spare is how many counters can still be given out. A probe takes one, with a program two,
// a return probe eight.
func (in *Inside) Spare() int { return in.Seg.Left(in.next) + len(in.unused) }

// counter gives out a counter.
func (in *Inside) counter() (int, error) {
	if n := len(in.unused); n > 0 {
		c := in.unused[n-1]
		in.unused = in.unused[:n-1]
		return c, nil
	}
	return in.counters(1)
}

// counters gives out so many that never were, one behind the other: the first. Errors: there are no more.
func (in *Inside) counters(n int) (int, error) {
	first, ok := in.Seg.Next(in.next, n)
	if !ok {
		return 0, fmt.Errorf("all %d counters are in use", in.cfg.Room.Counters)
	}
	if err := in.Seg.Reach(first); err != nil {
		return 0, err
	}
	for c := in.next; c < first && in.Seg.Left(c) > in.Seg.Left(c+1); c++ {
		in.unused = append(in.unused, c) // the rest of the piece before
	}
	in.next = first + n
	return first, nil
}

// ReadPrinted takes what programs have printed since it was last asked for.
func (in *Inside) ReadPrinted() (lines []bpf.Printk, err error) {
	if in.Printed == nil {
		return nil, nil
	}
	ring, err := bpf.NewReader(in.Printed)
	for err == nil {
		var rec bpf.Record
		var more bool
		if rec, more, err = ring.Read(); err != nil || !more {
			break
		}
		var p bpf.Printk
		if p, err = bpf.ParsePrintk(rec.Data); err == nil {
			lines = append(lines, p)
		}
	}
	return lines, err
}

// Find is the detour that an address belongs to, its own or its stub's, nil for none.
func (in *Inside) Find(pc arch.Addr) *Detour {
	if i, ok := slices.BinarySearchFunc(in.stubs, pc, func(d *Detour, pc arch.Addr) int { return cmp.Compare(d.place.Stub, pc) }); ok {
		return in.stubs[i]
	}
	i, ok := slices.BinarySearchFunc(in.detours, pc, func(d *Detour, pc arch.Addr) int { return cmp.Compare(d.At, pc) })
	if !ok {
		i--
	}
	if i < 0 || pc >= in.detours[i].End() {
		return nil
	}
	return in.detours[i]
}

// Area is the one that an address belongs to, nil for none.
func (in *Inside) Area(pc arch.Addr) *inject.Area {
	for _, a := range in.areas {
		if a.Contains(pc) {
			return a.Area
		}
	}
	return nil
}

// AreaOf is the one whose detour an address belongs to, nil for none.
func (in *Inside) AreaOf(pc arch.Addr) *inject.Area {
	if d := in.Find(pc); d != nil {
		return d.Area
	}
	return nil
}

// Busy tells whether an address is in code that detours call and that returns to them.
func (in *Inside) Busy(pc arch.Addr) bool { return in.Area(pc) != nil || in.Running(pc) }

// Running tells whether an address is in a program, or in what programs call.
func (in *Inside) Running(pc arch.Addr) bool {
	i, ok := slices.BinarySearchFunc(in.codes, pc, func(c *copied, pc arch.Addr) int { return cmp.Compare(c.at, pc) })
	if !ok {
		i--
	}
	if i >= 0 && pc < in.codes[i].at+arch.Addr(in.codes[i].size) {
		return true
	}
	a := in.Area(pc)
	return a != nil && a.InHelper(pc)
}

// Batch is what one change needs of the target: memory to be mapped, readable and
// executable, and what is to be written there. Nothing leads there yet.
type Batch struct {
	Map    []arch.Range
	Writes []patch.Write

	in     *Inside
	made   []*Detour
	areas  []*area
	codes  []*copied
	placed []patch.Place
	opened []*Returns
}

// area is the routines for the code of one module.
type area struct {
	*inject.Area
	near arch.Range
}

// Begin begins a batch.
func (in *Inside) Begin() *Batch { return &Batch{in: in} }

// Finish completes the plan: Map and Writes are there.
func (b *Batch) Finish() {
	if len(b.placed) == 0 {
		return // there are as many areas as before
	}
	slices.SortFunc(b.made, func(a, b *Detour) int { return cmp.Compare(a.At, b.At) })
	for _, r := range b.in.places.Areas() {
		b.Map = append(b.Map, without(r, b.in.mapped)...)
	}
}

// without is a range less those that are there already; they are of whole pages.
func without(r arch.Range, there []arch.Range) []arch.Range {
	left := []arch.Range{r}
	for _, t := range there {
		var next []arch.Range
		for _, l := range left {
			if t.End <= l.Start || t.Start >= l.End {
				next = append(next, l)
				continue
			}
			if l.Start < t.Start {
				next = append(next, arch.Range{Start: l.Start, End: t.Start})
			}
			if t.End < l.End {
				next = append(next, arch.Range{Start: t.End, End: l.End})
			}
		}
		left = next
	}
	return left
}

// Commit makes its areas true of now: since it was planned, a thread may have been born that makes all careful. The
// target is frozen, and nothing leads there yet. Errors: of the target's memory.
func (b *Batch) Commit(mem arch.Memory) error { return b.in.tellCareful(b.areas, mem) }

// Adopt makes the batch part of the account.
func (b *Batch) Adopt() {
	in := b.in
	in.areas = append(in.areas, b.areas...)
	in.codes = sorted(in.codes, b.codes, func(c *copied) arch.Addr { return c.at })
	in.detours = sorted(in.detours, b.made, func(d *Detour) arch.Addr { return d.At })
	stubbed := slices.DeleteFunc(slices.Clone(b.made), func(d *Detour) bool { return d.place.Stub == 0 })
	in.stubs = sorted(in.stubs, stubbed, func(d *Detour) arch.Addr { return d.place.Stub })
}

func sorted[T any](have, more []T, at func(T) arch.Addr) []T {
	order := func(a, b T) int { return cmp.Compare(at(a), at(b)) }
	slices.SortFunc(more, order)
	return patch.Merge(have, more, order)
}

// Undo gives back what the batch took.
func (b *Batch) Undo() {
	for _, p := range b.placed {
		b.in.places.Release(p)
	}
	for _, d := range b.made {
		b.in.giveUp(d)
	}
	b.undoReturns()
	for _, c := range b.codes {
		delete(c.of.copies, c.area)
	}
}

// Areas counts the areas that come with it: each has a trap, for threads in programs.
func (b *Batch) Areas() int { return len(b.areas) }

// around is a range with what lies at an address as well.
func around(r arch.Range, at arch.Addr, size int) arch.Range {
	return arch.Range{Start: min(r.Start, at), End: max(r.End, at+arch.Addr(size))}
}

// central makes a module wider than it is: what has all of that in reach leaves
// room on either side for detours that have both in reach.
func central(near arch.Range, reach arch.Addr) arch.Range {
	margin := reach / 4
	return arch.Range{Start: near.Start - min(near.Start, margin), End: near.End + min(^near.End, margin)}
}

// place finds room for code that any jump can reach from near.
func (b *Batch) place(near arch.Range, size int) (arch.Addr, error) {
	anywhere := patch.Jump{Addr: near.Start, Ways: []patch.Way{{Reach: patch.Reach{
		From: near.Start, Bytes: [4]patch.Choice{patch.Any, patch.Any, patch.Any, patch.Any},
	}}}}
	p, ok := b.in.places.Put(&anywhere, near, size)
	if !ok {
		return 0, fmt.Errorf("no %d bytes are free in reach of jumps from %v", size, near.Start)
	}
	b.placed = append(b.placed, p)
	return p.Detour, nil
}

// area finds or plans the routines for the code of a module.
func (b *Batch) area(near arch.Range) (*area, error) {
	reach := b.in.cfg.Machine.ISA.Reach()
	for _, areas := range [][]*area{b.in.areas, b.areas} {
		for _, a := range areas {
			// One that lies further off than half the reach, for there was no room nearer, serves the
			// module that it was made for.
			if a.near == near || max(near.End, a.Addr)-min(near.Start, a.Addr) < reach/2 {
				return a, nil
			}
		}
	}
	at, err := b.place(central(near, reach), b.in.made.AreaSize())
	if err != nil { // a large module
		at, err = b.place(near, b.in.made.AreaSize())
	}
	if err != nil {
		return nil, err
	}
	a := &area{b.in.made.Area(at), near}
	b.areas = append(b.areas, a)
	b.write(at, a.Image())
	if b.in.cfg.cpus != nil {
		a.ReadsText()
	}
	return a, nil
}
