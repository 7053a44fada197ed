// Package names remembers what threads were called.
package names

import "sync"

// Forgotten is the kernel's word for a name that is not known any more.
const Forgotten = "<...>"

// Names are those of threads, of such too as are gone. The zero value has none.
type Names struct {
	mu sync.Mutex
	of map[int]string
}

// Last takes down a thread's name; for one that is forgotten it answers the last.
func (n *Names) Last(tid int, name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == Forgotten {
		if last, ok := n.of[tid]; ok {
			return last
		}
		return name
	}
	if n.of == nil || len(n.of) >= 1<<16 {
		n.of = make(map[int]string) // threads come and go
	}
	n.of[tid] = name
	return name
}
