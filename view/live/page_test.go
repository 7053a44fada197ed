package live

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"kprobe/internal/testprog/browser"
)

// functions has those of a server that there might be, and of each the usual time of a call, and how often it is called.
var functions = []struct {
	name string
	took float64 // ns
	rate float64
}{
	{"nginx:ngx_http_process_request", 180e3, 900}, {"nginx:ngx_http_core_content_phase", 95e3, 900}, {"nginx:ngx_http_static_handler", 60e3, 620},
	{"nginx:ngx_open_cached_file", 12e3, 620}, {"nginx:ngx_http_proxy_handler", 2.4e6, 210}, {"nginx:ngx_http_upstream_init_request", 70e3, 210},
	{"nginx:ngx_http_upstream_process_header", 33e3, 260}, {"nginx:ngx_http_finalize_request", 8e3, 1800}, {"nginx:ngx_http_send_header", 14e3, 830},
	{"nginx:ngx_http_output_filter", 21e3, 1700}, {"nginx:ngx_http_parse_request_line", 900, 900}, {"nginx:ngx_http_parse_header_line", 310, 8200},
	{"nginx:ngx_http_gzip_body_filter", 480e3, 150}, {"nginx:ngx_epoll_process_events", 700e3, 1400}, {"nginx:ngx_event_accept", 40e3, 75},
	{"nginx:std::vector<std::pair<std::string, unsigned long>, std::allocator<std::pair<std::string, unsigned long>>>::_M_realloc_insert", 2e3, 40},
}

var stacks = []struct {
	frames string
	seen   uint64
}{
	{"main;ngx_master_process_cycle;ngx_worker_process_cycle;ngx_process_events_and_timers;ngx_epoll_process_events;epoll_wait", 12},
	{"main;ngx_master_process_cycle;ngx_worker_process_cycle;ngx_process_events_and_timers;ngx_event_process_posted;ngx_http_process_request;ngx_http_core_content_phase;ngx_http_static_handler;ngx_open_cached_file;open64", 9},
	{"main;ngx_master_process_cycle;ngx_worker_process_cycle;ngx_process_events_and_timers;ngx_event_process_posted;ngx_http_process_request;ngx_http_core_content_phase;ngx_http_static_handler;ngx_http_output_filter;ngx_http_gzip_body_filter;deflate;longest_match", 26},
	{"main;ngx_master_process_cycle;ngx_worker_process_cycle;ngx_process_events_and_timers;ngx_event_process_posted;ngx_http_process_request;ngx_http_core_content_phase;ngx_http_static_handler;ngx_http_output_filter;ngx_http_gzip_body_filter;deflate;deflate_slow", 14},
	{"main;ngx_master_process_cycle;ngx_worker_process_cycle;ngx_process_events_and_timers;ngx_event_process_posted;ngx_http_process_request;ngx_http_core_content_phase;ngx_http_proxy_handler;ngx_http_upstream_init_request", 7},
	{"main;ngx_master_process_cycle;ngx_worker_process_cycle;ngx_process_events_and_timers;ngx_event_process_posted;ngx_http_process_request_headers;ngx_http_parse_header_line", 5},
}

// busy is a second of such a server. The third minute is bad for one function.
func busy(i, silent int) *Interval {
	v := &Interval{At: time.Duration(i+1) * time.Second, Passed: time.Second}
	for k, f := range functions {
		wave := 1 + .35*math.Sin(float64(i)/9+float64(k))
		hits, slow := uint64(f.rate*wave), 1.0
		if k == 4 && i%100 > 62 && i%100 < 80 {
			slow = 9
		}
		r := Row{Place: f.name, Timed: true, Hits: hits, Total: hits * uint64(i+1), Took: make([]uint64, 64)}
		middle := math.Log2(f.took * slow * (1 + .2*math.Sin(float64(i)/5)))
		for p := range r.Took {
			r.Took[p] = uint64(float64(hits) * .4 * math.Exp(-math.Pow(float64(p)-middle, 2)/1.1))
		}
		v.Rows = append(v.Rows, r)
	}
	v.Rows = append(v.Rows, Row{Place: "libc.so.6:malloc", Hits: 25000, Total: 25000 * uint64(i+1), Missed: uint64(i / 60)})
	for k := range silent {
		v.Rows = append(v.Rows, Row{Place: fmt.Sprintf("nginx:ngx_http_silent_%03d", k), Timed: true})
	}
	for k, s := range stacks {
		v.Stacks = append(v.Stacks, Stack{Frames: strings.Split(s.frames, ";"), Seen: s.seen + uint64((i*7+k*3)%5)})
	}
	v.Stacks = append(v.Stacks, Stack{Frames: []string{"ngx_http_finalize_request", "ngx_http_free_request"}, Cut: true, Seen: 4})
	return v
}

// opened is the page of a server of so many seconds.
func opened(t *testing.T, b *browser.Browser, seconds, silent, width, height int) (*Server, *browser.Page) {
	t.Helper()
	s, err := Serve(Head{Title: "nginx 4711", Places: "nginx:ngx_http_* nginx:ngx_epoll_process_events p libc.so.6:malloc", Host: "web1", Began: time.Unix(1.79e9, 0), Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for i := range seconds {
		if err := s.Publish(busy(i, silent)); err != nil {
			t.Fatal(err)
		}
	}
	p := b.Open(t, s.Link(), width, height)
	p.Until("it is live", "document.body.dataset.state === 'live'")
	if seconds > 0 {
		p.Until("there are rows", fmt.Sprintf("kept.length === %d && document.querySelectorAll('#body tr').length > 0", seconds))
	}
	return s, p
}

// fits tells what is beyond the window's width, or beyond what holds it.
func fits(t *testing.T, p *browser.Page) {
	t.Helper()
	if got := p.Eval("document.documentElement.scrollWidth <= innerWidth"); got != "true" {
		t.Error("the page is wider than the window")
	}
	if got := p.Eval(`[...document.querySelectorAll("header, section, .head, #figures, #controls")].filter(e => e.offsetParent && (e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1)).map(e => e.id || e.className || e.tagName)`); got != "[]" {
		t.Errorf("too wide are %s", got)
	}
}

// painted is the share of a canvas that is not left blank.
func painted(t *testing.T, p *browser.Page, id string) (share float64) {
	t.Helper()
	text := p.Eval(fmt.Sprintf(`(() => { const c = document.getElementById(%q), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n / (d.length / 4); })()`, id))
	if err := json.Unmarshal([]byte(text), &share); err != nil {
		t.Fatal(err)
	}
	return share
}

// The page is looked at as people do. One browser does for all: to start one takes seconds.
func TestPage(t *testing.T) {
	b := browser.Start(t)
	for name, look := range map[string]func(*testing.T, *browser.Browser){
		"keys": keys, "mouse": mouse, "fits": fitting, "little": little, "names": names, "ends": ends,
	} {
		t.Run(name, func(t *testing.T) { look(t, b) })
	}
}

// rowsOf reads the rows of the table.
func rowsOf(t *testing.T, p *browser.Page) (rows []string) {
	t.Helper()
	text := p.Eval(`[...document.querySelectorAll("#body tr")].map(r => [...r.cells].map(c => c.innerText).join(" "))`)
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func keys(t *testing.T, b *browser.Browser) {
	s, p := opened(t, b, 200, 340, 1280, 800)
	p.Keep("live-light")
	fits(t, p)
	if got := p.Text("#title"); got != "nginx 4711" {
		t.Errorf("title %q", got)
	}
	rows := func() []string { return rowsOf(t, p) }
	if got := rows(); len(got) != len(functions)+1 || !strings.HasPrefix(got[0], "malloclibc.so.6 ") || !strings.Contains(got[0], " 25.0 k ") {
		t.Errorf("%d rows: %q", len(got), got)
	}
	if got := p.Text("#more"); got != "340 places without a hit: a shows them" {
		t.Errorf("%q", got)
	}
	if got := p.Text("#elapsed") + " " + p.Text("#missed"); got != "3:20 3" {
		t.Errorf("figures %q", got)
	}
	for _, id := range []string{"heat", "flame"} {
		if share := painted(t, p, id); share < .03 {
			t.Errorf("%s is blank but for %.3f", id, share)
		}
	}
	chosen := func() string {
		return p.Eval("[...document.querySelectorAll('tr[aria-selected=true] td:first-child')].map(e => e.textContent).join()")
	}
	p.Key("ArrowDown", "ArrowDown")
	if got := chosen(); got != `"ngx_http_parse_header_linenginx"` || p.Text("#heatof") != "ngx_http_parse_header_line" {
		t.Errorf("chosen %s, drawn %q", got, p.Text("#heatof"))
	}
	p.Key("ArrowUp")
	if got := p.Text("#noheat"); chosen() != `"malloclibc.so.6"` || got != "This place is counted; its calls are not timed." {
		t.Errorf("chosen %s: %q", chosen(), got)
	}
	p.Key("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight") // past p50, p99 and hits to the place
	if got := p.Eval("document.querySelector('th[aria-sort]').textContent"); got != `"place"` {
		t.Errorf("sorted by %s", got)
	}
	p.Key("/", "p", "r", "o", "x", "y")
	if got := rows(); len(got) != 1 || !strings.HasPrefix(got[0], "ngx_http_proxy_handlernginx ") {
		t.Errorf("filtered: %q", got)
	}
	p.Key("Escape", "Escape")
	if got := chosen(); got != `""` || len(rows()) != len(functions)+1 {
		t.Errorf("after Escape %s is chosen, of %d", got, len(rows()))
	}
	p.Key("a")
	if got := rows(); len(got) != len(functions)+1+340 {
		t.Errorf("all: %d", len(got))
	}
	p.Key("a", "p")
	if got := p.Text("#word"); got != "paused" {
		t.Errorf("%q", got)
	}
	if err := s.Publish(busy(200, 340)); err != nil {
		t.Fatal(err)
	}
	p.Until("it tells that it is behind", "document.getElementById('word').textContent === 'paused, 0:01 behind'")
	if got := p.Text("#elapsed"); got != "3:20" {
		t.Errorf("while it is paused %q", got)
	}
	p.Key("p")
	p.Until("it goes on", "document.getElementById('elapsed').textContent === '3:21'")
	p.Key("3")
	if got := p.Eval("document.querySelector('#range [aria-pressed=true]').textContent"); got != `"5 min"` {
		t.Errorf("range %s", got)
	}
	p.Keep("live-far")
	p.Key("?")
	if got := p.Eval("document.getElementById('help').open"); got != "true" {
		t.Error("no help")
	}
	p.Keep("live-help")
	p.Key("p") // is for nothing there
	p.Eval("document.getElementById('help').close()")
	if got := p.Text("#word"); got != "live" {
		t.Errorf("%q", got)
	}
	if said := p.Complaints(); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

// The mouse chooses a span of time in the one picture, and a part of the other.
func mouse(t *testing.T, b *browser.Browser) {
	_, p := opened(t, b, 90, 0, 1280, 800)
	before := p.Text("#flameof")
	box := func(id string) (b struct{ X, Y, Width, Height float64 }) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.Eval(fmt.Sprintf("document.getElementById(%q).getBoundingClientRect().toJSON()", id))), &b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	h := box("heat")
	p.Mouse("mouseMoved", h.X+h.Width/2, h.Y+40)
	p.Mouse("mousePressed", h.X+h.Width/2, h.Y+40)
	p.Mouse("mouseMoved", h.X+h.Width*.8, h.Y+40)
	p.Mouse("mouseReleased", h.X+h.Width*.8, h.Y+40)
	if after := p.Text("#flameof"); after == before || !regexp.MustCompile(`^\d+.* samples$`).MatchString(after) {
		t.Errorf("the stacks are of %q, before %q", after, before)
	}
	p.Keep("live-span")
	f := box("flame")
	p.Mouse("mouseMoved", f.X+f.Width*.6, f.Y+10+20*6)
	if got := p.Text("#tip"); !strings.Contains(got, "samples") {
		t.Errorf("tip %q", got)
	}
	p.Mouse("mousePressed", f.X+f.Width*.6, f.Y+10+20*6)
	p.Mouse("mouseReleased", f.X+f.Width*.6, f.Y+10+20*6)
	if p.Eval("view.zoom !== null && !document.getElementById('unzoom').hidden") != "true" {
		t.Error("no zoom")
	}
	p.Keep("live-zoom")
	p.Key("Escape", "Escape")
	if after := p.Text("#flameof"); after != before || p.Eval("view.zoom === null && view.span === null") != "true" {
		t.Errorf("%q", after)
	}
}

// It is as its reader likes it: dark or light, still, in a window of any size, with much or nothing to show.
func fitting(t *testing.T, b *browser.Browser) {
	_, p := opened(t, b, 130, 1000, 1440, 900)
	backs := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		p.Prefers(scheme, true)
		p.Key("ArrowDown", "ArrowDown", "ArrowDown")
		backs[p.Eval("getComputedStyle(document.body).backgroundColor + ink.card")] = true
		p.Keep("live-chosen-" + scheme)
		if got := p.Eval("getComputedStyle(document.querySelector('#state i')).animationName"); got != `"none"` {
			t.Errorf("something moves: %s", got)
		}
		for _, w := range []int{1440, 1024, 760, 480, 360} {
			p.Size(w, 800)
			p.Until("it is drawn", "document.getElementById('heat').clientWidth < innerWidth")
			p.Eval("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))")
			fits(t, p)
			p.Keep(fmt.Sprintf("live-%s-%d", scheme, w))
		}
		p.Key("Escape")
	}
	if len(backs) != 2 {
		t.Errorf("colours %v", backs)
	}
	if said := p.Complaints(); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

// With nothing to show the page says so.
func little(t *testing.T, b *browser.Browser) {
	_, empty := opened(t, b, 0, 0, 1280, 800)
	empty.Until("it says that there is nothing yet", "document.getElementById('more').textContent === 'the first figures are on their way'")
	empty.Keep("live-empty")
	_, p := opened(t, b, 2, 0, 1280, 800)
	p.Keep("live-little")
	fits(t, p)
}

// What a target names is text, whatever it looks like.
func names(t *testing.T, b *browser.Browser) {
	s, p := opened(t, b, 0, 0, 1000, 700)
	evil := `x:<img src=x onerror="document.title='evil'"></script><script>document.title='evil'</script>`
	if err := s.Publish(&Interval{At: time.Second, Passed: time.Second, Rows: []Row{{Place: evil, Hits: 1, Total: 1}}, Stacks: []Stack{{Frames: []string{evil}, Seen: 1}}}); err != nil {
		t.Fatal(err)
	}
	p.Until("it is drawn", "document.querySelectorAll('#body tr').length === 1")
	if got := p.Eval("document.querySelector('#body td').textContent"); !strings.Contains(got, "onerror") || !strings.HasPrefix(p.Eval("document.title"), `"nginx 4711 `) || p.Eval("document.images.length") != "0" {
		t.Errorf("%s, title %s", got, p.Eval("document.title"))
	}
}

// The end is told, and what was shown stays. A page that has lost its connection says so, and begins anew when there is one.
func ends(t *testing.T, b *browser.Browser) {
	s, p := opened(t, b, 30, 0, 1280, 800)
	p.Key("ArrowDown", "ArrowDown")
	chosen := p.Text("tr[aria-selected=true] td")
	p.Eval("live.dispatchEvent(new Event('error')), 0")
	if got := p.Text("#word"); got != "no connection, trying again" {
		t.Errorf("%q", got)
	}
	p.Eval("live.close(), connect(), 0") // as the browser does
	p.Until("it is live again", "document.body.dataset.state === 'live' && kept.length === 30")
	p.Until("it is drawn", "document.querySelectorAll('tr[aria-selected=true]').length === 1")
	if got := p.Text("tr[aria-selected=true] td"); got != chosen {
		t.Errorf("%q is chosen, before %q", got, chosen)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.Until("the end is told", "document.body.dataset.state === 'ended'")
	if rows := rowsOf(t, p); len(rows) != len(functions)+1 || p.Eval("live.readyState") != "2" {
		t.Errorf("%q, %s", rows, p.Eval("live.readyState"))
	}
	p.Keep("live-ended")
}
