package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/testprog"
)

func statusField(t testing.TB, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in the status of %d", field, pid)
	return ""
}

// summaryHits reads the column of hits of an event, and that of lost events.
func summaryRow(t testing.TB, stderr, name string) (hits, lost uint64) {
	t.Helper()
	lostColumn := -1
	for line := range strings.Lines(stderr) {
		// probe place hits hits/s, and a column for each cause that occurred
		f := strings.Fields(strings.ReplaceAll(line, "no instance", "no-instance"))
		switch {
		case len(f) >= 4 && f[0] == "probe" && f[2] == "hits":
			lostColumn = slices.Index(f, "lost")
		case len(f) >= 4 && f[0] == name:
			hits, err := strconv.ParseUint(f[2], 10, 64)
			if err == nil && lostColumn >= 0 {
				lost, err = strconv.ParseUint(f[lostColumn], 10, 64)
			}
			if err == nil {
				return hits, lost
			}
		}
	}
	t.Fatalf("no row of %s in the summary:\n%s", name, stderr)
	return 0, 0
}

func count(lines []string, has string) (n int) {
	for _, l := range lines {
		if strings.Contains(l, has) {
			n++
		}
	}
	return n
}

// The first command of README.md.
func TestQuickStart(t *testing.T) {
	const event = "p_libc_so_6_getenv_0"
	r := run(t, "trace", "p:libc.so.6:getenv name=+0(%di):string", "--", "date", "-u", "-d", "@0", "+%s")
	form := regexp.MustCompile(`^ +date-\d+ +\[\d{3}\] \.{5} +\d+\.\d{6}: ` + event + `: \(getenv\+0x0/0x[0-9a-f]+\) name="(\w+)"$`)
	names := map[string]int{}
	own, events := 0, 0
	for _, l := range r.Lines {
		if l == "0" {
			own++
			continue
		}
		m := form.FindStringSubmatch(l)
		if m == nil {
			t.Errorf("not in the kernel's form: %q", l)
			continue
		}
		names[m[1]]++
		events++
	}
	if !r.OK() || own != 1 || names["TZ"] == 0 || names["LANG"] == 0 {
		t.Errorf("%s: date's line %d times, names %v", r, own, names)
	}
	if hits, lost := summaryRow(t, r.Stderr, event); hits != uint64(events) || lost != 0 {
		t.Errorf("%d events, and a summary of\n%s", events, r.Stderr)
	}
}

// kprobe is in the program's place for whoever started it.
func TestProgramsStatusIsOurs(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 128 + 15, "kill -KILL $$": 128 + 9} {
		if r := run(t, "trace", "p "+inLibc(t, "malloc"), "--", "sh", "-c", script); r.Status.ExitStatus() != want {
			t.Errorf("%q: exit status %d", script, r.Status.ExitStatus())
		}
	}
	// And where tracing ended first.
	r := run(t, "trace", "-n", "1", "p "+inLibc(t, "getenv"), "--", "sh", "-c", "sleep 0.2; date > /dev/null; exit 9")
	if r.Status.ExitStatus() != 9 {
		t.Errorf("after -n 1: %s", r)
	}
}

func TestProgramReadsItsInput(t *testing.T) {
	k := testprog.StartCmd(t, tool(t, "trace", "--no-summary", "-o", "/dev/null", "p "+inLibc(t, "malloc"), "--", "tr", "a-z", "A-Z"))
	k.Send("hello")
	if r := k.Result(); !r.OK() || len(r.Lines) != 1 || r.Lines[0] != "HELLO" || r.Stderr != "" {
		t.Errorf("%s", r)
	}
}

// A program that was started for refused definitions never runs.
func TestRefusedProgramDoesNotRun(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	for _, def := range []string{"p nosuchsymbol", "p libc:getenv %zz", "p libc:getenv+1"} {
		refused(t, run(t, "trace", "p "+inLibc(t, "malloc"), def, "--", "touch", mark), "")
		if _, err := os.Stat(mark); err == nil {
			t.Fatalf("%q: the program has run", def)
		}
	}
	if r := run(t, "trace", "p "+inLibc(t, "malloc"), "--", "touch", mark); !r.OK() {
		t.Fatal(r)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the program has not run: %v", err)
	}
}

func TestRunningProcess(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("1000")[0]
	k := started(t, tool(t, "trace", "-p", fmt.Sprint(p.Pid), "p:in jumpers:jumper", "r:out jumpers:jumper $retval"), p.Pid)
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}

	list := run(t, "list", "-p", fmt.Sprint(p.Pid))
	line := regexp.MustCompile(`^[0-9a-f]{16}  [kr]  jumper\+0x0    (\[OPTIMIZED\])?$`)
	if !list.OK() || len(list.Lines) != 2 || !line.MatchString(list.Lines[0]) || !line.MatchString(list.Lines[1]) {
		t.Errorf("list: %q", list.Lines)
	}

	k.Signal(syscall.SIGINT)
	r := k.Result()
	if !r.OK() || count(r.Lines, " in: (jumper+0x0/0x") != 1000 || count(r.Lines, " out: (main+0x") != 1000 {
		t.Errorf("%d lines in, %d lines out, %s", count(r.Lines, " in: "), count(r.Lines, " out: "), r.Stderr)
	}
	for _, name := range []string{"in", "out"} {
		if hits, lost := summaryRow(t, r.Stderr, name); hits != 1000 || lost != 0 {
			t.Errorf("%s: %d hits, %d lost", name, hits, lost)
		}
	}
	checkUntouched(t, p.Pid)
	if list := run(t, "list", "-p", fmt.Sprint(p.Pid)); !list.OK() || len(list.Lines) != 0 {
		t.Errorf("list after the end: %v", list)
	}
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q afterwards", got)
	}
}

func TestJSON(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := started(t, tool(t, "trace", "--json", "--no-summary", "-n", "50", "-p", fmt.Sprint(p.Pid),
		"p:j jumper a=%di:u64 b=%si:u64", "r:back jumper a=$arg1:u64 v=$retval:u64"), p.Pid)
	p.Round("100")
	r := k.Result()
	if !r.OK() || len(r.Lines) != 50 || r.Stderr != "" {
		t.Fatalf("%d lines, %s", len(r.Lines), r.Stderr)
	}
	sum := uint64(0)
	for i, line := range r.Lines {
		var e struct {
			PID   int
			Event string
			Kind  string
			Func  string
			Args  struct{ A, B, V uint64 }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		n := uint64(i / 2)
		switch {
		case e.PID != p.Pid || e.Func != "jumper" || e.Args.A != sum:
			t.Fatalf("line %d: %s", i, line)
		case i%2 == 0 && (e.Kind != "p" || e.Event != "j" || e.Args.B != n):
			t.Fatalf("line %d: %s", i, line)
		case i%2 == 1:
			sum = sum*3 + n
			if e.Kind != "r" || e.Event != "back" || e.Args.V != sum {
				t.Fatalf("line %d: %s, want v %d", i, line, sum)
			}
		}
	}
	checkUntouched(t, p.Pid)
}

// Each signal that would end kprobe takes the probes out first, in the midst
// of hits; a second one is no hurry.
func TestSignalsDetach(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	for _, sigs := range [][]syscall.Signal{
		{syscall.SIGINT}, {syscall.SIGTERM}, {syscall.SIGQUIT}, {syscall.SIGHUP},
		{syscall.SIGINT, syscall.SIGINT, syscall.SIGINT}, {syscall.SIGTERM, syscall.SIGINT},
	} {
		if sigs[0] == syscall.SIGHUP && signal.Ignored(syscall.SIGHUP) {
			continue // the tests were started with nohup, and so is kprobe then
		}
		rounds := "50000"
		if testing.Short() && len(sigs) == 1 && sigs[0] != syscall.SIGINT {
			rounds = "1000" // the first has them in the midst of more
		}
		want := p.Round(rounds)[0]
		k := started(t, tool(t, "trace", "-p", fmt.Sprint(p.Pid), "p:in jumper", "r:out jumper"), p.Pid)
		p.Send(rounds)
		k.Line()
		for _, sig := range sigs {
			k.Signal(sig)
		}
		// A signal after the sessions are closed may end it at once: nothing
		// but the rest of the events is lost then.
		if r := k.Result(); len(sigs) == 1 && !r.OK() {
			t.Errorf("%v: %s", sigs, r.Stderr)
		} else if r.OK() {
			summaryRow(t, r.Stderr, "in")
		}
		checkUntouched(t, p.Pid)
		if got := p.Expect("jumper"); got != want {
			t.Errorf("%v: %q, want %q", sigs, got, want)
		}
		p.Expect("done")
	}
}

// The terminal's ^C is the program's to judge; TERM is for kprobe alone.
func TestSignalsWithProgram(t *testing.T) {
	cmd := tool(t, "trace", "p:in jumper", "--", testprog.Build(t, "jumpers", "-O2"))
	k := testprog.StartCmd(t, cmd)
	k.Expect("ready")
	k.Signal(syscall.SIGINT)
	k.Signal(syscall.SIGQUIT)
	if got := k.Round("10"); len(got) < 2 {
		t.Errorf("%q", got)
	}
	r := k.Result()
	if hits, _ := summaryRow(t, r.Stderr, "in"); !r.OK() || hits != 10 {
		t.Errorf("%s", r)
	}

	mark := filepath.Join(t.TempDir(), "pid")
	k = testprog.StartCmd(t, tool(t, "trace", "p:in "+inLibc(t, "getenv"), "--", "sh", "-c", "echo $$ > "+mark+"; exec sleep 1000"))
	var pid int
	testprog.Until(t, "the program runs", k.Pid, func() bool {
		b, err := os.ReadFile(mark)
		if err == nil && bytes.HasSuffix(b, []byte("\n")) {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return pid > 0
	})
	// It is kprobe's child, so it is ours to end only while it is that program.
	left, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Kill()
	testprog.Executed(t, pid, "sleep")
	k.Signal(syscall.SIGTERM)
	testprog.Until(t, "TERM detaches", k.Pid, func() bool { return statusField(t, pid, "TracerPid") == "0" })
	checkUntouched(t, pid)
	if err := left.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the program does not run on: %v", err)
	}
	left.Kill()
	if r := k.Result(); !r.OK() {
		t.Errorf("%s", r)
	}
}

// A reader that has seen enough ends tracing: kprobe trace ... | head -1.
func TestClosedPipe(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("100000")[0]
	k := tool(t, "trace", "--no-summary", "-p", fmt.Sprint(p.Pid), "p:in jumper")
	out, err := k.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	k.Stderr = &stderr
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	awaitProbes(t, p.Pid)
	p.Send("100000")
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, " in: (jumper+0x0/") {
		t.Errorf("%q, %v", line, err)
	}
	out.Close()
	err = k.Wait()
	for says := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(says, "kprobe: events come faster than they are read") { // and may well
			t.Errorf("it says %q", says)
		}
	}
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
	checkUntouched(t, p.Pid)
	if got := p.Expect("jumper"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A reader that does not read holds up nobody: what does not fit is counted.
func TestSlowReader(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	k := tool(t, "trace", "-p", fmt.Sprint(p.Pid), "p:in jumper a=+0(%sp):x64[32]")
	out, err := k.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	k.Stderr = &stderr
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	awaitProbes(t, p.Pid)
	const calls = 40000
	p.Round("%d", calls) // it ends although nobody reads
	k.Process.Signal(syscall.SIGINT)
	var lines uint64
	for s := bufio.NewScanner(out); s.Scan(); {
		lines++
	}
	if err := k.Wait(); err != nil {
		t.Error(err)
	}
	hits, lost := summaryRow(t, stderr.String(), "in")
	if hits != calls || lost == 0 || lines+lost != calls {
		t.Errorf("%d hits, %d lines, %d lost", hits, lines, lost)
	}
	checkUntouched(t, p.Pid)
}

func TestSeveralProcesses(t *testing.T) {
	path := testprog.Build(t, "jumpers", "-O2")
	a, b := testprog.Start(t, path), testprog.Start(t, path)
	pa, pb := fmt.Sprint(a.Pid), fmt.Sprint(b.Pid)
	for i, args := range [][]string{
		{"-p", pa, pb}, {"-p", pa + "," + pb}, {"-p", pa, "-p", pb, pa}, {"-p", pa + " " + pb},
	} {
		if testing.Short() && i == 0 {
			continue // as at the end
		}
		k := started(t, tool(t, append(append([]string{"trace"}, args...), "p:in jumper")...), a.Pid, b.Pid)
		a.Round("30")
		b.Round("40")
		k.Signal(syscall.SIGINT)
		r := k.Result()
		hits, _ := summaryRow(t, r.Stderr, "in")
		if hits != 70 || count(r.Lines, "jumpers-"+pa+" ") != 30 || count(r.Lines, "jumpers-"+pb+" ") != 40 {
			t.Errorf("%q: %d hits, %d and %d lines", args, hits, count(r.Lines, "jumpers-"+pa+" "), count(r.Lines, "jumpers-"+pb+" "))
		}
	}
	// One that is not there, and none is traced.
	refused(t, run(t, "trace", "-p", pa, pb, "4194305", "--", "p:in jumper"), "either -p, -k, --stub or a program")
	refused(t, run(t, "trace", "-p", pa, pb, "4194305", "p:in jumper"), "4194305")
	checkUntouched(t, a.Pid)
	checkUntouched(t, b.Pid)
	// It ends when they do.
	k := started(t, tool(t, "trace", "-p", pa, pb, "p:in jumper"), a.Pid, b.Pid)
	a.CloseStdin()
	b.CloseStdin()
	if r := k.Result(); !r.OK() {
		t.Errorf("%s", r)
	}
}

func TestDefinitionsFromFiles(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	file := filepath.Join(t.TempDir(), "definitions")
	if err := os.WriteFile(file, []byte("# two\n\np:first jumper\np:second jumper\n-:first\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	events := filepath.Join(t.TempDir(), "events")
	cmd := tool(t, "trace", "-p", fmt.Sprint(p.Pid), "-e", file, "-e", "-", "-o", events, "-d", "1m", "-n", "7")
	k := testprog.StartCmd(t, cmd)
	k.Send("p:third jumper\n# and no more")
	k.CloseStdin()
	awaitProbes(t, p.Pid)
	p.Round("7")
	r := k.Result()
	text, err := os.ReadFile(events)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	// Of three, the first was taken back.
	if err != nil || !r.OK() || len(r.Lines) != 0 || len(lines) != 7 ||
		count(lines, " second: ")+count(lines, " third: ") != 7 || count(lines, " third: ") < 3 {
		t.Errorf("%v, %s\n%s", err, r, text)
	}
	checkUntouched(t, p.Pid)
}

func TestDuration(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	began := time.Now()
	r := run(t, "trace", "-p", fmt.Sprint(p.Pid), "-d", "300ms", "p:in jumper")
	if took := time.Since(began); !r.OK() || took < 300*time.Millisecond || took > 10*time.Second {
		t.Errorf("%v, %s", took, r)
	}
	checkUntouched(t, p.Pid)
}

// No root is needed for what is one's own, and nothing else is to be had.
func TestAsOrdinaryUser(t *testing.T) {
	path := testprog.Build(t, "jumpers", "-O2")
	kprobe := testprog.Command(t, "kprobe/cmd/kprobe")
	mine := testprog.StartCmd(t, testprog.AsUser(t, path))
	mine.Expect("ready")
	k := testprog.StartCmd(t, testprog.AsUser(t, kprobe, "trace", "-p", fmt.Sprint(mine.Pid), "p:in jumper", "r:out jumper"))
	awaitProbes(t, mine.Pid)
	mine.Round("100")
	k.Signal(syscall.SIGINT)
	r := k.Result()
	if hits, _ := summaryRow(t, r.Stderr, "out"); !r.OK() || hits != 100 || count(r.Lines, " in: ") != 100 {
		t.Errorf("%d hits, %s", hits, r.Stderr)
	}
	checkUntouched(t, mine.Pid)

	r = testprog.StartCmd(t, testprog.AsUser(t, kprobe, "trace", "p:in "+inLibc(t, "getenv"), "--", "date")).Result()
	if hits, _ := summaryRow(t, r.Stderr, "in"); !r.OK() || hits == 0 {
		t.Errorf("%s", r)
	}

	testprog.Need(t, "root, to have a process that is not the user's", os.Getuid() == 0)
	foreign := testprog.Start(t, path)
	for _, verb := range []string{"trace", "plan"} {
		r = testprog.StartCmd(t, testprog.AsUser(t, kprobe, verb, "-p", fmt.Sprint(foreign.Pid), "p:in jumper")).Result()
		refused(t, r, fmt.Sprint(foreign.Pid))
	}
	checkUntouched(t, foreign.Pid)
	r = testprog.StartCmd(t, testprog.AsUser(t, kprobe, "doctor", "-p", fmt.Sprint(foreign.Pid))).Result()
	refused(t, r, "cannot be probed")
	if count(r.Lines, "NO  user ") != 1 {
		t.Errorf("%q", r.Lines)
	}
}

// A burst that finds no room is told of while something can be done about it, and has room where
// more of it is asked for.
func TestBufferSize(t *testing.T) {
	every, rounds := "manyfns:many_[0-9]*", "5"
	if testing.Short() {
		every, rounds = "manyfns:many_1???", "20" // fewer probes, and a burst all the same
	}
	for size, lossy := range map[string]bool{"1K": true, "16M": false} {
		p := testprog.Start(t, testprog.Build(t, "manyfns", "-O2"))
		file := filepath.Join(t.TempDir(), "events")
		k := started(t, tool(t, "trace", "-p", fmt.Sprint(p.Pid), "-o", file, "--buffer", size, "p:many "+every+" a=%di"), p.Pid)
		p.Round(rounds)
		testprog.Until(t, "events are written", k.Pid, func() bool { // before that a signal ends the placing
			fi, err := os.Stat(file)
			return err == nil && fi.Size() > 0
		})
		k.Signal(syscall.SIGINT)
		res := k.Result()
		if res.Status.ExitStatus() != 0 || strings.Contains(res.Stderr, "lost") != lossy {
			t.Errorf("--buffer %s: %v", size, res.Status)
			t.Log(res.Stderr[:min(len(res.Stderr), 300)])
		}
	}
	refused(t, run(t, "trace", "--buffer", "1G", "p malloc", "--", "true"), "256M at most")
}
