package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/event"
	"kprobe/recording"
	"kprobe/trace"
)

func recordCommand() *cobra.Command {
	var r traceRequest
	var keep byteSize
	var trigger string
	c := &cobra.Command{
		Use:   "record -o FILE ((-p PID | -k PLACE) DEFINITION... | DEFINITION... -- PROGRAM [ARGUMENT...])",
		Short: "Record events as they come, to be printed or drawn later by kprobe report",
		Long: `Trace, but keep what the probes record as it is, in FILE, which takes little time:
millions of events a second are possible. kprobe report prints them as kprobe trace
would have, and draws pictures of them; it needs nothing but the file.

With --ring it is a flight recorder: only the newest records are kept, in memory, and
written at the end: at an interrupt (^C), after --duration, when the process ends, or
when the event of --trigger comes. A file that breaks off can be read up to there.`,
		Example: `  kprobe record -o hits.rec -p 1234 'p libc.so.6:malloc size=%di:u64'
  kprobe report hits.rec
  kprobe record -o last.rec --ring 64M --trigger failed -p 1234 'p app:*' 'p:failed app:die'`,
		RunE: func(c *cobra.Command, args []string) error {
			if trigger != "" && keep == 0 {
				return errors.New("--trigger is for --ring")
			}
			defs, err := r.parse(c, args)
			if err != nil {
				return err
			}
			return r.record(defs, recording.Options{Keep: int(keep), Trigger: trigger})
		},
	}
	r.tracingFlags(c)
	c.Flags().StringVarP(&r.file, "output", "o", "kprobe.rec", "write to `FILE`")
	c.Flags().Var(&keep, "ring", "keep about so many bytes, such as 64M, of the newest records, and write them at the end")
	c.Flags().StringVar(&trigger, "trigger", "", "with --ring: end when the event `NAME` comes")
	return c
}

// record is trace, into a recording.
func (r *traceRequest) record(defs []string, o recording.Options) (err error) {
	signals := catchSignals()
	f, end, err := r.create(r.file)
	if err != nil {
		return err
	}
	defer end(&err)
	host, _ := os.Hostname() // a file may do without
	w := recording.NewWriter(f, recording.Head{Began: time.Now(), Host: host, Definitions: defs, Processes: r.pids}, o)
	t := r.tracing(defs)
	t.record = w
	if err := r.open(t, signals); err != nil {
		return errors.Join(err, w.Close(recording.End{}))
	}
	began := time.Now()
	enough := make(chan struct{})
	go func() {
		select {
		case <-w.Triggered():
		case <-w.Failed():
		}
		close(enough)
	}()
	left := r.wait(t.run(), enough, signals)
	took := time.Since(began)
	err = t.close()
	if r.program == nil {
		signal.Reset(ends...) // nothing is left to take out
	}
	counts := t.counts()
	err = errors.Join(err, w.Close(recording.End{Counts: counts, Took: took}))
	if !r.noSummary {
		err = errors.Join(err, event.WriteSummary(os.Stderr, counts, took), writeLosses(os.Stderr, t.losses()))
	}
	if err != nil || r.program == nil || left {
		return err
	}
	return t.exit()
}

// tracing is sessions to be, as the flags ask for them.
func (r *traceRequest) tracing(defs []string) *tracing {
	return &tracing{defs: defs, stops: r.stops, strict: r.strict, ownOnly: r.ownOnly, depth: r.depth, buffer: int(r.buffer), children: make(map[*kprobe.Session]bool), coming: make(map[*kprobe.Session]bool)}
}

// open opens the sessions and puts the definitions to work, unless a signal comes, or lets everything go.
func (r *traceRequest) open(t *tracing, signals <-chan os.Signal) error {
	o := &kprobe.Options{Report: report, Mapped: t.waits.mapped}
	if r.follow {
		o.Follow = t.follow
	}
	var err error
	defer progress("attaching, reading symbols, placing probes")()
	t.placing = placingUntil(signals)
	switch {
	case r.program != nil:
		err = t.start(r.program, o)
	case r.stub != "":
		err = t.attachStub(r.stub, o)
	case r.kernel.at != "":
		err = t.attachKernel(r.kernel, o)
	default:
		err = t.attach(r.pids, o)
	}
	var tracers []*trace.Tracer
	if err == nil {
		tracers, err = t.arm()
	}
	if err = t.placing.done(err); err == nil { // from here on a signal ends what has begun
		err = t.takeIn(tracers)
	}
	if err == nil && r.out != nil {
		err = r.out.start()
	}
	if err != nil {
		t.abort()
	}
	return err
}

// writeLosses tells when events were lost.
func writeLosses(w io.Writer, losses []recording.Loss) error {
	const most = 8
	for i, l := range losses {
		if i == most {
			_, err := fmt.Fprintf(w, "and %d times more\n", len(losses)-most)
			return err
		}
		if _, err := fmt.Fprintf(w, "lost: %d events of %s between %.6f and %.6f\n", l.N, l.Name, l.From.Seconds(), l.To.Seconds()); err != nil {
			return err
		}
	}
	return nil
}
