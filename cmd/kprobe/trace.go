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

	"kprobe"
	"kprobe/event"
)

// traceRequest is what the verb trace is asked to do.
type traceRequest struct {
	request
	program []string // to start, with its arguments

	json      bool
	file      string
	duration  time.Duration
	count     uint64
	noSummary bool
	follow    bool
	stops     bool
	buffer    ringSize
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

All of them are placed, in all of the processes, or none is; but of a pattern's
functions those that cannot be probed are left out, unless --strict is given. A table of hits and
misses follows on standard error. Interrupt (^C) to end it; the processes go on
as they were. With a program, the exit status is the program's.`,
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
	r.pidFlag(c)
	r.kernelFlag(c)
	r.stubFlag(c)
	r.definitionFlags(c)
	r.strictFlag(c)
	f := c.Flags()
	f.BoolVar(&r.json, "json", false, "print events as JSON, one object a line")
	f.StringVarP(&r.file, "output", "o", "", "write events to `FILE` instead of standard output")
	f.DurationVarP(&r.duration, "duration", "d", 0, "end after `TIME`, such as 10s or 1m30s")
	f.Uint64VarP(&r.count, "count", "n", 0, "end after `N` events")
	f.BoolVarP(&r.follow, "follow", "f", false, "follow children, and the programs they execute, with the same definitions")
	f.BoolVar(&r.stops, "stops", false, "capture at a stop of the thread for each hit, never by programs inside the process")
	f.Var(&r.buffer, "buffer", "room for what a thread records in a burst, such as 256K or 4M")
	f.BoolVar(&r.noSummary, "no-summary", false, "print no table at the end")
	return c
}

// parse sorts the arguments, and gives the definitions.
func (r *traceRequest) parse(c *cobra.Command, args []string) (defs []string, err error) {
	if c.Flags().Changed("count") && r.count == 0 {
		return nil, errors.New("--count must be at least 1")
	}
	if c.Flags().Changed("duration") && r.duration <= 0 {
		return nil, errors.New("--duration must be more than 0")
	}
	if dash := c.ArgsLenAtDash(); dash >= 0 {
		args, r.program = args[:dash], args[dash:]
		if len(r.program) == 0 {
			return nil, errors.New("no program given after --")
		}
		if len(r.pids) > 0 || r.remote() {
			return nil, errors.New("either -p, -k, --stub or a program after --")
		}
		return r.definitions(args)
	}
	if len(r.pids) == 0 && !r.remote() {
		return nil, errors.New("no process given: -p PID, or a program after --")
	}
	rest, err := r.processes(args)
	if err != nil {
		return nil, err
	}
	return r.definitions(rest)
}

func (r *traceRequest) trace(defs []string) error {
	// Before the first process is touched: nothing may end us from now on but
	// by taking the probes out first.
	signals := catchSignals()
	dst := os.Stdout
	if r.file != "" {
		f, err := os.Create(r.file)
		if err != nil {
			return err
		}
		defer f.Close()
		dst = f
	}
	format := (*event.Event).AppendText
	if r.json {
		format = (*event.Event).AppendJSON
	}
	out := newOutput(dst, format, r.count)

	t := tracing{defs: defs, sink: out.sink, stops: r.stops, strict: r.strict, buffer: int(r.buffer), children: make(map[*kprobe.Session]bool)}
	o := &kprobe.Options{Report: report}
	if r.follow {
		o.Follow = t.follow
	}
	var err error
	if r.program != nil {
		err = t.start(r.program, o)
	} else if r.stub != "" {
		err = t.attachStub(r.stub, o)
	} else if r.kernel.at != "" {
		err = t.attachKernel(r.kernel, o)
	} else {
		err = t.attach(r.pids, o)
	}
	if err == nil {
		err = t.arm()
	}
	if err != nil {
		t.abort()
		return err
	}
	began := time.Now()
	left := r.wait(t.run(), out.full, signals)
	took := time.Since(began)
	err = t.close()
	if r.program == nil {
		// Nothing is left to take out; a reader of events that does not
		// read may be waited for, and that must be possible to end.
		signal.Reset(ends...)
	}
	if failed := out.close(); !errors.Is(failed, syscall.EPIPE) { // who closes the pipe has seen enough
		err = errors.Join(err, failed)
	}
	if !r.noSummary {
		err = errors.Join(err, r.summary(os.Stderr, &t, out, took))
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
	return event.WriteSummary(w, counts, took)
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
	// Writing to a closed pipe gives an error then. The channel is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return caught
}

// fromTerminal are the signals that the terminal's keys send to the program
// as well: it decides what becomes of them, and tracing goes on.
var fromTerminal = []os.Signal{syscall.SIGINT, syscall.SIGQUIT}

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
			if r.program == nil || !slices.Contains(fromTerminal, sig) {
				return true
			}
		}
	}
}
