package kprobe

import (
	"errors"
	"syscall"

	"kprobe/internal/engine"
	"kprobe/internal/roles"
	"kprobe/internal/turns"
)

// Probe is what can be registered: a *Kprobe, a *Jprobe, a *Kretprobe
// or a *Watchpoint.
type Probe interface {
	kprobe() *Kprobe // nil of a nil pointer
	// prepare makes the Kprobe do the probe's work, until its role is released: of a failed batch, and of what has
	// been unregistered.
	prepare(*Session) error
}

// Register places probes, of any kind together, in one stop of the target
// (kprobes.txt 4.5); more than 4,096 in several, between which it runs. If one fails that
// is not Optional, none stays. Errors:
// *BatchError; EINVAL for no probes.
func (s *Session) Register(ps ...Probe) error {
	if len(ps) == 0 {
		return fail(syscall.EINVAL, "no probes given")
	}
	if s.e.On.Owner.InHandler() {
		return turns.ErrInHandler // before a probe is touched
	}
	all := make([]*roles.Probe, len(ps))
	for i, p := range ps {
		if all[i] = roleOf(p); all[i] == nil {
			return &BatchError{i, errNoProbe}
		}
	}
	for i, p := range all {
		if err := p.Claim(ps[i].kprobe().asked()); err != nil {
			unclaim(all[:i])
			return &BatchError{i, err}
		}
	}
	for i, p := range ps {
		all[i].Refusal = nil
		if err := prepare(s, p); err != nil {
			for _, p := range all[:i] {
				p.As().Release()
			}
			unclaim(all)
			asked := p.kprobe().asked()
			return &BatchError{i, asked.Named(err)}
		}
	}
	err := s.e.Register(all)
	for i, p := range all {
		if err != nil || p.Refusal != nil {
			p.As().Release()
			unclaim(all[i : i+1])
		}
	}
	if b := (*engine.BatchError)(nil); errors.As(err, &b) {
		return (*BatchError)(b)
	}
	return err
}

// prepare has a probe do its work, by handlers where it has others than the program that cannot.
func prepare(s *Session, p Probe) error {
	kp := p.kprobe()
	kp.said.Store(false)
	err := p.prepare(s)
	if err != nil && kp.Otherwise != nil {
		kp.Otherwise(err)
		err = p.prepare(s)
	}
	if err == nil && kp.Otherwise != nil {
		kp.probe.Otherwise = func(why error) error {
			kp.Otherwise(why)
			return p.prepare(s)
		}
	}
	return err
}

// unclaim lets others register probes.
func unclaim(ps []*roles.Probe) {
	for _, p := range ps {
		p.Claimed.Store(false)
	}
}

// Unregister removes probes, of any kind together, in one stop of the target, or in several as
// Register (kprobes.txt 4.6). When it returns, no handler of theirs runs, and none begins. Entries
// that are nil or not registered here are passed over, and get Addr 0 if they are registered
// nowhere; the others are removed all the same. The error, if any, tells that the target could
// not be restored in full.
func (s *Session) Unregister(ps ...Probe) error {
	return s.e.Unregister(rolesOf(ps), func(i int) { ps[i].kprobe().Addr = 0 })
}

// setDisabled switches probes off or on (kprobes.txt 4.7, 4.8). A point stays
// armed until all its probes are disabled.
func (s *Session) setDisabled(ps []Probe, off bool) error { return s.e.Switch(rolesOf(ps), off) }

// errNoProbe is answered to a nil pointer in a probe's place.
var errNoProbe = fail(syscall.EINVAL, "no probe given")

// roleOf is any probe as the engine has it; nil of no probe.
func roleOf(p Probe) *roles.Probe {
	if p == nil || p.kprobe() == nil {
		return nil
	}
	return &p.kprobe().probe
}

// rolesOf is roleOf for several.
func rolesOf(ps []Probe) []*roles.Probe {
	all := make([]*roles.Probe, len(ps))
	for i, p := range ps {
		all[i] = roleOf(p)
	}
	return all
}

// unbatch takes the index off the error of a batch of one.
func unbatch(err error) error {
	if b, ok := err.(*BatchError); ok {
		return b.Err
	}
	return err
}

// probes makes a batch of one kind a batch of any.
func probes[P Probe](ps []P) []Probe {
	all := make([]Probe, len(ps))
	for i, p := range ps {
		all[i] = p
	}
	return all
}
