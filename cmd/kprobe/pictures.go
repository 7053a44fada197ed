package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/graph"
	"kprobe/view"
)

// pictures are the files that events are drawn in, "" for none.
type pictures struct {
	flame, heat, folded, pprof, perfetto string
}

// pictureFlags let the verb draw.
func (p *pictures) pictureFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.flame, "flame", "", "draw a flame graph, an HTML page, in `FILE`: of calls, which are the events of a p and an r line of one function, and of the stacks of all other events")
	f.StringVar(&p.heat, "heat", "", "draw how long calls take over time, an HTML page, in `FILE`")
	f.StringVar(&p.folded, "folded", "", "write the stacks of calls and events, a line each, to `FILE`")
	f.StringVar(&p.pprof, "pprof", "", "write a profile for go tool pprof to `FILE`")
	f.StringVar(&p.perfetto, "perfetto", "", "write a trace for ui.perfetto.dev to `FILE`")
}

func (p *pictures) any() bool { return *p != pictures{} }

// drawing is pictures that are being made.
type drawing struct {
	mu       sync.Mutex
	calls    *view.Calls
	flame    *view.Flame
	heat     *view.Heat
	perfetto *view.Perfetto
	finish   []func(a view.About) error

	first, last time.Duration // of the events
	about       view.About
	processes   map[int]string // their names
	stacks      bool           // some events have stacks: threads were stopped for them
	timed       bool           // there are calls
}

// begin creates the files, so that one that cannot be is told before anything is traced.
// returning is what view.NewCalls knows by it.
func (p *pictures) begin(returning ...arch.Addr) (*drawing, error) {
	d := &drawing{flame: view.NewFlame(), heat: view.NewHeat(), first: -1, processes: make(map[int]string)}
	d.calls = view.NewCalls(d.call, d.other, returning...)
	for _, f := range []struct {
		name  string
		write func(w io.Writer, a view.About) error
	}{
		{p.flame, d.flame.WriteHTML},
		{p.heat, d.heat.WriteHTML},
		{p.folded, func(w io.Writer, _ view.About) error { return d.flame.Tree.WriteFolded(w) }},
		{p.pprof, func(w io.Writer, a view.About) error { return d.flame.Tree.WritePprof(w, a.Began, a.Took) }},
		{p.perfetto, func(io.Writer, view.About) error { return d.perfetto.Flush() }},
	} {
		if f.name == "" {
			continue
		}
		file, err := os.Create(f.name)
		if err != nil {
			return nil, err
		}
		if f.name == p.perfetto {
			d.perfetto = view.NewPerfetto(file)
		}
		d.finish = append(d.finish, func(a view.About) error {
			return errors.Join(f.write(file, a), file.Close())
		})
	}
	return d, nil
}

// take takes an event, in order of time within its process. Sessions call it from their own threads.
func (d *drawing) take(e *event.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first < 0 {
		d.first = e.Time
	}
	d.last = e.Time
	d.about.Events++
	for i := range e.Args {
		d.stacks = d.stacks || e.Args[i].Frames != nil
	}
	d.calls.Take(e)
}

// note takes in whose event or call it is.
func (d *drawing) note(pid, tid int, comm string) {
	if d.processes[pid] == "" || pid == tid {
		d.processes[pid] = comm
	}
}

// process names those that were drawn.
func (d *drawing) process() string {
	pids := slices.Sorted(maps.Keys(d.processes))
	var all []string
	for _, pid := range pids[:min(2, len(pids))] {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d", d.processes[pid], pid)))
	}
	name := strings.Join(all, ", ")
	if more := len(pids) - 2; more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return name
}

func (d *drawing) call(s *graph.Span) {
	d.timed = true
	d.note(s.PID, s.TID, s.Comm)
	d.flame.Add(s)
	d.heat.Add(s)
	if d.perfetto != nil {
		d.perfetto.Add(s)
	}
}

func (d *drawing) other(e *event.Event, depth int) {
	d.note(e.PID, e.TID, e.Comm)
	d.flame.Mark(e, depth)
	if d.perfetto != nil {
		d.perfetto.Mark(e)
	}
}

// close writes the end of the picture. counts belong to the probes, and stops tells that each hit
// has stopped its thread.
func (d *drawing) close(asked []string, began time.Time, counts []event.Count, stops bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.about
	a.Process, a.Asked, a.Began, a.Took = d.process(), strings.Join(asked, ", "), began, max(0, d.last-d.first)
	a.Stopped = d.timed && (stops || d.stacks)
	for _, c := range counts {
		a.Lost += c.Missed[event.Lost]
	}
	var errs []error
	for _, f := range d.finish {
		errs = append(errs, f(a))
	}
	return errors.Join(errs...)
}
