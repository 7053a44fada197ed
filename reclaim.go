package kprobe

import "time"

// A task of a kernel's may end inside of a function: nothing tells us, and its call keeps an instance of the
// return probe. When a probe misses calls, these are looked for. That takes a stop of the machine.

// reclaimDelay is how long a kernel's return probe may lack instances until they are looked for. It doubles
// while there are none to be found.
const reclaimDelay = time.Second

// reclaimSoon is called with mu held.
func (s *Session) reclaimSoon(delay time.Duration) {
	if s.reclaiming || !s.on.Kind.OnCPUs() || !s.within.Some() || len(s.within.Accounts()) == 0 {
		return
	}
	s.reclaiming = true
	time.AfterFunc(delay, func() { s.reclaim(delay) })
}

func (s *Session) reclaim(delay time.Duration) {
	s.mu.Lock()
	defer s.unlock()
	s.reclaiming = false
	if !s.within.Some() || s.changeable() != nil {
		return
	}
	if s.within.Exhausted() {
		freed, err := s.within.ReclaimEnded()
		s.report(err)
		const longest = time.Minute
		if delay = min(2*delay, longest); freed > 0 {
			delay = reclaimDelay
		}
	}
	s.reclaimSoon(delay)
}
