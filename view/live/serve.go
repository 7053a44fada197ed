package live

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server serves one page, from Serve to Close.
type Server struct {
	feed  *feed
	token string
	host  string // 127.0.0.1:PORT
	http  http.Server
	ended chan struct{} // the server has ended

	// patience is for a page to read an event that it is sent. One that takes longer is cut off, and asks again.
	patience time.Duration

	mu      sync.Mutex
	readers int
	empty   chan struct{} // closed while there is no reader
}

const (
	mostReaders   = 16
	usualPatience = 15 * time.Second
	// farewell bounds the time in which pages may read the end, at Close.
	farewell = 2 * time.Second
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// Serve begins to serve a page on a port of loopback that nobody has.
func Serve(h Head) (*Server, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{feed: newFeed(h), token: rand.Text(), host: l.Addr().String(), ended: make(chan struct{}), empty: make(chan struct{}), patience: usualPatience}
	close(s.empty)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /events", s.events)
	s.http = http.Server{Handler: s.checked(mux), ReadHeaderTimeout: usualPatience, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(l) // until Close
	}()
	return s, nil
}

// Link is where a browser finds the page.
func (s *Server) Link() string { return "http://" + s.host + "/?token=" + s.token }

// Publish shows what an interval brought. It waits for no page.
func (s *Server) Publish(v *Interval) error { return s.feed.publish(v) }

// Close tells pages that it is over, and serves no more.
func (s *Server) Close() error {
	s.feed.end()
	s.mu.Lock()
	empty := s.empty
	s.mu.Unlock()
	late, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	select {
	case <-empty:
	case <-late.Done():
	}
	err := s.http.Close()
	<-s.ended
	return err
}

// checked lets a request through that has the token and is meant for this server. A page elsewhere
// whose name leads here (DNS rebinding) sends its own name as the host. A page that sends its
// request here sends its origin.
func (s *Server) checked(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(s.token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Security-Policy", policy)
		got := sha256.Sum256([]byte(r.URL.Query().Get("token")))
		origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
		switch {
		case !s.isHere(r.Host):
			http.Error(w, "this is not the host of the link", http.StatusMisdirectedRequest)
		case origin != "" && !s.isHere(strings.TrimPrefix(origin, "http://")), site == "cross-site", site == "same-site":
			http.Error(w, "another page asks", http.StatusForbidden)
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			http.Error(w, "the link's token is missing or wrong: kprobe has printed the link", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isHere tells whether a name of a host is ours.
func (s *Server) isHere(host string) bool {
	_, port, _ := net.SplitHostPort(s.host)
	return host == s.host || host == "localhost:"+port
}

// policy lets the page do what it does: its own script and style, which are told by their sums, and our events.
var policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	sum(pageJS), sum(pageCSS))

func sum(text string) string {
	b := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(b[:])
}

// whole is the page in one piece.
var whole = strings.NewReplacer("/*CSS*/", pageCSS, "/*JS*/", pageJS).Replace(pageHTML)

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(whole)) // the browser has gone, else
}

// events sends the intervals so far, and each new one, as server-sent events: "start" before the
// first, "end" after the last.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		http.Error(w, "so many pages are open that no more are served", http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(kind string, data []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data); err != nil { // JSON has no line ends
			return err
		}
		return out.Flush()
	}
	for n, begun := uint64(0), false; ; {
		var text []byte
		var more <-chan struct{}
		over, behind := false, !begun
		if begun {
			text, more, behind, over = s.feed.next(n)
		}
		kind := "interval"
		switch {
		case behind:
			var err error
			if text, n, err = s.feed.begin(); err != nil {
				return
			}
			kind, begun = "start", true
		case text != nil:
			n++
		case over:
			_ = send("end", []byte("{}")) // or the page has gone
			return
		default:
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
			continue
		}
		if send(kind, text) != nil {
			return
		}
	}
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == mostReaders {
		return false
	}
	if s.readers++; s.readers == 1 {
		s.empty = make(chan struct{})
	}
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers--; s.readers == 0 {
		close(s.empty)
	}
}
