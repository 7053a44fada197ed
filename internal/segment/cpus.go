package segment

// CPUs need no search for their state: a kernel counts them from 0, and the head has
// a state's address for each number, the sink's where there is no such CPU.

// MaxCPUs is one more than the greatest number of a CPU that can have a state.
const MaxCPUs = (headFiles - HeadCPUs) / 8

// initCPUs says that there are none.
func (s *Segment) initCPUs() {
	for i := range MaxCPUs {
		s.Put(HeadCPUs+8*i, uint64(s.StateAddr(s.Threads)))
	}
}

// AssignCPU gives a CPU its state, which it has for ever; false where none is free.
func (s *Segment) AssignCPU(number int) bool {
	i := s.newState()
	if number >= MaxCPUs || i == s.Threads {
		return false
	}
	s.Put(HeadCPUs+8*number, uint64(s.StateAddr(i)))
	return true
}
