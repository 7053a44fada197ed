package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// A verb that may have only few files open says so, wherever it comes to that, and not that there is no process.
func TestFewFiles(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	pid := strconv.Itoa(p.Pid)
	failed := 0
	for n := 10; ; n += 4 {
		k := tool(t, "stat", "-d", "1ms", "-p", pid, "p jumper")
		limited := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, n), "sh"}, k.Args...)...)
		limited.Env = k.Env
		r := testprog.StartCmd(t, limited).Result()
		if r.OK() && failed > 0 {
			break
		}
		failed++
		if n > 100 || !strings.Contains(r.Stderr, "too many open files") || strings.Contains(r.Stderr, "there is no process") {
			t.Fatalf("with %d files: %s", n, r)
		}
		checkUntouched(t, p.Pid)
	}
}
