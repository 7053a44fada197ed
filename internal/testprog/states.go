package testprog

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/proc"
)

// AllIn waits until every thread of a process is in one of states, each a letter of /proc: "S" sleeps, "T" is stopped,
// "Z" has ended.
func AllIn(t testing.TB, pid int, states string) {
	t.Helper()
	Until(t, fmt.Sprintf("all threads of process %d are in a state of %q", pid, states), pid, func() bool {
		tids, err := proc.Process(pid).Threads()
		for _, tid := range tids {
			stat := proc.Thread(tid).Stat()
			if len(stat) == 0 || !strings.Contains(states, stat[0]) {
				return false
			}
		}
		return err == nil
	})
}

// Executed waits until a process runs a program, which has its path or is found as a shell finds it, and no longer what
// started it.
func Executed(t testing.TB, pid int, program string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	Until(t, fmt.Sprintf("process %d executes %s", pid, path), pid, func() bool {
		exe, err := proc.Process(pid).Readlink("exe")
		return err == nil && exe == path
	})
}

// States tells what each thread of a process and of its children does, a line for each.
func States(pid int) string {
	var b strings.Builder
	tids, _ := proc.Process(pid).Threads()
	for _, tid := range tids {
		read := func(name string) []byte {
			b, _ := os.ReadFile(proc.Process(pid).ThreadFile(tid, name))
			return b
		}
		status := read("status")
		for line := range strings.Lines(string(status)) {
			if key, _, _ := strings.Cut(line, ":"); key == "State" || key == "TracerPid" || key == "Pid" || key == "SigBlk" {
				b.WriteString(strings.ReplaceAll(line, "\n", " "))
			}
		}
		fmt.Fprintf(&b, "syscall: %s in %s\n", bytes.TrimSpace(read("syscall")), read("wchan"))
		for _, child := range proc.Process(pid).Children(tid) {
			b.WriteString(States(child))
		}
	}
	return b.String()
}
