package kprobe

import (
	"syscall"

	"kprobe/internal/turns"
)

// Probe is what can be registered: a *Kprobe, a *Jprobe, a *Kretprobe
// or a *Watchpoint.
type Probe interface {
	kprobe() *Kprobe // nil of a nil pointer
	// prepare makes the Kprobe do the probe's work, and release makes it again
	// what it was: of a failed batch, and of what has been unregistered.
	prepare(*Session) error
	release(*Session)
}

// Register places probes, of any kind together, in one stop of the target
// (kprobes.txt 4.5); more than 4,096 in several, between which it runs. If one fails that
// is not Optional, none stays. Errors:
// *BatchError; EINVAL for no probes.
func (s *Session) Register(ps ...Probe) error {
	if len(ps) == 0 {
		return fail(syscall.EINVAL, "no probes given")
	}
	kps := make([]*Kprobe, len(ps))
	if s.on.Owner.InHandler() {
		return turns.ErrInHandler // before a probe is touched
	}
	for i, p := range ps {
		if kps[i] = kprobeOf(p); kps[i] == nil {
			return &BatchError{i, errNoProbe}
		}
	}
	for i, p := range kps {
		if err := claim(p); err != nil {
			unclaim(kps[:i])
			return &BatchError{i, err}
		}
	}
	for i, p := range ps {
		kps[i].refusal = nil
		err := p.prepare(s)
		if err != nil && kps[i].Otherwise != nil {
			kps[i].Otherwise(err)
			err = p.prepare(s)
		}
		if err != nil {
			s.releaseAll(ps[:i])
			unclaim(kps)
			return &BatchError{i, named(kps[i], err)}
		}
	}
	err := s.register(kps)
	for i, p := range ps {
		if err != nil || kps[i].refusal != nil {
			p.release(s)
			unclaim(kps[i : i+1])
		}
	}
	return err
}

// claim takes a probe for a call that registers or plans it. A probe is claimed from before anything of it is
// looked at until after its removal: nobody else can come in between, in this session or another.
// Errors: EINVAL.
func claim(p *Kprobe) error {
	if !p.claimed.CompareAndSwap(false, true) {
		return named(p, fail(syscall.EINVAL, "it is registered already"))
	}
	return nil
}

// unclaim lets others register probes.
func unclaim(ps []*Kprobe) {
	for _, p := range ps {
		p.claimed.Store(false)
	}
}

// Unregister removes probes, of any kind together, in one stop of the target, or in several as
// Register (kprobes.txt 4.6). When it returns, no handler of theirs runs, and none begins. Entries
// that are nil or not registered here are passed over, and get Addr 0 if they are registered
// nowhere; the others are removed all the same. The error, if any, tells that the target could
// not be restored in full.
func (s *Session) Unregister(ps ...Probe) error {
	kps := make([]*Kprobe, len(ps))
	for i, p := range ps {
		kps[i] = kprobeOf(p)
	}
	return s.unregister(kps)
}

// errNoProbe is answered to a nil pointer in a probe's place.
var errNoProbe = fail(syscall.EINVAL, "no probe given")

// kprobeOf is the Kprobe of any probe; nil of no probe.
func kprobeOf(p Probe) *Kprobe {
	if p == nil {
		return nil
	}
	return p.kprobe()
}

func (s *Session) releaseAll(ps []Probe) {
	for _, p := range ps {
		p.release(s)
	}
}

// probes makes a batch of one kind a batch of any.
func probes[P Probe](ps []P) []Probe {
	all := make([]Probe, len(ps))
	for i, p := range ps {
		all[i] = p
	}
	return all
}
