package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kprobe/event"
	"kprobe/symbol"
	"kprobe/trace"
)

// statRequest is what the verb stat is asked to do.
type statRequest struct {
	request
	duration time.Duration
	interval time.Duration
	all      bool
	by       string
}

func statCommand() *cobra.Command {
	var r statRequest
	c := &cobra.Command{
		Use:   "stat ((-p PID | -k PLACE) DEFINITION... | DEFINITION... -- PROGRAM [ARGUMENT...])",
		Short: "Count hits, and measure how long functions take, with no events",
		Long: `Count inside the processes what definitions hit, at some nanoseconds a hit. Of an
r line, which is about a function's return, also measure how long its calls take.
In a kernel p lines are counted, by code in the guest that stops nothing.
A table is printed at the end: after TIME, or at an interrupt (^C). With a program that is started
for it, it comes at the program's end or after TIME, on standard error; the program is waited for, and the exit status is its own.`,
		Example: `  kprobe stat -p 1234 -d 10s 'p libc.so.6:malloc' 'r libc.so.6:read'
  kprobe stat 'p libc.so.6:str*' -- date
  kprobe stat --by stack -p 1234 -d 5s 'p libc.so.6:malloc'`,
		RunE: func(c *cobra.Command, args []string) error {
			defs, err := r.targets(c, args)
			if err != nil {
				return err
			}
			if c.Flags().Changed("interval") && r.interval < shortest {
				return fmt.Errorf("--interval must be at least %v", shortest)
			}
			w := c.OutOrStdout()
			if r.program != nil {
				w = c.ErrOrStderr() // the other is the program's
			}
			switch {
			case r.by == "" && r.depth != 0:
				return errors.New("--stack-depth is for --by stack")
			case r.by == "":
				return r.stat(w, defs)
			case r.by != "stack":
				return fmt.Errorf("--by %s: what hits can be counted by is stack", r.by)
			case r.interval != 0 || r.all:
				return errors.New("--by counts up to the end: --interval and --all are not for it")
			}
			return r.byStack(w, defs)
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.definitionFlags(c)
	r.strictFlag(c)
	r.depthFlag(c)
	c.Flags().BoolVar(&r.all, "all", false, "show also the probes that were not hit, where there are many")
	c.Flags().StringVar(&r.by, "by", "", "count by `WHAT`: stack, that is by who called; each hit stops its thread for some tens of microseconds")
	c.Flags().DurationVarP(&r.duration, "duration", "d", 0, "end after `TIME`, such as 10s or 1m30s")
	c.Flags().DurationVarP(&r.interval, "interval", "i", 0, "print also what was hit in every `TIME`, such as 1s")
	return c
}

func (r *statRequest) stat(w io.Writer, defs []string) (err error) {
	signals := catchSignals()
	var t tracing
	stats, left, err := t.count(&r.request, defs, signals)
	if err != nil {
		t.abort()
		return err
	}
	finished := false // the program, if there is one, is waited for
	defer func() {
		if err = errors.Join(err, t.close()); err == nil && finished {
			err = t.exit()
		}
	}()
	if err := warnLeftOut(left); err != nil {
		return err
	}
	began := time.Now()
	over := t.run()
	var late, tick <-chan time.Time // nil: never
	if r.duration > 0 {
		late = time.After(r.duration)
	}
	if r.interval > 0 {
		ticker := time.NewTicker(r.interval)
		defer ticker.Stop()
		tick = ticker.C
	}
	var before []trace.StatRow
	last := began
	for ended := false; !ended; {
		select {
		case <-tick:
		case <-over:
			ended, finished = true, r.program != nil
		case <-late:
			ended, finished = true, r.program != nil
		case sig := <-signals:
			ended = r.endedBy(sig)
		}
		rows, err := rowsOf(stats)
		if err != nil {
			return err
		}
		if ended {
			return writeStat(w, rows, time.Since(began), r.all)
		}
		s := screen{rows: topRows(rows, before, time.Since(last)), sort: 1}
		before, last = rows, time.Now()
		if err := s.print(w, r.interval, len(rows)); err != nil {
			return err
		}
	}
	return nil
}

// writeStat prints the rows; of many, those that were hit, the most hit first; and below them the histograms of those that have one.
func writeStat(to io.Writer, rows []trace.StatRow, took time.Duration, all bool) error {
	silent := 0
	if len(rows) > event.Few { // so many are all shown, and in their order
		slices.SortStableFunc(rows, func(a, b trace.StatRow) int { return cmp.Compare(b.Hits, a.Hits) })
		if !all {
			silent = len(rows)
			rows = slices.DeleteFunc(rows, func(r trace.StatRow) bool { return r.Hits+r.Missed == 0 })
			silent -= len(rows)
		}
	}
	w := bufio.NewWriter(to) // a table writes each cell on its own
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "probe\tplace\thits\thits/s\tmissed\t")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%d\t%.1f\t%d\t\n", r.Name, symbol.ReadablePlace(r.Place), r.Hits, float64(r.Hits)/took.Seconds(), r.Missed)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if silent > 0 {
		fmt.Fprintf(w, "%d probes were not hit (--all shows them)\n", silent)
	}
	for _, r := range rows {
		if r.Latency == nil {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s at %s takes\n%s", r.Name, symbol.ReadablePlace(r.Place), histogram(r.Latency)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// histogram draws one, from its first bar to its last.
func histogram(counts []uint64) string {
	const width = 40
	var most uint64
	first, last := len(counts), -1
	for i, n := range counts {
		if n > 0 {
			first, last = min(first, i), i
		}
		most = max(most, n)
	}
	var b strings.Builder
	for i := first; i <= last; i++ {
		from := time.Duration(1) << min(i, 62)
		fmt.Fprintf(&b, "%10s and more %10d  %s\n", event.Took(from), counts[i], strings.Repeat("#", int((counts[i]*width+most-1)/most)))
	}
	return b.String()
}
