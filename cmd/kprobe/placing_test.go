package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/proc"
	"kprobe/internal/testprog"
)

// A signal that comes while probes are being planned is heard then, by every verb that places some, and not when all is planned. The
// process is as it was.
func TestSignalsWhilePlanning(t *testing.T) {
	path := testprog.Build(t, "manyfns", "-O2")
	p, other := testprog.Start(t, path), testprog.Start(t, path)
	want := p.Round("1")[0]
	pid := strconv.Itoa(p.Pid)
	object := compiled(t, strings.ReplaceAll(runProgram, "jumpers:jumper", "manyfns:main"))
	rec := filepath.Join(t.TempDir(), "rec")
	const every = "manyfns:many_*"
	script := "uprobe:" + path + ":many_* { @ = count() }"
	for _, args := range [][]string{
		{"stat", "-p", pid, "p " + every, "r " + every},
		{"stat", "--by", "stack", "-p", pid, "p " + every},
		{"trace", "-p", pid, "r " + every},
		{"trace", "-f", "-p", pid, "p " + every},
		{"graph", "-p", pid, every},
		{"record", "-o", rec, "-p", pid, "p " + every},
		{"top", "-p", pid, every},
		{"run", "-p", pid, object},
		{"script", "-p", pid, "-e", script},
		{"script", "-p", fmt.Sprintf("%d,%d", p.Pid, other.Pid), "-e", script},
		{"stat", "p " + every, "--", path},
		{"trace", "r " + every, "--", path},
		{"script", "-c", path, "-e", script},
		{"plan", "p " + every, "--", path},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			sig := syscall.SIGTERM
			if args[0] == "trace" {
				sig = syscall.SIGINT
			}
			r := interrupted(t, sig, args...)
			until := "the probes were in place"
			if args[0] == "plan" {
				until = "the plan was whole"
			}
			several := strings.Contains(strings.Join(args, " "), ",") // an end like another: each process joins by itself
			if status := r.Status.ExitStatus(); !several && (status != 128+int(sig) || !strings.Contains(r.Stderr, "interrupted before "+until)) {
				t.Errorf("%s", r)
			}
			if several && !r.OK() || !several && strings.Contains(strings.TrimSpace(r.Stderr), "\n") {
				t.Errorf("%s", r)
			}
			for _, p := range []*testprog.Proc{p, other} {
				checkUntouched(t, p.Pid)
				if got := p.Round("1")[0]; got != want {
					t.Errorf("it says %q afterwards, and before it said %q", got, want)
				}
			}
			if _, err := os.Stat(rec); err == nil {
				t.Error("a record of nothing is left")
			}
		})
	}
}

// interrupted sends a verb a signal when it holds a process and has placed no probe yet, and answers how the verb ends.
func interrupted(t *testing.T, sig syscall.Signal, args ...string) testprog.Result {
	t.Helper()
	const tries = 5
	for range tries {
		k := testprog.StartCmd(t, tool(t, args...))
		pid := 0
		testprog.Until(t, "a process is taken hold of", k.Pid, func() bool {
			pid = heldBy(k.Pid, args)
			return pid != 0 || !k.Alive()
		})
		k.Signal(syscall.SIGSTOP)
		testprog.AllIn(t, k.Pid, "Tt")
		late := pid == 0 || probed(t, pid)
		k.Signal(sig) // it waits while kprobe stands
		k.Signal(syscall.SIGCONT)
		if r := k.Result(); !late {
			return r
		}
	}
	t.Fatalf("%d times its probes are there before it can be stopped", tries)
	return testprog.Result{}
}

// heldBy is a process that a controller traces: one that it was told of, or a child. 0: none yet.
func heldBy(controller int, args []string) int {
	var pids []string
	if i := slices.Index(args, "-p"); i >= 0 {
		pids = strings.Split(args[i+1], ",")
	} else {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", controller)) // the pattern is right
		for _, task := range tasks {
			list, _ := os.ReadFile(task) // the thread may be over
			pids = append(pids, strings.Fields(string(list))...)
		}
	}
	for _, p := range pids {
		tracer, err := proc.Thread(atoi(p)).Status("TracerPid")
		if err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%s", controller, tracer)); err == nil && tracer != "0" {
			return atoi(p)
		}
	}
	return 0
}
