package kprobe

// BlackList lists what must not be probed, in order of address: the probes'
// own code, the kernel's pages in the process, signal trampolines, restartable
// sequences, and what the options add. The whole text is searched for signal
// trampolines, which takes some milliseconds. Not from a handler (EDEADLK). Errors: ESRCH.
func (s *Session) BlackList() (es []BlackListEntry, err error) {
	if err := s.e.Turns.Begin(); err != nil {
		return nil, err
	}
	defer s.e.Turns.End(&err)
	if err := s.e.Turns.Usable(); err != nil {
		return nil, err
	}
	return s.e.On.Image.AllForbidden()
}
