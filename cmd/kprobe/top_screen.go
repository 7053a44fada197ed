package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"kprobe/event"
	"kprobe/symbol"
	"kprobe/trace"
)

// topRow is a place with what it was hit, in all and in the last interval.
type topRow struct {
	name   string // of the event
	place  string
	hits   uint64
	rate   float64 // hits in a second of the last interval
	share  float64 // of all hits in the last interval
	timed  bool
	took   times
	counts []uint64 // the histogram
}

// times are of calls, as exact as their histogram: to a factor of 2.
type times struct{ average, p50, p99, most time.Duration }

// topRows makes rows of counts now and before.
func topRows(now, before []trace.StatRow, passed time.Duration) []topRow {
	type key struct{ name, place string }
	old := make(map[key]uint64, len(before))
	for _, r := range before {
		old[key{r.Name, r.Place}] = r.Hits
	}
	var rows []topRow
	var sum float64
	for _, r := range now {
		fresh := float64(r.Hits - min(r.Hits, old[key{r.Name, r.Place}]))
		sum += fresh
		rows = append(rows, topRow{name: r.Name, place: r.Place, hits: r.Hits, rate: fresh / max(passed.Seconds(), 1e-9), share: fresh,
			timed: r.Latency != nil, took: timesOf(r.Latency), counts: r.Latency})
	}
	for i := range rows {
		rows[i].share /= max(sum, 1)
	}
	return rows
}

// timesOf reads a histogram, whose element i are calls of 2^i to 2^(i+1) ns.
func timesOf(counts []uint64) (t times) {
	var n uint64
	var sum float64
	for i, c := range counts {
		n += c
		sum += float64(c) * 1.5 * float64(uint64(1)<<i)
		if c > 0 {
			t.most = time.Duration(1) << min(i+1, 62)
		}
	}
	if n == 0 {
		return times{}
	}
	t.average = time.Duration(sum / float64(n))
	t.p50, t.p99 = percentile(counts, n, 0.50), percentile(counts, n, 0.99)
	return t
}

// percentile is the time that a part of n calls did not exceed, as if those of one bucket were
// spread evenly.
func percentile(counts []uint64, n uint64, part float64) time.Duration {
	want := part * float64(n)
	for i, c := range counts {
		if want <= float64(c) && c > 0 {
			low := float64(uint64(1) << i)
			return time.Duration(low + low*want/float64(c))
		}
		want -= float64(c)
	}
	return 0
}

// read are the readable names of places: to make one costs microseconds, and a key may need all of them.
var read sync.Map

func readable(place string) string {
	if name, ok := read.Load(place); ok {
		return name.(string)
	}
	name := symbol.ReadablePlace(place)
	read.Store(place, name)
	return name
}

// topColumns are what can be sorted by.
var topColumns = []struct {
	title string
	width int
	text  func(*topRow) string
	less  func(a, b *topRow) int // the larger first, of names the first
}{
	{"hits", 12, func(r *topRow) string { return fmt.Sprint(r.hits) }, func(a, b *topRow) int { return cmp.Compare(b.hits, a.hits) }},
	{"hits/s", 11, func(r *topRow) string { return fmt.Sprintf("%.1f", r.rate) }, func(a, b *topRow) int { return cmp.Compare(b.rate, a.rate) }},
	{"share", 7, func(r *topRow) string { return fmt.Sprintf("%.1f%%", 100*r.share) }, func(a, b *topRow) int { return cmp.Compare(b.share, a.share) }},
	{"average", 9, func(r *topRow) string { return r.time(r.took.average) }, func(a, b *topRow) int { return cmp.Compare(b.took.average, a.took.average) }},
	{"p50", 9, func(r *topRow) string { return r.time(r.took.p50) }, func(a, b *topRow) int { return cmp.Compare(b.took.p50, a.took.p50) }},
	{"p99", 9, func(r *topRow) string { return r.time(r.took.p99) }, func(a, b *topRow) int { return cmp.Compare(b.took.p99, a.took.p99) }},
	{"max", 9, (*topRow).most, func(a, b *topRow) int { return cmp.Compare(b.took.most, a.took.most) }},
	{"place", 0, func(r *topRow) string { return readable(r.place) }, func(a, b *topRow) int { return cmp.Compare(a.place, b.place) }},
}

// time is one of the row's times, where it is timed.
func (r *topRow) time(d time.Duration) string {
	if !r.timed {
		return "-"
	}
	return event.Took(d)
}

// most is the end of the histogram's last power of 2: no call took longer.
func (r *topRow) most() string {
	if !r.timed || r.took.most == 0 {
		return r.time(0)
	}
	return "<" + event.Took(r.took.most)
}

// screen is what top shows, and what keys have made of it.
type screen struct {
	rows     []topRow
	sort     int // of topColumns
	filter   string
	typing   bool   // the filter
	selected string // the place
	first    int    // row that is on the screen
	paused   bool
	silent   bool // places without a hit are shown, too
	notice   string
	callers  calledBy
}

// shown are the rows that the filter leaves, sorted. Of many places those without a hit are shown when they are asked for.
func (s *screen) shown() []topRow {
	var rows []topRow
	for _, r := range s.rows {
		if s.hides(&r) {
			continue
		}
		if strings.Contains(r.place, s.filter) || strings.Contains(readable(r.place), s.filter) || strings.Contains(r.name, s.filter) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b topRow) int {
		return cmp.Or(topColumns[s.sort].less(&a, &b), cmp.Compare(b.hits, a.hits), cmp.Compare(a.place, b.place))
	})
	return rows
}

func (s *screen) hides(r *topRow) bool { return !s.silent && r.hits == 0 && len(s.rows) > event.Few }

// hidden counts the places that are not shown, since they have no hit.
func (s *screen) hidden() (n int) {
	for i := range s.rows {
		if s.hides(&s.rows[i]) {
			n++
		}
	}
	return n
}

// The keys, as readKeys names them.
const (
	keyUp    = "up"
	keyDown  = "down"
	keyLeft  = "left"
	keyRight = "right"
	keyEnter = "\r"
	keyErase = "\x7f"
	keyEsc   = "\x1b"
)

// key does what a key is for. It answers true if it is for the end.
func (s *screen) key(k string) (end bool) {
	if s.typing {
		switch {
		case k == keyEnter:
			s.typing = false
		case k == keyEsc:
			s.typing, s.filter = false, ""
		case k == keyErase || k == "\b":
			if s.filter != "" {
				s.filter = s.filter[:len(s.filter)-1]
			}
		case len(k) == 1 && k[0] >= ' ':
			s.filter += k
		}
		return false
	}
	rows := s.shown()
	at := max(0, slices.IndexFunc(rows, func(r topRow) bool { return r.place == s.selected }))
	switch k {
	case "q", "\x03":
		return true
	case keyUp, "k":
		at--
	case keyDown, "j":
		at++
	case " ":
		s.paused = !s.paused
		return false
	case "a":
		s.silent = !s.silent
		return false
	case "/":
		s.typing, s.filter = true, ""
		return false
	case keyEsc:
		s.filter = ""
		return false
	case keyLeft, "<":
		s.sort = (s.sort + len(topColumns) - 1) % len(topColumns)
		return false
	case keyRight, ">":
		s.sort = (s.sort + 1) % len(topColumns)
		return false
	default:
		return false
	}
	if len(rows) > 0 {
		s.selected = rows[min(max(at, 0), len(rows)-1)].place
	}
	return false
}

// lines are the screen's, of a width and height in characters.
func (s *screen) lines(width, height int) []string {
	rows := s.shown()
	at := slices.IndexFunc(rows, func(r topRow) bool { return r.place == s.selected })
	if at < 0 {
		at = 0
		if len(rows) > 0 {
			s.selected = rows[0].place
		}
	}
	var below []string
	if len(rows) > 0 && rows[at].timed && rows[at].hits > 0 {
		below = append(below, "", readable(rows[at].place)+" takes")
		below = append(below, strings.Split(strings.TrimRight(histogram(rows[at].counts), "\n"), "\n")...)
		below = below[:min(len(below), height/2)]
	}
	if len(rows) > 0 && s.callers.place == rows[at].place {
		room := max(0, height-4-len(below)) // of some rows
		below = append(below, s.callers.lines(min(room, mostCallers+2))...)
	}
	head, hidden := fmt.Sprintf("%d places", len(rows)), s.hidden()
	if len(rows)+hidden != len(s.rows) {
		head += fmt.Sprintf(" of %d", len(s.rows)-hidden)
	}
	if hidden > 0 {
		head += fmt.Sprintf("   %d silent", hidden)
	}
	switch {
	case s.typing:
		head += "   filter: " + s.filter + "_"
	case s.filter != "":
		head += "   filter: " + s.filter
	}
	if s.paused {
		head += "   paused"
	}
	if s.notice != "" {
		head += "   " + s.notice
	}
	const keys = "q quit, arrows move and sort, / filter, space pause, a all"
	c := columnsOf(width, s.sort)
	out := []string{head + "   " + keys, c.titles(s.sort)}
	room := max(1, height-len(out)-len(below))
	s.first = min(max(s.first, at-room+1), at, max(0, len(rows)-room))
	for i := max(0, s.first); i < min(len(rows), s.first+room); i++ {
		out = append(out, mark(i == at)+c.line(&rows[i]))
	}
	for len(out) < height-len(below) {
		out = append(out, "")
	}
	out = append(out, below...)
	for i, l := range out {
		out[i] = cut(strings.Map(printable, l), width)
	}
	return out
}

func mark(selected bool) string {
	if selected {
		return "> "
	}
	return "  "
}
