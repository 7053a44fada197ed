// Package debuginfod fetches debug files by their build IDs from the servers that DEBUGINFOD_URLS names, as GDB and elfutils
// do, and keeps them in the user's cache, which it shares with these.
//
// What it goes by is debuginfod(8) and debuginfod_find_debuginfo(3): the request is GET URL/buildid/ID/debuginfo, the cache
// holds ID/debuginfo, and what no server has is an empty file there.
package debuginfod

import (
	"context"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Client fetches debug files.
type Client struct {
	Servers []string      // of DEBUGINFOD_URLS
	Cache   string        // the folder; "": nothing is kept, and nothing found
	Timeout time.Duration // without any byte from a server
	Tell    func(string)  // is told what is fetched, when it takes a while; may be nil
}

const (
	defaultTimeout = 90 * time.Second
	notFoundFor    = 10 * time.Minute // what no server had is not asked for again
	tellAfter      = time.Second
	maxSize        = 8 << 30
)

// ErrAbsent says that no server has the file, or none is named.
var ErrAbsent = errors.New("no debuginfod server has it")

// FromEnvironment is the client that the environment asks for; nil where it names no server.
func FromEnvironment() *Client {
	c := &Client{Servers: strings.Fields(os.Getenv("DEBUGINFOD_URLS")), Timeout: defaultTimeout}
	if len(c.Servers) == 0 {
		return nil
	}
	if s, err := strconv.Atoi(os.Getenv("DEBUGINFOD_TIMEOUT")); err == nil && s > 0 {
		c.Timeout = time.Duration(s) * time.Second
	}
	if c.Cache = os.Getenv("DEBUGINFOD_CACHE_PATH"); c.Cache == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			c.Cache = filepath.Join(dir, "debuginfod_client")
		}
	}
	return c
}

// Open opens the debug file of a build ID, which is fetched if it is not in the cache. Errors: ErrAbsent; else why it cannot be had.
func (c *Client) Open(buildID []byte) (*os.File, error) {
	if len(buildID) < 2 || c.Cache == "" {
		return nil, ErrAbsent
	}
	id := hex.EncodeToString(buildID)
	dir := filepath.Join(c.Cache, id)
	name := filepath.Join(dir, "debuginfo")
	if st, err := os.Stat(name); err == nil {
		if st.Size() > 0 {
			return os.Open(name)
		}
		if time.Since(st.ModTime()) < notFoundFor {
			return nil, ErrAbsent
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var errs []error
	absent := true
	for _, server := range c.Servers {
		err := c.fetch(strings.TrimRight(server, "/")+"/buildid/"+id+"/debuginfo", name, buildID)
		if err == nil {
			return os.Open(name)
		}
		absent = absent && errors.Is(err, ErrAbsent)
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	if absent {
		return nil, errors.Join(ErrAbsent, os.WriteFile(name, nil, 0o600))
	}
	return nil, errors.Join(errs...)
}

// fetch loads a file down, and moves it to its name when it is whole and what it should be.
func (c *Client) fetch(url, name string, buildID []byte) error {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	silent := time.AfterFunc(c.Timeout, func() { stop(fmt.Errorf("it says nothing for %v", c.Timeout)) })
	defer silent.Stop()
	why := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return why(err)
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode == http.StatusNotFound:
		return ErrAbsent
	case r.StatusCode != http.StatusOK:
		return errors.New(r.Status)
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), "fetching")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, &watched{r: io.LimitReader(r.Body, maxSize), c: c, url: url, of: r.ContentLength, began: time.Now(), heard: func() { silent.Reset(c.Timeout) }})
	if err != nil {
		err = why(err)
	} else if id := idOf(tmp); string(id) != string(buildID) {
		err = fmt.Errorf("what it has is of build ID %x", id)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

// watched tells of what is read, once a second.
type watched struct {
	r     io.Reader
	c     *Client
	url   string
	of    int64 // -1: not known
	n     int64
	began time.Time
	told  time.Time
	heard func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.n += int64(n)
	if n > 0 {
		w.heard()
	}
	if now := time.Now(); w.c.Tell != nil && now.Sub(w.began) > tellAfter && now.Sub(w.told) > tellAfter {
		w.told = now
		of := ""
		if w.of > 0 {
			of = fmt.Sprintf(" of %.1f", float64(w.of)/(1<<20))
		}
		w.c.Tell(fmt.Sprintf("%.1f%s MiB of debug data fetched from %s", float64(w.n)/(1<<20), of, w.url))
	}
	return n, err
}

// idOf is the build ID of an ELF file; nil for none.
func idOf(r io.ReaderAt) []byte {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil
	}
	s := f.Section(".note.gnu.build-id")
	if s == nil || s.Size > 1<<12 {
		return nil
	}
	b, err := s.Data()
	if err != nil || len(b) < 16 {
		return nil
	}
	name, desc := f.ByteOrder.Uint32(b), f.ByteOrder.Uint32(b[4:])
	at := 12 + (uint64(name)+3)&^3
	if at+uint64(desc) > uint64(len(b)) {
		return nil
	}
	return b[at : at+uint64(desc)]
}
