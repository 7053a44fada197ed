//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace_test

import (
	"errors"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// A process that ends has no memory from some moment on, though it is still there. A read or write
// then answers that it has ended, and not a file's end.
func TestMemoryOfAnEndedProcess(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	p, err := ptrace.Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	at := maps[0].Start
	b := make([]byte, 8)
	if err := p.ReadAt(at, b); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(prog.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"read":  func() error { return p.ReadAt(at, make([]byte, len(b))) },
		"write": func() error { return p.WriteAt(at, b) },
	} {
		var err error
		testprog.Until(t, what+" fails", prog.Pid, func() bool { err = do(); return err != nil })
		if !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
