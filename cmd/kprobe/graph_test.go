package main

import (
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

// spans are durations and what differs from run to run.
var spans = regexp.MustCompile(`[$@*#!+ ] +[0-9.]+ us`)

// drawnCalls are the lines of a drawing, "T" for a duration, with no word of whose they are but the goroutine.
func drawnCalls(lines []string) (out []string) {
	last := map[string]int{} // line of each goroutine
	for _, l := range lines {
		task, rest, ok := strings.Cut(l, " | ")
		if !ok || strings.HasPrefix(l, "#") {
			continue
		}
		took, call, _ := strings.Cut(rest, " |  ")
		mark := "-"
		if spans.MatchString(took) {
			mark = "T"
		}
		g := ""
		if _, n, ok := strings.Cut(strings.TrimSpace(task), " g"); ok {
			g = n + " "
		}
		call = pointer.ReplaceAllString(call, "=P")
		// What was under way when the drawing went on has lines of its own, though nothing is in it.
		if at, ok := last[g]; ok && callEnds.MatchString(call) {
			begun, is := strings.CutSuffix(out[at], " {")
			m := callEnds.FindStringSubmatch(call)
			if is && strings.HasPrefix(begun, g+"- "+m[1]+m[2]+"(") {
				begun = g + mark + strings.TrimPrefix(begun, g+"-") + ";"
				if m[3] != "" {
					begun += " /* " + m[3] + " */"
				}
				out[at] = begun
				continue
			}
		}
		last[g] = len(out)
		out = append(out, g+mark+" "+call)
	}
	return out
}

// callEnds is the end of a call that began on a line of its own.
var callEnds = regexp.MustCompile(`^( *)\} /\* ([^ ]+?)(?:[: ]+(.*))? \*/$`)

var pointer = regexp.MustCompile(`=0x[0-9a-f]{6,}`)

// TestGraph holds that calls are drawn as they lie in each other, however they end: by returns, tail calls and longjmp.
func TestGraph(t *testing.T) {
	const round = `- outer(n=%[1]d) {
-   jumper(n=0); /* did not return */
T   leaf(n=0, s=P); /* ret=1 */
-   tail1(n=%[1]d) {
-     tail2(n=%[2]d) {
T       leaf(n=%[2]d, s=P); /* ret=%[3]d */
T     } /* tail2 ret=%[3]d */
T   } /* tail1 ret=%[3]d */
T } /* outer ret=%[3]d */
T nothing();
`
	var want string
	for i := range 3 {
		want += fmt.Sprintf(round, i, i+1, 2*i+2)
	}
	for _, opt := range []string{"-O0", "-O2"} {
		path := compiledSource(t, "gcc", opt, "-g", "-fcf-protection=none", "calls.c")
		name := filepath.Base(path)
		args := []string{"graph", "--flame", path + ".html", "--folded", path + ".folded"}
		for _, f := range []string{"outer", "jumper", "tail1", "tail2", "leaf", "nothing"} {
			args = append(args, name+":"+f)
		}
		r := run(t, append(args, "--", path)...)
		got := strings.Join(drawnCalls(r.Lines), "\n") + "\n"
		if opt == "-O0" { // where jumper calls itself
			const calls = "-   jumper(n=0) {\n-     jumper(n=1) {\n-       jumper(n=2) {\n-         jumper(n=3); /* did not return */\n-       } /* jumper: did not return */\n-     } /* jumper: did not return */\n-   } /* jumper: did not return */\n"
			got = strings.ReplaceAll(got, calls, "-   jumper(n=0); /* did not return */\n")
		}
		if got != want || !r.OK() {
			t.Errorf("%s: got\n%s\nwant\n%s\n%v", opt, got, want, r)
		}
		folded, err := os.ReadFile(path + ".folded")
		if err != nil || !strings.Contains(string(folded), ";outer;tail1;tail2;leaf ") && !strings.Contains(string(folded), ";outer;tail1;tail2 ") && !strings.Contains(string(folded), ";outer ") {
			t.Errorf("%s: folded: %v\n%s", opt, err, folded)
		}
		if html, err := os.ReadFile(path + ".html"); err != nil || !strings.Contains(string(html), "tail2") {
			t.Errorf("%s: the flame graph has no tail2: %v", opt, err)
		}
	}
}

// TestGraphBounds holds that --depth and --min-time leave out what they say.
func TestGraphBounds(t *testing.T) {
	path := compiledSource(t, "gcc", "-O0", "-g", "calls.c")
	name := filepath.Base(path)
	r := run(t, "graph", "--depth", "2", name+":rec", name+":nothing", "--", path)
	const want = "- rec(n=3) {\nT   rec(n=2); /* ret=3 */\nT } /* rec ret=6 */\nT nothing();\n"
	if got := strings.Join(drawnCalls(r.Lines), "\n") + "\n"; got != strings.Repeat(want, 3) {
		t.Errorf("--depth 2: %s\n%v", got, r)
	}
	if r := run(t, "graph", "--min-time", "1h", name+":rec", "--", path); len(drawnCalls(r.Lines)) != 0 {
		t.Errorf("--min-time 1h: %v", r)
	}
	r = run(t, "graph", name+":rec n=$arg1:s64 got=$retval:u8 if n == 2", "--", path)
	if got := drawnCalls(r.Lines); !slices.Equal(got, slices.Repeat([]string{"T rec(n=2); /* got=3 */"}, 3)) {
		t.Errorf("a condition and arguments: %q\n%v", got, r)
	}
	if r := run(t, "graph", "p "+name+":rec", "--", path); r.OK() || !strings.Contains(r.Stderr, "is a definition") {
		t.Errorf("a definition: %v", r)
	}
}

// TestGraphAssembler holds that the result of a function of an assembler's, whose type its debug data leaves open, is the register.
func TestGraphAssembler(t *testing.T) {
	path := testprog.Build(t, "manyfns", "-DMANY=4", "-g")
	round := filepath.Join(t.TempDir(), "round")
	if err := os.WriteFile(round, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, "graph", filepath.Base(path)+":many_?", "--", "sh", "-c", "exec "+path+" < "+round)
	want := []string{"T many_0(); /* ret=0x0 */", "T many_1(); /* ret=0x1 */", "T many_2(); /* ret=0x3 */", "T many_3(); /* ret=0x6 */"}
	if got := drawnCalls(r.Lines); !slices.Equal(got, want) {
		t.Errorf("%q\n%v", got, r)
	}
}

// TestGraphGo holds that calls of goroutines stay together, whatever threads they run on; that a function that is begun
// again on a larger stack is one call, and that one that panics does not return.
func TestGraphGo(t *testing.T) {
	path := compiledSource(t, "go", "build", "guarded.go")
	var args = []string{"graph"}
	for _, f := range []string{"handle", "parse", "guarded", "risky", "grow"} {
		args = append(args, "guarded:main."+f)
	}
	r := run(t, append(args, "--", path)...)
	byG := map[string][]string{}
	for _, l := range drawnCalls(r.Lines) {
		g, l, _ := strings.Cut(l, " ")
		byG[g] = append(byG[g], l)
	}
	if len(byG) != 3 {
		t.Fatalf("%d goroutines\n%v", len(byG), r)
	}
	var got, want []string
	for _, lines := range byG {
		got = append(got, strings.Join(lines, "\n"))
	}
	for g := range 3 {
		var b strings.Builder
		grow := func() {
			for n := 40; n > 0; n-- {
				fmt.Fprintf(&b, "- %smain.grow(n=%d) {\n", strings.Repeat("  ", 41-n), n)
			}
			fmt.Fprintf(&b, "T %smain.grow(n=0); /* ret=0 */\n", strings.Repeat("  ", 41))
			for n := 1; n <= 40; n++ {
				fmt.Fprintf(&b, "T %s} /* main.grow ret=0 */\n", strings.Repeat("  ", 41-n))
			}
		}
		for i := range 2 {
			n := 2*g + i
			fmt.Fprintf(&b, "- main.handle(r=P) {\nT   main.parse(s=\"%d\"); /* ret0=%d, ret1=nil */\n-   main.guarded(n=%d) {\n", n, n, n)
			if i == 0 {
				fmt.Fprintf(&b, "-     main.risky(n=%d); /* did not return */\nT   } /* main.guarded ok=0 */\n", n)
			} else {
				fmt.Fprintf(&b, "T     main.risky(n=%d); /* ret=%d */\nT   } /* main.guarded ok=1 */\n", n, n)
			}
			grow()
			fmt.Fprintf(&b, "T } /* main.handle ret0=\"%d\", ret1=nil */\n", n)
		}
		b.WriteString("- main.handle(r=P) {\nT   main.parse(s=\"\"); /* ret0=0, ret1=*errors.errorString{\"empty\"} */\nT } /* main.handle ret0=\"bad\", ret1=*errors.errorString{\"empty\"} */")
		want = append(want, b.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\n%v", strings.Join(got, "\n\n"), strings.Join(want, "\n\n"), r.Stderr)
	}
}

// TestGraphInterrupt holds that a drawing ends well at ^C and tells of what was seen, and that the process goes on.
func TestGraphInterrupt(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	out := filepath.Join(t.TempDir(), "out")
	k := started(t, tool(t, "graph", "-p", fmt.Sprint(p.Pid), "-o", out, "jumpers:jumper n=%si"), p.Pid)
	testprog.Until(t, "its file is there", k.Pid, func() bool { // before that a signal ends the placing
		_, err := os.Stat(out)
		return err == nil
	})
	p.Round("%d", 100)
	k.Signal(syscall.SIGINT)
	if r := k.Result(); !r.OK() || !strings.Contains(r.Stderr, "100 calls") {
		t.Errorf("%s", r)
	}
	text, err := os.ReadFile(out)
	if got := drawnCalls(strings.Split(string(text), "\n")); err != nil || len(got) != 100 || !strings.HasPrefix(got[99], "T jumper(n=0x63);") {
		t.Errorf("%v: %q", err, got)
	}
	checkUntouched(t, p.Pid)
}
