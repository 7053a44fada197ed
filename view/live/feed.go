package live

import (
	"encoding/json"
	"slices"
	"sync"
)

// feed keeps the newest intervals, each as the text that pages get. To publish one never waits for a reader: a reader
// that is slow finds that the oldest are gone, and begins anew.
type feed struct {
	mu      sync.Mutex
	head    Head
	ids     map[string]int // of names: places and functions
	names   []string
	places  []placeState // as of the newest interval
	index   map[int]int  // of a place's name, in places
	kept    [][]byte     // the newest intervals
	first   uint64       // the number of kept[0]
	bytes   int          // of kept
	over    bool
	most    int           // of kept
	changed chan struct{} // closed when there is more
}

// placeState is a place as a page that is opened now must know it.
type placeState struct {
	Name   int    `json:"n"`
	Timed  bool   `json:"t"`
	Total  uint64 `json:"h"`
	Missed uint64 `json:"m"`
}

const (
	mostKept  = 900      // intervals: a quarter of an hour of seconds
	mostBytes = 16 << 20 // of them
)

func newFeed(h Head) *feed {
	return &feed{head: h, ids: make(map[string]int), index: make(map[int]int), most: mostKept, changed: make(chan struct{})}
}

// wire is an interval as pages get it. Names are numbers; those that are new come with it, from the number of the first on.
type wire struct {
	At     float64      `json:"at"`     // seconds
	Passed float64      `json:"passed"` // seconds
	First  int          `json:"first"`
	Names  []string     `json:"names"`
	Places []placeState `json:"places"` // that were hit, or are new
	Hits   [][]uint64   `json:"hits"`   // place's name, hits, then pairs: power of 2, calls
	Stacks [][]int      `json:"stacks"` // seen, cut or not, then names
	Lost   uint64       `json:"lost"`
}

// name is the number of a name, which is given once.
func (f *feed) name(s string) int {
	id, ok := f.ids[s]
	if !ok {
		id = len(f.names)
		f.ids[s], f.names = id, append(f.names, s)
	}
	return id
}

// publish adds an interval.
func (f *feed) publish(v *Interval) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := wire{At: v.At.Seconds(), Passed: v.Passed.Seconds(), First: len(f.names), Places: []placeState{}, Hits: [][]uint64{}, Stacks: [][]int{}, Lost: v.Lost}
	for i := range v.Rows {
		r := &v.Rows[i]
		now := placeState{f.name(r.Place), r.Timed, r.Total, r.Missed}
		at, known := f.index[now.Name]
		if !known {
			at = len(f.places)
			f.index[now.Name], f.places = at, append(f.places, placeState{})
		}
		if !known || f.places[at] != now {
			f.places[at] = now
			w.Places = append(w.Places, now)
		}
		if r.Hits == 0 {
			continue
		}
		hits := []uint64{uint64(now.Name), r.Hits}
		for power, n := range r.Took {
			if n > 0 {
				hits = append(hits, uint64(power), n)
			}
		}
		w.Hits = append(w.Hits, hits)
	}
	for _, s := range v.Stacks {
		stack := []int{int(s.Seen), 0}
		if s.Cut {
			stack[1] = 1
		}
		for _, frame := range s.Frames {
			stack = append(stack, f.name(frame))
		}
		w.Stacks = append(w.Stacks, stack)
	}
	w.Names = slices.Clone(f.names[w.First:])
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	f.kept, f.bytes = append(f.kept, text), f.bytes+len(text)
	for len(f.kept) > 1 && (len(f.kept) > f.most || f.bytes > mostBytes) {
		f.bytes -= len(f.kept[0])
		f.kept, f.first = f.kept[1:], f.first+1
	}
	f.tell()
	return nil
}

// end tells pages that nothing follows.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.over = true
		f.tell()
	}
}

func (f *feed) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// start has all that a page needs before the intervals.
type start struct {
	Head
	Began    int64        `json:"since"` // ms since 1970
	Interval float64      `json:"interval"`
	Names    []string     `json:"names"`
	Known    []placeState `json:"known"`
	Kept     int          `json:"kept"`    // how many intervals a page keeps
	Skipped  uint64       `json:"skipped"` // intervals that are kept no more
}

// begin gives a reader all that is known, and the number of the interval to go on with.
func (f *feed) begin() (text []byte, next uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.head
	if h.Notes == nil {
		h.Notes = []string{}
	}
	text, err = json.Marshal(start{h, h.Began.UnixMilli(), h.Interval.Seconds(), append([]string{}, f.names...), append([]placeState{}, f.places...), f.most, f.first})
	return text, f.first, err
}

// next gives an interval by its number. Where there is none yet it gives a channel to wait on, and over where none will
// come. behind tells that it is kept no more.
func (f *feed) next(n uint64) (text []byte, more <-chan struct{}, behind, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case n < f.first:
		return nil, nil, true, false
	case n < f.first+uint64(len(f.kept)):
		return f.kept[n-f.first], nil, false, false
	}
	return nil, f.changed, false, f.over
}
