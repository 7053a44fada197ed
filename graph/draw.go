package graph

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// Header stands above a drawing.
const Header = `# tracer: function_graph
#
#  TASK/PID                DURATION                  FUNCTION CALLS
#   |    |                  |   |                     |   |   |   |
`

// Drawing draws calls as the kernel's function_graph tracer does: nested, with what they were given, what came of
// them and how long they took. The calls of a thread or goroutine stand together, from the outermost on.
//
// A call is drawn when the outermost that it lies in is over. Where that takes long, Tick draws what is known.
type Drawing struct {
	W       io.Writer
	Depth   int           // draw so many levels; 0: all
	MinTime time.Duration // draw calls that took at least so long

	// Blind are functions whose returns are not seen, by their names: where their calls end is unknown.
	Blind map[string]bool

	// Missed are functions of which returns were missed: a call without an end may be one of these.
	Missed map[string]bool

	err   error
	tasks map[stackKey]*task
	now   time.Duration // the newest that was told
	line  []byte
	last  stackKey // of the line before
	any   bool
}

// task is what has been told of a thread or goroutine and is not drawn.
type task struct {
	rows []row
	open int // calls under way
}

// row is the beginning of a call, or its end.
type row struct {
	span *Span
	end  bool
}

// Began takes the beginning of a call: it is for Nest.
func (d *Drawing) Began(s *Span) {
	d.now = max(d.now, s.Start)
	if d.Depth > 0 && s.Depth >= d.Depth {
		return
	}
	t := d.task(s)
	t.rows = append(t.rows, row{span: s})
	t.open++
}

// Over takes its end.
func (d *Drawing) Over(s *Span) {
	d.now = max(d.now, s.End)
	if d.Depth > 0 && s.Depth >= d.Depth {
		return
	}
	t := d.task(s)
	t.rows = append(t.rows, row{span: s, end: true})
	if t.open--; t.open <= 0 {
		d.draw(keyOf(s.PID, s.TID, s.Goroutine, s.Stack), t, true)
	}
}

func (d *Drawing) task(s *Span) *task {
	k := keyOf(s.PID, s.TID, s.Goroutine, s.Stack)
	t := d.tasks[k]
	if t == nil {
		if d.tasks == nil {
			d.tasks = make(map[stackKey]*task)
		}
		t = new(task)
		d.tasks[k] = t
	}
	return t
}

// Tick draws what is known of calls that take long: those that began before, and those in them. now is the time.
func (d *Drawing) Tick(now time.Duration) error {
	d.now = max(d.now, now)
	keys := make([]stackKey, 0, len(d.tasks))
	for k := range d.tasks {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b stackKey) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.id, b.id)) })
	for _, k := range keys {
		if t := d.tasks[k]; t.open > 0 {
			d.draw(k, t, false)
		}
	}
	return d.err
}

// Err is why no more could be written.
func (d *Drawing) Err() error { return d.err }

// draw writes the rows of a task: all, or up to the first call of which it is not known yet whether it takes
// long enough.
func (d *Drawing) draw(k stackKey, t *task, all bool) {
	n := len(t.rows)
	if !all {
		n = slices.IndexFunc(t.rows, func(r row) bool { return !r.end && r.span.running() && d.now-r.span.Start < d.MinTime })
		if n < 0 {
			n = len(t.rows)
		}
		// The last beginning waits: its end may follow at once.
		if n > 0 && n == len(t.rows) && !t.rows[n-1].end && d.MinTime == 0 && d.now-t.rows[n-1].span.Start < 100*time.Millisecond {
			n--
		}
	}
	rows := t.rows[:n]
	for i := 0; i < len(rows); i++ {
		r := rows[i]
		s := r.span
		if s.over && s.Took() < d.MinTime {
			continue
		}
		if r.end {
			d.closing(k, s)
			continue
		}
		if j := d.leaf(t.rows, i); j > 0 {
			if j >= n {
				n = j + 1
				rows = t.rows[:n]
			}
			d.whole(k, s)
			i = j
			continue
		}
		d.opening(k, s)
	}
	t.rows = slices.Delete(t.rows, 0, n)
	if len(t.rows) == 0 && t.open <= 0 {
		delete(d.tasks, k)
	}
}

// leaf is the row of the end of the call that begins at row i, if nothing that is drawn lies between; else 0.
func (d *Drawing) leaf(rows []row, i int) int {
	for j := i + 1; j < len(rows); j++ {
		s := rows[j].span
		switch {
		case s == rows[i].span:
			return j
		case !s.over || s.Took() >= d.MinTime:
			return 0
		}
	}
	return 0
}

// write writes a line: whose it is, how long that took (negative: nothing stands there), and a call at its depth.
func (d *Drawing) write(k stackKey, s *Span, took time.Duration, rest func([]byte) []byte) {
	if d.err != nil {
		return
	}
	b := d.line[:0]
	if !d.any {
		b = append(b, Header...)
	} else if k != d.last {
		b = append(b, "\n"...)
	}
	d.any, d.last = true, k
	task := fmt.Sprintf("%s-%d", s.Comm, s.TID)
	if s.Comm == "" {
		task = fmt.Sprintf("<...>-%d", s.TID)
	}
	if s.Goroutine != 0 {
		task += fmt.Sprintf(" g%d", s.Goroutine)
	}
	b = fmt.Appendf(b, " %-22s | ", task)
	b = appendTook(b, took)
	b = append(b, " |  "...)
	b = append(b, bytes.Repeat([]byte("  "), s.Depth)...)
	b = append(rest(b), '\n')
	d.line = b
	_, d.err = d.W.Write(b)
}

// appendTook writes a duration in microseconds, in a column, with the kernel's marks of long ones.
func appendTook(b []byte, took time.Duration) []byte {
	if took < 0 {
		return append(b, "                "...)
	}
	mark := ' '
	for _, m := range []struct {
		over time.Duration
		mark rune
	}{{time.Second, '$'}, {100 * time.Millisecond, '@'}, {10 * time.Millisecond, '*'}, {time.Millisecond, '#'}, {100 * time.Microsecond, '!'}, {10 * time.Microsecond, '+'}} {
		if took > m.over {
			mark = m.mark
			break
		}
	}
	return fmt.Appendf(b, "%c %11.3f us", mark, float64(took)/1e3)
}

func (d *Drawing) call(b []byte, s *Span) []byte {
	b = append(append(b, s.Name...), '(')
	return append(appendArgs(b, s.Args), ')')
}

// whole writes a call that nothing lies in.
func (d *Drawing) whole(k stackKey, s *Span) {
	d.write(k, s, d.took(s), func(b []byte) []byte {
		b = append(d.call(b, s), ';')
		return d.remark(b, s, "")
	})
}

func (d *Drawing) opening(k stackKey, s *Span) {
	d.write(k, s, -1, func(b []byte) []byte { return append(d.call(b, s), " {"...) })
}

func (d *Drawing) closing(k stackKey, s *Span) {
	d.write(k, s, d.took(s), func(b []byte) []byte { return d.remark(append(b, '}'), s, s.Name) })
}

// took is how long a call took; negative where that is not known.
func (d *Drawing) took(s *Span) time.Duration {
	if s.Ended != Returned {
		return -1
	}
	return s.Took()
}

// remark tells what came of a call, and of which where that stands elsewhere.
func (d *Drawing) remark(b []byte, s *Span, name string) []byte {
	what := ""
	switch {
	case s.Ended == Unwound && d.Blind[s.Name]:
		what = "where it ends is unknown: its returns are not seen"
	case s.Ended == Unwound && d.Missed[s.Name]:
		what = "did not return, or its return was missed"
	case s.Ended == Unwound:
		what = "did not return"
	case s.Ended == Running:
		what = "under way"
	}
	if name == "" && what == "" && len(s.Result) == 0 {
		return b
	}
	b = append(b, " /*"...)
	if name != "" {
		b = append(append(b, ' '), name...)
	}
	if what != "" {
		if name != "" {
			b = append(b, ':')
		}
		b = append(append(b, ' '), what...)
	}
	if len(s.Result) > 0 {
		b = appendArgs(append(b, ' '), s.Result)
	}
	return append(b, " */"...)
}
