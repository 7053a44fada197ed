package main

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// A bpftrace user's first minute: a script on a command, a file with parameters, what is
// wrong shown with its place, and the binary under bpftrace's name.
func TestScript(t *testing.T) {
	text := `uprobe:jumpers:jumper { @[comm] = count(); } end { printf("over\n"); }`
	program := testprog.Build(t, "jumpers", "-O2")
	r := run(t, "script", "-e", text, "-c", program)
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.Contains(out, "over") {
		t.Errorf("%v", r)
	}
	// How the command ends is said where that is no success, and the exit status is the script's.
	for _, tt := range []struct {
		command, want string
		more          []string
	}{
		{"sh -c 'exit 3'", "Child exited with code: 3\n", nil},
		{"sh -c 'kill -9 $$'", "Child terminated by signal: 9\n", nil},
		{"true", "", nil},
		{"true", "Child exited with code: 0\n", []string{"-v"}},
	} {
		r = run(t, append([]string{"script", "-q", "-e", "interval:s:100 { }", "-c", tt.command}, tt.more...)...)
		if _, said, _ := strings.Cut(r.Stderr, "Child"); !r.OK() || strings.TrimSpace("Child"+said) != strings.TrimSpace(cmp.Or(tt.want, "Child")) {
			t.Errorf("%s: %v", tt.command, r)
		}
	}
	file := filepath.Join(t.TempDir(), "x.bt")
	if err := os.WriteFile(file, []byte(`begin { printf("%s %d\n", $1, getopt("n", 1)); exit(); }`), 0o644); err != nil {
		t.Fatal(err)
	}
	r = run(t, "script", file, "a", "--", "--n=5")
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.HasPrefix(out, "a 5\n") {
		t.Errorf("%v", r)
	}
	r = run(t, "script", "-e", "begin { $x = }")
	if r.OK() || !strings.Contains(r.Stderr, "stdin:1:14-15: ERROR: syntax error, unexpected }\nbegin { $x = }\n             ~") {
		t.Errorf("%v", r)
	}
	link := filepath.Join(t.TempDir(), "bpftrace")
	if err := os.Symlink(tool(t).Path, link); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(link, "-B", "none", "-q", "-e", "BEGIN { print(1); exit(); }").Output(); err != nil || string(out) != "1\n\n\n" {
		t.Errorf("%q, %v", out, err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-e", "begin { print(getopt(\"aa\")) }", "--", "--bb=1"}, "ERROR: Unexpected command line options: bb"},
		{[]string{"-p", "a1111", "x.bt"}, "ERROR: Failed to parse pid: pid 'a1111' is not a valid decimal number"},
		{[]string{"-p", "5000000", "x.bt"}, "ERROR: Failed to parse pid: pid '5000000' out of valid pid range [1,4194304]"},
		{[]string{"/no/such.bt"}, "ERROR: failed to open file '/no/such.bt': No such file or directory"},
		{[]string{"-f", "jsonx", "-e", "begin { }"}, `ERROR: Invalid output format "jsonx"`},
		{[]string{"--nonsense"}, "USAGE:"},
		{[]string{"-B", "half", "x.bt"}, "ERROR: USAGE: -B must be either 'line', 'full', or 'none'."},
		{[]string{"-d", "half", "-e", "begin { exit() }"}, "ERROR: USAGE: invalid option for -d: half"},
		{[]string{"--test", "--bench", "-e", "begin { }"}, "conflicts"},
		{[]string{"-k", "--no-warnings", "-e", "begin { }"}, "conflicts"},
		{[]string{"--mode", "half", "-e", "begin { }"}, "ERROR: USAGE: --mode can only be"},
		{[]string{"--emit-elf", "x", "-e", "begin { }"}, "are not there"},
		{[]string{"-c", "true", "-p", "1", "-e", "begin { }"}, "ERROR: USAGE: Cannot use both -c and -p."},
		{[]string{"-c", "./no-such-program x", "-e", "begin { }"}, "ERROR: path './no-such-program' does not exist or is not executable"},
		{[]string{"-l", "no-such.bt"}, "WARNING: It appears that 'no-such.bt' is a filename but the file does not exist. Treating 'no-such.bt' as a search pattern.\n"},
		{[]string{}, "ERROR: USAGE: filename or -e 'program' required."},
		{[]string{"-e", "self:foo { }"}, "ERROR: self probe type requires 2 arguments, found 1"},
		{[]string{"-e", "self:alarm:SIGUSR1 { }"}, "ERROR: alarm is not a supported trigger"},
		{[]string{"-e", "self:signal:SIGUSR2 { }"}, "ERROR: SIGUSR2 is not a supported signal"},
	} {
		out, err := exec.Command(link, tt.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: %s, %v", tt.args, out, err)
		}
	}
	if out, err := exec.Command(link, "--info").Output(); err != nil || !strings.Contains(string(out), "\n  send_signal: yes\n") || !strings.Contains(string(out), "\n  iter: no\n") {
		t.Errorf("%s, %v", out, err)
	}
	out, err := exec.Command(link, "-V").Output()
	if err != nil || !strings.HasPrefix(string(out), "bpftrace v") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := exec.Command(link, "-l", "interval:*").Output(); err != nil || !strings.Contains(string(out), "interval:ms:\n") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := exec.Command(link, "-l", "-e", "i:ms:7 { } begin { } profile:hz:99 { }").Output(); err != nil || string(out) != "interval:ms:\nbegin\nprofile:hz:\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := exec.Command(link, "--dry-run", "-e", "kprobe:vfs_read { @[comm] = count(); }").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
	for _, bad := range [][]string{{"script"}, {"script", "-e", text}, {"script", "-e", text, "-f", "xml"}, {"script", "-e", text, "-p", "1", "-c", "true"}, {"script", "/no/such"}, {"script", "-l", "nothing:*"}} {
		if r := run(t, bad...); r.OK() {
			t.Errorf("%q is not refused", bad)
		}
	}
}

// Test probes pass or fail by what they return, exit with or complain of; what passes says nothing. Bench probes
// are timed. Neither runs without being asked for, and nothing is attached where they are.
func TestScriptSuites(t *testing.T) {
	const text = `begin { printf("begin\n"); } test:fine { printf("hidden\n"); } test:bad { printf("shown\n"); return 1; }
		test:exits { exit(2); } test:complains { errorf("no good"); } bench:count { @ = count(); }
		uprobe:/no/such/file:f { } end { printf("end\n"); print(@); clear(@) }`
	r := run(t, "script", "--test", "-e", text)
	out := strings.Join(r.Lines, "\n")
	if r.OK() || strings.Contains(out, "hidden") || !strings.HasPrefix(out, "begin\n\033[32m[==========]\033[0m Running 4 tests.\n") ||
		!strings.Contains(out, "test:bad\nshown\n\033[31m[  FAILED  ]") || !strings.Contains(out, "test:complains\nstdin:2:44-61: ERROR: no good\n") ||
		!strings.Contains(out, "\033[32m[  PASSED  ]\033[0m 1 test.\n\033[31m[  FAILED  ]\033[0m 3 tests, listed below:\n\033[31m[  FAILED  ]\033[0m test:bad\n") ||
		!strings.Contains(out, "\nend\n") {
		t.Errorf("%v", r)
	}
	r = run(t, "script", "--test", "--probe-filter", "fine", "-e", text)
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.Contains(out, "Running 1 tests.") {
		t.Errorf("%v", r)
	}
	r = run(t, "script", "--bench", "-f", "json", "-e", text)
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.Contains(out, `{"type": "benchmark_result", "data": {"count": {"average": `) || strings.Contains(out, "attached_probes") || strings.Contains(out, "hidden") {
		t.Errorf("%v", r)
	}
	r = run(t, "script", "--test", "-f", "json", "--probe-filter", "bad", "-e", text)
	if out := strings.Join(r.Lines, "\n"); r.OK() || !strings.Contains(out, `, "passed": false, "output": "shown\n"}}}`) {
		t.Errorf("%v", r)
	}
	r = run(t, "script", "-e", `begin { printf("begin\n"); } test:bad { return 1; } bench:x { @ = count(); }`)
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.HasPrefix(out, "begin\n\n") || !strings.Contains(r.Stderr, "Attached 1 probe\n") {
		t.Errorf("%v", r)
	}
}

// Scripts that are about a kernel have the one that the environment names, where they name none; others do not look for it.
func TestKernelOfTheEnvironment(t *testing.T) {
	place := "unix:" + filepath.Join(t.TempDir(), "none")
	t.Setenv("KPROBE_KERNEL", place)
	for _, args := range [][]string{{"-e", "kprobe:f { }"}, {"-l", "kprobe:f*"}} {
		if r := run(t, append([]string{"script"}, args...)...); r.OK() || !strings.Contains(r.Stderr, place[5:]) {
			t.Errorf("%q: %v", args, r)
		}
	}
	for _, args := range [][]string{{"-e", "begin { exit() }"}, {"-e", "kprobe:f { }", "--help"}, {"-l", "interval:*"}} {
		if r := run(t, append([]string{"script"}, args...)...); !r.OK() {
			t.Errorf("%q: %v", args, r)
		}
	}
}

// --probe-filter lets some probes through: of patterns those functions, and what is the script's own always. --help tells of a script's
// options, unless the script has one of that name.
func TestScriptFilterAndHelp(t *testing.T) {
	for _, tt := range []struct {
		args []string
		ok   bool
		out  string
		told string
	}{
		{[]string{"--probe-filter", ":200", "-e", `begin { printf("b ") } i:ms:100 { printf("1"); exit() } i:ms:150,i:ms:200 { printf("2"); exit() }`}, true, "b 2", "Attached 2 probes"},
		{[]string{"--probe-filter", ":3", "-e", `begin { printf("b") } i:ms:100 { exit() }`}, false, "", "No probes to attach: the filter lets none through"},
		{[]string{"--probe-filter", "getgid$", "-q", "-c", "id -g", "-o", "/dev/null", "-e", `uprobe:libc.so.6:get*id,uprobe:libc.so.6:getuid { errorf("%s", func) } interval:s:1000 { }`}, true, "0", "ERROR: getgid"},
		{[]string{"-e", `begin { print((getopt("n", 10), getopt("b"), getopt("s", "x y", "a text"))) }`, "--", "--help"}, true,
			"OPTIONS:\n    --b=false\n    --n=10\n    --s=\"x y\"                a text", ""},
		{[]string{"-q", "-e", `begin { print(getopt("help")) }`, "--", "--help"}, true, "true", ""},
	} {
		r := run(t, append([]string{"script"}, tt.args...)...)
		if got := strings.Trim(strings.Join(r.Lines, "\n"), "\n"); r.OK() != tt.ok || tt.out != "0" && got != tt.out || !strings.Contains(r.Stderr, tt.told) || strings.Contains(r.Stderr, "ERROR: getuid") {
			t.Errorf("%q: %v prints %q and tells %q", tt.args, r.OK(), got, r.Stderr)
		}
	}
}

// SIGUSR1 runs the self probes; a script that has some goes on.
func TestScriptSelf(t *testing.T) {
	c := exec.Command(tool(t).Path, "script", "-e", `begin { printf("up\n"); } self:signal:SIGUSR1 { printf("told\n"); exit(); }`)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	if err := c.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if lines.Scan(); lines.Text() != "told" {
		t.Errorf("prints %q", lines.Text())
	}
	for lines.Scan() {
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// -k tells of reads that fail and of keys that are not there, each at its place.
func TestScriptWarnings(t *testing.T) {
	r := run(t, "script", "--warnings", "-e", `begin { print(*(uint64 *)0x10); print(@a[1]); @a[2] = 1; }`)
	for _, want := range []string{"stdin:1:15-30: WARNING: Bad address\nAdditional Info - helper: probe_read_user, retcode: -14\n",
		"stdin:1:39-44: WARNING: Can't lookup map element because it does not exist.\nAdditional Info - helper: map_lookup_elem, retcode: 0\n"} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("%q is not in %v", want, r)
		}
	}
}
