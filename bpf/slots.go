package bpf

import "iter"

// writtenSlots yields the thread slots that may hold data: the slots of states that were given out
// (Segment.Given), the first, which Update writes to, and the last, the controller's own. All other
// slots are zeros, and a look at them would allocate their pages.
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
