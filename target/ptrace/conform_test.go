//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace_test

import (
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/target/targettest"
)

func TestConformance(t *testing.T) {
	targettest.Run(t, func(t *testing.T) targettest.Subject {
		program := testprog.Build(t, "jumpers", "-O2", "-static", "-no-pie")
		p := testprog.Start(t, program)
		target, err := ptrace.Attach(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		code, data := targettest.Program(t, program, "jumper", "command")
		return targettest.Subject{Target: target, Code: code, Data: data + 128, Bad: 0x1000,
			Poke: func() error { p.Round("1"); return nil },
			Kill: func() { p.Signal(syscall.SIGKILL) }}
	})
}
