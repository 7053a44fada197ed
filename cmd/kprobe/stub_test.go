package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// gdbserver attaches a gdbserver to a process, and gives its address.
func gdbserver(t *testing.T, pid int) (*testprog.Proc, string) {
	t.Helper()
	server := testprog.StartCmd(t, exec.Command("sh", "-c", fmt.Sprintf("exec gdbserver --once --attach 127.0.0.1:0 %d 2>&1", pid)))
	var port int
	for port == 0 {
		fmt.Sscanf(server.Line(), "Listening on port %d", &port)
	}
	return server, fmt.Sprintf("tcp:127.0.0.1:%d", port)
}

// A program behind gdbserver: its symbols, libraries too, are found through the
// stub, its children live, and it goes on when kprobe is done.
func TestStubGdbserver(t *testing.T) {
	p := testprog.Start(t, "/usr/bin/setsid", testprog.Build(t, "lives", "-O2", "-pthread")) // setsid: see gdbremote's quirks.go
	server, address := gdbserver(t, p.Pid)
	plan := run(t, "plan", "--stub", address, "p lives:live_work", "r lives:live_work", "p libc.so.6:getenv")
	for i, want := range []string{"lives:live_work  0x", "exits probed (behind a stub", "libc.so.6:getenv  0x"} {
		if len(plan.Lines) != 3 || !strings.Contains(plan.Lines[i], want) {
			t.Fatalf("plan: no %q in %s", want, plan)
		}
	}
	server.Result()

	_, address = gdbserver(t, p.Pid)
	k := testprog.StartCmd(t, tool(t, "trace", "--stub", address, "-n", "40", "p:in live_work n=%di:s32", "r:out live_work $retval:s32"))
	round := func(name, want string) {
		t.Helper()
		if got := p.Round(name); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Fatalf("%s: %q", name, got)
		}
	}
	// roundsUntil works until something else is over, which takes no part in it.
	roundsUntil := func(f func()) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		for {
			select {
			case <-done:
				return
			default:
				round("work 2", "worked 5")
			}
		}
	}
	roundsUntil(func() { k.Line() }) // an event: the probes are in place
	// Children of fork and vfork must not meet a breakpoint that nobody serves. They are
	// away again when kprobe leaves: gdbserver's interrupt is a SIGINT to them, too.
	for range 20 {
		round("children 2", "children 2")
		round("vfork_fails", "vfork_fails 3")
	}
	var r testprog.Result
	roundsUntil(func() { r = k.Result() })
	if len(r.Lines) != 40 || r.Status != 0 {
		t.Fatalf("trace: %d events, %s", len(r.Lines), r)
	}
	for i, e := range r.Lines {
		if want := []string{"in: (live_work+0x0/", "out: ("}[i%2]; !strings.Contains(e, want) || !strings.HasPrefix(strings.TrimSpace(e), "lives-") {
			t.Errorf("event %d: %q", i, e)
		}
	}
}

// What a stub has started waits for its probes: not even the first of its calls is missed.
func TestStubStarted(t *testing.T) {
	program := testprog.Build(t, "jumpers", "-O2", "-static", "-no-pie") // which ends with its input
	socket := filepath.Join(t.TempDir(), "s")
	for _, stub := range []struct{ command, address string }{
		{"exec gdbserver --once 127.0.0.1:0 " + program + " </dev/null 2>&1", ""},
		{"exec qemu-x86_64 -g " + socket + " " + program + " </dev/null", "unix:" + socket},
	} {
		server := testprog.StartCmd(t, exec.Command("sh", "-c", stub.command))
		for port := 0; stub.address == ""; {
			if fmt.Sscanf(server.Line(), "Listening on port %d", &port); port != 0 {
				stub.address = fmt.Sprintf("tcp:127.0.0.1:%d", port)
			}
		}
		if strings.HasPrefix(stub.address, "unix:") {
			testprog.Until(t, "the stub listens", server.Pid, func() bool { _, err := os.Stat(socket); return err == nil })
		}
		r := run(t, "trace", "--stub", stub.address, "p:began main")
		if len(r.Lines) != 1 || !strings.Contains(r.Lines[0], "began: (main+0x0/") || r.Status != 0 {
			t.Errorf("%s: %s", stub.command, r)
		}
	}
}

// A stub that dies ends the session with a reason.
func TestStubDies(t *testing.T) {
	program := testprog.Build(t, "jumpers", "-O2", "-static", "-no-pie") // which waits for its input
	socket := filepath.Join(t.TempDir(), "s")
	server := testprog.StartCmd(t, exec.Command("qemu-x86_64", "-g", socket, program))
	testprog.Until(t, "the stub listens", server.Pid, func() bool { _, err := os.Stat(socket); return err == nil })
	k := testprog.StartCmd(t, tool(t, "trace", "--stub", "unix:"+socket, "p:began main"))
	k.Line()
	server.Signal(syscall.SIGKILL)
	if r := k.Result(); !strings.Contains(r.Stderr, "the connection to its stub has ended") {
		t.Errorf("%s", r)
	}
}

func TestStubRefusals(t *testing.T) {
	for _, bad := range []struct {
		says string
		args []string
	}{
		{"either -p or -k or --stub", []string{"trace", "--stub", "unix:/none", "-p", "1", "p main"}},
		{"either -p or -k or --stub", []string{"plan", "--stub", "unix:/none", "-k", "unix:/none", "p main"}},
		{"connect", []string{"plan", "--stub", "unix:/none", "p main"}},
	} {
		refused(t, run(t, bad.args...), bad.says)
	}
}
