package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// Remains are the parts of a process that a session must leave alone, besides the text.
type Remains struct {
	pid  int
	code []string // executable mappings
}

// RemainsOf notes them before a session.
func RemainsOf(t testing.TB, pid int) Remains {
	t.Helper()
	ms, err := testprog.Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	r := Remains{pid: pid}
	for _, m := range ms {
		if m.Executable() {
			r.code = append(r.code, m.String())
		}
	}
	return r
}

// Check holds a program whose session is over to what it was before.
func (r Remains) Check(t testing.TB) {
	t.Helper()
	for _, m := range RemainsOf(t, r.pid).code {
		if !slices.Contains(r.code, m) {
			t.Errorf("left mapped: %s", m)
		}
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.pid))
	if err != nil || len(tasks) == 0 {
		t.Errorf("tasks of %d: %v, %v", r.pid, tasks, err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err == nil && !strings.Contains(string(status), "\nTracerPid:\t0\n") {
			t.Errorf("%s: still traced, or stopped", task)
		}
	}
	diffs, err := testprog.TextDiff(r.pid)
	if err != nil {
		t.Error(err)
	}
	for _, d := range diffs {
		t.Errorf("text differs: %s", d)
	}
}
