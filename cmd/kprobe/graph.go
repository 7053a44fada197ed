package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/graph"
	"kprobe/internal/goabi"
	"kprobe/internal/machine"
	"kprobe/internal/proc"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/trace"
)

// graphRequest is what the verb graph is asked to do.
type graphRequest struct {
	traceRequest
	depth   int
	minTime time.Duration
}

func graphCommand() *cobra.Command {
	var r graphRequest
	c := &cobra.Command{
		Use:   "graph ({-p PID|-k KERNEL} PLACE... | PLACE... -- PROGRAM [ARGUMENT...])",
		Short: "Draw calls as they lie in each other, with arguments, results and durations",
		Long: `Draw which function called which, with what, what came of it and how long it took, in the form of the kernel's
function_graph tracer. PLACE is a function or a pattern of functions, as in trace. All parameters and the result are
told where there is debug data, else the register that results are in. Behind PLACE, in one word of the shell's, there
may be arguments instead, those with $retval for the return, and a condition:

  'redis-server:*Command'   'libc.so.6:read fd=$arg1:s32 got=$retval:s64'   'serve req->path if req->len > 100'

The calls of a thread or goroutine stand together, from the outermost on, once that is over; those of one that takes
longer than that come as they are known. So do those on a coroutine's stack, by themselves. Tail calls, exceptions,
longjmp and panics leave nothing behind: of a call that did not return, or whose return cannot be seen, no duration is
told, and why.`,
		Example: `  kprobe graph -p $(pidof nginx) 'nginx:ngx_http_*' --min-time 1ms
  kprobe graph --depth 3 'app:*' -- ./app
  kprobe graph -k guest 'ksys_*' 'vfs_*' -d 5s
  kprobe graph -p 1234 --flame calls.html --perfetto calls.pftrace 'app:*'`,
		RunE: func(c *cobra.Command, args []string) error {
			places, err := r.parse(c, args)
			if err != nil {
				return err
			}
			if r.depth < 0 || r.minTime < 0 {
				return errors.New("--depth and --min-time must be more than 0")
			}
			for _, p := range places {
				if verb := strings.Fields(p)[0]; slices.Contains([]string{"p", "r", "w"}, strings.TrimRight(verb, "0123456789")) || strings.HasPrefix(verb, "p:") {
					return fmt.Errorf("%q is a definition: what graph wants is a function or a pattern, without %s", p, verb)
				}
			}
			return r.graph(places)
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.definitionFlags(c)
	r.strictFlag(c)
	r.commonFlags(c)
	f := c.Flags()
	f.StringVarP(&r.file, "output", "o", "", "write to `FILE` instead of standard output")
	f.IntVar(&r.depth, "depth", 0, "draw at most `N` levels of calls")
	f.DurationVar(&r.minTime, "min-time", 0, "draw only calls that take at least `TIME`, such as 100us")
	r.pictureFlags(c)
	return c
}

func (r *graphRequest) graph(places []string) (err error) {
	signals := catchSignals()
	dst, end, err := r.create(r.file)
	if err != nil {
		return err
	}
	defer end(&err)
	var drawn *drawing
	if r.any() {
		if drawn, err = r.begin(); err != nil {
			return err
		}
	}
	began := time.Now()
	t := r.tracing(nil)
	t.calls = newCalls(t, places, r.kernel.at != "", dst, r.depth, r.minTime, drawn)
	t.sink, t.waits.leftOut = t.calls.sink, t.calls.leftOut
	if err := r.open(t, signals); err != nil {
		t.calls.close()
		return err
	}
	left := r.wait(t.run(), t.calls.full, signals)
	took := time.Since(began)
	err = t.close()
	if r.program == nil {
		signal.Reset(ends...) // nothing is left to take out, and a reader may not read
	}
	if failed := t.calls.close(); !errors.Is(failed, syscall.EPIPE) {
		err = errors.Join(err, failed)
	}
	if drawn != nil {
		err = errors.Join(err, drawn.close(places, began, t.counts(), false))
	}
	if !r.noSummary {
		err = errors.Join(err, t.calls.summary(os.Stderr, t.counts(), took), writeLosses(os.Stderr, t.losses()))
	}
	if err != nil || r.program == nil || left {
		return err
	}
	return t.exit()
}

// calls draws events of calls, on a goroutine of its own: nothing waits for who reads.
type calls struct {
	t      *tracing
	places []string
	graph  graph.Calls
	draw   graph.Drawing
	out    *bufio.Writer
	drawn  *drawing

	unwound, running, blind, unsure uint64

	look looked

	mu     sync.Mutex
	queue  []event.Event
	lost   uint64
	stacks map[int]arch.Range // of first threads, by process

	over, ended chan struct{}
	full        chan struct{} // closed: nobody takes more
}

// mostQueued is how many events may wait.
const mostQueued = 1 << 20

func newCalls(t *tracing, places []string, kernel bool, w io.Writer, depth int, minTime time.Duration, drawn *drawing) *calls {
	c := &calls{t: t, places: places, out: bufio.NewWriterSize(w, 1<<16), drawn: drawn,
		stacks: make(map[int]arch.Range), over: make(chan struct{}), ended: make(chan struct{}), full: make(chan struct{})}
	c.draw = graph.Drawing{W: c.out, Depth: depth, MinTime: minTime, Blind: make(map[string]bool)}
	c.graph.Mapped, c.graph.Kernel, c.graph.Own = c.mapped, kernel, c.own
	c.graph.Began = c.draw.Began
	c.graph.Over = c.call
	go c.work()
	return c
}

// definitions are those of the places, for a session.
func (c *calls) definitions(s *kprobe.Session) (defs []string) {
	if maps, err := s.Target().Maps(); err == nil && !s.OnCPUs() {
		c.mu.Lock()
		c.stacks[s.Target().PID()] = returns.NativeStack(maps, true, 0)
		c.mu.Unlock()
	}
	var g *graph.Goroutines
	if rt := runtimeOf(s); rt != nil {
		current, id := rt.Offsets()
		g = &graph.Goroutines{Current: current, ID: id}
	}
	a := s.Arch()
	for i, place := range c.places {
		defs = append(defs, graph.Definitions(i, place, a.RegName(a.ThreadPtr), g, s.OnCPUs())...)
	}
	return defs
}

// runtimeOf is what is known of a program of Go; nil for another, and where that is not enough.
func runtimeOf(s *kprobe.Session) *goabi.Runtime {
	if s.Target().PID() == 0 {
		return nil // a kernel
	}
	f, err := proc.Process(s.Target().PID()).Open("exe")
	if err != nil {
		return nil
	}
	defer f.Close()
	m, err := machine.Of(s.Arch())
	if err != nil {
		return nil
	}
	rt, err := goabi.Read(f, m.Arch, m.Go)
	if err != nil || rt.Version == "" {
		return nil
	}
	if current, id := rt.Offsets(); current == 0 || id == 0 {
		return nil
	}
	return rt
}

// leftOut notes the functions whose returns are not seen, and gives what else there is to be said.
func (c *calls) leftOut(all []trace.LeftOut) (rest []trace.LeftOut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := make(map[arch.Addr]bool)
	for _, l := range all {
		if strings.HasPrefix(l.Definition, "p:") {
			gone[l.Place.Addr] = true
		}
	}
	for _, l := range all {
		words := strings.Fields(l.Definition)
		switch {
		case !strings.HasPrefix(l.Definition, "r"):
			l.Definition = words[1]
		case gone[l.Place.Addr]:
			continue
		default:
			l.Definition = "the return of " + words[1]
			c.draw.Blind[symbol.Readable(l.Place.Func.Label())] = true
		}
		rest = append(rest, l)
	}
	return rest
}

// mapped tells whether an address is in a file's code.
func (c *calls) mapped(pid int, addr uint64) bool {
	for _, s := range c.t.sessions {
		if s.Target().PID() == pid {
			return s.Symbols().ModuleAt(arch.Addr(addr)) != nil
		}
	}
	return true
}

// own tells whether an address is on a thread's own stack. Of other threads than the first that is not known before they are seen on several.
// c.mu is held.
func (c *calls) own(pid, tid int, sp uint64) bool {
	stack := c.stacks[pid]
	return tid != pid || stack.End == 0 || stack.Contains(arch.Addr(sp))
}

// sink takes one event. Sessions call it from their own threads.
func (c *calls) sink(e *event.Event) {
	own := *e
	own.Args = slices.Clone(e.Args)
	for i := range own.Args {
		own.Args[i].Elems = slices.Clone(own.Args[i].Elems)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) >= mostQueued {
		c.lost++
		return
	}
	c.queue = append(c.queue, own)
}

// call takes a call that is over.
func (c *calls) call(s *graph.Span) {
	c.draw.Over(s)
	switch {
	case s.Ended == graph.Unwound && c.draw.Blind[s.Name]:
		c.blind++
	case s.Ended == graph.Unwound && c.draw.Missed[s.Name]:
		c.unsure++
	case s.Ended == graph.Unwound:
		c.unwound++
	case s.Ended == graph.Running:
		c.running++
	}
	if c.drawn != nil {
		c.drawn.mu.Lock()
		c.drawn.call(s)
		c.drawn.mu.Unlock()
	}
}

// work draws what has come, until close.
func (c *calls) work() {
	defer close(c.ended)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var last time.Duration
	failed := false
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-c.over:
			over = true
		}
		c.draw.Missed = c.look.missed(c.t.counts, over)
		c.mu.Lock()
		events := c.queue
		c.queue = nil
		for i := range events { // with the lock: Blind grows where children are followed
			e := &events[i]
			c.graph.Take(e)
			if c.drawn != nil {
				if c.drawn.first < 0 {
					c.drawn.first = e.Time
				}
				c.drawn.about.Events++
			}
			last = max(last, e.Time)
		}
		c.mu.Unlock()
		if c.drawn != nil {
			c.drawn.last = last
		}
		if over {
			c.graph.Close(last)
		} else if last > 0 {
			now := last
			if !c.graph.Kernel { // whose clock is its own
				now = trace.Now()
			}
			_ = c.draw.Tick(now)
		}
		if err := c.out.Flush(); err != nil && !failed {
			failed = true
			close(c.full)
		}
	}
}

// looked caches which functions have missed returns.
type looked struct {
	next  time.Time
	names map[string]bool
}

// missed are the functions of which returns were missed, by their names; at the end, and else as often as to ask takes no more than a
// twentieth of the time.
func (l *looked) missed(counts func() []event.Count, end bool) map[string]bool {
	const share = 20
	began := time.Now()
	if !end && began.Before(l.next) {
		return l.names
	}
	for _, n := range counts() {
		if n.Missed[event.NoInstance] == 0 {
			continue
		}
		if l.names == nil {
			l.names = make(map[string]bool)
		}
		name := n.Place[strings.LastIndexByte(n.Place, ':')+1:]
		l.names[symbol.Readable(strings.TrimSuffix(name, "+0x0"))] = true
	}
	l.next = began.Add(share * time.Since(began))
	return l.names
}

// close draws what is left, and tells whether all could be written. No event comes any more.
func (c *calls) close() error {
	close(c.over)
	<-c.ended
	return errors.Join(c.draw.Err(), c.out.Flush())
}

// summary tells how many calls there were, and what is not known of some.
func (c *calls) summary(w io.Writer, counts []event.Count, took time.Duration) error {
	text := fmt.Sprintf("%d calls in %.1fs", c.graph.Nest.Calls, took.Seconds())
	missed := c.lost
	for _, n := range counts {
		missed += n.Missed[event.Recursion] + n.Missed[event.NoInstance] + n.Missed[event.Lost]
	}
	for _, part := range []struct {
		n    uint64
		what string
	}{
		{c.unwound - min(c.unwound, c.graph.Revived), "did not return"},
		{c.graph.Revived, "returned although they are drawn as if they did not, on stacks that are parts of one"},
		{c.unsure, "did not return, or their returns were missed"}, {c.blind, "have an end that is not seen"}, {c.running, "under way at the end"},
		{uint64(c.graph.Lost), "returns of calls whose beginning was not seen"}, {missed, "beginnings and ends missed: calls around them may be wrong"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
