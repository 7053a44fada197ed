package kprobe

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/untouchable"
)

// BlackListEntry is a range that must not be probed (kprobes.txt 5; 002
// section 1.5). Registering in it is EINVAL.
type BlackListEntry struct {
	Start, End arch.Addr // End is not included
	Symbol     string
	Reason     string
}

// String gives the entry as the kernel's file blacklist does:
// 0xSTART-0xEND, a tab, the symbol.
func (e BlackListEntry) String() string {
	return fmt.Sprintf("0x%016x-0x%016x\t%s", uint64(e.Start), uint64(e.End), e.Symbol)
}

// forbid has the image know what must not be probed: our own code, too.
func (s *Session) forbid() error {
	var more []untouchable.Area
	for _, a := range s.room.Spans() {
		more = append(more, untouchable.Area{Start: a.Start, End: a.End, Symbol: "[kprobe]", Reason: "it is the probes' own code"})
	}
	for _, e := range s.opts.BlackList {
		more = append(more, untouchable.Area(e))
	}
	return s.image.Forbid(more)
}

// BlackList lists what must not be probed, in order of address: the probes'
// own code, the kernel's pages in the process, signal trampolines, restartable
// sequences, and what the options add. The whole text is searched for signal
// trampolines, which takes some milliseconds. Not from a handler (EDEADLK). Errors: ESRCH.
func (s *Session) BlackList() (es []BlackListEntry, err error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end(&err)
	if err := s.usable(); err != nil {
		return nil, err
	}
	areas, err := s.image.AllForbidden()
	es = make([]BlackListEntry, len(areas))
	for i, a := range areas {
		es[i] = BlackListEntry(a)
	}
	return es, err
}
