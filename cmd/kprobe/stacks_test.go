package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/trace"
)

// stacksOf are the stacks of a program's events: of each frame its function, and its line where one is told; what says why there are
// no more stays as it is.
func stacksOf(lines []string) (all [][]string) {
	for _, l := range lines {
		frame, ok := strings.CutPrefix(l, " => ")
		if !ok {
			if strings.Contains(l, ": (") {
				all = append(all, nil)
			}
			continue
		}
		if m := frameText.FindStringSubmatch(frame); m != nil {
			frame = strings.TrimSpace(m[1] + " " + m[2])
		}
		if len(all) > 0 {
			all[len(all)-1] = append(all[len(all)-1], frame)
		}
	}
	return all
}

var frameText = regexp.MustCompile(`^(\S+?)(?:\+0x[0-9a-f]+|)(?: \(\S+\))(?: (\S+)|)$`)

// gdbFrame is a frame of gdb's: its function, and its line where there is one.
var gdbFrame = regexp.MustCompile(`^#\d+ +(?:0x[0-9a-f]+ in |)(<signal handler called>|\S+)(?: \(.*?\)(?: at (?:\S*/|)(\S+:\d+)|)|)`)

// TestStackLinesAsGDB holds that frames in all of a program's sections have the lines that gdb has: in main, in rare functions
// and parts of functions, and in what a signal has interrupted.
func TestStackLinesAsGDB(t *testing.T) {
	testprog.Need(t, "gdb", have("gdb"))
	builds := [][]string{{"gcc", "-O2", "-g"}, {"gcc", "-O2", "-gdwarf-4"}, {"clang", "-O2", "-g"}, {"gcc", "-O2", "-g", "-ffunction-sections"}}
	if testing.Short() {
		builds = builds[1:3] // each compiler, and each version of line tables
	}
	for _, cc := range builds {
		path := compiledSource(t, append(slices.Clone(cc), "cold.c")...)
		gdb := exec.Command("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set startup-with-shell off", "-iex", "set width 0",
			"-ex", "handle SIGUSR1 nostop noprint pass", "-ex", "break rare", "-ex", "run", "-ex", "bt", "-ex", "continue", "-ex", "bt", "-ex", "continue", "-ex", "bt", path)
		gdb.Env = append(gdb.Environ(), "LC_ALL=C")
		b, err := gdb.CombinedOutput()
		var want [][]string
		for l := range strings.Lines(string(b)) {
			m := gdbFrame.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			if strings.HasPrefix(l, "#0") {
				want = append(want, nil)
			}
			want[len(want)-1] = append(want[len(want)-1], strings.TrimSpace(m[1]+" "+m[2]))
		}
		r := run(t, "trace", "p rare stack", "--", path)
		got := stacksOf(r.Lines)
		if len(want) != 3 || len(got) != 3 {
			t.Fatalf("%v: %q, gdb has %q, %v\n%s", cc, got, want, err, b)
		}
		for i := range want {
			if mine, theirs := ofCold(got[i]), ofCold(want[i]); len(theirs) < 2 || !slices.Equal(mine, theirs) {
				t.Errorf("%v: %q, gdb has %q", cc, mine, theirs)
			}
		}
		interrupted := 1 + slices.IndexFunc(got[2], func(f string) bool { return strings.HasPrefix(f, "<signal handler called>") })
		if theirs := 1 + slices.Index(want[2], "<signal handler called>"); !slices.Contains(want[2][theirs:], got[2][interrupted]) {
			t.Errorf("%v: a signal has interrupted %q, gdb has %q", cc, got[2], want[2])
		}
	}
}

// ofCold are the frames in the program's own source.
func ofCold(frames []string) (out []string) {
	for _, f := range frames {
		if fn, line, _ := strings.Cut(f, " "); strings.HasPrefix(line, "cold.c:") {
			out = append(out, strings.TrimSuffix(fn, ".cold")+" "+line)
		}
	}
	return out
}

// TestStackThroughMuslsHandler holds that a stack leads through code that ends a signal's handler and that no table tells of, and
// that what ends the stack behind that is said.
func TestStackThroughMuslsHandler(t *testing.T) {
	testprog.Need(t, "musl-gcc", have("musl-gcc"))
	all := stacksOf(run(t, "trace", "p rare stack", "--", compiledSource(t, "musl-gcc", "-O2", "-g", "-static", "cold.c")).Lines)
	if len(all) != 3 || len(all[2]) < 5 || all[2][1] != "handler cold.c:22" || !strings.HasPrefix(all[2][2], "<signal handler called>") || !strings.HasPrefix(all[2][len(all[2])-1], "(") {
		t.Errorf("%q", all)
	}
}

// TestStackDepth holds that a stack has as many frames as are asked for, and says where there are more.
func TestStackDepth(t *testing.T) {
	path := compiledSource(t, "gcc", "-O0", "-g", "deep.c")
	for _, c := range []struct {
		args []string
		want int // frames of deep
		more bool
	}{
		{nil, trace.MaxStack - 1, true},
		{[]string{"--stack-depth", "3"}, 2, true},
		{[]string{"--stack-depth", "500"}, 201, false},
	} {
		all := stacksOf(run(t, append(append([]string{"trace"}, c.args...), "p leaf stack", "--", path)...).Lines)
		if len(all) != 1 {
			t.Fatalf("%v: %q", c.args, all)
		}
		n := len(slices.DeleteFunc(slices.Clone(all[0]), func(f string) bool { return !strings.HasPrefix(f, "deep ") }))
		if more := all[0][len(all[0])-1] == "(and more)"; n != c.want || more != c.more {
			t.Errorf("%v: %d frames of deep, want %d; more: %v", c.args, n, c.want, more)
		}
	}
	if text := run(t, "stat", "--by", "stack", "--stack-depth", "300", "p leaf", "--", path).Stderr; !strings.Contains(text, "deep") || strings.Contains(text, "and more") {
		t.Error(text)
	}
	refused(t, run(t, "stat", "--stack-depth", "300", "p leaf", "--", path), "--stack-depth is for --by stack")
	for _, n := range []string{"0", "-1", "many", "70000"} {
		refused(t, run(t, "trace", "--stack-depth", n, "p leaf stack", "--", path), "a number from 1 to 65536 is wanted")
	}
}

// TestStackOfGoroutines holds that the function that a goroutine comes back to is no signal's.
func TestStackOfGoroutines(t *testing.T) {
	path := compiledSource(t, "go", "build", "guarded.go")
	all := stacksOf(run(t, "trace", "p guarded:main.handle stack", "--", path).Lines)
	for _, s := range all {
		if !strings.HasPrefix(s[len(s)-1], "runtime.goexit") {
			t.Errorf("%q", s)
		}
	}
	if len(all) == 0 {
		t.Error("no stacks")
	}
}
