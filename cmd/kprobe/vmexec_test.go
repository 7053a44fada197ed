package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	p.Patience = 20 * time.Minute
	r := p.Result()
	if r.Status.ExitStatus() != 1 || len(r.Lines) == 0 || !strings.Contains(strings.Join(r.Lines, "\n"), "kprobe: ") || strings.Contains(r.String(), "no such file") {
		t.Errorf("an error's exit status is 1: %s", r)
	}
	if r := run(t, "vm", "stray"); r.Status.ExitStatus() != 1 || !strings.Contains(r.Stderr, "--exec") {
		t.Errorf("an argument for nobody: %s", r)
	}
}

func TestVMFetch(t *testing.T) {
	r := run(t, "vm", "--fetch")
	if len(r.Lines) != 1 || !r.OK() {
		t.Fatal(r)
	}
	release, dir, _ := strings.Cut(r.Lines[0], " ")
	if _, err := os.Stat(filepath.Join(dir, "boot", "vmlinuz-"+release)); err != nil {
		t.Error(err)
	}
	refused(t, run(t, "vm", "--fetch", "--exec", "true"), "if any flags in the group [fetch exec] are set none of the others can be; [exec fetch] were all set")
	refused(t, run(t, "vm", "--fetch", "--kernel", "new"), `"new" is no kernel's version, such as 6.12 or 6.12.43+deb13-cloud-amd64`)
}
