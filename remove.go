package kprobe

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"kprobe/internal/parts"
)

// unregister removes probes in one stop. Bad entries get Addr 0, as the
// kernel does it; the others go all the same.
func (s *Session) unregister(ps []*Kprobe) (err error) {
	if err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	var good []*Kprobe
	going := make(map[*Kprobe]bool, len(ps))
	bad := 0
	for _, p := range ps {
		switch {
		case p == nil, going[p]:
			bad++
		case p.in.Load() != s:
			if !p.claimed.Load() { // else it is another session's, or about to be
				p.Addr = 0
			}
			bad++
		default:
			good = append(good, p)
			going[p] = true
		}
	}
	err = s.remove(good)
	if err == nil && bad > 0 && len(good) == 0 {
		err = fail(syscall.EINVAL, "not registered here")
	}
	return err
}

// remove takes probes off their points. A point without probes goes.
func (s *Session) remove(ps []*Kprobe) error {
	var err error
	s.links.Silence(probesOf(ps))
	ps = withExits(ps) // which go on to see calls end, unreported, until they are gone
	if !s.turns.Exited.Load() && len(ps) > 0 {
		err = s.takeOff(ps)
		s.threads.Drain(probesOf(ps))
	}
	going := make(map[*Kprobe]bool, len(ps))
	for _, p := range ps {
		going[p] = true
	}
	s.probes = slices.DeleteFunc(s.probes, func(p *Kprobe) bool { return going[p] })
	s.pending = slices.DeleteFunc(s.pending, func(p *Kprobe) bool { return going[p] })
	s.on.Owner.Grace()
	for _, p := range ps { // not before: a handler may just have looked at it
		p.as().Unlinked()
		p.as().release(s)
		p.in.Store(nil)
		p.claimed.Store(false)
	}
	s.listChanged()
	return err
}

// takeOff takes probes off their points.
func (s *Session) takeOff(ps []*Kprobe) error {
	defer s.optimizer.Soon()
	return s.links.Leave(probesOf(ps), func(gone []*point) error {
		s.countEnded(ps)
		s.threads.Retire(gone)
		return s.watches.Remove(watchpointsOf(ps))
	})
}

// setDisabled switches probes off or on (kprobes.txt 4.7, 4.8). A point stays
// armed until all its probes are disabled.
func (s *Session) setDisabled(ps []*Kprobe, off bool) (err error) {
	if err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	for _, p := range ps {
		if p == nil || p.in.Load() != s {
			return fail(syscall.EINVAL, "not registered here")
		}
		if p.probe.Gone.Load() && !off {
			return named(p, fail(syscall.EINVAL, "it is gone"))
		}
	}
	if err := s.turns.Changeable(); err != nil {
		return err
	}
	defer s.listChanged()
	if !off {
		for _, p := range ps {
			if rp := p.as().returns(); rp != nil {
				s.calls.Sighted(&rp.watch)
			}
		}
		return s.switchTo(withExits(ps), off)
	}
	// The exits of a return probe go when no call is under way whose return is to be reported: that is
	// known only when none can begin any more.
	if err := s.switchTo(ps, off); err != nil {
		return err
	}
	if exits := s.idleExits(ps); len(exits) > 0 {
		return s.switchTo(exits, off)
	}
	return nil
}

// switchTo does it for probes as they are given, in one stop.
func (s *Session) switchTo(ps []*Kprobe, off bool) error {
	was := make(map[*Kprobe]uint32, len(ps))
	for _, p := range ps {
		was[p] = p.Flags
	}
	flags := &parts.State{What: fmt.Sprintf("%d probes disabled: %v", len(ps), off), Set: func() {
		s.setFlags(ps, func(p *Kprobe) uint32 {
			if off {
				return was[p] | FlagDisabled
			}
			return was[p] &^ FlagDisabled
		})
	}, Was: func() { s.setFlags(ps, func(p *Kprobe) uint32 { return was[p] }) }}
	defer s.optimizer.Soon()
	return s.links.Switch(probesOf(ps), off, flags, s.watching())
}

// setFlags changes the flags of probes, and what follows from them at their points.
func (s *Session) setFlags(ps []*Kprobe, to func(*Kprobe) uint32) {
	s.on.View.Lock()
	defer s.on.View.Unlock()
	for _, p := range ps {
		atomic.StoreUint32(&p.Flags, to(p))
		if p.probe.Point != nil {
			s.on.Points.Refresh(p.probe.Point)
		}
	}
}

// Enabled reads the global switch (kprobes.txt appendix A, the file
// kprobes/enabled).
func (s *Session) Enabled() bool {
	s.on.View.RLock()
	defer s.on.View.RUnlock()
	return !s.on.Points.Disarmed
}

// SetEnabled is the global switch: off disarms every probe, on arms those that
// are not disabled. The probes' own states are left alone.
func (s *Session) SetEnabled(on bool) (err error) {
	if err := s.turns.BeginChange(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	s.optimizer.Soon()
	set := func(on bool) {
		s.on.View.Lock()
		s.on.Points.Disarmed = !on
		s.on.View.Unlock()
		s.calls.See(on)
	}
	was := s.Enabled()
	enabled := &parts.State{What: fmt.Sprintf("enabled: %v", on), Set: func() { set(on) }, Was: func() { set(was) }}
	return s.links.Everywhere("switch all", enabled, s.watching())
}
