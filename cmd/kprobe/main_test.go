package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
)

// tool is a command line of the built program.
func tool(t testing.TB, args ...string) *exec.Cmd {
	return exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), args...)
}

// run runs kprobe to its end.
func run(t testing.TB, args ...string) testprog.Result {
	t.Helper()
	p := testprog.StartCmd(t, tool(t, args...))
	return p.Result()
}

// started runs kprobe until its probes are in place, in every one of pids.
func started(t testing.TB, cmd *exec.Cmd, pids ...int) *testprog.Proc {
	t.Helper()
	k := testprog.StartCmd(t, cmd)
	for _, pid := range pids {
		testprog.Until(t, "probes are listed", k.Pid, func() bool {
			if !k.Alive() {
				t.Fatalf("it ended before that: %s", k.Result())
			}
			return probed(t, pid)
		})
	}
	return k
}

// inLibc names a function of libc's by its offset in the file: by its own name all of libc's debug data are read, for which a
// kprobe takes longer than for the rest of its work.
func inLibc(t testing.TB, function string) string {
	t.Helper()
	path, err := libcPath()
	if err != nil {
		t.Fatal(err)
	}
	return "libc.so.6:" + offsetOf(t, strings.TrimSpace(string(path)), function)
}

var libcPath = sync.OnceValues(exec.Command("gcc", "-print-file-name=libc.so.6").Output)

// awaitProbes waits until some kprobe lists probes on a process.
func awaitProbes(t testing.TB, pid int) {
	t.Helper()
	testprog.Until(t, "probes are listed", pid, func() bool { return probed(t, pid) })
}

func probed(t testing.TB, pid int) bool {
	t.Helper()
	states, err := kprobe.Sessions(pid)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(states, func(s kprobe.SessionState) bool { return s.List != "" })
}

// awaitRound has a program run one round after the other until one prints a line.
func awaitRound(t testing.TB, p *testprog.Proc, round, line string) {
	t.Helper()
	testprog.Until(t, fmt.Sprintf("a round prints %q", line), p.Pid, func() bool { return slices.Contains(p.Round(round), line) })
}

// checkUntouched holds a process to being as if nobody had ever come.
func checkUntouched(t testing.TB, pid int) {
	t.Helper()
	diffs, err := testprog.TextDiff(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range diffs {
		t.Errorf("text differs: %s", d)
	}
	if tracer := statusField(t, pid, "TracerPid"); tracer != "0" {
		t.Errorf("process %d is traced by %s", pid, tracer)
	}
}

// refused holds a result to one line of complaint, and nothing else but the
// caret below a definition.
func refused(t testing.TB, r testprog.Result, says string) {
	t.Helper()
	first, rest, _ := strings.Cut(r.Stderr, "\n")
	if !strings.HasPrefix(first, "kprobe: ") || !strings.Contains(first, says) {
		t.Errorf("it says %q, and not %q", r.Stderr, says)
	}
	if rest != "" && !strings.HasSuffix(rest, "^\n") {
		t.Errorf("more than one line: %q", r.Stderr)
	}
	if r.Status.ExitStatus() != 1 {
		t.Errorf("exit status %d", r.Status.ExitStatus())
	}
}

// Whatever is wrong gets one line, and no process is touched.
func TestBadInput(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	pid := fmt.Sprint(p.Pid)
	for _, tt := range []struct {
		says string
		args []string
	}{
		{`no command "frob"`, []string{"frob"}},
		{"did you mean trace?", []string{"trac"}},
		{`no command "frob"`, []string{"help", "frob"}},
		{`"frob"`, []string{"completion", "frob"}},
		{"which shell", []string{"completion"}},
		{"--nope", []string{"trace", "--nope"}},
		{"--pi", []string{"trace", "--pi", pid, "p jumper"}},
		{"no process given", []string{"trace", "p jumper"}},
		{"no process given", []string{"trace"}},
		{"no process given", []string{"plan", "p jumper"}},
		{"needs an argument", []string{"list", "-p"}},
		{"does the program run?", []string{"trace", "-p", "p jumper"}},
		{"does the program run?", []string{"trace", "-p", "", "p jumper"}},
		{"does the program run?", []string{"trace", "-p", "-1", "p jumper"}},
		{"does the program run?", []string{"trace", "-p", "99999999999999999999", "p jumper"}},
		{"goes with -p", []string{"list", pid}},
		{"no process id", []string{"list", "-p", pid, "jumper"}},
		{"no process 4194305", []string{"trace", "-p", "4194305", "p jumper"}},
		{"no process 4194305", []string{"plan", "-p", "4194305", "p jumper"}},
		{"no process 4194305", []string{"list", "-p", "4194305"}},
		{"no process 4194305", []string{"blacklist", "-p", "4194305"}},
		{"no definition", []string{"trace", "-p", pid}},
		{"no definition", []string{"trace", "-p", pid, " ", "# p jumper"}},
		{"no definition", []string{"trace", "--", "true"}},
		{"no program", []string{"trace", "p jumper", "--"}},
		{"either -p, -k, --stub or a program", []string{"trace", "-p", pid, "p jumper", "--", "true"}},
		{"nosuchprogram", []string{"trace", "p libc:getenv", "--", "nosuchprogram"}},
		{"at least 1", []string{"trace", "-p", pid, "-n", "0", "p jumper"}},
		{"invalid argument", []string{"trace", "-p", pid, "-n", "many", "p jumper"}},
		{"more than 0", []string{"trace", "-p", pid, "-d", "-1s", "p jumper"}},
		{"invalid argument", []string{"trace", "-p", pid, "-d", "10", "p jumper"}},
		{"nosuchfile", []string{"trace", "-p", pid, "-e", "nosuchfile"}},
		{"nosuchdir", []string{"trace", "-p", pid, "-o", "nosuchdir/x", "p jumper"}},
		{"one ELF file", []string{"insns"}},
		{"one ELF file", []string{"insns", "a", "b"}},
		{"nosuchfile", []string{"insns", "nosuchfile"}},
		{"main_test.go", []string{"insns", "main_test.go"}},
		{"no hexadecimal address", []string{"insns", "--points", "/proc/self/exe"}},
	} {
		k := testprog.StartCmd(t, tool(t, tt.args...))
		if slices.Contains(tt.args, "--points") {
			k.Send("zz")
		}
		r := k.Result()
		refused(t, r, tt.says)
		if len(r.Lines) > 0 {
			t.Errorf("%q prints %q", tt.args, r.Lines)
		}
		if t.Failed() {
			t.Fatalf("%q", tt.args)
		}
	}
	checkUntouched(t, p.Pid)
}

// The first line is complete by itself; the caret is where it says.
func TestBadDefinitions(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	for _, tt := range []struct{ def, code, at string }{
		{"p jumper %zz", "BAD_REG_NAME", "%zz"},
		{"p:1 jumper", "BAD_EVENT_NAME", "1"},
		{"x jumper", "BAD_COMMAND", "x"},
		{"p jumpers:nosuch", "BAD_PROBE_ADDR", "jumpers:nosuch"},
		{"p jumper+1", "BAD_INSN_BNDRY", "jumper+1"},
		{"p jumper $retval", "RETVAL_ON_PROBE", "$retval"},
		{"r jumper+4", "BAD_RETPROBE", "jumper+4"},
		{"r " + inLibc(t, "_setjmp"), "FAIL_REG_PROBE", inLibc(t, "_setjmp")},
		{"p jumper ö=%di ä=%zz", "", ""},
		{"p jumper a=%di:u65", "BAD_TYPE", "u65"},
		{"p jumper s=@nosuchvariable", "BAD_PROBE_ADDR", "jumper"},
	} {
		t.Run(tt.def, func(t *testing.T) {
			// A good definition beside the bad one must not stay either.
			r := run(t, "trace", "-p", fmt.Sprint(p.Pid), "p:good jumper", tt.def)
			refused(t, r, tt.code)
			lines := strings.Split(r.Stderr, "\n")
			if len(lines) != 4 {
				t.Fatalf("%q", r.Stderr)
			}
			shown, caret := []rune(lines[1]), len([]rune(lines[2]))-1
			if strings.TrimSpace(lines[1]) != tt.def {
				t.Errorf("it shows %q", lines[1])
			}
			if tt.at != "" && !strings.HasPrefix(string(shown[min(caret, len(shown)):]), tt.at) {
				t.Errorf("the caret is not at %q:\n%s", tt.at, r.Stderr)
			}
			checkUntouched(t, p.Pid)
		})
	}
	if got := p.Round("10"); !strings.HasPrefix(got[0], "jumper 10 ") {
		t.Errorf("%q", got)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if r := run(t, "version"); !r.OK() || len(r.Lines) != 1 || !strings.HasPrefix(r.Lines[0], "kprobe ") {
		t.Errorf("%v", r)
	}
	for _, args := range [][]string{{"--help"}, {"help"}, {"help", "trace"}, {"trace", "--help"}, {"completion", "bash"}} {
		if r := run(t, args...); !r.OK() || len(r.Lines) < 10 || r.Stderr != "" {
			t.Errorf("%q: %v", args, r)
		}
	}
}

// One thing is told once, until it is long past.
func TestReportsOnce(t *testing.T) {
	var l lately
	for i, want := range []bool{true, false, false} {
		if got := l.first("gone"); got != want {
			t.Errorf("%d: %v", i, got)
		}
	}
	for i := range 100 {
		if !l.first(fmt.Sprint(i)) {
			t.Errorf("%d was told", i)
		}
	}
	if !l.first("gone") || len(l.texts) > 64 {
		t.Errorf("%d texts are kept", len(l.texts))
	}
}
