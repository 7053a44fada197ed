package guardian

import (
	"slices"
	"sync"
	"time"
)

// Spares keeps guardians for a moment: the children of a shell script come and go.
type Spares struct {
	Keep time.Duration // for how long
	mu   sync.Mutex
	free []spare
}

// spare is let go by its timer, unless it is taken before.
type spare struct {
	*Guardian
	end *time.Timer
}

const maxSpares = 8

// Take answers the one that was put last; nil where there is none.
func (s *Spares) Take() *Guardian {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return nil
	}
	g := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	g.end.Stop()
	return g.Guardian
}

// Put keeps one, for as long as spares are kept.
func (s *Spares) Put(g *Guardian) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == maxSpares {
		g.Leave()
		return
	}
	one := spare{Guardian: g}
	one.end = time.AfterFunc(s.Keep, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		// Not one that was taken meanwhile, and put back: that has a timer of its own.
		if i := slices.Index(s.free, one); i >= 0 {
			s.free = slices.Delete(s.free, i, i+1)
			g.Leave()
		}
	})
	s.free = append(s.free, one)
}

// Has tells whether it keeps the guardian with a process.
func (s *Spares) Has(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.free, func(g spare) bool { return g.PID() == pid })
}
