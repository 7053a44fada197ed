package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kprobe/event"
)

// traceRequest is what the verb trace is asked to do.
type traceRequest struct {
	request
	json      bool
	file      string
	out       *outFile // of file; nil for standard output
	duration  time.Duration
	count     uint64
	noSummary bool
	follow    bool
	stops     bool
	patient   bool
	pictures
	buffer ringSize
}

func traceCommand() *cobra.Command {
	var r traceRequest
	c := &cobra.Command{
		Use:   "trace ((-p PID | -k PLACE) DEFINITION... | DEFINITION... -- PROGRAM [ARGUMENT...])",
		Short: "Print an event for each hit of the probes that definitions place",
		Long: `Place probes in running processes, or in a program that is started for it, and
print an event for each hit, in the form of the kernel's trace file. Definitions
are those of kprobe_events:

  p[:[GROUP/]EVENT] PLACE [ARG...]       fires before the instruction at PLACE
  r[MAX][:[GROUP/]EVENT] PLACE [ARG...]  fires when the function at PLACE returns
  w[:[GROUP/]EVENT] DATA [ARG...]        fires after an access to DATA: w@counter:4

MAX is how many calls at once are watched, of each thread; in a kernel of all tasks. Without it they are as many as there
is room for, tens of thousands, and in a kernel what the kernel's own probes have: twice the CPUs, and 10 at least. What is missed
is counted as "no instance".

All of them are placed, in all of the processes, or none is; but of a pattern's
functions those that cannot be probed are left out, unless --strict is given. A table of hits and
misses follows on standard error. Interrupt (^C) to end it; the processes go on
as they were. A program that was started is waited for, after --duration without probes, and the
exit status is its own.`,
		Example: `  kprobe trace 'p:libc.so.6:getenv name=+0(%di):string' -- date
  kprobe trace -p $(pidof nginx) 'r nginx:ngx_http_process_request $retval'
  kprobe trace -p 1234 'w:ev w@counter:4 val=@counter:u32'`,
		RunE: func(c *cobra.Command, args []string) error {
			defs, err := r.parse(c, args)
			if err != nil {
				return err
			}
			return r.trace(defs)
		},
	}
	r.tracingFlags(c)
	f := c.Flags()
	f.BoolVar(&r.json, "json", false, "print events as JSON, one object a line")
	f.StringVarP(&r.file, "output", "o", "", "write events to `FILE` instead of standard output")
	f.Uint64VarP(&r.count, "count", "n", 0, "end after `N` events")
	r.pictureFlags(c)
	f.BoolVar(&r.patient, "wait", false, "make the process wait where events come faster than they are written: each hit stops its thread, and none is lost")
	return c
}

// tracingFlags are those that trace and record have in common.
func (r *traceRequest) tracingFlags(c *cobra.Command) {
	r.pidFlag(c)
	r.kernelFlag(c)
	r.stubFlag(c)
	r.definitionFlags(c)
	r.strictFlag(c)
	r.copiesFlag(c)
	r.depthFlag(c)
	r.commonFlags(c)
	c.Flags().BoolVar(&r.stops, "stops", false, "capture at a stop of the thread for each hit, never by programs inside the process")
}

// commonFlags are those of them that graph has, too.
func (r *traceRequest) commonFlags(c *cobra.Command) {
	f := c.Flags()
	f.DurationVarP(&r.duration, "duration", "d", 0, "end after `TIME`, such as 10s or 1m30s")
	f.BoolVarP(&r.follow, "follow", "f", false, "follow children, and the programs they execute, with the same definitions")
	f.Var(&r.buffer, "buffer", "room for what a thread records in a burst, such as 256K or 16M; of itself it is 64K to 4M, as the number of threads allows")
	f.BoolVar(&r.noSummary, "no-summary", false, "print no table at the end")
}

// parse sorts the arguments, and gives the definitions.
func (r *traceRequest) parse(c *cobra.Command, args []string) (defs []string, err error) {
	if c.Flags().Changed("count") && r.count == 0 {
		return nil, errors.New("--count must be at least 1")
	}
	if c.Flags().Changed("duration") && r.duration <= 0 {
		return nil, errors.New("--duration must be more than 0")
	}
	return r.targets(c, args)
}

func (r *traceRequest) trace(defs []string) (err error) {
	// Before the first process is touched: nothing may end us from now on but
	// by taking the probes out first.
	signals := catchSignals()
	dst, end, err := r.create(r.file)
	if err != nil {
		return err
	}
	defer end(&err)
	format := (*event.Event).AppendText
	if r.json {
		format = (*event.Event).AppendJSON
	}
	out := newOutput(dst, format, r.count)

	if r.patient {
		out.patient()
		r.stops = true // a hit that stops its thread is waited for
	}
	t := r.tracing(defs)
	t.sink = out.sink
	var drawn *drawing
	if r.any() {
		if drawn, err = r.begin(); err != nil {
			return err
		}
		t.sink = func(e *event.Event) {
			drawn.take(e)
			out.sink(e)
		}
	}
	if err := r.open(t, signals); err != nil {
		return err
	}
	began := time.Now()
	left := r.wait(t.run(), out.full, signals)
	took := time.Since(began)
	out.hurry()
	err = t.close()
	if r.program == nil {
		// Nothing is left to take out; a reader of events that does not
		// read may be waited for, and that must be possible to end.
		signal.Reset(ends...)
	}
	if failed := out.close(); !errors.Is(failed, syscall.EPIPE) { // who closes the pipe has seen enough
		err = errors.Join(err, failed)
	}
	if drawn != nil {
		err = errors.Join(err, drawn.close(defs, began, t.counts(), r.stops))
	}
	if !r.noSummary {
		err = errors.Join(err, r.summary(os.Stderr, t, out, took))
	}
	if err != nil || r.program == nil || left {
		return err
	}
	return t.exit()
}

// summary tells about the hits, and those that are missing.
func (r *traceRequest) summary(w io.Writer, t *tracing, out *output, took time.Duration) error {
	counts := t.counts()
	out.count(counts)
	return errors.Join(event.WriteSummary(w, counts, took), writeLosses(w, t.losses()))
}

// ends are the signals that end tracing.
var ends = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP}

// catchSignals makes sure that no signal ends kprobe while probes are in
// place. They are caught, not ignored: what is ignored would stay so in a
// program that is started.
func catchSignals() <-chan os.Signal {
	caught := make(chan os.Signal, 16)
	for _, sig := range ends {
		if sig == syscall.SIGHUP && signal.Ignored(sig) {
			continue // nohup
		}
		signal.Notify(caught, sig)
	}
	catchPipe()
	return caught
}

// catchPipe has writing to a closed pipe give an error. The channel is not read.
func catchPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// fromTerminal are the signals that the terminal's keys send to the program
// as well: it decides what becomes of them, and tracing goes on.
var fromTerminal = []os.Signal{syscall.SIGINT, syscall.SIGQUIT}

// endedBy tells whether a signal ends what the verb does: one from the terminal is the program's, if there is one.
func (r *request) endedBy(sig os.Signal) bool {
	return r.program == nil || !slices.Contains(fromTerminal, sig)
}

// wait waits for the end of tracing. left tells that a program that was started
// is to be left to itself.
func (r *traceRequest) wait(over, full <-chan struct{}, signals <-chan os.Signal) (left bool) {
	var late <-chan time.Time
	if r.duration > 0 {
		late = time.After(r.duration)
	}
	for {
		select {
		case <-over:
			return false
		case <-full:
			return false
		case <-late:
			return false
		case sig := <-signals:
			if r.endedBy(sig) {
				return true
			}
		}
	}
}
