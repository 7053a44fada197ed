package main

import (
	"errors"
	"io"
	"os"
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
	finish   []func(title string, began time.Time, took time.Duration) error

	first, last time.Duration // of the events
}

// begin creates the files, so that one that cannot be is told before anything is traced.
// returning is what view.NewCalls knows by it.
func (p *pictures) begin(returning ...arch.Addr) (*drawing, error) {
	d := &drawing{flame: view.NewFlame(), heat: view.NewHeat(), first: -1}
	d.calls = view.NewCalls(d.call, d.other, returning...)
	for _, f := range []struct {
		name  string
		write func(w io.Writer, title string, began time.Time, took time.Duration) error
	}{
		{p.flame, func(w io.Writer, title string, _ time.Time, _ time.Duration) error {
			return d.flame.WriteHTML(w, title)
		}},
		{p.heat, func(w io.Writer, title string, _ time.Time, _ time.Duration) error { return d.heat.WriteHTML(w, title) }},
		{p.folded, func(w io.Writer, _ string, _ time.Time, _ time.Duration) error { return d.flame.Tree.WriteFolded(w) }},
		{p.pprof, func(w io.Writer, _ string, began time.Time, took time.Duration) error {
			return d.flame.Tree.WritePprof(w, began, took)
		}},
		{p.perfetto, func(io.Writer, string, time.Time, time.Duration) error { return d.perfetto.Flush() }},
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
		d.finish = append(d.finish, func(title string, began time.Time, took time.Duration) error {
			return errors.Join(f.write(file, title, began, took), file.Close())
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
	d.calls.Take(e)
}

func (d *drawing) call(s *graph.Span) {
	d.flame.Add(s)
	d.heat.Add(s)
	if d.perfetto != nil {
		d.perfetto.Add(s)
	}
}

func (d *drawing) other(e *event.Event, depth int) {
	d.flame.Mark(e, depth)
	if d.perfetto != nil {
		d.perfetto.Mark(e)
	}
}

// close writes what is to be written in the end.
func (d *drawing) close(title string, began time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, f := range d.finish {
		errs = append(errs, f(title, began, d.last-d.first))
	}
	return errors.Join(errs...)
}
