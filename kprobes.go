package kprobe

// RegisterKprobe places one probe (kprobes.txt 4.1). It is effective when the
// call returns; the target is stopped for some microseconds. A name in a file
// that is not mapped yet ("libfoo.so:bar") is accepted, and the probe is armed
// as soon as the file is. Errors: EINVAL, ENOENT, EADDRNOTAVAIL, EILSEQ,
// EBUSY, EDEADLK, ESRCH; see Error.
func (s *Session) RegisterKprobe(p *Kprobe) error {
	return unbatch(s.RegisterKprobes([]*Kprobe{p}))
}

// RegisterKprobes places several probes as Register does
// (kprobes.txt 4.5). If one fails, none stays. Errors: *BatchError; EINVAL
// for an empty array.
func (s *Session) RegisterKprobes(ps []*Kprobe) error { return s.Register(probes(ps)...) }

// UnregisterKprobe removes a probe (kprobes.txt 4.4). When the call returns,
// none of its handlers runs, and none begins. A probe that is not registered is left
// with Addr 0; another session's is left alone (EINVAL).
func (s *Session) UnregisterKprobe(p *Kprobe) error { return s.UnregisterKprobes([]*Kprobe{p}) }

// UnregisterKprobes removes several probes as Unregister does
// (kprobes.txt 4.6). Entries that are not registered anywhere get Addr 0; the others
// are removed all the same. The error, if any, tells that the target could
// not be restored in full.
func (s *Session) UnregisterKprobes(ps []*Kprobe) error { return s.Unregister(probes(ps)...) }

// EnableKprobe lets a disabled probe's handlers run again (kprobes.txt 4.8).
// Errors: EINVAL where it is not registered or gone.
func (s *Session) EnableKprobe(p *Kprobe) error { return s.EnableKprobes([]*Kprobe{p}) }

// DisableKprobe silences a probe (kprobes.txt 4.7). Disabling twice is fine.
// Errors: EINVAL where it is not registered.
func (s *Session) DisableKprobe(p *Kprobe) error { return s.DisableKprobes([]*Kprobe{p}) }

// EnableKprobes does it for several in one stop, and for more than 4,096 in several. If a later one fails, the
// probes are switched back that were switched before.
func (s *Session) EnableKprobes(ps []*Kprobe) error { return s.setDisabled(probes(ps), false) }

// DisableKprobes silences several probes, with stops as EnableKprobes has them.
func (s *Session) DisableKprobes(ps []*Kprobe) error { return s.setDisabled(probes(ps), true) }
