package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// recorded runs rounds of jumpers under kprobe record, and returns the file.
func recorded(t *testing.T, rounds int, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.rec")
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("%d", rounds)[0]
	k := started(t, tool(t, append([]string{"record", "-o", file, "-p", fmt.Sprint(p.Pid)}, args...)...), p.Pid)
	if got := p.Round("%d", rounds)[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}
	k.Signal(syscall.SIGINT)
	if r := k.Result(); !r.OK() || len(r.Lines) > 0 || !strings.Contains(r.Stderr, "jumpers:jumper") {
		t.Errorf("%s", r)
	}
	checkUntouched(t, p.Pid)
	return file
}

// What was recorded is printed later, without the program: by programs inside it, and by handlers.
func TestRecordAndReport(t *testing.T) {
	for _, stops := range []bool{false, true} {
		n, args := 2000, []string{"p:in jumpers:jumper n=%si sym=%ip:symbol", "r:out jumpers:jumper got=$retval"}
		if stops {
			n, args = 50, append(args, "--stops")
		}
		file := recorded(t, n, args...)
		r := run(t, "report", file)
		in := regexp.MustCompile(`^ +jumpers-\d+ +\[\d{3}\] \.{5} +\d+\.\d{6}: in: \(jumper\+0x0/0x[0-9a-f]+\) n=(\S+) sym=jumper\+0x0/0x[0-9a-f]+$`)
		out := regexp.MustCompile(`^ +jumpers-\d+ +\[\d{3}\] \.{5} +\d+\.\d{6}: out: \(main\+0x[0-9a-f]+/0x[0-9a-f]+ <- jumper\) got=\d+$`)
		next, returns := 0, 0
		for _, l := range r.Lines {
			if m := in.FindStringSubmatch(l); m != nil {
				if m[1] != fmt.Sprintf("%#x", next) {
					t.Fatalf("%q: want n=%#x", l, next)
				}
				next++
			} else if out.MatchString(l) {
				returns++
			} else {
				t.Fatalf("%q", l)
			}
		}
		if next != n || returns != n || !r.OK() {
			t.Errorf("%d entries and %d returns of %d: %s", next, returns, n, r.Stderr)
		}
		if hits, lost := summaryRow(t, r.Stderr, "in"); hits != uint64(n) || lost != 0 {
			t.Errorf("%s", r.Stderr)
		}
		text := filepath.Join(t.TempDir(), "x.json")
		if r := run(t, "report", "--json", "-o", text, file); !r.OK() || len(r.Lines) > 0 {
			t.Errorf("%s", r)
		}
		b, err := os.ReadFile(text)
		if err != nil {
			t.Fatal(err)
		}
		objects := 0
		for line := range strings.Lines(string(b)) {
			var e struct{ Kind, Comm, Func, Ret string }
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Comm != "jumpers" || e.Func != "jumper" || (e.Kind == "r") != strings.HasPrefix(e.Ret, "main+") {
				t.Fatalf("%q: %v", line, err)
			}
			objects++
		}
		if objects != 2*n {
			t.Errorf("%d objects", objects)
		}
	}
}

// A recorder that is killed leaves a file that can be read.
func TestRecordKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.rec")
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := started(t, tool(t, "record", "-o", file, "-p", fmt.Sprint(p.Pid), "p:in jumpers:jumper n=%si"), p.Pid)
	p.Round("100000")
	for { // the file is written as records come
		p.Round("10")
		if i, err := os.Stat(file); err == nil && i.Size() > 1<<20 {
			break
		}
	}
	k.Signal(syscall.SIGKILL)
	k.Result()
	r := run(t, "report", file)
	if !r.OK() || len(r.Lines) < 10000 || !strings.Contains(r.Stderr, "breaks off") || !strings.Contains(r.Lines[9999], "n=0x270f") {
		t.Errorf("%d lines: %s", len(r.Lines), r.Stderr)
	}
	p.Round("10")
}

// A flight recorder has the newest, and ends when its event comes.
func TestRecordRing(t *testing.T) {
	const n = 50_000
	file := recorded(t, n, "--ring", "256K", "p:in jumpers:jumper n=%si")
	if i, err := os.Stat(file); err != nil || i.Size() > 512<<10 {
		t.Errorf("%v %v", i.Size(), err)
	}
	r := run(t, "report", "--no-summary", file)
	if len(r.Lines) < 1000 || len(r.Lines) >= n || !strings.HasSuffix(r.Lines[len(r.Lines)-1], fmt.Sprintf("n=%#x", n-1)) {
		t.Errorf("%d lines, the last %q: %s", len(r.Lines), r.Lines[len(r.Lines)-1], r.Stderr)
	}

	file = filepath.Join(t.TempDir(), "y.rec")
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := started(t, tool(t, "record", "-o", file, "--ring", "1M", "--trigger", "seven", "-p", fmt.Sprint(p.Pid),
		"p:in jumpers:jumper n=%si", "p:seven jumpers:jumper n=%si:u64 if n == 7"), p.Pid)
	p.Round("5")
	p.Round("8")
	if r := k.Result(); !r.OK() {
		t.Errorf("%s", r)
	}
	checkUntouched(t, p.Pid)
	r = run(t, "report", "--no-summary", file)
	if !slices.ContainsFunc(r.Lines, func(l string) bool { return strings.Contains(l, " seven: ") && strings.HasSuffix(l, " n=7") }) || count(r.Lines, " in: ") != 13 {
		t.Errorf("%s", r)
	}
}

// Who waits for a slow reader loses nothing.
func TestWaitForReader(t *testing.T) {
	r := run(t, "trace", "--wait", "p:get "+inLibc(t, "getenv")+" name=+0(%di):string", "--", "date")
	if _, lost := summaryRow(t, r.Stderr, "get"); lost != 0 || count(r.Lines, " get: ") == 0 {
		t.Errorf("%s", r)
	}
	refused(t, run(t, "record", "--trigger", "x", "p x", "--", "true"), "--trigger is for --ring")
	refused(t, run(t, "record", "--ring", "7", "p x", "--", "true"), "7 is less than 64K")
	refused(t, run(t, "report", "/proc/self/exe"), "no recording")
}

// Pictures are drawn of a recording, and while it is traced.
func TestPictures(t *testing.T) {
	dir := t.TempDir()
	files := []string{"--flame", dir + "/flame.html", "--heat", dir + "/heat.html", "--folded", dir + "/folded", "--pprof", dir + "/pprof", "--perfetto", dir + "/perfetto"}
	told := regexp.MustCompile(`"about":\{"process":"jumpers \d+","asked":"p:in jumpers:jumper n=%si, r:out jumpers:jumper got=\$retval","began":\d+,"took":\d+,"events":600,"lost":0,"stopped":false\}`)
	drawn := func(r testprog.Result) {
		t.Helper()
		if !r.OK() {
			t.Errorf("%s", r)
		}
		for i := 1; i < len(files); i += 2 {
			b, err := os.ReadFile(files[i])
			if err != nil || len(b) == 0 || i < 4 && (!strings.Contains(string(b), `"jumper"`) || !told.Match(b)) || i == 5 && !strings.HasPrefix(string(b), "jumpers-") {
				t.Errorf("%s: %d bytes, %v", files[i], len(b), err)
			}
			os.Remove(files[i])
		}
	}
	const n = 300
	defs := []string{"p:in jumpers:jumper n=%si", "r:out jumpers:jumper got=$retval"}
	r := run(t, append(append([]string{"report"}, files...), recorded(t, n, defs...))...)
	if len(r.Lines) > 0 {
		t.Errorf("%q is printed", r.Lines)
	}
	drawn(r)

	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := started(t, tool(t, append(append([]string{"trace", "-p", fmt.Sprint(p.Pid)}, files...), defs...)...), p.Pid)
	p.Round("%d", n)
	k.Signal(syscall.SIGINT)
	r = k.Result()
	if len(r.Lines) != 2*n {
		t.Errorf("%d lines", len(r.Lines))
	}
	drawn(r)
	checkUntouched(t, p.Pid)

	// Where stacks of the same recording stop the thread in its calls, the page says so; where there are no calls, nothing is longer by it.
	for file, stopped := range map[string]bool{
		recorded(t, n, append(defs, "p:st jumpers:jumper stack")...): true, recorded(t, n, "p:st jumpers:jumper stack"): false,
	} {
		page := dir + "/stops.html"
		r := run(t, "report", "--flame", page, file)
		b, err := os.ReadFile(page)
		if err != nil || !r.OK() || strings.Contains(string(b), `"stopped":true`) != stopped {
			t.Errorf("stopped %v, and not so in the page: %v %s", stopped, err, r)
		}
	}
}
