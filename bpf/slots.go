package bpf

import "iter"

// writtenSlots are the thread slots that something may have been written to: those of states that
// were given out (Segment.Given), the first, which Update writes to, and the last, the
// controller's own. What is other threads' is zeros, and looking at it would make memory of it.
func (m *Map) writtenSlots() iter.Seq[int] {
	n := int(m.slots)
	most := n
	if m.given != nil {
		most = min(n, max(1, m.given()))
	}
	return func(yield func(int) bool) {
		for slot := range most {
			if !yield(slot) {
				return
			}
		}
		if most < n {
			yield(n - 1)
		}
	}
}
