// Package browser lets tests look at pages as people do: in a Chromium without a window, which is spoken to by a pipe. A
// machine may have none; then Start ends the test.
package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"kprobe/internal/testprog"
)

// Browser is one that runs.
type Browser struct {
	t   testing.TB
	to  *os.File
	pid int

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	said    map[string][]string // by session: what the console said that is wrong, and what the page's policy refused
}

// Page is a page that is open.
type Page struct {
	*Browser
	t       testing.TB
	session string
}

type answer struct {
	result json.RawMessage
	err    error
}

// message is one of the DevTools protocol, which a NUL ends.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// found is the browser's path, "" for none.
func found() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Start starts a browser, which ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := found()
	testprog.NeedBrowser(t, path != "")
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb", "--hide-scrollbars",
		"--remote-debugging-pipe", "--user-data-dir="+filepath.Join(home, "profile"), "about:blank")
	c.Env = append(os.Environ(), "HOME="+home, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	c.ExtraFiles = []*os.File{theirs, ours} // 3 and 4
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.Close()
	b := &Browser{t: t, to: to, pid: c.Process.Pid, waiting: make(map[int]chan answer), said: make(map[string][]string)}
	done := make(chan bool)
	go func() {
		defer close(done)
		b.listen(bufio.NewReaderSize(from, 1<<20))
	}()
	t.Cleanup(func() {
		_, _ = b.call("", "Browser.close", nil) // it may have ended
		to.Close()
		_ = c.Wait() // its exit status says nothing of the page
		from.Close()
		<-done
	})
	return b
}

// Open opens a page in a window of so many pixels, which is closed at the end of t.
func (b *Browser) Open(t testing.TB, url string, width, height int) *Page {
	t.Helper()
	p := &Page{Browser: b, t: t}
	var target struct {
		ID string `json:"targetId"`
	}
	p.must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct {
		ID string `json:"sessionId"`
	}
	p.must("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &session)
	p.session = session.ID
	t.Cleanup(func() { _, _ = b.call("", "Target.closeTarget", map[string]any{"targetId": target.ID}) })
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.must(domain+".enable", nil, nil)
	}
	p.Size(width, height)
	p.must("Page.navigate", map[string]any{"url": url}, nil)
	p.Until("the page is loaded", "document.readyState === 'complete' && location.href !== 'about:blank'")
	return p
}

// listen hands answers to those that wait for them.
func (b *Browser) listen(in *bufio.Reader) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, w := range b.waiting {
			w <- answer{err: errors.New("the browser has ended")}
		}
		b.waiting = nil
	}()
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch w := b.waiting[m.ID]; {
		case m.ID == 0 && slices.Contains([]string{"Runtime.exceptionThrown", "Log.entryAdded"}, m.Method):
			b.said[m.Session] = append(b.said[m.Session], string(text[:len(text)-1]))
		case w != nil && m.Error != nil:
			w <- answer{err: errors.New(m.Error.Message)}
		case w != nil:
			w <- answer{result: m.Result}
		}
		delete(b.waiting, m.ID)
		b.mu.Unlock()
	}
}

func (b *Browser) call(session, method string, params any) (json.RawMessage, error) {
	w := make(chan answer, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return nil, errors.New("the browser has ended")
	}
	b.last++
	id := b.last
	b.waiting[id] = w
	b.mu.Unlock()
	text, err := json.Marshal(message{ID: id, Method: method, Params: params, Session: session})
	if err != nil {
		return nil, err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return nil, err
	}
	a := testprog.Receive(b.t, "the browser answers "+method, b.pid, w)
	return a.result, a.err
}

func (p *Page) must(method string, params, to any) {
	p.t.Helper()
	result, err := p.call(p.session, method, params)
	if err == nil && to != nil {
		err = json.Unmarshal(result, to)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// Eval is an expression of the page's, as JSON.
func (p *Page) Eval(expression string) string {
	p.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	p.must("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		p.t.Fatalf("%s: %s %s", expression, r.Exception.Text, r.Exception.Exception.Description)
	}
	return string(r.Result.Value)
}

// Text reads an element.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text string
	if err := json.Unmarshal([]byte(p.Eval(fmt.Sprintf("document.querySelector(%q).innerText", selector))), &text); err != nil {
		p.t.Fatal(err)
	}
	return text
}

// Until waits until an expression of the page's holds.
func (p *Page) Until(what, expression string) {
	p.t.Helper()
	testprog.Until(p.t, what, p.pid, func() bool { return p.Eval(expression) == "true" })
}

// Key presses a key, by its name in the DOM.
func (p *Page) Key(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		down := map[string]any{"type": "keyDown", "key": k}
		if len(k) == 1 {
			down["text"] = k
		}
		p.must("Input.dispatchKeyEvent", down, nil)
		p.must("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": k}, nil)
	}
}

// Mouse moves the mouse, and presses or releases its button: "mouseMoved", "mousePressed", "mouseReleased".
func (p *Page) Mouse(kind string, x, y float64) {
	p.t.Helper()
	p.must("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, nil)
}

// Size gives the window another size.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Prefers has the page's reader prefer a scheme of colours, "dark" or "light", and little motion or not.
func (p *Page) Prefers(scheme string, still bool) {
	p.t.Helper()
	motion := "no-preference"
	if still {
		motion = "reduce"
	}
	p.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}}}, nil)
}

// Picture takes a PNG of the window.
func (p *Page) Picture() []byte {
	p.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	p.must("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return png
}

// Keep writes a picture into the folder that KPROBE_PICTURES names, for people to look at.
func (p *Page) Keep(name string) {
	p.t.Helper()
	if dir := os.Getenv("KPROBE_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), p.Picture(), 0o600); err != nil {
			p.t.Error(err)
		}
	}
}

// Complaints tells the exceptions of the page so far, and what its policy refused.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said[p.session])
}
