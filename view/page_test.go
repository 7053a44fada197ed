package view

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/graph"
	"kprobe/internal/testprog"
	"kprobe/internal/testprog/browser"
)

// served is 3.05 s of a server's calls, in order of their ends.
func served(add func(*graph.Span)) {
	rnd := rand.New(rand.NewPCG(1, 2))
	span := func(name string, depth int, start, took time.Duration) {
		add(&graph.Span{PID: 12, TID: 12, Comm: "server", Name: name, Depth: depth, Start: start, End: start + took, Ended: graph.Returned})
	}
	for at := 10 * time.Millisecond; at < 3060*time.Millisecond; at += 10 * time.Millisecond {
		some := time.Duration(rnd.IntN(900)+100) * time.Microsecond
		span("parse_request_headers", 2, at+50*time.Microsecond, some/4)
		span("std::map<std::string, std::vector<long>>::operator[]", 3, at+some/3+60*time.Microsecond, some/9)
		span("lookup", 2, at+some/3+55*time.Microsecond, some/3)
		span("handle", 1, at+20*time.Microsecond, some)
		span("serve", 0, at, some+100*time.Microsecond)
	}
}

// The pages are looked at as people do: they tell what they are about, fill the window, and are light or dark.
func TestPagesAreLookedAt(t *testing.T) {
	f, h, dir := NewFlame(), NewHeat(), t.TempDir()
	served(func(s *graph.Span) { f.Add(s); h.Add(s) })
	about := About{Process: "server 12", Asked: "p server:*, r server:*", Began: time.Unix(1.79e9, 0), Took: 3050 * time.Millisecond, Events: 3050, Lost: 7, Stopped: true}
	for name, page := range map[string]func(*os.File) error{
		"flame": func(w *os.File) error { return f.WriteHTML(w, about) }, "heat": func(w *os.File) error { return h.WriteHTML(w, about) },
	} {
		w, err := os.Create(filepath.Join(dir, name+".html"))
		if err == nil {
			err = page(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	b := browser.Start(t)
	number := func(p *browser.Page, expression string) (n float64) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.Eval(expression)), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, title := range map[string]string{"flame": "Flame graph of server 12", "heat": "Latency over time of server 12"} {
		p := b.Open(t, (&url.URL{Scheme: "file", Path: filepath.Join(dir, name+".html")}).String(), 1280, 800)
		if got := p.Text("#title"); got != title {
			t.Errorf("%s: %q", name, got)
		}
		if got := p.Text("#facts"); !strings.Contains(got, "3.05 s") || !strings.Contains(got, "3,050 events") || !strings.Contains(got, "2026") {
			t.Errorf("%s: %q", name, got)
		}
		if got := p.Text("#warn"); !strings.Contains(got, "7 events are lost") || !strings.Contains(got, "durations have the stops in them") {
			t.Errorf("%s: %q", name, got)
		}
		for _, scheme := range []string{"light", "dark"} {
			p.Prefers(scheme, false)
			for _, w := range []int{1280, 500} {
				p.Size(w, 800)
				testprog.Until(t, "the picture fills the window", os.Getpid(), func() bool {
					return number(p, "document.querySelector('#room canvas').clientWidth / innerWidth") > .85 &&
						(name != "heat" || number(p, "canvas.clientHeight / document.getElementById('room').clientHeight") > .9)
				})
				if p.Eval("document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight + 1") != "true" {
					t.Errorf("%s: the page is larger than the window of %d", name, w)
				}
				p.Keep(fmt.Sprintf("%s-%s-%d", name, scheme, w))
			}
		}
		if back := p.Eval("getComputedStyle(document.body).backgroundColor"); back != `"rgb(15, 18, 22)"` {
			t.Errorf("%s: dark is %s", name, back)
		}
		p.Size(1280, 800)
		switch name {
		case "flame":
			if row := number(p, "row"); row != 40 {
				t.Errorf("rows of %v in a window with room", row)
			}
			p.Key("-", "-")
			if row := number(p, "row"); row != 34 || p.Eval("canvas.clientHeight === row * depths") != "true" {
				t.Errorf("rows of %v", row)
			}
			// A name without room ends in an ellipsis.
			if got := p.Eval(`/^parse.*…$/.test(clip(canvas.getContext("2d"), "parse_request_headers", 60))`); got != "true" {
				t.Error(got)
			}
			p.Key("/", "l", "o", "o", "k")
			if got := p.Text("#found"); got != "1 found" {
				t.Errorf("%q", got)
			}
			p.Keep("flame-found")
			p.Eval("$('search').value = '', $('mode').value = 'time', lay(), 0")
			if last := number(p, "lasts"); last < 3.03e9 || last > 3.06e9 {
				t.Errorf("the axis ends at %v", time.Duration(last))
			}
			p.Keep("flame-time")
		case "heat":
			// The axis ends with the data, not with a table that has more columns.
			if last := number(p, "lasts"); last < 3.04e9 || last > 3.06e9 {
				t.Errorf("the axis ends at %v", time.Duration(last))
			}
			if got := p.Text("#mixed"); got != "calls of 5 functions together" || !strings.HasSuffix(p.Text("#most"), " calls") {
				t.Errorf("%q", got)
			}
		}
		if said := p.Complaints(); len(said) > 0 {
			t.Errorf("%s: %q", name, said)
		}
	}
}
