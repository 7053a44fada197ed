package kprobe

import "kprobe/arch"

// BlackListEntry is a range that must not be probed (kprobes.txt 5; 002
// section 1.5). Registering in it is EINVAL.
type BlackListEntry = arch.Blocked

// BlackList lists what must not be probed, in order of address: the probes'
// own code, the kernel's pages in the process, signal trampolines, restartable
// sequences, and what the options add. The whole text is searched for signal
// trampolines, which takes some milliseconds. Not from a handler (EDEADLK). Errors: ESRCH.
func (s *Session) BlackList() (es []BlackListEntry, err error) {
	if err := s.turns.Begin(); err != nil {
		return nil, err
	}
	defer s.turns.End(&err)
	if err := s.turns.Usable(); err != nil {
		return nil, err
	}
	return s.on.Image.AllForbidden()
}
