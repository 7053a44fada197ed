package kprobe

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"kprobe/internal/parts"
	"kprobe/internal/probed"
)

// unregister removes probes. Bad entries get Addr 0, as the
// kernel does it; the others go all the same.
func (s *Session) unregister(ps []*Kprobe) (err error) {
	if err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End(&err)
	var good []*Kprobe
	going := make(map[*Kprobe]bool, len(ps))
	for _, p := range ps {
		switch {
		case p == nil, going[p]: // is passed over
		case p.in.Load() != s:
			if !p.claimed.Load() { // else it is another session's, or about to be
				p.Addr = 0
			}
		default:
			good = append(good, p)
			going[p] = true
		}
	}
	err = s.remove(good)
	if err == nil && len(ps) > 0 && len(good) == 0 {
		err = fail(syscall.EINVAL, "not registered here")
	}
	return err
}

// remove takes probes off their points. A point without probes goes.
func (s *Session) remove(ps []*Kprobe) error {
	s.links.Silence(probesOf(ps))
	ps = withExits(ps) // which go on to see calls end, unreported, until they are gone
	err := s.withdraw(probesOf(ps))
	for _, p := range ps {
		p.as().release(s)
		p.in.Store(nil)
		p.claimed.Store(false)
	}
	gone := func(p *Kprobe) bool { return p.in.Load() != s }
	s.probes, s.pending = slices.DeleteFunc(s.probes, gone), slices.DeleteFunc(s.pending, gone)
	s.listChanged()
	return err
}

// withdraw takes probes off their points that were silenced, and waits for their handlers.
func (s *Session) withdraw(ps []*probed.Probe) (err error) {
	if !s.turns.Exited.Load() && len(ps) > 0 {
		err = s.links.Leave(ps, func(ps []*probed.Probe, gone []*point) error {
			leaving := containersOf(ps)
			s.countEnded(leaving)
			s.threads.Retire(gone)
			return s.watches.Remove(watchpointsOf(leaving))
		})
		s.optimizer.Soon()
		s.threads.Drain(ps)
	}
	s.on.Owner.Grace()
	for _, p := range ps { // not before: a handler may just have looked at it
		p.Unlinked()
	}
	return err
}

// takeBack withdraws the probes of a batch that have come, since others of it cannot.
func (s *Session) takeBack(come []*probed.Probe) {
	s.links.Silence(come)
	s.on.Alive(s.withdraw(come))
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
	err = s.switchTo(ps, off)
	if exits := s.idleExits(ps); err == nil && len(exits) > 0 {
		err = s.switchTo(exits, off)
	}
	return err
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
