package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/internal/host"
	"kprobe/trace"
)

// topRequest is what the verb top is asked to do.
type topRequest struct {
	request
	duration time.Duration
	interval time.Duration
	rows     int
	page     bool     // --web
	places   []string // as they were asked for
}

func topCommand() *cobra.Command {
	r := topRequest{interval: time.Second}
	c := &cobra.Command{
		Use:   "top {-p PID | -k PLACE} PLACE...",
		Short: "Show live how often functions are called, and how long they take",
		Long: `Count and time calls inside the processes, as kprobe stat does, and show them as a table
that is drawn anew every second, sorted and filtered by keys:

  up, down      choose a row; its times and its callers are drawn below
  left, right   sort by another column
  /             show only places that have the text that follows, up to Enter
  a             show the places without a hit, too, or hide them; few are always shown
  space         hold still, or go on
  q             the end

PLACE is a function, or a pattern, whose calls are timed; or a whole definition of stat,
such as 'p libc.so.6:malloc', which only counts. Times are as exact as a histogram by powers
of 2 has them. Without a terminal the busiest places are printed every second.

With --web the table is a page instead, with the calls' times over time and the stacks of what runs, for a browser on
this machine: the link that is printed opens it, and nothing else does. The page stays when the counting has ended.`,
		Example: `  kprobe top -p 1234 'nginx:ngx_http_*'
  kprobe top -p 1234 --web 'app:*'
  kprobe top -p 1234 -i 5s 'p libc.so.6:*' libc.so.6:read | tee log`,
		RunE: func(c *cobra.Command, args []string) error {
			rest, err := r.processes(args)
			if err != nil {
				return err
			}
			r.places = slices.Clone(rest)
			for i, place := range rest {
				if !strings.Contains(place, " ") {
					rest[i] = "r " + place
				}
			}
			defs, err := r.definitions(rest)
			if err != nil {
				return err
			}
			if r.interval < shortest {
				return fmt.Errorf("--interval must be at least %v", shortest)
			}
			return r.top(defs)
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.definitionFlags(c)
	r.strictFlag(c)
	f := c.Flags()
	f.DurationVarP(&r.duration, "duration", "d", 0, "end after `TIME`, such as 10s or 1m30s")
	f.DurationVarP(&r.interval, "interval", "i", time.Second, "draw anew every `TIME`")
	f.BoolVar(&r.page, "web", false, "serve a page that lives, on loopback, and print its link")
	f.IntVarP(&r.rows, "rows", "n", 20, "without a terminal: print at most `N` places")
	return c
}

// shortest is the shortest interval: counts of thousands of places take a while to read.
const shortest = 10 * time.Millisecond

func (r *topRequest) top(defs []string) (err error) {
	signals := catchSignals()
	var t tracing
	defer func() { err = errors.Join(err, t.close()) }()
	stats, left, err := t.count(&r.request, defs, signals)
	if err != nil {
		return err
	}
	over := t.run()
	var late <-chan time.Time
	if r.duration > 0 {
		late = time.After(r.duration)
	}
	screen := &screen{sort: 1}
	if len(left) > 0 {
		screen.notice = fmt.Sprintf("%d places cannot be probed", len(left))
	}
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	happening := happening{tick: tick.C, signals: signals, late: late, over: over}
	if r.page {
		return r.web(os.Stdout, &t, stats, screen.notice, happening)
	}
	draw, keys := func(passed time.Duration) error { return screen.print(os.Stdout, passed, r.rows) }, (<-chan string)(nil)
	terminal := host.Terminal(os.Stdin.Fd()) && host.Terminal(os.Stdout.Fd())
	counts := countBeside(stats, terminal)
	defer counts.close() // when the terminal is as it was: its user does not wait for it
	if terminal {
		back, err := host.Keys(os.Stdin.Fd())
		if err != nil {
			return err
		}
		const enter, leave = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l" // another screen, no cursor
		fmt.Print(enter)
		defer func() {
			fmt.Print(leave)
			err = errors.Join(err, back())
		}()
		keys = readKeys(os.Stdin)
		draw = func(time.Duration) error { return screen.draw(os.Stdout) }
	} else if err := warnLeftOut(left); err != nil {
		return err
	}
	happening.keys = keys
	return screen.live(happening, counts, draw)
}

// happening has the events of a screen that lives.
type happening struct {
	keys    <-chan string
	tick    <-chan time.Time
	signals <-chan os.Signal
	late    <-chan time.Time
	over    <-chan struct{}
}

// live shows counts and answers keys, up to the end.
func (s *screen) live(h happening, counts *beside, draw func(passed time.Duration) error) error {
	for {
		select {
		case k := <-h.keys:
			if s.key(k) {
				return nil
			}
			if err := draw(0); err != nil {
				return err
			}
			continue
		case now := <-counts.got:
			s.rows, s.callers = now.rows, now.callers
			if err := errors.Join(now.err, draw(now.passed)); err != nil {
				return err
			}
			continue
		case <-h.tick:
			if !s.paused {
				counts.want(s.selected)
			}
			continue
		case <-h.signals:
		case <-h.late:
		case <-h.over:
		}
		now := counts.last()
		s.rows = now.rows
		return errors.Join(now.err, draw(now.passed))
	}
}

// count opens the sessions, and counts what definitions hit in each, unless a signal comes.
func (t *tracing) count(r *request, defs []string, signals <-chan os.Signal) (stats []*trace.Stat, left []trace.LeftOut, err error) {
	o := &kprobe.Options{Report: report, Mapped: t.waits.mapped}
	defer progress("attaching, reading symbols, placing probes")()
	t.placing = placingUntil(signals)
	switch {
	case r.program != nil:
		err = t.start(r.program, o)
	case r.kernel.at != "":
		err = t.attachKernel(r.kernel, o)
	default:
		err = t.attach(r.pids, o)
	}
	for i := 0; i < len(t.sessions) && err == nil; i++ {
		var st *trace.Stat
		st, err = trace.NewStat(t.sessions[i], r.strict, defs...)
		stats = append(stats, st)
	}
	if err = t.placing.done(err); err != nil {
		return nil, nil, err
	}
	for i, st := range stats {
		left = append(left, st.LeftOut()...)
		t.waits.tell(st.Waiting())
		t.waits.add(t.sessions[i], st)
		t.waits.mapped(t.sessions[i]) // meanwhile
	}
	return stats, left, nil
}

// rowsOf are the figures of all sessions as of now.
func rowsOf(stats []*trace.Stat) (rows []trace.StatRow, err error) {
	for _, st := range stats {
		rs, err := st.Rows()
		if err != nil {
			return nil, err
		}
		rows = append(rows, rs...)
	}
	return rows, nil
}

// print prints the busiest places of an interval, at most so many, for who has no terminal.
func (s *screen) print(to io.Writer, passed time.Duration, most int) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s  %.1fs\n%s\n", time.Now().Format("15:04:05"), passed.Seconds(), allColumns().titles(-1))
	for i, row := range s.shown() {
		if row.rate == 0 || i == most {
			break
		}
		fmt.Fprintf(w, "  %s\n", allColumns().line(&row))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// draw draws the screen anew, in one write: nothing flickers.
func (s *screen) draw(to *os.File) error {
	width, height := host.Size(to.Fd())
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range s.lines(width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if strings.HasPrefix(l, "> ") {
			l = "\x1b[7m" + l + "\x1b[0m"
		}
		b.WriteString(l + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(to, b.String())
	return err
}

// readKeys reads keys until the input ends. Those that send several bytes have names.
func readKeys(in io.Reader) <-chan string {
	keys := make(chan string)
	named := map[string]string{"\x1b[A": keyUp, "\x1b[B": keyDown, "\x1b[C": keyRight, "\x1b[D": keyLeft,
		"\x1bOA": keyUp, "\x1bOB": keyDown, "\x1bOC": keyRight, "\x1bOD": keyLeft}
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			for text := string(buf[:n]); text != ""; {
				k := text[:1]
				if len(text) >= 3 && named[text[:3]] != "" {
					k = text[:3]
				}
				text = text[len(k):]
				if name := named[k]; name != "" {
					k = name
				}
				keys <- k
			}
		}
	}()
	return keys
}
