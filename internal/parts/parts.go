// Package parts has the parts that changes of a target are made of: see package change for what each phase
// may do.
//
//	parts.go    slots, the trampoline, room in the lifeline
//	detours.go  what probes run inside the target
//	crowded.go  detours that keep out of the way of others' text
//	state.go    what is set, and set back
package parts

import (
	"fmt"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/errno"
	"kprobe/internal/ground"
	"kprobe/internal/image"
	"kprobe/internal/mem"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
	"kprobe/internal/room"
	"kprobe/internal/within"
)

// Kit makes the parts of one session's changes.
type Kit struct {
	On     *ground.Ground
	Within *within.Within
	Calls  Calls
}

// Calls are the calls under way, which come back by a trampoline.
type Calls interface {
	Trampoline() arch.Addr // 0: there is none
	SetTrampoline(arch.Addr)
}

// Rewriting is a change of the text at points.
func (k *Kit) Rewriting(at func() probed.List) *probed.Rewriting {
	return &probed.Rewriting{Table: k.On.Points, Points: at, Report: k.On.Alive}
}

// fill writes what no thread comes to yet, some pages at a time.
func (k *Kit) fill(ws []patch.Write) (fs []func() error) {
	const pagesAtATime = 128
	for spans := range slices.Chunk(patch.Spans(ws, mem.LeastPage), pagesAtATime) {
		fs = append(fs, func() error { return patch.Fill(k.On.T, spans) })
	}
	return fs
}

// ranges are where something is written.
func ranges(ws []patch.Write) []arch.Range {
	rs := make([]arch.Range, len(ws))
	for i, w := range ws {
		rs[i] = arch.Range{Start: w.Addr, End: w.Addr + arch.Addr(len(w.New))}
	}
	return rs
}

// Need is a slot still to be placed: one that the thread comes back from by itself, or one that ends
// in a breakpoint.
type Need struct {
	Point *probed.Point
	Step  bool
}

// Slots are those that points need, in the arenas that there are or in new ones.
type Slots struct {
	change.Nothing
	Kit   *Kit
	Needs []Need
	At    func() probed.List // points that may have slots then, each once

	writes []patch.Write
}

func (p *Slots) Plan() error {
	on := p.Kit.On
	p.writes = nil
	if len(p.Needs) == 0 || on.Kind.InPlace() {
		return nil
	}
	if !on.Room.Some() {
		return errno.New(syscall.ENOTSUP, "the target has no memory for slots")
	}
	for i, n := range p.Needs {
		site, plan := n.Point.Site, n.Point.Site.PlanBoost
		if n.Step {
			plan = site.PlanStep
		}
		w, err := n.Point.Slots.Plan(on.Room, site, n.Step, on.Near(n.Point), len(p.Needs)-i, func(at arch.Addr) error { return plan(on.ISA, at) })
		if err != nil {
			return err
		}
		p.writes = append(p.writes, w)
	}
	return nil
}

func (p *Slots) Maps() []func() error {
	if !p.Kit.On.Room.Planned() {
		return nil
	}
	return []func() error{p.Kit.On.Room.MapPlanned}
}

func (p *Slots) Writes() []arch.Range { return ranges(p.writes) }

func (p *Slots) Fills() []func() error { return p.Kit.fill(p.writes) }

// Adopt makes new arenas and slots known to the hit path.
func (p *Slots) Adopt() {
	on := p.Kit.On
	on.View.Lock()
	defer on.View.Unlock()
	more := on.Room.Adopt()
	for _, pt := range p.At() {
		pt.Slots.Enter(pt.Site, pt)
	}
	if more {
		on.Report(on.Forbid())
	}
}

func (p *Slots) Drop() {
	for _, n := range p.Needs {
		n.Point.Slots.Forget(n.Point.Site, n.Step)
	}
	p.Kit.On.Room.Drop(p.Kit.On.Owner.Frozen)
}

func (p *Slots) Lines() (ls []string) {
	for _, w := range p.writes {
		ls = append(ls, fmt.Sprintf("slot at %v: % x", w.Addr, w.New))
	}
	return ls
}

// Trampoline is the breakpoint that swapped return addresses lead to: the first return
// probe of a session brings it.
type Trampoline struct {
	change.Nothing
	Kit  *Kit
	Near *probed.Point // the first that needs it; nil: none does

	at    arch.Addr // 0: none is planned
	write *patch.Write
}

func (p *Trampoline) Plan() (err error) {
	on := p.Kit.On
	p.at, p.write = 0, nil
	switch {
	case p.Near == nil || p.Kit.Calls.Trampoline() != 0:
	case on.Kind.InPlace():
		p.at, err = on.Image.Padding(p.Near.Loc)
	case !on.Room.Some():
		err = errno.New(syscall.ENOTSUP, "the target has no memory for a return trampoline")
	default:
		_, p.at, err = on.Room.Take(on.Near(p.Near), 1)
		p.write = &patch.Write{Addr: p.at, New: on.Arch.Break}
	}
	return err
}

func (p *Trampoline) Fills() []func() error {
	if p.write == nil {
		return nil
	}
	return p.Kit.fill([]patch.Write{*p.write})
}

func (p *Trampoline) Commit() error {
	if p.at == 0 {
		return nil
	}
	if err := p.Kit.On.Kind.BreakAt(p.at); err != nil {
		return err
	}
	if err := p.Kit.On.Text.Lifeline.NoteReturn(p.at); err != nil {
		return err
	}
	p.Kit.Calls.SetTrampoline(p.at)
	if p.Kit.Within.Some() {
		p.Kit.Within.Seg.SetOther(p.at)
	}
	return nil
}

func (p *Trampoline) Undo() {
	if p.at != 0 {
		p.Kit.Calls.SetTrampoline(0)
		p.Kit.On.Alive(p.Kit.On.Text.Lifeline.NoteReturn(0))
	}
}

func (p *Trampoline) Lines() []string {
	if p.at == 0 {
		return nil
	}
	return []string{fmt.Sprintf("trampoline at %v", p.at)}
}

// Lifeline is the lifeline with room for more entries.
type Lifeline struct {
	change.Nothing
	Kit  *Kit
	More func() int // entries

	grows bool
}

func (p *Lifeline) Plan() (err error) {
	on := p.Kit.On
	p.grows, err = on.Text.Lifeline.Plan(on.Machine.Lifeline, on.Points.Entries()+p.More(), func(size int) (arch.Addr, error) {
		// Any place will do; a near one is found where programs keep their mappings.
		return on.Room.FindPreferring(image.RangeOf(on.Image.Program(), room.UserFloor), size)
	})
	return err
}

func (p *Lifeline) Maps() []func() error {
	if !p.grows {
		return nil
	}
	return []func() error{func() error { return p.Kit.On.Text.Lifeline.Start(p.Kit.On.Room.Map) }}
}

func (p *Lifeline) Writes() []arch.Range {
	if !p.grows {
		return nil
	}
	return p.Kit.On.Text.Lifeline.Writes(p.Kit.On.Points.Entries() + p.More())
}

func (p *Lifeline) Drop() { p.Kit.On.Text.Lifeline.Drop() }

func (p *Lifeline) Lines() []string {
	if !p.grows {
		return nil
	}
	return []string{"lifeline with more room"}
}
