package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"kprobe"
	"kprobe/event"
	"kprobe/trace"
	"kprobe/view/live"
)

// web serves the counts as a page that lives, up to the end.
func (r *topRequest) web(out io.Writer, t *tracing, stats []*trace.Stat, notice string, h happening) (err error) {
	ss, why := sampleStacks(t.sessions)
	head := live.Head{Title: titleOf(t.sessions), Places: strings.Join(r.places, "  "), Began: time.Now(), Interval: r.interval, NoStacks: why}
	head.Host, _ = os.Hostname() // the page does without
	if notice != "" {
		head.Notes = []string{notice}
	}
	srv, err := live.Serve(head)
	if err != nil {
		return errors.Join(err, ss.close())
	}
	defer func() { err = errors.Join(err, ss.close(), srv.Close()) }()
	if _, err := fmt.Fprintln(out, srv.Link()); err != nil {
		return err
	}
	var before []trace.StatRow
	last := head.Began
	for ended := false; !ended; {
		select {
		case <-h.tick:
		case <-h.signals:
			ended = true
		case <-h.late:
			ended = true
		case <-h.over:
			ended = true
		}
		rows, err := rowsOf(stats)
		if err != nil {
			return err
		}
		v := live.Interval{Passed: time.Since(last), Rows: liveRows(rows, before)}
		last = last.Add(v.Passed)
		v.At, before = last.Sub(head.Began), rows
		v.Stacks, v.Lost = ss.take()
		if err := srv.Publish(&v); err != nil {
			return err
		}
	}
	return nil
}

// titleOf names the processes and kernels that are probed.
func titleOf(sessions []*kprobe.Session) string {
	var all []string
	for _, s := range sessions {
		pid := s.Target().PID()
		if pid == 0 || s.OnCPUs() {
			all = append(all, "a kernel")
			continue
		}
		all = append(all, fmt.Sprintf("%s %d", s.Comm(pid), pid))
	}
	return strings.Join(all, ", ")
}

// liveRows are figures now, and what has come since the ones before. A place that several processes have is one row.
func liveRows(now, before []trace.StatRow) (rows []live.Row) {
	old, at := map[string]trace.StatRow{}, map[string]int{}
	for _, r := range before {
		old[r.Place] = sumRows(old[r.Place], r)
	}
	sums := make(map[string]trace.StatRow)
	for _, r := range now {
		if _, known := at[r.Place]; !known {
			at[r.Place] = len(rows)
			rows = append(rows, live.Row{Place: readable(r.Place)})
		}
		sums[r.Place] = sumRows(sums[r.Place], r)
	}
	for place, i := range at {
		is, was, row := sums[place], old[place], &rows[i]
		row.Timed, row.Total, row.Missed, row.Hits = is.Latency != nil, is.Hits, is.Missed, is.Hits-min(is.Hits, was.Hits)
		for k, n := range is.Latency {
			if was.Latency != nil {
				n -= min(n, was.Latency[k])
			}
			row.Took = append(row.Took, n)
		}
	}
	return rows
}

// sumRows adds up rows of one place.
func sumRows(a, b trace.StatRow) trace.StatRow {
	a.Hits, a.Missed = a.Hits+b.Hits, a.Missed+b.Missed
	if a.Latency == nil {
		a.Latency = slices.Clone(b.Latency)
		return a
	}
	for i, n := range b.Latency {
		a.Latency[i] += n
	}
	return a
}

// sampledStacks adds up the stacks of what runs, until they are taken.
type sampledStacks struct {
	sampled     []*trace.Sampled
	wanted      chan chan<- taken
	over, ended chan struct{}
	err         error // why one could not be read; it is told once, at the end
}

type taken struct {
	stacks []live.Stack
	lost   uint64
}

// sampleEvery passes between two looks at the samples: it is brief, since the calls that they lie in are asked for.
const sampleEvery = 10 * time.Millisecond

// sampleStacks begins to, or says why it cannot.
func sampleStacks(sessions []*kprobe.Session) (ss *sampledStacks, why string) {
	ss = &sampledStacks{wanted: make(chan chan<- taken), over: make(chan struct{}), ended: make(chan struct{})}
	for _, s := range sessions {
		one, err := trace.NewSampled(s)
		if err != nil {
			why = err.Error()
			continue
		}
		ss.sampled = append(ss.sampled, one)
	}
	go ss.work()
	return ss, why
}

func (ss *sampledStacks) work() {
	defer close(ss.ended)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	seen := make(map[string]*live.Stack)
	for {
		select {
		case <-tick.C:
			for _, one := range ss.sampled {
				if err := one.Read(func(_ int, stack []event.Frame, end string) { addStack(seen, stack, end) }); err != nil {
					ss.err = err
				}
			}
		case to := <-ss.wanted:
			var all taken
			for _, s := range seen {
				all.stacks = append(all.stacks, *s)
			}
			for _, one := range ss.sampled {
				all.lost += one.Lost()
			}
			clear(seen)
			to <- all
		case <-ss.over:
			return
		}
	}
}

// addStack adds a stack to those that were seen. The page has the outermost function first.
func addStack(seen map[string]*live.Stack, stack []event.Frame, end string) {
	frames := make([]string, len(stack))
	for i := range stack {
		name := "code in no file"
		if stack[i].Func != "" {
			name = stack[i].Name()
		}
		frames[len(frames)-1-i] = name
	}
	key := end + "\n" + strings.Join(frames, "\n")
	s := seen[key]
	if s == nil {
		s = &live.Stack{Frames: frames, Cut: end != ""}
		seen[key] = s
	}
	s.Seen++
}

// take gives the stacks since the last time.
func (ss *sampledStacks) take() ([]live.Stack, uint64) {
	got := make(chan taken, 1)
	ss.wanted <- got
	all := <-got
	return all.stacks, all.lost
}

func (ss *sampledStacks) close() error {
	close(ss.over)
	<-ss.ended
	for _, one := range ss.sampled {
		one.Close()
	}
	return ss.err
}
