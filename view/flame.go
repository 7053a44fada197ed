package view

import (
	_ "embed"
	"fmt"
	"io"
	"time"

	"kprobe/event"
	"kprobe/graph"
)

// Flame is a flame graph: calls added up by the calls that they lie in, and as they followed each other.
type Flame struct {
	Tree  *Tree
	calls []drawn // as they followed each other, up to mostDrawn
	names map[string]int
	list  []string
	drops int // calls beyond
}

// drawn is a call in the order of time.
type drawn struct {
	th    thread
	name  int
	depth int
	start time.Duration
	took  time.Duration
}

// mostDrawn bounds the page, which a browser is to draw: the first calls are drawn in their order.
const mostDrawn = 50_000

// NewFlame makes one without calls.
func NewFlame() *Flame { return &Flame{Tree: NewTree(), names: make(map[string]int)} }

// Add adds a call that is over. Those that lie in it were added before.
func (f *Flame) Add(s *graph.Span) {
	f.Tree.Add(s)
	if len(f.calls) >= mostDrawn {
		f.drops++
		return
	}
	id, ok := f.names[s.Name]
	if !ok {
		id = len(f.list)
		f.names[s.Name], f.list = id, append(f.list, s.Name)
	}
	f.calls = append(f.calls, drawn{thread{s.PID, s.TID}, id, s.Depth, s.Start, s.Took()})
}

// Mark adds an event that is no call, and lies in so many.
func (f *Flame) Mark(e *event.Event, depth int) { f.Tree.Mark(e, depth) }

//go:embed flame.html
var flamePage string

type flameData struct {
	About   about         `json:"about"`
	Threads []flameThread `json:"threads"`
	Names   []string      `json:"names"`
	Dropped int           `json:"dropped"` // calls that are not in the order of time
}

type flameThread struct {
	Name  string      `json:"name"`
	Roots []flameNode `json:"roots"`
	Calls [][4]int64  `json:"calls"` // name, depth, start from the first of all, ns that it took
}

type flameNode struct {
	Name  string      `json:"n"`
	Calls uint64      `json:"c"`
	Total int64       `json:"t"` // ns
	Kids  []flameNode `json:"k,omitempty"`
}

// WriteHTML writes the graph as one page that needs nothing else.
func (f *Flame) WriteHTML(to io.Writer, a About) error {
	d := flameData{About: a.page(), Names: f.list, Dropped: f.drops, Threads: []flameThread{}}
	var first time.Duration
	for i, c := range f.calls {
		if i == 0 || c.start < first {
			first = c.start
		}
	}
	for _, th := range f.Tree.Threads() {
		t := flameThread{Name: fmt.Sprintf("%s %d", th.Comm, th.TID), Roots: flameNodes(th.Roots), Calls: [][4]int64{}}
		for _, c := range f.calls {
			if c.th == (thread{th.PID, th.TID}) {
				t.Calls = append(t.Calls, [4]int64{int64(c.name), int64(c.depth), int64(c.start - first), int64(c.took)})
			}
		}
		d.Threads = append(d.Threads, t)
	}
	return writePage(to, flamePage, d)
}

func flameNodes(ns []*Node) []flameNode {
	all := []flameNode{}
	for _, n := range ns {
		all = append(all, flameNode{n.Name, n.Calls, int64(n.Total), flameNodes(n.Kids)})
	}
	return all
}
