//go:build linux && amd64

package ptrace

import (
	"kprobe/internal/tracee"
	"testing"

	"golang.org/x/sys/unix"
)

// A step is known for one whatever a hypervisor makes of its code, and nothing else is taken for
// one.
func TestForStep(t *testing.T) {
	for _, c := range []struct {
		name   string
		signo  unix.Signal
		code   int32
		before byte
		want   bool
	}{
		{"a step", unix.SIGTRAP, 2, 0x90, true},
		{"a step over int3's byte, jumped behind", unix.SIGTRAP, 2, 0xcc, true},
		{"a step into a handler", unix.SIGTRAP, 5, 0x90, true},
		{"a step without BS in DR6", unix.SIGTRAP, 1, 0x90, true},
		{"int1", unix.SIGTRAP, 1, 0xf1, false},
		{"int3", unix.SIGTRAP, tracee.SiKernel, 0xcc, false},
		{"a debug register", unix.SIGTRAP, tracee.TrapHWBkpt, 0x90, false},
		{"sent by kill", unix.SIGTRAP, 0, 0x90, false},
		{"sent by tgkill", unix.SIGTRAP, -6, 0x90, false},
		{"a fault", unix.SIGSEGV, 1, 0x90, false},
	} {
		s := tracee.Siginfo{Signo: int32(c.signo), Code: c.code}
		if got := s.ForStep(c.before); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
