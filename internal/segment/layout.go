package segment

// Layout is the size of a segment.
type Layout struct {
	Threads  int  // states: threads that can be in probes at once
	Counters int  // of each state
	Away     int  // calls that can be away at once, more or less: a power of two (away.go)
	Calls    int  // calls that can be under way at once, of those that the pool is for
	Slots    bool // these are found by their stack slots (slots.go); Calls is a power of two then
	Gate     bool // there is a table of traps: see traps.go
	Extra    int  // bytes for maps and rings
	Grouped  bool // memory comes as it is needed: see below
}

// States lie in groups, and the sink lies before the first state. In a Grouped layout a state is a
// small piece of each of its group's lanes: the first lane has the words that threads work with and
// their first counters, the others have further counters. All pieces of a state are equally far
// apart, so code adds the same number to any state's address. So few threads and few counters take
// little memory, though there is room for many of both.
//
//	group 0   lane 0   sink | state 0 | state 1 | ...
//	          lane 1   its further counters | those of state 0 | ...
//	          ...
//	group 1   lane 0   state 255 | ...
//
// The segment's file ends behind the last piece in use (SizeFor), and a group may have a file of its
// own. Behind the states are the private data of calls, and rings. They exist from the moment that
// something has a use for them (Part).
const (
	groupShift  = 8
	groupStates = 1 << groupShift
	pieceSize   = 32 << 10
	laneSize    = groupStates * pieceSize
	PieceHolds  = pieceSize / 8

	partAlign = 64 << 10 // what parts are mapped by, on any machine
)

// FirstHolds counts the counters of a state in the first lane.
const FirstHolds = (pieceSize - StackSize - StateCounters) / 8

// MaxCounters is the most that a Grouped layout can have: all of a state's are within 2 GiB.
const MaxCounters = FirstHolds + (1<<31/laneSize-1)*PieceHolds

// Stride leads from one state of a group to the next, span from a group to the next.
func (l Layout) Stride() int {
	if l.Grouped {
		return pieceSize
	}
	return RoundUp(StackSize+StateCounters+8*l.Counters, PageSize)
}

func (l Layout) span() int { return l.allLanes() * groupStates * l.Stride() }

func (l Layout) allLanes() int {
	if !l.Grouped || l.Counters <= FirstHolds {
		return 1
	}
	return 1 + (l.Counters-FirstHolds+PieceHolds-1)/PieceHolds
}

// Place is the offset of the n-th state, which begins with its private stack. The sink is number 0.
func (l Layout) Place(n int) int {
	return l.StatesAt() + n>>groupShift*l.span() + n&(groupStates-1)*l.Stride()
}

// The parts lie in this order: the table of calls that are away, the pool of calls, a machine's traps
// with maps and rings behind them, and the states.

// AwayAt is the offset of the table of calls that are away.
func (l Layout) AwayAt() int { return RoundUp(l.TableEnd(), PageSize) }

// PoolAt is the pool's.
func (l Layout) PoolAt() int { return l.AwayAt() + l.awaySize() }

// The private data of calls is behind the pool's, or behind the states.
func (l Layout) dataAt() int {
	if l.Grouped {
		return RoundUp(l.SizeFor(l.Threads, l.allLanes()), partAlign)
	}
	return l.PoolAt() + RoundUp(OwnersSize+l.Calls*nodeSize, PageSize)
}

// ExtraAt is the offset of maps and rings.
func (l Layout) ExtraAt() int {
	switch {
	case l.Grouped:
		return RoundUp(l.dataAt()+l.Calls*MaxData, partAlign)
	case l.Gate:
		return RoundUp(l.TrapsAt()+trapsSize, PageSize)
	}
	return l.TrapsAt()
}

// StatesAt is the offset of the sink, with the states behind it.
func (l Layout) StatesAt() int {
	if l.Grouped {
		return RoundUp(l.TrapsAt(), partAlign)
	}
	return RoundUp(l.ExtraAt()+l.Extra, PageSize)
}

// Size counts the bytes of address space that the segment takes; memory only where it is touched.
func (l Layout) Size() int {
	if l.Grouped {
		return RoundUp(l.ExtraAt()+l.Extra, partAlign)
	}
	return l.SizeFor(l.Threads, 1)
}

// SizeFor is the size of the segment with so many states and lanes, in bytes: the rest is not used
// until more are given out.
func (l Layout) SizeFor(states, lanes int) int {
	return l.Place(states) + (lanes-1)*laneSize + l.Stride()
}

// Groups counts the groups that so many states are in.
func (l Layout) Groups(states int) int { return states>>groupShift + 1 }

// Group gives the offset and the size of a group.
func (l Layout) Group(g int) (at, size int) { return l.Place(g << groupShift), l.span() }

// GroupFor is the size of the part of a group that is used with so many states and lanes.
func (l Layout) GroupFor(g, states, lanes int) int {
	n := min(states+1-g<<groupShift, groupStates)
	if n <= 0 {
		return 0
	}
	return (lanes-1)*laneSize + n*l.Stride()
}

// Part is a part of the segment that exists only when something has a use for it.
type Part uint8

const (
	DataPart  Part = iota // private data of calls
	ExtraPart             // maps and rings
)

// Part gives the offset and the size of a part; ok is false where it always exists.
func (l Layout) Part(p Part) (at, size int, ok bool) {
	if p == DataPart {
		return l.dataAt(), l.ExtraAt() - l.dataAt(), l.Grouped
	}
	return l.ExtraAt(), l.Size() - l.ExtraAt(), l.Grouped
}

// A counter's number tells its offset, so the numbers of a Grouped layout have gaps.

// Next is the first number from n on that begins count counters in one piece; false where there is
// none.
func (l Layout) Next(n, count int) (int, bool) {
	if !l.Grouped {
		return n, n+count <= l.Counters
	}
	for lane := l.laneOf(n); lane < l.allLanes(); lane++ {
		first, end := l.numbers(lane)
		if n = max(n, first); n+count <= end {
			return n, true
		}
	}
	return 0, false
}

// Left counts the counters from number n on.
func (l Layout) Left(n int) int {
	if !l.Grouped {
		return l.Counters - n
	}
	lane := l.laneOf(n)
	if lane >= l.allLanes() {
		return 0
	}
	first, end := l.numbers(lane)
	return end - max(n, first) + (l.allLanes()-lane-1)*PieceHolds
}

// laneOf is the lane of the first counter from n on.
func (l Layout) laneOf(n int) int {
	if n < FirstHolds {
		return 0
	}
	lane := (StackSize + Counter(n)) / laneSize
	if _, end := l.numbers(lane); n >= end {
		lane++
	}
	return lane
}

// numbers gives the first number of a lane's counters, and the number behind the last.
func (l Layout) numbers(lane int) (first, end int) {
	if lane == 0 {
		return 0, FirstHolds
	}
	first = (lane*laneSize - StackSize - StateCounters) / 8
	return first, first + PieceHolds
}
