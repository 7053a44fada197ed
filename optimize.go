package kprobe

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/text"
	"kprobe/target"
)

// Jump optimization (kprobes.txt 1.4): a point whose probes all run inside the
// target begins with a trap that leads its threads to a detour. A little later, so
// that many go at once, the trap becomes a jump there, if nothing speaks
// against it. The detour is the same, so nobody can tell but by the clock.

// optimizeDelay is how long a point waits: the kernel's five ticks.
const optimizeDelay = 20 * time.Millisecond

// Optimization reads the switch (kprobes.txt 1.4.4: debug.kprobes-optimization).
func (s *Session) Optimization() bool {
	s.view.RLock()
	defer s.view.RUnlock()
	return !s.unoptimized
}

// SetOptimization is the switch: off makes every jump a trap again and allows no
// new ones, on lets probes be optimized. It is on at first.
func (s *Session) SetOptimization(on bool) (err error) {
	if err := s.beginChange(); err != nil {
		return err
	}
	defer s.end(&err)
	s.view.Lock()
	was := s.unoptimized
	s.unoptimized = !on
	s.view.Unlock()
	s.optimizeSoon() // without jumps, a kernel may have traps
	if on {
		return nil
	}
	err = s.frozen(func() error { return s.rearm(s.points) })
	if err != nil {
		s.view.Lock()
		s.unoptimized = was
		s.view.Unlock()
	}
	s.listChanged()
	return err
}

// WaitOptimized returns when no point waits for its jump: each has it, or keeps
// the trap. Not from a handler (EDEADLK).
func (s *Session) WaitOptimized() error {
	if s.inHandler() {
		return errInHandler
	}
	s.optimize()
	return nil
}

// optimizeSoon is called with mu held.
func (s *Session) optimizeSoon() {
	if s.waiting || s.inside == nil {
		return
	}
	s.waiting = true
	time.AfterFunc(optimizeDelay, s.optimize)
}

// optimize makes jumps of the traps that can be.
func (s *Session) optimize() {
	s.mu.Lock()
	defer s.unlock()
	s.waiting = false
	if s.inside == nil || s.changeable() != nil {
		return
	}
	if err := s.trust(); !errors.Is(err, syscall.ESRCH) {
		s.report(err)
	}
	s.report(s.replanCrowded())
	soon := s.present()
	soon.hope = true
	var pts, jumps points
	var ds []*inside.Detour
	gated := false
	for _, pt := range s.points {
		have, want := s.standing(pt), soon.wanted(pt)
		switch {
		case have != text.Trap && have != text.Beside || want != text.Trap && want != text.Jump || want == have:
			continue
		case want == text.Jump:
			jumps, ds = append(jumps, pt), append(ds, pt.Detour)
		}
		pts = append(pts, pt)
		gated = gated || soon.leadable(pt) && (want == text.Trap || pt.refused)
	}
	if len(pts) == 0 {
		return
	}
	if gated {
		if err := s.planGate(); err != nil {
			why := err.Error()
			s.gateless = &why
			s.report(fmt.Errorf("traps in the kernel stay stops: %w", err))
		}
	}
	r := soon.rearming(pts)
	err := s.ahead(r)
	if err == nil {
		err = s.frozen(func() error {
			trapped := make(map[target.Thread]bool)
			for _, st := range s.stops {
				trapped[st.Thread] = st.Kind == target.StopTrap && !st.Back
			}
			busy, again, err := inside.Vacate(s.t, s.ReadMem, ds, trapped)
			if err != nil {
				return err
			}
			for _, pt := range jumps {
				pt.optimized.Store(!busy[pt.Detour])
				pt.refused = busy[pt.Detour]
			}
			trapping := slices.DeleteFunc(slices.Clone(pts), func(pt *point) bool { return pt.optimized.Load() || !soon.leadable(pt) })
			led, later := s.leads(trapping)
			for _, pt := range trapping {
				pt.led.Store(led[pt])
			}
			if again || later {
				time.AfterFunc(giveWayDelay, s.optimize)
			}
			if len(jumps) == len(pts) && len(busy) == 0 {
				return s.carryOut(r)
			}
			return s.rearm(pts)
		})
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		s.onOwner(func() {
			for _, pt := range pts {
				pt.unready()
			}
		})
		s.report(err)
	}
	s.listChanged()
}

// trust has detours find out quickly who runs there, once the program has begun: see inside.Trust.
func (s *Session) trust() error {
	if s.machine != nil || !s.inside.Careful() {
		return nil
	}
	trusted := false
	err := s.frozen(func() (err error) {
		trusted, err = s.inside.Trust(s.t, s.acquaintance(nil))
		return err
	})
	if s.doubt != nil {
		s.doubt.Stop()
	}
	if !trusted && err == nil {
		s.doubted = min(2*max(s.doubted, optimizeDelay), 10*time.Second)
		s.doubt = time.AfterFunc(s.doubted, s.optimize)
	} else {
		s.doubted = 0
	}
	return err
}

// optimizable says why a point keeps its trap; "" for one that may have a jump.
func (o *outlook) optimizable(pt *point) string {
	switch {
	case pt.notify:
		return "it is ours"
	case pt.Detour == nil:
		return "its handlers run outside the target"
	case o.unoptimized:
		return "optimization is off"
	case !pt.Detour.Optimizable():
		return pt.Detour.Reason
	}
	if o.outside(pt) {
		return "a handler runs outside the target"
	}
	span := pt.Detour.Span
	if len(o.points.within(span.Start, pt.Addr))+len(o.points.within(pt.Addr+1, span.End)) > 0 {
		return "another probe is in the way"
	}
	for a := span.Start; a < span.End; a++ {
		if a == pt.Addr {
			continue
		}
		if _, bad := o.image.Forbidden(a); bad {
			return "the jump would cover what must not be probed"
		}
	}
	return ""
}

// outside tells whether one of a point's probes has a handler that runs outside the target.
func (o *outlook) outside(pt *point) bool {
	return slices.ContainsFunc(o.probesOf(pt), func(p *Kprobe) bool { return p.active() && !p.runsInside() })
}

// leadable tells whether a point may be a trap that is led to its detour.
func (o *outlook) leadable(pt *point) bool {
	return o.machine != nil && pt.Detour != nil && !pt.notify && !o.outside(pt) && (!o.hope || o.noGate() == "")
}

// unready tells that neither the jump nor the trap that is led may stand there, until somebody has looked.
func (pt *point) unready() {
	pt.optimized.Store(false)
	pt.led.Store(false)
}

// covering are the points whose jumps depend on the bytes at an address.
func (s *Session) covering(addr arch.Addr) (pts []*point) {
	for _, pt := range s.points.within(addr-min(addr, longest), addr+longest) {
		if pt.Text == text.Jump && pt.Detour.Under(addr) {
			pts = append(pts, pt)
		}
	}
	return pts
}

// giveWay puts the text back for somebody who is about to rewrite it. Later the
// points have their jumps again, unless he has left something there.
func (s *Session) giveWay(st target.Stop) {
	var pts []*point
	for _, pt := range s.points {
		if pt.Text == text.Jump || pt.Text == text.Trap {
			pt.unready()
			pts = append(pts, pt)
		}
	}
	s.report(s.rearm(pts))
	time.AfterFunc(giveWayDelay, s.optimize)
	s.report(s.t.Resume(st.Thread, 0))
}

// strayed finds where a thread goes on that came to the middle of a jump: by a
// branch that nobody knew of, or back from a signal handler.
func (s *Session) strayed(pc arch.Addr) (arch.Addr, bool) {
	for _, pt := range s.covering(pc) {
		if to, ok := pt.Detour.Copy(pc); ok {
			return to, true
		}
	}
	return 0, false
}
