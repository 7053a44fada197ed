package testprog

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"kprobe/internal/patience"
)

// Before is how a process and its tracer-to-be were: what to hold them to when
// the tracer has let go.
type Before struct {
	pid        int
	code       []string // executable mappings
	action     string   // caught signals
	files      []string // the tracer's open files
	goroutines int
}

// Look takes note of a process that nobody has touched yet.
func Look(pid int) (*Before, error) {
	b := &Before{pid: pid, goroutines: runtime.NumGoroutine()}
	var err error
	if b.code, err = codeMappings(pid); err != nil {
		return nil, err
	}
	if b.files, err = openFiles(); err != nil {
		return nil, err
	}
	b.action, err = statusLine(fmt.Sprintf("/proc/%d", pid), "SigCgt")
	return b, err
}

// Left lists what the tracer has left behind: in the process, as LeftThere, and in itself, open files, goroutines,
// child processes. What only takes a moment to go is given one: a program with the race detector sleeps for a second
// before it ends, and a guardian without a process is kept for one. A look costs much, so that there are fewer of them by
// and by.
func (b *Before) Left() []string {
	return settled(func() []string { return append(b.there(), b.here()...) })
}

// LeftThere lists what is left in the process: changed text, memory with code in it, a signal action, a thread that
// is stopped or traced.
func (b *Before) LeftThere() []string { return settled(b.there) }

func settled(look func() []string) []string {
	patience := patience.Of(Here, 20*time.Second)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		left := look()
		if len(left) == 0 || patience.Spent() {
			return left
		}
		time.Sleep(pause)
	}
}

func (b *Before) there() []string {
	left, err := TextDiff(b.pid)
	if err != nil {
		return []string{err.Error()}
	}
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }

	code, _ := codeMappings(b.pid)
	for _, m := range code {
		if !slices.Contains(b.code, m) {
			add("left in the process: %s", m)
		}
	}
	if action, _ := statusLine(fmt.Sprintf("/proc/%d", b.pid), "SigCgt"); action != b.action {
		add("signals caught are %s, were %s", action, b.action)
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", b.pid))
	for _, task := range tasks {
		if tracer, _ := statusLine(task, "TracerPid"); tracer != "0" {
			add("%s is traced by %s", task, tracer)
		}
		if state, _ := statusLine(task, "State"); strings.HasPrefix(strings.ToLower(state), "t") {
			add("%s is in state %s", task, state)
		}
	}
	return left
}

func (b *Before) here() (left []string) {
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	files, _ := openFiles()
	kept := slices.ContainsFunc(b.files, isGuardian)
	for _, f := range files {
		switch {
		case slices.Contains(b.files, f):
		case isGuardian(f) && !kept:
			kept = true
		default:
			add("left open: %s", f)
		}
	}
	if n := runtime.NumGoroutine(); n > b.goroutines {
		stacks := make([]byte, 64<<10)
		add("%d goroutines, were %d:\n%s", n, b.goroutines, stacks[:runtime.Stack(stacks, true)])
	}
	for _, c := range children() {
		add("child process left: %s", c)
	}
	return left
}

// codeMappings lists the executable mappings of a process.
func codeMappings(pid int) ([]string, error) {
	ms, err := Mappings(pid)
	var out []string
	for _, m := range ms {
		if m.Executable() {
			out = append(out, m.String())
		}
	}
	return out, err
}

// openFiles lists this process's descriptors, "NUMBER WHAT". Those that the Go
// runtime opens when it first needs them are left out.
func openFiles() ([]string, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var out []string
	for _, n := range names {
		what, err := os.Readlink("/proc/self/fd/" + n)
		if err != nil || n == strconv.Itoa(int(dir.Fd())) || strings.HasPrefix(what, "anon_inode:[event") {
			continue
		}
		out = append(out, n+" "+what)
	}
	return out, err
}

// isGuardian tells of an open file whether it is the guardians' program. The first session makes it, for all later ones.
func isGuardian(file string) bool { return strings.Contains(file, "/memfd:kprobe-guardian") }

// children lists the child processes of this one by their command lines, other
// than those that run a program of this package (see StartCmd).
func children() []string {
	var out []string
	self := strconv.Itoa(os.Getpid())
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if parent, _ := statusLine(dir, "PPid"); parent != self {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		args := strings.Fields(strings.ReplaceAll(string(line), "\x00", " "))
		if len(args) > 0 && filepath.Base(args[0]) == "runner" {
			continue
		}
		out = append(out, fmt.Sprintf("%s %q", filepath.Base(dir), args))
	}
	return out
}

// statusLine reads one line of a task's status file.
func statusLine(dir, field string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", dir, field)
}
