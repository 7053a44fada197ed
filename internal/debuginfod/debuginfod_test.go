package debuginfod

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// debugged is a file with a build ID, of 20 bytes.
func debugged(t *testing.T) (path string, id []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "p")
	c := exec.Command("gcc", "-g", "-Wl,--build-id", "-x", "c", "-o", path, "-")
	c.Stdin = strings.NewReader("int main(void) { return 0; }")
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if id = idOf(f); len(id) != 20 {
		t.Fatalf("a build ID of %x", id)
	}
	return path, id
}

func TestOpen(t *testing.T) {
	path, id := debugged(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	release := make(chan struct{})
	serve := func(f http.HandlerFunc) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.URL.Path != fmt.Sprintf("/buildid/%x/debuginfo", id) {
				t.Errorf("asked for %s", r.URL.Path)
			}
			f(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	has := serve(func(w http.ResponseWriter, _ *http.Request) { w.Write(whole) })
	none := serve(http.NotFound)
	wrong := serve(func(w http.ResponseWriter, _ *http.Request) { w.Write(whole[:200]) })
	half := serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		w.Write(whole[:len(whole)/2])
	})
	ill := serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	silent := serve(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	t.Cleanup(func() { close(release) }) // before the servers are closed
	for _, c := range []struct {
		name    string
		servers []string
		timeout time.Duration
		err     string // "": it is found
		asked   int32  // in two attempts
	}{
		{"it is had, and kept", []string{has}, time.Minute, "", 1},
		{"the second has it", []string{none, has + "/"}, time.Minute, "", 2},
		{"the third has it", []string{wrong, half, has}, time.Minute, "", 3},
		{"nobody has it, who is not asked again", []string{none, none}, time.Minute, ErrAbsent.Error(), 2},
		{"another file", []string{wrong}, time.Minute, "build ID", 2},
		{"a part of it", []string{half}, time.Minute, "EOF", 2},
		{"a server that is ill", []string{ill, none}, time.Minute, "500", 4},
		{"a server that says nothing", []string{silent}, 50 * time.Millisecond, "it says nothing for 50ms", 2},
		{"no server", []string{"http://127.0.0.1:1"}, time.Minute, "refused", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked.Store(0)
			cl := &Client{Servers: c.servers, Cache: t.TempDir(), Timeout: c.timeout}
			for range 2 {
				f, err := cl.Open(id)
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("%v, want %s", err, c.err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(f)
				if f.Close(); err != nil || !slices.Equal(b, whole) {
					t.Errorf("%d bytes of %d: %v", len(b), len(whole), err)
				}
			}
			if n := asked.Load(); n != c.asked {
				t.Errorf("the servers were asked %d times, not %d", n, c.asked)
			}
			left, err := filepath.Glob(filepath.Join(cl.Cache, "*", "fetching*"))
			if err != nil || len(left) > 0 {
				t.Errorf("%q is left: %v", left, err)
			}
		})
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Setenv("DEBUGINFOD_URLS", "")
	if c := FromEnvironment(); c != nil {
		t.Errorf("%+v without servers", c)
	}
	t.Setenv("DEBUGINFOD_URLS", "http://a  http://b")
	t.Setenv("DEBUGINFOD_TIMEOUT", "7")
	t.Setenv("DEBUGINFOD_CACHE_PATH", "/somewhere")
	if c := FromEnvironment(); c == nil || !slices.Equal(c.Servers, []string{"http://a", "http://b"}) || c.Timeout != 7*time.Second || c.Cache != "/somewhere" {
		t.Errorf("%+v", c)
	}
	t.Setenv("DEBUGINFOD_CACHE_PATH", "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if c := FromEnvironment(); c.Cache != "/cache/debuginfod_client" {
		t.Errorf("%+v", c)
	}
	if _, err := (&Client{Servers: []string{"http://127.0.0.1:1"}}).Open([]byte("12345678")); !errors.Is(err, ErrAbsent) {
		t.Errorf("without a cache: %v", err)
	}
}

// Who waits is told of it once a second.
func TestTell(t *testing.T) {
	var told []string
	w := &watched{r: strings.NewReader("abc"), c: &Client{Tell: func(s string) { told = append(told, s) }}, url: "URL", of: 3 << 20, began: time.Now().Add(-time.Minute), heard: func() {}}
	if _, err := io.ReadAll(w); err != nil || len(told) != 1 || told[0] != "0.0 of 3.0 MiB of debug data fetched from URL" {
		t.Errorf("%q: %v", told, err)
	}
}
