//go:build linux && (amd64 || arm64 || riscv64 || s390x)

package ptrace

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/faults"
	"kprobe/internal/testprog"
)

// A process about which nothing can be read for want of descriptors is not told to be gone.
func TestAttachWithoutFiles(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	pid := prog.Pid
	faults.Inject = func(c faults.Call) error {
		if c.Name == "open" || c.Name == "read" {
			return unix.EMFILE
		}
		return nil
	}
	p, err := Attach(pid)
	over, lives := isOver(pid), alive(pid, pid)
	faults.Inject = nil
	if err == nil {
		p.Close()
	}
	if !errors.Is(err, unix.EMFILE) || strings.Contains(err.Error(), "there is no process") {
		t.Errorf("attached: %v, want EMFILE", err)
	}
	if over || !lives {
		t.Errorf("it is over: %v, lives: %v", over, lives)
	}
	if isOver(os.Getpid()) || !isOver(1<<30) || alive(pid, 1<<30) {
		t.Error("what can be told is not told")
	}
}
