package main

import (
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// What it prints of a program that it starts, and of one that runs already.
func TestExample(t *testing.T) {
	example := testprog.Command(t, "kprobe/examples/kretprobe_example")
	want := regexp.MustCompile(`^Planted return probe at write: 0x[0-9a-f]+\nwrite returned 6 and took [1-9][0-9]* ns to execute\nkretprobe at 0x[0-9a-f]+ unregistered\nMissed probing 0 instances of write\n$`)

	var out strings.Builder
	cmd := exec.Command(example, "--", "/bin/echo", "hello")
	cmd.Stderr = &out
	stdout, err := cmd.Output()
	if err != nil || string(stdout) != "hello\n" {
		t.Fatalf("%v, the program printed %q\n%s", err, stdout, &out)
	}
	if !want.MatchString(out.String()) {
		t.Errorf("printed\n%s", &out)
	}

	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	started := make(started, 1)
	out.Reset()
	cmd = exec.Command(example, "-p", strconv.Itoa(p.Pid), "-func", "libc.so.6:write")
	cmd.Stderr = io.MultiWriter(&out, started)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testprog.Receive(t, "the example says something", cmd.Process.Pid, started)
	// What a write has written can be read before the write returns: the second
	// round shows that the first one's has.
	p.Round("3")
	p.Round("3")
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if got := out.String(); strings.Count(got, "unregistered") != 1 || !strings.Contains(got, "libc.so.6:write returned ") || !strings.Contains(got, "Missed probing 0 instances of libc.so.6:write") {
		t.Errorf("printed\n%s", got)
	}
	if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) != 0 {
		t.Errorf("text differs afterwards: %q, %v", diffs, err)
	}
	p.Round("3")

	cmd = exec.Command(example, "-func", "no_such_function", "-p", strconv.Itoa(p.Pid))
	if msg, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(msg), "no_such_function") {
		t.Errorf("an unknown function: %v, %q", err, msg)
	}
	if r := p.Result(); !r.OK() {
		t.Error(r)
	}
}

// started tells that something was printed.
type started chan bool

func (s started) Write(b []byte) (int, error) {
	select {
	case s <- true:
	default:
	}
	return len(b), nil
}
