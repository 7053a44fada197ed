package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/testprog"
)

// Nginx is a server with one worker, which is what gets probed.
type Nginx struct {
	*testprog.Proc
	Client *http.Client
}

// nginxConfig makes the worker do more than copy files: compress, expand
// includes, match, rewrite, list folders, and be a proxy of itself.
const nginxConfig = `
daemon off;
worker_processes 1;
error_log stderr notice;
pid %[1]s/pid;
%[2]s
events { worker_connections 64; }
http {
	access_log %[1]s/access.log;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	types { text/html html; text/plain txt; }
	gzip on;
	gzip_min_length 100;
	gzip_types text/plain;
	server {
		listen unix:%[1]s/socket;
		root %[1]s/files;
		location /list/ { autoindex on; autoindex_exact_size on; }
		location /include/ { ssi on; }
		location /copy/ { sendfile on; }
		location ~ ^/match/([a-z]+)/(\d+)$ { return 200 "$1 is $2, $arg_q, $request_method\n"; }
		location /old/ { rewrite ^/old/(.*)$ /copy/$1 last; }
		location /through/ { proxy_pass http://unix:%[1]s/socket:/; proxy_buffering on; }
		location /away { return 301 http://elsewhere/; }
	}
}
`

// StartNginx starts a server on a socket and waits until it answers.
func StartNginx(t testing.TB) Nginx {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = "/usr/sbin/nginx", nil // not in everybody's PATH
		_, err = os.Stat(path)
	}
	testprog.Need(t, fmt.Sprintf("nginx: %v", err), err == nil)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"files/index.html":        "<p>hello\n",
		"files/copy/large.txt":    strings.Repeat("line of a large file\n", 20000),
		"files/list/a.txt":        "a",
		"files/list/b & c.txt":    "bc",
		"files/include/page.html": `<!--#set var="x" value="42" --><!--#if expr="$x = 42" -->x is <!--#echo var="x" -->, <!--#include virtual="/match/abc/7?q=inner" --><!--#endif -->`,
		"config":                  "",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		// Times show in headers and listings.
		when := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // who may read the test's folder
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), fmt.Appendf(nil, nginxConfig, dir, user), 0o644); err != nil {
		t.Fatal(err)
	}
	n := Nginx{testprog.StartCmd(t, exec.Command(path, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "config"))), nil}
	// The master killed, its worker would live on.
	t.Cleanup(func() {
		if n.Signal(syscall.SIGTERM) == nil {
			n.Wait()
		}
	})
	socket := filepath.Join(dir, "socket")
	n.Client = &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", socket)
		}},
	}
	t.Cleanup(n.Client.CloseIdleConnections)
	testprog.UntilNil(t, "nginx answers", n.Pid, func() error {
		resp, err := n.Client.Get("http://local/")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	return n
}

// Worker is the process that serves: the master's only child, as soon as that has waited for the one
// before.
func (n Nginx) Worker(t testing.TB) (pid int) {
	t.Helper()
	testprog.UntilNil(t, "the master has one child", n.Pid, func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", n.Pid))
		if err != nil {
			return err
		}
		pids := strings.Fields(string(b))
		if len(pids) != 1 {
			return fmt.Errorf("the master has children %v", pids)
		}
		pid, err = strconv.Atoi(pids[0])
		return err
	})
	return pid
}

// Work asks for one of everything. Answers are whole, but for the time of day.
func (n Nginx) Work(t testing.TB) []string {
	t.Helper()
	var answers []string
	for _, ask := range []string{
		"GET /", "HEAD /", "GET /copy/large.txt", "GET /copy/large.txt gzip", "GET /copy/large.txt range",
		"GET /copy/large.txt since", "GET /list/", "GET /include/page.html", "GET /match/word/42?q=1%202",
		"GET /match/nothing", "GET /old/large.txt", "GET /through/match/again/9?q=x", "GET /through/copy/large.txt",
		"GET /away", "GET /none", "POST /", "POST /match/post/1", "GET /../../etc/passwd", "DELETE /",
	} {
		f := strings.Fields(ask)
		var body io.Reader
		if f[0] == "POST" {
			body = strings.NewReader(strings.Repeat("body ", 10000))
		}
		req, err := http.NewRequest(f[0], "http://local"+f[1], body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		switch f[len(f)-1] {
		case "gzip":
			req.Header.Set("Accept-Encoding", "gzip")
		case "range":
			req.Header.Set("Range", "bytes=100-199,1000-1009")
		case "since":
			req.Header.Set("If-Modified-Since", "Thu, 29 Feb 2024 12:00:00 GMT")
		}
		resp, err := n.Client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", ask, err)
		}
		resp.Header.Del("Date")
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", ask, err)
		}
		if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "multipart") {
			// The parts are told apart by a number that counts up.
			_, boundary, _ := strings.Cut(kind, "boundary=")
			text = bytes.ReplaceAll(text, []byte(boundary), []byte("boundary"))
			resp.Header.Set("Content-Type", strings.ReplaceAll(kind, boundary, "boundary"))
		}
		answers = append(answers, fmt.Sprintf("%s: %s %v %q", ask, resp.Status, resp.Header, text))
	}
	return answers
}
