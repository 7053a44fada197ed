package inside

import (
	"sync"

	"kprobe/internal/segment"
)

// Slots tells how many of a session's thread slots were given out, whoever asks and whenever:
// maps outlive the segment that knows it. The zero value is one where none was.
type Slots struct {
	mu   sync.Mutex
	seg  *segment.Segment // nil where there is none now
	most int
}

// Count is how many, the first ones; what others would have in maps was never written to.
func (s *Slots) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seg != nil {
		s.most = max(s.most, s.seg.Given())
	}
	return s.most
}

// follow says which segment gives them out from now on.
func (s *Slots) follow(seg *segment.Segment) {
	s.Count()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seg = seg
}
