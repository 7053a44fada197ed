package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// The command itself runs on another machine: its output and its exit status come back.
func TestVMExec(t *testing.T) {
	testprog.Long(t, "it boots a guest")
	there := filepath.Join(t.TempDir(), "a kprobe")
	build := exec.Command("go", "build", "-o", there, "kprobe/cmd/kprobe")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	p := testprog.StartCmd(t, tool(t, "vm", "--arch", "arm64", "--file", "/etc/it's=main.go", "--exec", there, "--", "trace", "-e", "/etc/it's"))
	p.Patience *= 20
	r := p.Result()
	if r.Status.ExitStatus() != 1 || len(r.Lines) == 0 || !strings.Contains(strings.Join(r.Lines, "\n"), "kprobe: ") || strings.Contains(r.String(), "no such file") {
		t.Errorf("an error's exit status is 1: %s", r)
	}
	if r := run(t, "vm", "stray"); r.Status.ExitStatus() != 1 || !strings.Contains(r.Stderr, "--exec") {
		t.Errorf("an argument for nobody: %s", r)
	}
}
