package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kprobe/event"
	"kprobe/trace"
)

// mostCallers is how many callers of the chosen row are shown.
const mostCallers = 5

// callersOf counts who calls the place that is chosen, and no other.
type callersOf struct {
	stats   []*trace.Stat
	place   string
	counted []*trace.Callers // of each session that has the place
}

// calledBy is who calls a place.
type calledBy struct {
	place string
	rows  []caller
}

type caller struct {
	share float64
	name  string
}

// of is who has called a place since it was chosen. What cannot be told is not shown.
func (c *callersOf) of(place string) calledBy {
	if place != c.place {
		for _, k := range c.counted {
			k.Close()
		}
		c.place, c.counted = place, nil
		for _, st := range c.stats {
			if k, err := st.Callers(place); err == nil {
				c.counted = append(c.counted, k)
			}
		}
	}
	calls, all := map[string]uint64{}, uint64(0)
	for _, k := range c.counted {
		most, n := k.Most(mostCallers)
		all += n
		for _, m := range most {
			calls[callerName(m.Frames)] += m.Calls
		}
	}
	by := calledBy{place: place}
	for name, n := range calls {
		by.rows = append(by.rows, caller{float64(n) / float64(all), name})
	}
	slices.SortFunc(by.rows, func(a, b caller) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.name, b.name)) })
	by.rows = by.rows[:min(len(by.rows), mostCallers)]
	return by
}

// callerName is the code that calls: a function, or an inlined copy and what it is in; where it has made way, with what called it.
func callerName(frames []event.Frame) string {
	var name strings.Builder
	for i, f := range frames {
		if f.Source != "" {
			name.WriteString(f.Name() + " " + f.Source)
		} else {
			name.WriteString(f.Func)
		}
		switch {
		case i == len(frames)-1:
		case f.Tail && !f.Inlined:
			name.WriteString(" (tail call) from ")
		default:
			name.WriteString(" in ")
		}
	}
	return name.String()
}

// lines are at most so many.
func (b *calledBy) lines(most int) []string {
	if len(b.rows) == 0 || most < 3 {
		return nil
	}
	out := []string{"", "called by"}
	for _, r := range b.rows[:min(len(b.rows), most-2)] {
		out = append(out, fmt.Sprintf("%8.1f%%  %s", 100*r.share, r.name))
	}
	return out
}
