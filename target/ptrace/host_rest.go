//go:build linux && (arm64 || ppc64le || riscv64 || s390x)

package ptrace

import "kprobe/internal/tracee"

// programsHere names the programs that run on this system.
func programsHere() string { return tracee.ProgramsOf }

// watchesHere is nothing here: whether these machines have watchpoints at all, the table of
// machines tells.
func watchesHere() error { return nil }
