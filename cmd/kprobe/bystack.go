package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"kprobe/event"
)

// stackCounts counts hits by who called.
type stackCounts struct {
	mu   sync.Mutex
	hits map[string]*stackCount
}

type stackCount struct {
	name   string // of the event
	frames string // a line each
	n      uint64
}

// take counts one hit. Sessions call it from their own threads.
func (c *stackCounts) take(e *event.Event) {
	var b strings.Builder
	for i := range e.Args {
		for k := range e.Args[i].Frames {
			f := &e.Args[i].Frames[k]
			fmt.Fprintf(&b, " => %s", f.Name())
			if f.Source != "" {
				fmt.Fprintf(&b, " %s", f.Source)
			}
			b.WriteByte('\n')
		}
		if why := e.Args[i].Text; why != "" {
			fmt.Fprintf(&b, " => (%s)\n", why)
		}
	}
	key := e.Name + "\n" + b.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.hits[key]
	if s == nil {
		s = &stackCount{name: e.Name, frames: b.String()}
		c.hits[key] = s
	}
	s.n++
}

// write prints the stacks, the commonest last, where the eye is.
func (c *stackCounts) write(to io.Writer) error {
	w := bufio.NewWriter(to)
	all := slices.SortedFunc(maps.Values(c.hits), func(a, b *stackCount) int {
		return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.name, b.name), cmp.Compare(a.frames, b.frames))
	})
	for _, s := range all {
		fmt.Fprintf(w, "%s: %d\n%s\n", s.name, s.n, s.frames)
	}
	return w.Flush()
}

// byStack counts what definitions hit by the stacks that they are hit with, until the end.
func (r *statRequest) byStack(to io.Writer, defs []string) (err error) {
	signals := catchSignals()
	counts := stackCounts{hits: make(map[string]*stackCount)}
	tr := traceRequest{request: r.request, duration: r.duration}
	for i, d := range defs {
		if before, cond, ok := strings.Cut(d, " if "); ok {
			defs[i] = before + " stack if " + cond
		} else {
			defs[i] = d + " stack"
		}
	}
	t := tr.tracing(defs)
	t.sink = counts.take
	if err := tr.open(t, signals); err != nil {
		return err
	}
	began := time.Now()
	left := tr.wait(t.run(), nil, signals)
	took := time.Since(began)
	err = t.close()
	err = errors.Join(err, counts.write(to), event.WriteSummary(to, t.counts(), took))
	if err != nil || r.program == nil || left {
		return err
	}
	return t.exit()
}
