package kprobe

import "syscall"

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
// (kprobes.txt 4.5). If one fails that is not Optional, none stays. Errors:
// *BatchError; EINVAL for no probes.
func (s *Session) Register(ps ...Probe) error {
	if len(ps) == 0 {
		return fail(syscall.EINVAL, "no probes given")
	}
	kps := make([]*Kprobe, len(ps))
	for i, p := range ps {
		if kps[i] = p.kprobe(); kps[i] == nil {
			return &BatchError{i, fail(syscall.EINVAL, "no probe given")}
		}
	}
	for i, p := range ps {
		kps[i].refusal = nil
		if err := p.prepare(s); err != nil {
			s.releaseAll(ps[:i])
			return &BatchError{i, named(kps[i], err)}
		}
	}
	err := s.register(kps)
	for i, p := range ps {
		if err != nil || kps[i].refusal != nil {
			p.release(s)
		}
	}
	return err
}

// Unregister removes probes, of any kind together, in one stop of the target
// (kprobes.txt 4.6). Entries that are nil or not registered here get Addr 0; the
// others are removed all the same. The error, if any, tells that the target could
// not be restored in full.
func (s *Session) Unregister(ps ...Probe) error {
	kps := make([]*Kprobe, len(ps))
	for i, p := range ps {
		kps[i] = p.kprobe()
	}
	return s.unregister(kps)
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
