package view

import (
	"maps"
	"slices"
	"time"

	"kprobe/event"
	"kprobe/graph"
)

// Node is all calls of a function by the same way.
type Node struct {
	Name  string
	Calls uint64        // and events that are no calls
	Total time.Duration // that they took
	Kids  []*Node       // what they called, by name

	kids map[string]*Node
}

// Self is the time that was not spent in the calls below.
func (n *Node) Self() time.Duration {
	self := n.Total
	for _, k := range n.Kids {
		self -= k.Total
	}
	return max(0, self)
}

// Thread is the calls of one thread.
type Thread struct {
	PID, TID int
	Comm     string
	Roots    []*Node
}

// Tree adds up calls, as they end, by the calls that they lie in.
type Tree struct {
	threads map[thread]*grown
}

// grown is what has ended in a thread and not found its caller yet, by depth.
type grown struct {
	comm   string
	levels []map[string]*Node
}

// NewTree makes one without calls.
func NewTree() *Tree { return &Tree{threads: make(map[thread]*grown)} }

// Add adds a call that is over. Those that lie in it were added before.
func (t *Tree) Add(s *graph.Span) {
	t.add(thread{s.PID, s.TID}, s.Comm, s.Depth, true, &Node{Name: s.Name, Calls: 1, Total: s.Took()})
}

// Mark adds an event that is no call, and lies in so many. One that has a stack lies in what that
// tells, which takes in the calls.
func (t *Tree) Mark(e *event.Event, depth int) {
	n := &Node{Name: label(e), Calls: 1}
	if frames := stackOf(e); len(frames) > 0 {
		n, depth = stacked(frames), 0
	}
	t.add(thread{e.PID, e.TID}, e.Comm, depth, false, n)
}

// stackOf is the first stack among an event's arguments.
func stackOf(e *event.Event) []event.Frame {
	for i := range e.Args {
		if f := e.Args[i].Frames; len(f) > 0 {
			return f
		}
	}
	return nil
}

// stacked is the outermost function of a stack, with those that it leads to below it. Only the innermost was seen.
func stacked(frames []event.Frame) *Node {
	n := &Node{Name: frames[0].Name(), Calls: 1}
	for i := range frames[1:] {
		n = &Node{Name: frames[i+1].Name(), kids: map[string]*Node{n.Name: n}}
	}
	return n
}

// add adds a node; of a call, what has ended one deeper lies in it.
func (t *Tree) add(th thread, comm string, depth int, call bool, n *Node) {
	g := t.threads[th]
	if g == nil {
		g = new(grown)
		t.threads[th] = g
	}
	g.comm = comm
	for len(g.levels) <= depth+1 {
		g.levels = append(g.levels, nil)
	}
	if call {
		n.kids, g.levels[depth+1] = g.levels[depth+1], nil
	}
	g.levels[depth] = merge(g.levels[depth], n)
}

// merge adds a node to those of its level.
func merge(level map[string]*Node, n *Node) map[string]*Node {
	if level == nil {
		level = make(map[string]*Node)
	}
	old := level[n.Name]
	if old == nil {
		level[n.Name] = n
		return level
	}
	old.Calls += n.Calls
	old.Total += n.Total
	for _, k := range n.kids {
		old.kids = merge(old.kids, k)
	}
	return level
}

// timed tells whether any call took time: else there are only events.
func timed(roots []*Node) bool {
	return slices.ContainsFunc(roots, func(n *Node) bool { return n.Total > 0 })
}

// Threads are the threads, with what was added so far. What lies in calls that are not over
// stands for itself.
func (t *Tree) Threads() []Thread {
	var all []Thread
	for _, th := range slices.SortedFunc(maps.Keys(t.threads), thread.compare) {
		g := t.threads[th]
		var roots map[string]*Node
		for _, level := range g.levels {
			for _, n := range level {
				roots = merge(roots, n.clone())
			}
		}
		all = append(all, Thread{PID: th.pid, TID: th.tid, Comm: g.comm, Roots: sorted(roots)})
	}
	return all
}

func (n *Node) clone() *Node {
	c := *n
	c.kids = nil
	for _, k := range n.kids {
		c.kids = merge(c.kids, k.clone())
	}
	return &c
}

func sorted(kids map[string]*Node) []*Node {
	var all []*Node
	for _, name := range slices.Sorted(maps.Keys(kids)) {
		k := kids[name]
		k.Kids = sorted(k.kids)
		all = append(all, k)
	}
	return all
}
