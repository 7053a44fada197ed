package kprobe

import (
	"errors"
	"fmt"
	"time"

	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
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
	text.Place
	trapper target.Trapper
}

// handler finds the place for a gate. Errors: in words, why there can be none.
func (s *Session) handler() (pt *point, err error) {
	trapper, ok := s.t.(target.Trapper)
	if !ok {
		return nil, errors.New("traps in this target stop it")
	}
	at, err := trapper.TrapHandler()
	if err != nil {
		return nil, err
	}
	loc, ok := s.image.Space.At(uint64(at))
	if !ok || loc.Off != 0 {
		return nil, errors.New("the kernel's handler of traps is in no function")
	}
	code := make([]byte, s.arch.MaxInsn)
	if err := s.image.Text(at, code); err != nil {
		return nil, err
	}
	site, err := patch.Analyse(s.isa, code, at, image.RangeOf(loc.Module, at).Start)
	return &point{Place: text.Place{Addr: at, Site: site}, loc: loc}, err
}

// noGate says why traps cannot be led to detours; "" where they can.
func (s *Session) noGate() string {
	if s.gateless == nil {
		pt, err := s.handler()
		if err == nil {
			if _, why := s.tactic(pt); why != "" {
				err = fmt.Errorf("the kernel's handler of traps can have no jump: %s", why)
			}
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		s.gateless = &why
	}
	return *s.gateless
}

// planGate makes what the gate leads to, where nothing comes to yet. Errors: in words.
func (s *Session) planGate() error {
	if s.gate != nil {
		return nil
	}
	pt, err := s.handler()
	if err != nil {
		return err
	}
	change := &detours{batch: s.inside.Begin()}
	d, err := change.batch.Detour(inside.Want{Site: pt.Addr, Near: s.nearTo(pt), Code: pt.Site.Original, Jump: s.jumpAt(pt), Gate: true})
	if err == nil && !d.Optimizable() {
		err = errors.New(d.Reason)
	}
	if err == nil {
		d.Owner = []*Kprobe(nil)
		change.batch.Finish()
		err = s.mapDetours(change)
	}
	if err != nil {
		s.dropDetours(change)
		return err
	}
	pt.Detour = d
	s.onOwner(func() {
		s.view.Lock()
		defer s.view.Unlock()
		change.batch.Adopt()
		s.gate = &gate{Place: pt.Place, trapper: s.t.(target.Trapper)}
	})
	return nil
}

// raise puts the gate in its place, if it is not. It answers whether it is there, and else whether that may
// be different soon. The target is frozen.
func (g *gate) raise(s *Session) (up, again bool) {
	if g == nil || g.Text == text.Jump {
		return g != nil, false
	}
	busy, again, err := inside.Vacate(s.t, s.ReadMem, []*inside.Detour{g.Detour}, nil)
	if err == nil && len(busy) == 0 {
		err = g.become(s, text.Jump)
	}
	s.report(err)
	return g.Text == text.Jump, again
}

func (g *gate) become(s *Session, to text.Kind) error {
	return s.text.Plan([]text.Change{{Place: &g.Place, From: g.Text, To: to}}, func(func(*text.Place, bool) bool) {}).CarryOut()
}

// closeGate gives the kernel its handler of traps back. The target is frozen, and no trap is led any
// more. Errors: ErrNotNow, while somebody may be on his way from one.
func (s *Session) closeGate() error {
	g := s.gate
	if g == nil {
		return nil
	}
	if g.Text == text.Jump {
		if g.trapper.Passing() {
			return fmt.Errorf("%w: a CPU may be on its way from a trap", target.ErrNotNow)
		}
		if err := g.become(s, text.Own); err != nil {
			return err
		}
	}
	s.view.Lock()
	defer s.view.Unlock()
	s.inside.Retire(g.Detour)
	s.gate = nil
	return nil
}

// leads finds the points that can be traps in the kernel's text now, and whether there may be more soon. The
// target is frozen.
func (s *Session) leads(pts []*point) (led map[*point]bool, again bool) {
	led = make(map[*point]bool)
	if len(pts) == 0 {
		return led, false
	}
	up, again := s.gate.raise(s)
	if !up {
		return led, again
	}
	if _, err := s.machine.Resting(func(arch.Addr) bool { return false }); err != nil {
		return led, true // somebody may be rewriting text
	}
	for _, pt := range pts {
		led[pt] = s.inside.TrapRoom(pt.Detour) && !s.crowded(pt) && s.unchanged(pt)
	}
	return led, false
}

// crowded tells whether somebody else may rewrite what a point's detour has a copy of.
func (s *Session) crowded(pt *point) bool {
	at, code := pt.displaced()
	return s.machine.Owned(at, at+arch.Addr(len(code))) != ""
}

// planTrap tells whether a point's trap can be served in the target, if its work is done there.
func (s *Session) planTrap(pt *point) string {
	if s.machine == nil {
		return ""
	}
	why := s.noGate()
	if why == "" {
		why = s.machine.Owned(pt.Addr, pt.Addr+arch.Addr(len(pt.Site.Original)))
	}
	if why != "" {
		return "none: " + why
	}
	return "inside"
}

// giveWayDelay is how long it takes until jumps, and traps in a kernel's text, are tried again that had
// to go.
const giveWayDelay = time.Second
