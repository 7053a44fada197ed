package main

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// places are so many rows, of which each has more hits and takes longer than the one before.
func places(n int) (now, before []trace.StatRow) {
	for i := range n {
		took := make([]uint64, 64)
		took[i%20+5] = uint64(10 * i)
		now = append(now, trace.StatRow{Name: "e", Place: fmt.Sprintf("lib:f%04d", i), Hits: uint64(10 * i), Latency: took})
		before = append(before, trace.StatRow{Name: "e", Place: fmt.Sprintf("lib:f%04d", i), Hits: uint64(5 * i)})
	}
	return now, before
}

func TestTopRows(t *testing.T) {
	now, before := places(3)
	rows := topRows(now, before, 5*time.Second)
	if r := rows[2]; r.hits != 20 || r.rate != 2 || r.share < 0.66 || r.share > 0.67 || r.took.most != 256 {
		t.Errorf("%+v", r)
	}
	if got := topRows(now, nil, time.Second)[1].rate; got != 10 {
		t.Errorf("in the first interval %v", got)
	}
	counts := make([]uint64, 64)
	counts[10], counts[20] = 98, 2 // 1 us, and 1 ms
	tm := timesOf(counts)
	if tm.p50 < 1024 || tm.p50 > 2048 || tm.p99 < 1<<20 || tm.p99 > 1<<21 || tm.most != 1<<21 || tm.average < 31e3 || tm.average > 35e3 {
		t.Errorf("%+v", tm)
	}
	if timesOf(make([]uint64, 64)) != (times{}) {
		t.Error("no calls take time")
	}
}

// A screen has its size whatever it shows, and the row that was chosen is on it.
func TestScreen(t *testing.T) {
	now, before := places(5000)
	s := &screen{sort: 1, rows: topRows(now, before, time.Second)}
	const width, height = 100, 30
	look := func() (lines []string, selected string) {
		t.Helper()
		lines = s.lines(width, height)
		if len(lines) != height {
			t.Fatalf("%d lines", len(lines))
		}
		for _, l := range lines {
			if len([]rune(l)) > width {
				t.Fatalf("%q is %d wide", l, len([]rune(l)))
			}
			if strings.HasPrefix(l, "> ") {
				selected = l[strings.Index(l, "lib:"):]
			}
		}
		return lines, selected
	}
	lines, selected := look()
	if selected != "lib:f4999" || !strings.Contains(lines[0], "4999 places   1 silent") || !strings.Contains(lines[1], "hits/s*") ||
		!slices.ContainsFunc(lines, func(l string) bool { return l == "lib:f4999 takes" }) {
		t.Errorf("%q", lines)
	}
	rows := 100
	if testing.Short() {
		rows = 40 // more than there are on the screen
	}
	for range rows {
		s.key(keyDown)
	}
	if _, selected = look(); selected != fmt.Sprintf("lib:f%d", 4999-rows) {
		t.Errorf("after %d rows %q", rows, selected)
	}
	for range 2 * rows {
		s.key(keyUp)
	}
	if _, selected = look(); selected != "lib:f4999" {
		t.Errorf("at the top %q", selected)
	}
	for _, k := range []string{"/", "0", "0", "7", "7", "7", keyErase, keyEnter} {
		s.key(k)
	}
	if lines, selected = look(); selected != "lib:f0077" || !strings.Contains(lines[0], "1 places of 4999   1 silent   filter: 0077") {
		t.Errorf("filtered: %q %q", selected, lines[0])
	}
	s.key(keyEsc)
	for topColumns[s.sort].title != "place" {
		s.key(keyRight)
	}
	s.key("a")
	s.selected = ""
	if _, selected = look(); selected != "lib:f0000" {
		t.Errorf("by place %q", selected)
	}
	s.key(keyLeft)
	if topColumns[s.sort].title != "max" {
		t.Errorf("left of place is %q", topColumns[s.sort].title)
	}
	s.key(" ")
	if lines, _ = look(); !s.paused || !strings.Contains(lines[0], "paused") {
		t.Error("not paused")
	}
	if !s.key("q") || s.key("x") {
		t.Error("q is the end, and nothing else")
	}
	for _, size := range [][2]int{{1, 1}, {10, 3}, {300, 100}} { // and no panic
		s.lines(size[0], size[1])
	}
	(&screen{}).lines(80, 24)
}

// On a narrow terminal the place comes first, with the figure that rows are sorted by and the most
// needed ones; a name that is cut says so.
func TestScreenIsNarrow(t *testing.T) {
	now, before := places(3)
	now[2].Place = "library.so.1:" + strings.Repeat("long", 30)
	s := &screen{sort: 1, rows: topRows(now, before, time.Second)}
	for _, c := range []struct {
		width, sort int
		titles      string
	}{
		{120, 1, "hits hits/s* share average p50 p99 max place"},
		{98, 1, "hits hits/s* share average p50 p99 max place"},
		{97, 1, "place hits hits/s* share average p50 p99 max"},
		{70, 1, "place hits/s* average p50 p99"},
		{70, 6, "place hits/s average p99 max*"},
		{50, 1, "place hits/s* p99"},
		{40, 7, "place* p99"},
		{25, 1, "place"},
	} {
		s.sort = c.sort
		lines := s.lines(c.width, 10)
		if got := strings.Join(strings.Fields(lines[1]), " "); got != c.titles {
			t.Errorf("%d wide: %q, want %q", c.width, got, c.titles)
		}
		if c.width < 98 && !strings.HasPrefix(lines[2][2:], "lib") {
			t.Errorf("%d wide: %q", c.width, lines[2])
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > c.width || strings.Contains(l, "longlong") && !strings.Contains(l, "…") {
				t.Errorf("%d wide: %d: %q", c.width, n, l)
			}
		}
	}
}

// Of many places those without a hit are shown when they are asked for; few are always shown.
func TestScreenHidesSilentPlaces(t *testing.T) {
	now, before := places(340)
	for i := 14; i < len(now); i++ {
		now[i].Hits, before[i].Hits = 0, 0
	}
	s := &screen{sort: 1, rows: topRows(now, before, time.Second)}
	for _, shown := range []string{"13 places   327 silent   q", "340 places   q", "13 places   327 silent   q"} {
		if head := s.lines(120, 400)[0]; !strings.HasPrefix(head, shown) {
			t.Errorf("%q, want %q", head, shown)
		}
		s.key("a")
	}
	s.rows = s.rows[14:34]
	if head := s.lines(120, 400)[0]; !strings.HasPrefix(head, "20 places   q") {
		t.Errorf("few: %q", head)
	}
}

// A key is answered while counts are being read, however long that takes.
func TestKeysDoNotWaitForCounts(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	counts := readBeside(func(string) figures {
		begun <- true
		<-goOn
		return figures{}
	})
	keys, tick, drawn, ended := make(chan string), make(chan time.Time), make(chan string, 100), make(chan error)
	s := &screen{}
	go func() {
		ended <- s.live(happening{keys: keys, tick: tick}, counts, func(time.Duration) error {
			drawn <- s.lines(80, 10)[0]
			return nil
		})
	}()
	tick <- time.Time{}
	<-begun
	for _, k := range []string{"/", "f"} {
		keys <- k
		<-drawn
	}
	keys <- "o"
	if head := testprog.Receive(t, "the filter is drawn", 0, drawn); !strings.Contains(head, "filter: fo_") {
		t.Errorf("%q", head)
	}
	keys <- keyEnter
	<-drawn
	keys <- "q"
	if err := testprog.Receive(t, "q ends it", 0, ended); err != nil {
		t.Error(err)
	}
	close(goOn)
	counts.close()
	counts.close() // twice does no harm
}

// Callers are shown of the row that is chosen, and of no other, within the screen.
func TestScreenShowsCallers(t *testing.T) {
	now, before := places(20)
	s := &screen{sort: 1, rows: topRows(now, before, time.Second), selected: "lib:f0007"}
	s.callers = calledBy{place: "lib:f0007", rows: []caller{{0.75, "often a.c:3"}, {0.25, "seldom a.c:9"}}}
	shown := func(height int) string { return strings.Join(s.lines(80, height), "\n") }
	if got := shown(40); !strings.Contains(got, "called by\n    75.0%  often a.c:3\n    25.0%  seldom a.c:9") {
		t.Error(got)
	}
	for height := 5; height < 40; height++ {
		if n := len(s.lines(80, height)); n != height {
			t.Errorf("%d lines of %d", n, height)
		}
	}
	s.selected = "lib:f0008"
	if got := shown(40); strings.Contains(got, "called by") {
		t.Error(got)
	}
	inlined := []event.Frame{{Func: "small+0x3", Source: "a.c:4", Inlined: true}, {Func: "large+0x9", Source: "a.c:20"}}
	if got := callerName(inlined); got != "small a.c:4 in large a.c:20" {
		t.Error(got)
	}
	gone := []event.Frame{{Func: "small+0x3", Source: "a.c:4", Inlined: true, Tail: true}, {Func: "mid", Tail: true}, {Func: "large+0x9", Source: "a.c:20"}}
	if got := callerName(gone); got != "small a.c:4 in mid (tail call) from large a.c:20" {
		t.Error(got)
	}
	if got := callerName([]event.Frame{{Func: "large+0x9"}}); got != "large+0x9" {
		t.Error(got)
	}
}

func TestReadKeys(t *testing.T) {
	keys := readKeys(strings.NewReader("a\x1b[A\x1bOBq\x1b"))
	for _, want := range []string{"a", keyUp, keyDown, "q", keyEsc} {
		if got := <-keys; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Without a terminal the table is lines; the target is as it was.
func TestTopWithoutTerminal(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := started(t, tool(t, "top", "-i", "50ms", "-p", fmt.Sprint(p.Pid), "jumpers:jumper"), p.Pid)
	p.Round("1000")
	k.Signal(syscall.SIGINT)
	r := k.Result()
	most := "" // of the intervals that they came in, the last
	for _, l := range r.Lines {
		if f := strings.Fields(l); len(f) > 8 && f[2] == "100.0%" && f[len(f)-1] == "jumpers:jumper" {
			most = f[0]
		}
	}
	if !r.OK() || most != "1000" {
		t.Errorf("%s", r)
	}
	checkUntouched(t, p.Pid)
	refused(t, run(t, "top", "-i", "1us", "-p", "1", "x"), "at least 10ms")
}

func TestStatIntervals(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := started(t, tool(t, "stat", "-i", "50ms", "-p", fmt.Sprint(p.Pid), "p jumpers:jumper"), p.Pid)
	p.Round("1000")
	for !strings.Contains(k.Line(), "hits/s  share") {
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	if !r.OK() || count(r.Lines, "hits/s  share") < 1 || count(r.Lines, "jumpers:jumper") < 2 || count(r.Lines, "missed") != 1 {
		t.Errorf("%s", r)
	}
	checkUntouched(t, p.Pid)
}

// With --web the page has what the table would have, and ends when the target does.
func TestTopWeb(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := testprog.StartCmd(t, tool(t, "top", "--web", "-i", "50ms", "-p", fmt.Sprint(p.Pid), "jumpers:jumper"))
	link := k.Line()
	if !regexp.MustCompile(`^http://127\.0\.0\.1:\d+/\?token=\w{20,}$`).MatchString(link) {
		t.Fatalf("%q", link)
	}
	page, err := http.Get(strings.Replace(link, "/?", "/events?", 1))
	if err != nil || page.StatusCode != http.StatusOK {
		t.Fatal(err, page)
	}
	defer page.Body.Close()
	in := bufio.NewScanner(page.Body)
	in.Buffer(nil, 1<<20)
	next := func(kind string) (data string) {
		t.Helper()
		for in.Scan() {
			if got, ok := strings.CutPrefix(in.Text(), "event: "); ok && got == kind && in.Scan() {
				return in.Text()
			}
		}
		t.Fatalf("no event %q", kind)
		return ""
	}
	if start := next("start"); !strings.Contains(start, fmt.Sprintf(`"title":"jumpers %d"`, p.Pid)) || !strings.Contains(start, `"places":"jumpers:jumper"`) {
		t.Error(start)
	}
	p.Round("1000")
	for !strings.Contains(next("interval"), `"h":1000`) {
	}
	p.CloseStdin()
	next("end")
	if r := k.Result(); !r.OK() || r.Stderr != "" && !strings.Contains(r.Stderr, "samples") {
		t.Errorf("%s", r)
	}
}
