// Package ground is what all of the engine stands on: a target, the program that is looked at in it, and
// what of ours is there, with the lock that guards this.
package ground

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/image"
	"kprobe/internal/isa"
	"kprobe/internal/kind"
	"kprobe/internal/machine"
	"kprobe/internal/owner"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
	"kprobe/internal/room"
	"kprobe/internal/text"
	"kprobe/symbol"
	"kprobe/target"
)

// Ground belongs to one session. What the owner thread changes (points, rooms, what stands in the
// text, the machine) it changes with View held, and others hold View to read. The owner itself reads
// without it.
type Ground struct {
	T     target.Target
	Alloc target.Allocator // nil: no slots, only emulation
	Owner *owner.Owner
	Kind  kind.Kind

	Machine *machine.Machine
	Arch    *arch.Arch // the machine's, as ISA is
	ISA     isa.ISA
	Image   *image.Image

	View   sync.RWMutex
	Room   *room.Room[*probed.Point]
	Points *probed.Table
	Text   *text.Writer  // what stands at them
	Beyond []*text.Place // and what stands elsewhere

	BlackList []arch.Blocked // the caller's

	ending atomic.Bool // see End

	Report func(error)
}

// New has nothing in the target yet. serve is owner.New's; what errors are to be told of report is.
// Errors: those of image.New.
func New(t target.Target, concurrent bool, serve func(target.Stop), rules probed.Rules, report func(error)) (*Ground, error) {
	g := &Ground{T: t, Kind: kind.Of(t), Owner: owner.New(t, concurrent, serve), Report: report}
	g.Alloc, _ = t.(target.Allocator)
	beside, _ := t.(kind.Beside) // nil: probes are written into the target's memory
	g.Room = room.New[*probed.Point](t)
	g.Text = text.NewWriter(t, beside, &g.View, report)
	g.Points = probed.NewTable(g.Text, rules)
	var err error
	if g.Image, err = image.New(t, own{g}, g.Kind.InPlace()); err != nil {
		return nil, err
	}
	g.LearnMachine()
	return g, nil
}

// LearnMachine takes over what the image says of the machine.
func (g *Ground) LearnMachine() {
	g.View.Lock()
	defer g.View.Unlock()
	g.Machine, g.Arch, g.ISA = g.Image.Machine, g.Image.Arch, g.Image.ISA
	g.Room.Become(g.Arch, g.ISA.SlotSize(), g.ISA.Reach())
}

// Read reads the target's memory as the program wrote it: where probes have
// put breakpoints, the original bytes are seen. Errors: EFAULT.
func (g *Ground) Read(addr arch.Addr, p []byte) error {
	if err := g.T.ReadAt(addr, p); err != nil {
		return err
	}
	g.View.RLock()
	defer g.View.RUnlock()
	g.Points.Overlay(addr, p)
	for _, b := range g.Beyond {
		w := b.Stands()
		patch.Overlay(p, addr, w.Addr, w.Old)
	}
	return nil
}

// Own is the program's own memory, as Read has it.
func (g *Ground) Own() arch.Reader { return own{g} }

// Forbid has the image know what must not be probed: our own code, too.
func (g *Ground) Forbid() error {
	var more []arch.Blocked
	for _, a := range g.Room.Spans() {
		more = append(more, arch.Blocked{Start: a.Start, End: a.End, Symbol: "[kprobe]", Reason: "it is the probes' own code"})
	}
	return g.Image.Forbid(append(more, g.BlackList...))
}

// Strayed finds where a thread goes on that came to a trap which is no probe's: to the middle of a jump,
// or to the end of a slot from which no jump reaches.
func (g *Ground) Strayed(pc arch.Addr) (arch.Addr, bool) {
	if ref, ok := g.Room.At(pc); ok {
		return ref.Slot.Exit(pc)
	}
	return g.Points.Strayed(pc)
}

// TakesProgram tells whether a program can run in front of an instruction, which then runs elsewhere: pinned says why it must not. One that
// replaces the function has to be at its entry, where the stack is as the caller left it. Errors: ENOTSUP, EINVAL.
func (g *Ground) TakesProgram(at symbol.Loc, pinned string, replaces bool) error {
	known := at.Func.Name != "" || at.Func.Size != 0
	switch {
	case pinned != "":
		return errno.New(syscall.ENOTSUP, "no program can run in front of an instruction that must run where it stands: %s", pinned)
	case !replaces:
		return nil
	case known && !g.Image.IsEntry(at):
		return errno.New(syscall.EINVAL, "a program that overrides a function must be at its entry, and %s is not", at)
	}
	if why := g.Kind.Unreplaceable(at.Start()); why != "" {
		return errno.New(syscall.EINVAL, "no program may override %s: %s", at, why)
	}
	return nil
}

// Near is the module that a point is in: what belongs to the point is to be near it.
func (g *Ground) Near(pt *probed.Point) arch.Range {
	return image.RangeOf(pt.Loc.Module, pt.Addr)
}

// JumpAt finds out how a jump could stand at a point; nil where nothing is known
// of the code around it.
func (g *Ground) JumpAt(pt *probed.Point) *patch.Jump {
	if pt.Notify {
		return nil
	}
	return g.Image.Jump(pt.Loc, pt.Site.Original)
}

// Probed tells whether there is a point at an address.
func (g *Ground) Probed(a arch.Addr) bool { return g.Points.At(a) != nil }

// Standing is what stands at a point, for others than the owner: a kernel's tracer may have
// its jump give way at any time.
func (g *Ground) Standing(pt *probed.Point) text.Kind {
	g.View.RLock()
	defer g.View.RUnlock()
	return pt.Text
}

// Unchanged tells whether what a point's detour has a copy of is there, under what is ours. In a kernel others
// rewrite text as well, and what they put there must be carried out, not what was there before.
func (g *Ground) Unchanged(pt *probed.Point) bool {
	at, code := pt.Displaced()
	have := make([]byte, len(code))
	return g.Read(at, have) == nil && string(have) == string(code)
}

// Leave unmaps what we mapped. What a thread that cannot be stopped may
// still run in stays: it works without us. Errors: those of room.Leave.
func (g *Ground) Leave() error {
	if g.T.Stuck() > 0 {
		return nil
	}
	g.View.Lock()
	defer g.View.Unlock()
	return g.Room.Leave()
}

// Alive has an error be reported that is no news if the target was killed meanwhile, or executes another program.
func (g *Ground) Alive(err error) {
	if err != nil && !errors.Is(err, target.ErrGone) && !errors.Is(err, syscall.ESRCH) {
		g.Report(err)
	}
}

// OwnFault tells whether a signal comes from the thread's own instruction.
func (g *Ground) OwnFault(st target.Stop) bool {
	faulter, ok := g.T.(target.Faulter)
	if !ok {
		return false
	}
	f, err := faulter.Fault(st.Thread)
	return err == nil && f.Sync
}

type own struct{ *Ground }

func (o own) ReadAt(addr arch.Addr, p []byte) error { return o.Read(addr, p) }

// End says that the session is about to be closed. A registration that is being planned asks Ended at each place, and gives up. A
// handler may not close a session.
func (g *Ground) End() {
	if !g.Owner.InHandler() {
		g.ending.Store(true)
	}
}

// Ended is owner.ErrClosed after End.
func (g *Ground) Ended() error {
	if g.ending.Load() {
		return owner.ErrClosed
	}
	return nil
}
