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

	"kprobe"
	"kprobe/trace"
)

// statRequest is what the verb stat is asked to do.
type statRequest struct {
	request
	duration time.Duration
	all      bool
}

func statCommand() *cobra.Command {
	var r statRequest
	c := &cobra.Command{
		Use:   "stat {-p PID | -k PLACE} [-d TIME] DEFINITION...",
		Short: "Count hits, and measure how long functions take, with no events",
		Long: `Count inside the processes what definitions hit, at some nanoseconds a hit. Of an
r line, which is about a function's return, also measure how long its calls take.
In a kernel p lines are counted, by code in the guest that stops nothing.
A table is printed at the end: after TIME, or at an interrupt (^C).`,
		Example: `  kprobe stat -p 1234 -d 10s 'p libc.so.6:malloc' 'r libc.so.6:read'`,
		RunE: func(c *cobra.Command, args []string) error {
			rest, err := r.processes(args)
			if err != nil {
				return err
			}
			defs, err := r.definitions(rest)
			if err != nil {
				return err
			}
			return r.stat(c.OutOrStdout(), defs)
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.definitionFlags(c)
	r.strictFlag(c)
	c.Flags().BoolVar(&r.all, "all", false, "show also the probes that were not hit, where there are many")
	c.Flags().DurationVarP(&r.duration, "duration", "d", 0, "end after `TIME`, such as 10s or 1m30s")
	return c
}

func (r *statRequest) stat(w io.Writer, defs []string) (err error) {
	signals := catchSignals()
	var t tracing
	defer func() { err = errors.Join(err, t.close()) }()
	o := &kprobe.Options{Report: report}
	if r.kernel.at != "" {
		err = t.attachKernel(r.kernel, o)
	} else {
		err = t.attach(r.pids, o)
	}
	if err != nil {
		return err
	}
	var stats []*trace.Stat
	for _, s := range t.sessions {
		st, err := trace.NewStat(s, r.strict, defs...)
		if err != nil {
			return err
		}
		stats = append(stats, st)
		if err := warnLeftOut(st.LeftOut()); err != nil {
			return err
		}
	}
	began := time.Now()
	(&traceRequest{duration: r.duration}).wait(t.run(), nil, signals)
	took := time.Since(began)
	var rows []trace.StatRow
	for _, st := range stats {
		rs, err := st.Rows()
		if err != nil {
			return err
		}
		rows = append(rows, rs...)
	}
	return writeStat(w, rows, took, r.all)
}

// writeStat prints the rows; of many, those that were hit, the most hit first; and below them the histograms of those that have one.
func writeStat(to io.Writer, rows []trace.StatRow, took time.Duration, all bool) error {
	const few = 20 // so many are all shown, and in their order
	silent := 0
	if len(rows) > few {
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
		fmt.Fprintf(table, "%s\t%s\t%d\t%.1f\t%d\t\n", r.Name, r.Place, r.Hits, float64(r.Hits)/took.Seconds(), r.Missed)
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
		if _, err := fmt.Fprintf(w, "\n%s at %s takes\n%s", r.Name, r.Place, histogram(r.Latency)); err != nil {
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
		fmt.Fprintf(&b, "%10v and more %10d  %s\n", from, counts[i], strings.Repeat("#", int((counts[i]*width+most-1)/most)))
	}
	return b.String()
}
