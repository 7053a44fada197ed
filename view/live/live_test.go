package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"kprobe/internal/testprog"
)

func served(t *testing.T) *Server {
	t.Helper()
	s, err := Serve(Head{Title: "server 12", Places: "server:*", Host: "here", Began: time.Unix(1e9, 0), Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// second is an interval in which place i of n was hit so often.
func second(i, n int, hits uint64) *Interval {
	v := &Interval{At: time.Duration(i+1) * time.Second, Passed: time.Second}
	for k := range n {
		took := make([]uint64, 64)
		took[10+k%8] = hits
		v.Rows = append(v.Rows, Row{Place: fmt.Sprintf("lib:f%d", k), Timed: true, Total: hits * uint64(i+1), Hits: hits, Took: took})
	}
	v.Stacks = []Stack{{Frames: []string{"main", "f0"}, Seen: 3}, {Frames: []string{"f1"}, Cut: true, Seen: 1}}
	return v
}

// get asks the server, as a browser that thinks that it is called host.
func get(t *testing.T, s *Server, path, host string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+s.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// The page is for the reader of the link: not for one without its token, nor for a page elsewhere that leads its
// reader's browser here, by a name of its own or by ours.
func TestOnlyTheLinkOpens(t *testing.T) {
	s := served(t)
	link, err := url.Parse(s.Link())
	if err != nil || link.Hostname() != "127.0.0.1" || len(s.token) < 20 {
		t.Fatalf("%s: %v", s.Link(), err)
	}
	with, port := "/?token="+s.token, link.Port()
	for _, c := range []struct {
		path, host string
		header     []string
		want       int
	}{
		{with, "", nil, 200},
		{with, "localhost:" + port, nil, 200},
		{with, "", []string{"Origin", "http://" + s.host}, 200},
		{with, "", []string{"Sec-Fetch-Site", "none"}, 200},
		{"/", "", nil, 403},
		{"/?token=", "", nil, 403},
		{"/?token=" + s.token[1:], "", nil, 403},
		{"/?token=" + s.token + "a", "", nil, 403},
		{"/?token=" + strings.ToLower(s.token), "", nil, 403},
		{"/events", "", nil, 403},
		{"/events?token=x", "", nil, 403},
		{with, "evil.example:" + port, nil, 421},
		{with, "127.0.0.1.evil.example:" + port, nil, 421},
		{with, "127.0.0.1", nil, 421},
		{with, "127.0.0.1:1", nil, 421},
		{with, "localhost.:" + port, nil, 421},
		{"/events?token=" + s.token, "evil.example", nil, 421},
		{with, "", []string{"Origin", "http://evil.example"}, 403},
		{with, "", []string{"Origin", "null"}, 403},
		{with, "", []string{"Origin", "https://" + s.host}, 403},
		{with, "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"/other?token=" + s.token, "", nil, 404},
		{"/../../etc/passwd?token=" + s.token, "", nil, 404},
	} {
		r := get(t, s, c.path, c.host, c.header...)
		var body []byte
		if r.StatusCode != 200 { // events have no end
			body, _ = io.ReadAll(r.Body)
		}
		if r.StatusCode != c.want && !(c.want == 404 && r.StatusCode == 403) {
			t.Errorf("%s at %q %q: %d, want %d", c.path, c.host, c.header, r.StatusCode, c.want)
		}
		if r.StatusCode != 200 && strings.Contains(string(body), s.token) {
			t.Errorf("%s: a refusal tells the token", c.path)
		}
		for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "X-Frame-Options"} {
			if r.Header.Get(h) == "" && r.StatusCode != 307 {
				t.Errorf("%s at %q: %d without %s", c.path, c.host, r.StatusCode, h)
			}
		}
	}
	post, err := http.Post(s.Link(), "text/plain", nil)
	if err != nil || post.StatusCode != 405 {
		t.Errorf("POST: %v %v", post, err)
	}
	post.Body.Close()
	if policy := get(t, s, with, "").Header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'") {
		t.Error(policy)
	}
	if strings.Contains(whole, "http:") || strings.Contains(whole, "https:") || strings.Contains(whole, "innerHTML") || strings.Count(whole, "</script>") != 1 {
		t.Error("the page loads something, or writes text as HTML")
	}
}

// reading is a page that reads events.
type reading struct {
	t  *testing.T
	in *bufio.Scanner
}

func read(t *testing.T, s *Server) *reading {
	t.Helper()
	r := get(t, s, "/events?token="+s.token, "")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(r.Status)
	}
	in := bufio.NewScanner(r.Body)
	in.Buffer(nil, 64<<20)
	return &reading{t, in}
}

// next is the next event.
func (r *reading) next(to any) (kind string) {
	r.t.Helper()
	for r.in.Scan() {
		line := r.in.Text()
		if k, ok := strings.CutPrefix(line, "event: "); ok {
			kind = k
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), to); err != nil {
				r.t.Fatalf("%v: %s", err, data)
			}
			return kind
		}
	}
	return ""
}

// Events have what was published, in order: to a page that was there, and to one that came later.
func TestEvents(t *testing.T) {
	s := served(t)
	early := read(t, s)
	var first start
	if kind := early.next(&first); kind != "start" || first.Title != "server 12" || first.Head.Places != "server:*" || len(first.Known) != 0 {
		t.Fatalf("%s %+v", kind, first)
	}
	check := func(r *reading, names []string, want int) {
		t.Helper()
		for i := range want {
			var v wire
			if kind := r.next(&v); kind != "interval" || v.At != float64(i+1) || v.Passed != 1 {
				t.Fatalf("%s %+v", kind, v)
			}
			names = append(names[:min(v.First, len(names))], v.Names...)
			if len(v.Hits) != 2 || names[v.Hits[1][0]] != "lib:f1" || v.Hits[1][1] != uint64(i+1) || v.Hits[1][2] != 11 || v.Hits[1][3] != uint64(i+1) {
				t.Errorf("interval %d: %v", i, v.Hits)
			}
			if len(v.Stacks) != 2 || v.Stacks[0][0] != 3 || v.Stacks[0][1] != 0 || names[v.Stacks[0][2]] != "main" || v.Stacks[1][1] != 1 || names[v.Stacks[1][2]] != "f1" {
				t.Errorf("stacks %v", v.Stacks)
			}
		}
	}
	for i := range 3 {
		v := second(i, 2, uint64(i+1))
		v.Rows = append(v.Rows, Row{Place: "lib:never"}) // which is told once
		if err := s.Publish(v); err != nil {
			t.Fatal(err)
		}
	}
	check(early, nil, 3)
	later := read(t, s)
	var second start
	if kind := later.next(&second); kind != "start" || len(second.Known) != 3 || second.Known[0].Total != 9 || second.Names[second.Known[2].Name] != "lib:never" {
		t.Fatalf("%s %+v", kind, second)
	}
	check(later, second.Names, 3)
	go s.Close()
	for _, r := range []*reading{early, later} {
		if kind := r.next(new(any)); kind != "end" {
			t.Errorf("%q at the end", kind)
		}
		if kind := r.next(new(any)); kind != "" {
			t.Errorf("%q after the end", kind)
		}
	}
	<-s.ended
	if _, err := net.Dial("tcp", s.host); err == nil {
		t.Error("it is served still")
	}
}

// A page that reads nothing holds up neither what is published nor another page; it is told that it has missed some, if it
// reads on.
func TestSlowReader(t *testing.T) {
	s := served(t)
	s.feed.most = 20
	s.patience = time.Hour // a busy machine may take long
	slow, err := net.Dial("tcp", s.host)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "GET /events?token=%s HTTP/1.1\r\nHost: %s\r\n\r\n", s.token, s.host)
	quick := read(t, s)
	quick.next(new(any))
	testprog.Until(t, "both read", os.Getpid(), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.readers == 2
	})
	const many = 300
	for i := range many {
		if err := s.Publish(second(i, 1000, 5)); err != nil {
			t.Fatal(err)
		}
		var v wire
		if kind := quick.next(&v); kind != "interval" || v.At != float64(i+1) {
			t.Fatalf("%s %v", kind, v.At)
		}
	}
	if n := len(s.feed.kept); n > 20 || s.feed.bytes > mostBytes {
		t.Errorf("%d intervals of %d bytes are kept", n, s.feed.bytes)
	}
	in, starts, last := &reading{t, bufio.NewScanner(slow)}, 0, 0.0
	in.in.Buffer(nil, 64<<20)
	for last < many {
		var v struct {
			At      float64
			Skipped uint64
		}
		switch kind := in.next(&v); kind {
		case "start":
			starts++
		case "interval":
			last = v.At
		default:
			t.Fatalf("%q after %v", kind, last)
		}
	}
	if starts != 2 {
		t.Errorf("the slow page has begun %d times", starts)
	}
}

// Many pages are refused, and their places are free again when they go.
func TestReadersAreFew(t *testing.T) {
	s := served(t)
	var all []*http.Response
	for range mostReaders {
		r := get(t, s, "/events?token="+s.token, "")
		if r.StatusCode != 200 {
			t.Fatal(r.Status)
		}
		all = append(all, r)
	}
	if r := get(t, s, "/events?token="+s.token, ""); r.StatusCode != 503 {
		t.Error(r.Status)
	}
	all[0].Body.Close()
	testprog.UntilNil(t, "a place is free", os.Getpid(), func() error {
		if r := get(t, s, "/events?token="+s.token, ""); r.StatusCode != 200 {
			return errors.New(r.Status)
		}
		return nil
	})
}
