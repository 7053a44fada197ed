package optimize

import (
	"errors"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/image"
	"kprobe/internal/inside"
	"kprobe/internal/parts"
	"kprobe/internal/patch"
	"kprobe/internal/planned"
	"kprobe/internal/probed"
	"kprobe/internal/text"
	"kprobe/target"
)

// A kernel takes its trap instructions itself, so a probe there is a breakpoint of the target's, and
// costs a stop of everything. What runs inside the target anyhow needs none: a jump at the
// beginning of the kernel's own handler of traps leads those that are ours to their detours, and
// then a point can be a trap in the kernel's text wherever it cannot be a jump, or not yet. The
// detour is the same.

// gate is that jump, and what it leads to. It is there from the first time that a point needs it
// until the session leaves.
type gate struct {
	kit     *parts.Kit
	place   *text.Place // nil: it is not there
	trapper target.Trapper
	why     *string // why there can be none, or ""; nil while that was not asked

	found *probed.Point // the place for it, from Gateless until plan
}

// handler finds the place for a gate, once. Errors: in words, why there can be none.
func (g *gate) handler() (pt *probed.Point, err error) {
	if g.found != nil {
		return g.found, nil
	}
	on := g.kit.On
	trapper, ok := on.T.(target.Trapper)
	if !ok {
		return nil, errors.New("traps in this target stop it")
	}
	at, err := trapper.TrapHandler()
	if err != nil {
		return nil, err
	}
	loc, ok := on.Image.Space.At(at)
	if !ok || loc.Off != 0 {
		return nil, errors.New("the kernel's handler of traps is in no function")
	}
	code := make([]byte, on.Arch.MaxInsn)
	if err := on.Image.Text(at, code); err != nil {
		return nil, err
	}
	site, err := patch.Analyse(on.ISA, code, at, image.RangeOf(loc.Module, at).Start)
	if err != nil {
		return nil, err
	}
	g.found = &probed.Point{Place: text.Place{Addr: at, Site: site, Module: loc.Module}, Loc: loc}
	return g.found, nil
}

// Gateless says why traps cannot be led to detours; "" where they can.
func (o *Optimizer) Gateless() string {
	g := &o.gate
	if g.why == nil {
		pt, err := g.handler()
		if err == nil {
			if _, why := g.kit.Tactic(pt); why != "" {
				err = fmt.Errorf("the kernel's handler of traps can have no jump: %s", why)
			}
		}
		g.refuse(err)
	}
	return *g.why
}

// refuse has the gate's absence be explained by an error; nil: there may be one.
func (g *gate) refuse(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	g.why = &why
}

// plan makes what the gate leads to, where nothing comes to yet. Errors: in words.
func (g *gate) plan() error {
	if g.place != nil {
		return nil
	}
	pt, err := g.handler()
	if err != nil {
		return err
	}
	g.found = nil // the next gate, if there is one, is in a kernel that may have changed
	on := g.kit.On
	alone := &parts.Alone{Detours: parts.Detours{Kit: g.kit}, Point: pt, Adopted: func() {
		g.place, g.trapper = &pt.Place, on.T.(target.Trapper)
		on.Beyond = []*text.Place{g.place}
	}}
	c := &change.Change{What: "gate", Parts: []change.Part{alone}}
	return c.Do(on.Owner)
}

// raise puts the gate in its place, if it is not. It answers whether it is there, and else whether that may
// be different soon. The target is frozen.
func (g *gate) raise() (up, again bool) {
	if g.place == nil || g.place.Text == text.Jump {
		return g.place != nil, false
	}
	on := g.kit.On
	v, err := inside.Vacate(on.T, on.Read, []*inside.Detour{g.place.Detour}, nil)
	if err == nil && len(v.Busy) == 0 {
		err = g.become(text.Jump)
	}
	on.Report(err)
	return g.place.Text == text.Jump, v != nil && v.Again
}

func (g *gate) become(to text.Kind) error {
	return g.kit.On.Text.Plan([]text.Change{{Place: g.place, From: g.place.Text, To: to}}, func(func(*text.Place, bool) bool) {}).CarryOut()
}

// CloseGate gives the kernel its handler of traps back. The target is frozen, and no trap is led any
// more. Errors: ErrNotNow, while somebody may be on his way from one.
func (o *Optimizer) CloseGate() error {
	g := &o.gate
	if g.place == nil {
		return nil
	}
	if g.place.Text == text.Jump {
		if g.trapper.Passing() {
			return fmt.Errorf("%w: a CPU may be on its way from a trap", target.ErrNotNow)
		}
		if err := g.become(text.Own); err != nil {
			return err
		}
	}
	on := g.kit.On
	on.View.Lock()
	defer on.View.Unlock()
	g.kit.Within.Retire(g.place.Detour)
	g.place, on.Beyond = nil, nil
	return nil
}

// leads finds the points that can be traps in the kernel's text now, and whether there may be more soon. The
// target is frozen.
func (g *gate) leads(pts []*probed.Point) (led map[*probed.Point]bool, again bool) {
	led = make(map[*probed.Point]bool)
	if len(pts) == 0 {
		return led, false
	}
	up, again := g.raise()
	if !up {
		return led, again
	}
	if g.kit.On.Kind.Settled() != nil {
		return led, true // somebody may be rewriting text
	}
	for _, pt := range pts {
		led[pt] = g.kit.Within.TrapRoom(pt.Detour) && g.kit.OwnedAt(pt) == "" && g.kit.On.Unchanged(pt)
	}
	return led, false
}

// TrapAt says how a kernel's trap at a point could be served, if its work is done in the target: "inside", or
// "none: " and why it would be a stop. "" in other targets.
func (o *Optimizer) TrapAt(pt *probed.Point) planned.Means {
	k := o.kit.On.Kind
	if !k.Shared() {
		return planned.Means{}
	}
	why := o.Gateless()
	if why == "" {
		why = k.Owned(pt.Addr, pt.Addr+arch.Addr(len(pt.Site.Original)))
	}
	if why != "" {
		return planned.None(why)
	}
	return planned.Means{How: "inside"}
}
